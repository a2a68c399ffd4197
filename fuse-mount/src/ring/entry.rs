//! A place for one request at a time in the kernel's ring, and the unsafe code that this takes.
//!
//! An [`Entry`] has an io_uring of its own and two pieces of memory, whose addresses the kernel is told when the entry
//! is registered: 288 bytes for headers, and a payload of as many bytes as the largest request has. From then on the
//! two take turns:
//!
//! ```text
//!     register / commit            a completion
//! ours ---------------> the kernel's ----------> ours, with a request in it
//! ```
//!
//! | bytes of the header | request | reply |
//! | --- | --- | --- |
//! | 0..128 | `fuse_in_header` | `fuse_out_header` |
//! | 128..256 | the first argument, a structure of the operation's | |
//! | 264..272 | the number under which to commit | |
//! | 272..276 | the length of the payload | the length of the payload |
//!
//! The one thing to be upheld is that nobody but the kernel touches the memory while it is the kernel's, and that it is
//! not freed then. `is_lent` says whose turn it is. Safe code reaches the memory only through [`Entry::parts`], which
//! asserts that it is ours; an entry that is dropped while the memory is lent leaks it. What the bytes mean is no matter
//! of this module's: they are handed on as bytes.
//!
//! A payload's pages are the system's zero page until something is written to them, and getting the memory may fail.
//! The rings themselves do not count as locked memory (`RLIMIT_MEMLOCK`) on any Linux that has FUSE over io_uring.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};
use rustix::io::Errno;

/// The length of the headers.
pub(crate) const HEADER: usize = 288;
const COMMIT_ID: std::ops::Range<usize> = 264..272;
const PAYLOAD_LENGTH: std::ops::Range<usize> = 272..276;

/// The kernel's commands: take this memory, and take this reply and give the next request.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// How long the kernel may take to find a registration too early.
const PATIENCE: Duration = Duration::from_secs(5);
/// After how long is tried again what the kernel had no memory for.
const PAUSE: Duration = Duration::from_millis(1);

/// Headers of requests and replies.
pub(crate) type Header = [u8; HEADER];

/// What the kernel reads and writes.
struct Memory {
    header: Header,
    payload: Vec<u8>,
    /// Address and length of the header and of the payload: two times a `struct iovec`.
    vectors: [[usize; 2]; 2],
}

/// A place for one request. Belongs to the thread that made it.
pub(super) struct Entry {
    uring: IoUring<Entry128>,
    memory: ManuallyDrop<Box<Memory>>,
    capacity: usize,
    is_lent: bool,
    /// A completion that came while registering.
    early: Option<i32>,
    enter: EnterFlags,
    place: Option<(Arc<OwnedFd>, u16)>,
}

impl Entry {
    /// An entry for requests whose payload has up to `capacity` bytes. The kernel lets only this thread use it.
    pub(super) fn new(capacity: usize) -> io::Result<Entry> {
        let uring = IoUring::<Entry128>::builder().setup_single_issuer().setup_defer_taskrun().build(2)?;
        let mut enter = EnterFlags::GETEVENTS;
        // An idle thread is no reason for the machine to look as if it waited for devices.
        enter.set(EnterFlags::NO_IOWAIT, uring.params().is_feature_no_iowait());
        let memory = Memory { header: [0; HEADER], payload: zeros(capacity)?, vectors: [[0; 2]; 2] };
        let memory = ManuallyDrop::new(Box::new(memory));
        Ok(Entry { uring, memory, capacity, is_lent: false, early: None, enter, place: None })
    }

    /// Offers the entry to the connection's queue `queue`. Fails if the kernel does not want it.
    pub(super) fn register(&mut self, device: Arc<OwnedFd>, queue: u16) -> io::Result<()> {
        assert!(self.place.is_none(), "an entry is registered once");
        self.place = Some((device, queue));
        let memory = &mut **self.memory;
        memory.vectors = [
            [memory.header.as_mut_ptr().expose_provenance(), HEADER],
            [memory.payload.as_mut_ptr().expose_provenance(), self.capacity],
        ];
        self.lend(REGISTER, 0);
        self.enter(0)?;
        match self.completion() {
            Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            early => {
                self.early = early;
                Ok(())
            }
        }
    }

    /// Waits for a request, which then is in the [parts](Entry::parts). An error is the end of the connection, or at
    /// least of this entry.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.early.take().or_else(|| self.completion()) {
                Some(error) if error < 0 => return Err(io::Error::from_raw_os_error(-error)),
                Some(_) => return self.receive(),
                None if self.is_lent => self.enter_until_done()?,
                None => return Err(Errno::INVAL.into()),
            }
        }
    }

    /// The header and the payload: of the request that has come, then of the reply.
    pub(super) fn parts(&mut self) -> (&mut Header, &mut Vec<u8>) {
        assert!(!self.is_lent, "the kernel has the memory");
        let memory = &mut **self.memory;
        (&mut memory.header, &mut memory.payload)
    }

    /// Hands the reply in the parts to the kernel with the next call of [`wait`](Entry::wait).
    pub(super) fn commit(&mut self) {
        let (header, payload) = self.parts();
        let number = u64::from_ne_bytes(header[COMMIT_ID].try_into().expect("eight bytes"));
        let length = u32::try_from(payload.len()).expect("a payload is smaller than 4 GiB");
        header[PAYLOAD_LENGTH].copy_from_slice(&length.to_ne_bytes());
        self.lend(COMMIT_AND_FETCH, number);
    }

    fn receive(&mut self) -> io::Result<()> {
        assert!(!self.is_lent, "a completion gave the memory back");
        let memory = &mut **self.memory;
        let length = u32::from_ne_bytes(memory.header[PAYLOAD_LENGTH].try_into().expect("four bytes"));
        // SAFETY: the payload was allocated with `capacity` bytes, all of them initialised, and still is that allocation
        // (`lend` asserted it before the kernel got it).
        unsafe { memory.payload.set_len(self.capacity) };
        memory.payload.truncate(length as usize);
        Ok(())
    }

    /// Queues a command that makes the memory the kernel's.
    fn lend(&mut self, command: u32, number: u64) {
        assert!(!self.is_lent, "the kernel has the memory");
        let memory = &mut **self.memory;
        // What writes to the payload never needs more than its capacity, so the vector has not moved.
        let place = [memory.payload.as_mut_ptr().expose_provenance(), memory.payload.capacity()];
        assert!(place == memory.vectors[1], "the payload is where the kernel was told");
        // Whatever pointers there were before are void since `parts` lent the memory out: these are for the kernel.
        memory.header.as_mut_ptr().expose_provenance();
        let (device, queue) = self.place.as_ref().expect("an entry is registered first");
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&number.to_ne_bytes());
        arguments[16..18].copy_from_slice(&queue.to_ne_bytes());
        let vectors = memory.vectors.as_ptr().expose_provenance();
        let mut submission =
            opcode::UringCmd80::new(Fd(device.as_raw_fd()), command).cmd(arguments).addr(Some(vectors as u64)).build();
        set_length(&mut submission, memory.vectors.len() as u32);
        self.is_lent = true;
        // SAFETY: the descriptor is open as long as `self.place` is. What the addresses lead to stays where it is until
        // a completion says that the kernel is done with it: it is on the heap, leaked if this entry is dropped before,
        // and out of reach for safe code while `is_lent`.
        unsafe { self.uring.submission().push(&submission) }.expect("one command is under way at most");
    }

    /// Submits what is queued, and waits for a completion. What the kernel has no memory for at the moment, it will have
    /// later: the thread has a request to answer, and nobody else would.
    fn enter_until_done(&mut self) -> io::Result<()> {
        match self.enter(1) {
            Err(error) if is_passing(&error) => {
                thread::sleep(PAUSE);
                Ok(())
            }
            entered => entered,
        }
    }

    /// Submits what is queued, and waits for so many completions.
    fn enter(&mut self, completions: u32) -> io::Result<()> {
        let queued = self.uring.submission().len() as u32;
        let flags = self.enter.bits();
        // SAFETY: no argument is passed, the flags take none, and as many entries are queued as are submitted.
        match unsafe { self.uring.submitter().enter::<()>(queued, completions, flags, None) } {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for what becomes of a registration, at most so long.
    fn refusal(&mut self, at_most: Duration) -> io::Result<()> {
        if self.is_lent {
            let limit = Timespec::from(at_most);
            self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))?;
        }
        match self.completion() {
            Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(()),
        }
    }

    /// The result of the one command under way, if it has come: with it, the memory is ours again.
    fn completion(&mut self) -> Option<i32> {
        let done = self.uring.completion().next()?;
        self.is_lent = false;
        Some(done.result())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_lent {
            // SAFETY: the kernel does not have the memory, this is the only owner, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Whether commands of this process get as far as the connection `device`, one that has not been initialised yet. The
/// kernel must say that it is too early; whatever else is said comes from somebody on the way.
pub(crate) fn is_reachable(device: OwnedFd) -> io::Result<()> {
    const SMALL: usize = 4096;
    let mut entry = Entry::new(SMALL)?;
    match entry.register(Arc::new(device), 0).and_then(|()| entry.refusal(PATIENCE)) {
        Err(error) if is(&error, Errno::AGAIN) => Ok(()),
        Err(error) if is(&error, Errno::OPNOTSUPP) => {
            Err(io::Error::other("the kernel does not offer io_uring (fuse.enable_uring is off)"))
        }
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other("the kernel takes a queue too early")),
    }
}

/// So many bytes, all zero and none of them touched.
fn zeros(count: usize) -> io::Result<Vec<u8>> {
    assert!(count > 0, "a payload has room for something");
    let layout = Layout::array::<u8>(count).map_err(io::Error::other)?;
    // SAFETY: the layout has a size, as was asserted.
    let bytes = unsafe { alloc_zeroed(layout) };
    if bytes.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: the global allocator made it with the layout of `count` bytes, which are initialised to zero.
    Ok(unsafe { Vec::from_raw_parts(bytes, count, count) })
}

/// Whether io_uring only lacks something at the moment.
fn is_passing(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY, Errno::NOMEM].into_iter().any(|passing| is(error, passing))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Sets the submission's length field, which FUSE wants to count the vectors and the builder has no word for.
fn set_length(submission: &mut Entry128, length: u32) {
    const LENGTH_OFFSET: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: the type is the kernel's `struct io_uring_sqe` of 128 bytes and plain data, in which `len` is the four
    // bytes from the 24th on: within bounds and aligned, as the structure is to eight bytes.
    unsafe { (&raw mut *submission).cast::<u8>().add(LENGTH_OFFSET).cast::<u32>().write(length) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn entry() -> Option<Entry> {
        let entry = Entry::new(8192);
        testing::require_ring(entry.is_ok()).then(|| entry.unwrap())
    }

    fn open(path: &str) -> Arc<OwnedFd> {
        Arc::new(OwnedFd::from(std::fs::File::open(path).unwrap()))
    }

    #[test]
    fn the_kernel_refuses_a_descriptor_that_is_no_connection() {
        let Some(mut entry) = entry() else { return };
        assert!(entry.register(open("/proc/self/exe"), 0).is_err());
        assert_eq!(entry.parts().1.len(), 8192, "the memory is ours again");
        assert!(entry.wait().is_err(), "nothing can come");
    }

    /// The null device completes every command at once.
    #[test]
    fn the_memory_goes_back_and_forth() {
        let Some(mut entry) = entry() else { return };
        entry.register(open("/dev/null"), 0).unwrap();
        for turn in 0..3 {
            entry.wait().unwrap();
            let (header, payload) = entry.parts();
            assert_eq!(payload.len(), turn, "what the header said");
            header[COMMIT_ID].fill(7);
            payload.resize(turn + 1, 7);
            entry.commit();
            assert_eq!(entry.memory.header[PAYLOAD_LENGTH], (turn as u32 + 1).to_ne_bytes());
        }
    }

    #[test]
    fn what_is_no_connection_cannot_be_reached() {
        for path in ["/dev/null", "/proc/self/exe"] {
            assert!(is_reachable(std::fs::File::open(path).unwrap().into()).is_err(), "{path}");
        }
    }

    #[test]
    fn memory_that_is_not_to_be_had_is_an_error() {
        assert_eq!(zeros(5).unwrap(), [0; 5]);
        for size in [isize::MAX as usize - 4096, usize::MAX] {
            assert!(Entry::new(size).is_err(), "{size}");
        }
    }

    #[test]
    #[should_panic(expected = "the payload is where the kernel was told")]
    fn memory_that_the_kernel_does_not_know_is_not_lent() {
        let mut entry = Entry::new(8192).expect("the payload is where the kernel was told");
        entry.register(open("/dev/null"), 0).expect("the payload is where the kernel was told");
        entry.wait().unwrap();
        entry.parts().1.resize(8193, 0);
        entry.commit();
    }
}
