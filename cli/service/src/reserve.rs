//! File descriptors reserved for an emergency: after a service has run out of descriptors, a command can still
//! connect and export the pool.
//!
//! The reserved descriptors refer to `/dev/null`. When accepting a connection fails for lack of descriptors, the
//! reserve is closed, which leaves room for the connection and its request. The reserve is refilled when no
//! connection is left.

use std::{fs::File, io};

use rustix::io::Errno;

/// Size of the reserve. A connection takes one descriptor, and an export briefly takes a few.
const COUNT: usize = 32;

/// The file opened by reserved descriptors.
const NOTHING: &str = "/dev/null";

/// The reserved descriptors.
#[derive(Debug, Default)]
pub(super) struct Reserve(Vec<File>);

impl Reserve {
    /// Opens descriptors until the reserve is full or the limit is reached.
    pub(super) fn fill(&mut self) {
        while self.0.len() < COUNT {
            let Ok(file) = File::open(NOTHING) else { return };
            self.0.push(file);
        }
    }

    /// Whether the reserve is full.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= COUNT
    }

    /// Closes the reserve if `error` reports a lack of descriptors. Returns whether descriptors were freed.
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
