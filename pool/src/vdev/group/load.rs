//! The read load of a member: the ends of its recent streams, and the bytes still outstanding.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use super::member::Member;

/// A read that begins within so many bytes of the end of a stream continues the stream.
const NEAR: u64 = 1 << 20;
/// How many streams are remembered.
const STREAMS: usize = 4;
/// The end of no stream.
const NOWHERE: u64 = u64::MAX;

/// The reads of a member.
#[derive(Debug)]
pub(in crate::vdev) struct Load {
    /// Bytes of reads that were begun and not fetched.
    waiting: AtomicU64,
    /// Ends of the last reads of the streams.
    ends: [AtomicU64; STREAMS],
    next: AtomicUsize,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            waiting: AtomicU64::new(0),
            ends: [const { AtomicU64::new(NOWHERE) }; STREAMS],
            next: AtomicUsize::new(0),
        }
    }
}

impl Load {
    /// Bytes of reads that were begun and not fetched.
    pub(in crate::vdev) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// True if a read at `offset` continues a stream.
    pub(in crate::vdev) fn is_near(&self, offset: u64) -> bool {
        self.stream(offset).is_some()
    }

    fn stream(&self, offset: u64) -> Option<&AtomicU64> {
        self.ends.iter().find(|end| end.load(Relaxed).abs_diff(offset) <= NEAR)
    }
}

/// A read under way, counted until fetched or dropped.
pub(in crate::vdev) struct Reading {
    member: Arc<Member>,
    len: u64,
}

impl Reading {
    /// Counts a read of `len` bytes from `offset` on.
    pub(in crate::vdev) fn begin(member: &Arc<Member>, offset: u64, len: usize) -> Reading {
        let (load, len) = (&member.load, len as u64);
        load.waiting.fetch_add(len, Relaxed);
        let place = || &load.ends[load.next.fetch_add(1, Relaxed) % STREAMS];
        load.stream(offset).unwrap_or_else(place).store(offset + len, Relaxed);
        Reading { member: member.clone(), len }
    }

    /// The member being read.
    pub(in crate::vdev) fn member(&self) -> &Member {
        &self.member
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.member.load.waiting.fetch_sub(self.len, Relaxed);
    }
}
