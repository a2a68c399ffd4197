//! Devices are told which space nobody needs: all of a vdev when somebody asks for it, step by step beside all else, or what has
//! become free as it comes. Whatever they are told of is zeros from then on, or what it was.

use pool::{
    error::{Error, ErrorKind},
    space::{TrimCursor, Trimmed},
    units::VdevId,
};

use super::{Life, devices::Told};
use crate::world::Outcome;

/// About so many bytes are told of in a step.
const STEP: u64 = 8 << 20;

/// Free space of a vdev that is told of, from where on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimming {
    vdev: VdevId,
    from: TrimCursor,
}

impl Life {
    /// Begins to tell the devices of a vdev what is free there.
    pub(super) fn begin_to_trim(&mut self) -> Told {
        let vdevs = self.world.engine().storage().vdevs.all();
        let there: Vec<VdevId> = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect();
        let Some(vdev) = self.pick(&there) else { return Ok(None) };
        self.trimming = Some(Trimming { vdev, from: TrimCursor::default() });
        self.trim()?;
        Ok(Some(("trim", format!("vdev {vdev}"))))
    }

    /// Goes on with it, and tells of what has become free, if this life has that.
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

    /// A device that refuses it keeps what it has, and that is all.
    fn trimmed(&self, done: Result<Trimmed, Error>) -> Outcome<Trimmed> {
        match done {
            Err(error) if error.kind() == ErrorKind::Device => Ok(Trimmed::default()),
            done => self.expect("trim", done),
        }
    }
}
