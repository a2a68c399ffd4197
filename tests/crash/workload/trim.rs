//! Trimming: all free space of a vdev on request, step by step beside everything else, or freed space automatically.
//! Trimmed space reads as zeros afterwards, or as before.

use pool::{
    error::{Error, ErrorKind},
    space::{TrimCursor, Trimmed},
    units::VdevId,
};

use super::{Life, devices::Operated};
use crate::world::Outcome;

/// The approximate number of bytes to trim in a step.
const STEP: u64 = 8 << 20;

/// A trim under way: the vdev, and the position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimming {
    vdev: VdevId,
    from: TrimCursor,
}

impl Life {
    /// Starts to trim the free space of a vdev.
    pub(super) fn begin_to_trim(&mut self) -> Operated {
        let vdevs = self.world.engine().storage().vdevs.all();
        let there: Vec<VdevId> = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect();
        let Some(vdev) = self.pick(&there) else { return Ok(None) };
        self.trimming = Some(Trimming { vdev, from: TrimCursor::default() });
        self.trim()?;
        Ok(Some(("trim", format!("vdev {vdev}"))))
    }

    /// Continues the trim, and trims freed space if this life has autotrim.
    pub(super) fn trim(&mut self) -> Outcome<()> {
        let pool = self.world.pool.clone();
        if let Some(trimming) = self.trimming.take() {
            let done = pool.trim(trimming.vdev, trimming.from, STEP);
            match self.trimmed(done)?.next {
                Some(from) => self.trimming = Some(Trimming { from, ..trimming }),
                None => *self.done.entry("trimmed").or_default() += 1,
            }
        }
        if self.layout.is_trimmed {
            let done = pool.trim_fresh(TrimCursor::default(), u64::MAX);
            if self.trimmed(done)?.bytes > 0 {
                *self.done.entry("trimmed as it comes").or_default() += 1;
            }
        }
        Ok(())
    }

    /// A device that refuses a trim keeps its data, with no other effect.
    fn trimmed(&self, done: Result<Trimmed, Error>) -> Outcome<Trimmed> {
        match done {
            Err(error) if error.kind() == ErrorKind::Device => Ok(Trimmed::default()),
            done => self.expect("trim", done),
        }
    }
}
