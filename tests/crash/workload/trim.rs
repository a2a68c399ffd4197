//! Trimming and initializing: all free space of a vdev on request, step by step beside everything else; freed space is
//! trimmed automatically too.
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

/// A trim or an initialization under way: the vdev, and the position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimming {
    vdev: VdevId,
    from: TrimCursor,
    is_initialization: bool,
}

impl Life {
    /// Starts to trim or to initialize the free space of a vdev.
    pub(super) fn begin_to_trim(&mut self) -> Operated {
        let vdevs = self.world.engine().storage().vdevs.all();
        let there: Vec<VdevId> = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect();
        let Some(vdev) = self.pick(&there) else { return Ok(None) };
        let is_initialization = self.seen_to.is_multiple_of(2);
        self.trimming = Some(Trimming { vdev, from: TrimCursor::default(), is_initialization });
        self.trim()?;
        Ok(Some((if is_initialization { "initialize" } else { "trim" }, format!("vdev {vdev}"))))
    }

    /// Continues the trim, and trims freed space if this life has autotrim.
    pub(super) fn trim(&mut self) -> Outcome<()> {
        let pool = self.world.pool.clone();
        if let Some(trimming) = self.trimming.take() {
            let done = match trimming.is_initialization {
                true => pool.initialize(trimming.vdev, trimming.from, STEP),
                false => pool.trim(trimming.vdev, trimming.from, STEP),
            };
            match self.trimmed(done)?.next {
                Some(from) => self.trimming = Some(Trimming { from, ..trimming }),
                None => {
                    let what = if trimming.is_initialization { "initialized" } else { "trimmed" };
                    *self.done.entry(what).or_default() += 1;
                }
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

    /// A device that refuses keeps its data, with no other effect.
    fn trimmed(&self, done: Result<Trimmed, Error>) -> Outcome<Trimmed> {
        match done {
            Err(error) if error.kind() == ErrorKind::Device => Ok(Trimmed::default()),
            done => self.expect("trim", done),
        }
    }
}
