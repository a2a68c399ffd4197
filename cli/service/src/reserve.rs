//! Descriptors that a service keeps for an emergency: when it has no others left, a command can still reach it, and export
//! the pool.
//!
//! They are open for nothing. When accepting a connection fails for want of a descriptor they are closed, so that this
//! connection and what it asks for have them. They are opened again when no call is under way.

use std::{fs::File, io};

use rustix::io::Errno;

/// How many. A connection takes one, and an export a few for a moment.
const COUNT: usize = 32;

/// What a descriptor is open for while it is kept.
const NOTHING: &str = "/dev/null";

/// The descriptors that are kept.
#[derive(Debug, Default)]
pub(super) struct Reserve(Vec<File>);

impl Reserve {
    /// Keeps as many as there are to be had.
    pub(super) fn fill(&mut self) {
        while self.0.len() < COUNT {
            let Ok(file) = File::open(NOTHING) else { return };
            self.0.push(file);
        }
    }

    /// Whether all are there.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= COUNT
    }

    /// Gives them up if `error` says that there are no others; whether it did.
    pub(super) fn yield_to(&mut self, error: &io::Error) -> bool {
        let is_want = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        let has_some = !self.0.is_empty();
        if is_want {
            self.0.clear();
        }
        is_want && has_some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_given_up_only_where_there_are_no_others() {
        let mut reserve = Reserve::default();
        reserve.fill();
        assert!(reserve.is_full());
        assert!(!reserve.yield_to(&io::ErrorKind::ConnectionAborted.into()) && reserve.is_full());
        assert!(reserve.yield_to(&Errno::MFILE.into()) && !reserve.is_full());
        assert!(!reserve.yield_to(&Errno::MFILE.into()), "there are none left to give up");
    }
}
