//! Memory for blocks, used again.
//!
//! A stream passes gigabytes through memory. A fresh buffer costs a page fault for every 4 KiB and zeros that the read
//! overwrites, together as much time as the copy out of the kernel. So a stream lends its buffers to the engine, and
//! takes back the ones that only the stream still has.

use std::{collections::VecDeque, ops, sync::Arc};

use parking_lot::Mutex;

/// The most bytes lent: the blocks read ahead, and those that a vdev keeps until the next flush.
const MOST: usize = 64 << 20;
/// Smaller buffers are cheaper to allocate than to keep, in bytes.
const LEAST: usize = 16 << 10;
/// How many lent buffers are tried before a new one is allocated.
const TRIES: usize = 4;

/// The buffers of one stream.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Lent>);

#[derive(Debug, Default)]
struct Lent {
    /// The longest lent first.
    buffers: VecDeque<Arc<Vec<u8>>>,
    bytes: usize,
}

impl Spares {
    /// A buffer of `len` bytes with any content: a lent one that no other owner has any more, or a new one.
    pub fn take(&self, len: usize) -> Vec<u8> {
        if len >= LEAST
            && let Some(mut buffer) = self.take_back(len)
        {
            buffer.resize(len, 0);
            return buffer;
        }
        vec![0; len]
    }

    fn take_back(&self, len: usize) -> Option<Vec<u8>> {
        let mut lent = self.0.lock();
        for _ in 0..TRIES {
            let buffer = lent.buffers.pop_front()?;
            match Arc::try_unwrap(buffer) {
                Ok(buffer) => {
                    lent.bytes -= buffer.capacity();
                    if buffer.capacity() >= len {
                        return Some(buffer);
                    }
                }
                Err(shared) => lent.buffers.push_back(shared),
            }
        }
        None
    }

    /// Shares a buffer with other owners. The buffer can be taken again once the others have dropped it.
    pub fn lend(&self, buffer: Vec<u8>) -> Arc<Vec<u8>> {
        let shared = Arc::new(buffer);
        let mut lent = self.0.lock();
        if shared.capacity() >= LEAST && lent.bytes + shared.capacity() <= MOST {
            lent.bytes += shared.capacity();
            lent.buffers.push_back(shared.clone());
        }
        drop(lent);
        shared
    }
}

/// A block's stored bytes: a part of the bytes that one request has read.
#[derive(Clone, Debug)]
pub struct Stored {
    run: Arc<Vec<u8>>,
    range: ops::Range<usize>,
}

impl Stored {
    /// The block in the given range of a run, in bytes.
    pub(super) fn new(run: Arc<Vec<u8>>, range: ops::Range<usize>) -> Stored {
        Stored { run, range }
    }
}

impl From<Arc<Vec<u8>>> for Stored {
    fn from(bytes: Arc<Vec<u8>>) -> Stored {
        let range = 0..bytes.len();
        Stored { run: bytes, range }
    }
}

impl From<Vec<u8>> for Stored {
    fn from(bytes: Vec<u8>) -> Stored {
        Arc::new(bytes).into()
    }
}

impl ops::Deref for Stored {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.run[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_once_no_other_owner_has_it() {
        let spares = Spares::default();
        let lent = spares.lend(vec![7; LEAST]);
        assert_eq!(spares.take(LEAST), vec![0; LEAST], "the lent buffer is still in use");
        drop(lent);
        assert_eq!(spares.take(LEAST), vec![7; LEAST]);
        assert_eq!(spares.take(LEAST), vec![0; LEAST], "a buffer is taken once");
    }

    #[test]
    fn buffers_have_the_wanted_length() {
        let spares = Spares::default();
        drop(spares.lend(vec![7; 2 * LEAST]));
        let buffer = spares.take(LEAST + 1);
        assert_eq!((buffer.len(), buffer[LEAST]), (LEAST + 1, 7));
        drop(spares.lend(buffer));
        let longer = spares.take(2 * LEAST);
        assert_eq!((longer.len(), longer[LEAST], longer[LEAST + 1]), (2 * LEAST, 7, 0));
        drop(spares.lend(longer));
        assert_eq!(spares.take(4 * LEAST), vec![0; 4 * LEAST], "a short buffer is no use");
    }

    #[test]
    fn lent_bytes_are_bounded() {
        let spares = Spares::default();
        let all: Vec<_> = (0..MOST / LEAST + 9).map(|_| spares.lend(vec![7; LEAST])).collect();
        assert_eq!(spares.0.lock().bytes, MOST);
        assert_eq!(all.iter().filter(|buffer| Arc::strong_count(buffer) == 2).count(), MOST / LEAST);
        drop(spares.lend(vec![7; LEAST - 1]));
    }
}
