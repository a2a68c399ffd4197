//! What a member has been asked to read: where its last streams are, and how much it has still to give.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use super::Member;

/// A read that begins at most so many bytes behind the end of another one, or before it, goes on with its stream.
const NEAR: u64 = 1 << 20;
/// So many streams are remembered.
const STREAMS: usize = 4;
/// Nowhere: no read ends there.
const NOWHERE: u64 = u64::MAX;

/// The reads of a member.
#[derive(Debug)]
pub(in crate::vdev) struct Load {
    /// What was begun to be read and nobody has fetched, in bytes.
    waiting: AtomicU64,
    /// Where the last reads of streams have ended.
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
    /// What was begun to be read and nobody has fetched, in bytes.
    pub(in crate::vdev) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Whether a read there goes on with a stream.
    pub(in crate::vdev) fn is_near(&self, offset: u64) -> bool {
        self.stream(offset).is_some()
    }

    fn stream(&self, offset: u64) -> Option<&AtomicU64> {
        self.ends.iter().find(|end| end.load(Relaxed).abs_diff(offset) <= NEAR)
    }
}

/// A read that was begun, until it is fetched or given up.
pub(in crate::vdev) struct Reading {
    member: Arc<Member>,
    len: u64,
}

impl Reading {
    /// Of so many bytes from `offset` on.
    pub(in crate::vdev) fn begin(member: &Arc<Member>, offset: u64, len: usize) -> Reading {
        let (load, len) = (&member.load, len as u64);
        load.waiting.fetch_add(len, Relaxed);
        let place = || &load.ends[load.next.fetch_add(1, Relaxed) % STREAMS];
        load.stream(offset).unwrap_or_else(place).store(offset + len, Relaxed);
        Reading { member: member.clone(), len }
    }

    /// The member that is read.
    pub(in crate::vdev) fn member(&self) -> &Member {
        &self.member
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.member.load.waiting.fetch_sub(self.len, Relaxed);
    }
}
