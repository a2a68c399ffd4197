//! A place for one request at a time in the kernel's ring, with the unsafe code for the shared memory.
//!
//! An [`Entry`] has its own io_uring and two pieces of memory: 288 bytes for headers, and a payload as long as the
//! largest request. Registering the entry gives the kernel both addresses. From then on the two sides take turns:
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
//! One rule makes this sound: while the memory is the kernel's, only the kernel touches it, and it is not freed.
//! `is_lent` says whose turn it is. Safe code reaches the memory only through [`Entry::parts`], which asserts that the
//! memory is ours. An entry dropped while the memory is lent leaks the memory. This module passes bytes on and does not
//! interpret them.
//!
//! A payload's pages are the system's zero page until written, and allocating the memory may fail. The rings do not
//! count as locked memory (`RLIMIT_MEMLOCK`) on any Linux with FUSE over io_uring.

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

/// The length of the headers in bytes.
pub(crate) const HEADER: usize = 288;
const COMMIT_ID: std::ops::Range<usize> = 264..272;
const PAYLOAD_LENGTH: std::ops::Range<usize> = 272..276;

/// The kernel's commands: register this memory; send this reply and fetch the next request.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// How long the kernel may take to refuse a registration as too early.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a retry when the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(1);

/// Headers of requests and replies.
pub(crate) type Header = [u8; HEADER];

/// The memory that the kernel reads and writes.
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
    /// A completion that came during registration.
    early: Option<i32>,
    enter: EnterFlags,
    place: Option<(Arc<OwnedFd>, u16)>,
}

impl Entry {
    /// An entry for requests with payloads of up to `capacity` bytes. The kernel lets only this thread use it.
    pub(super) fn new(capacity: usize) -> io::Result<Entry> {
        let uring = IoUring::<Entry128>::builder().setup_single_issuer().setup_defer_taskrun().build(2)?;
        let mut enter = EnterFlags::GETEVENTS;
        // An idle thread must not count as waiting for I/O in the machine's statistics.
        enter.set(EnterFlags::NO_IOWAIT, uring.params().is_feature_no_iowait());
        let memory = Memory { header: [0; HEADER], payload: zeros(capacity)?, vectors: [[0; 2]; 2] };
        let memory = ManuallyDrop::new(Box::new(memory));
        Ok(Entry { uring, memory, capacity, is_lent: false, early: None, enter, place: None })
    }

    /// Registers the entry with the connection's queue `queue`. An error if the kernel refuses.
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

    /// Waits for a request, which is then in the [parts](Entry::parts). An error ends the connection, or at least this
    /// entry.
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

    /// The header and the payload: first the request's, then the reply's.
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
        // SAFETY: the payload was allocated with `capacity` initialised bytes, and still is that allocation (`lend`
        // asserted so before the kernel got the memory).
        unsafe { memory.payload.set_len(self.capacity) };
        memory.payload.truncate(length as usize);
        Ok(())
    }

    /// Queues a command that lends the memory to the kernel.
    fn lend(&mut self, command: u32, number: u64) {
        assert!(!self.is_lent, "the kernel has the memory");
        let memory = &mut **self.memory;
        // No writer of the payload needs more than its capacity, so the vector has not moved.
        let place = [memory.payload.as_mut_ptr().expose_provenance(), memory.payload.capacity()];
        assert!(place == memory.vectors[1], "the payload is where the kernel was told");
        // Earlier pointers are void since `parts` lent the memory out: these new ones are for the kernel.
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
        // SAFETY: the descriptor is open as long as `self.place` is. The addressed memory stays in place until a
        // completion returns it: the memory is on the heap, leaked if this entry is dropped before, and unreachable for
        // safe code while `is_lent`.
        unsafe { self.uring.submission().push(&submission) }.expect("one command is under way at most");
    }

    /// Submits the queued command, and waits for a completion. A lack of kernel memory is temporary, and the thread has
    /// a request that no other thread would answer: so the thread tries again.
    fn enter_until_done(&mut self) -> io::Result<()> {
        match self.enter(1) {
            Err(error) if is_passing(&error) => {
                thread::sleep(PAUSE);
                Ok(())
            }
            entered => entered,
        }
    }

    /// Submits the queued command, and waits for `completions` completions.
    fn enter(&mut self, completions: u32) -> io::Result<()> {
        let queued = self.uring.submission().len() as u32;
        let flags = self.enter.bits();
        // SAFETY: no argument is passed, the flags take none, and as many entries are queued as are submitted.
        match unsafe { self.uring.submitter().enter::<()>(queued, completions, flags, None) } {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for the outcome of a registration, for `at_most`. A registration still under way counts as success.
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

    /// The result of the one command under way, if it has completed: then the memory is ours again.
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

/// Whether commands of this process reach the connection `device`, before its handshake. The kernel must answer "too
/// early"; any other answer is from a policy or filter on the way.
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

/// Allocates `count` zero bytes without touching them.
fn zeros(count: usize) -> io::Result<Vec<u8>> {
    assert!(count > 0, "a payload has room for something");
    let layout = Layout::array::<u8>(count).map_err(io::Error::other)?;
    // SAFETY: the layout has a size, as was asserted.
    let bytes = unsafe { alloc_zeroed(layout) };
    if bytes.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: the global allocator made the memory with the layout of `count` bytes, which are initialised to zero.
    Ok(unsafe { Vec::from_raw_parts(bytes, count, count) })
}

/// Whether io_uring lacks a resource only for the moment.
fn is_passing(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY, Errno::NOMEM].into_iter().any(|passing| is(error, passing))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Sets the submission's length field. FUSE expects the number of vectors there, and the builder cannot set it.
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
