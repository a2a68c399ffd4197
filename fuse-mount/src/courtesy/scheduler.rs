//! Scheduler settings of threads: policy, CPUs and state.
//!
//! The system calls for policies are made directly, because not every C library passes them on.

#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, Cursor, Write as _};
use std::str::{self, SplitAsciiWhitespace};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// The two policies in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Ordinary = libc::SCHED_OTHER as isize,
    Courteous = libc::SCHED_IDLE as isize,
}

impl Policy {
    /// The policy of the calling thread; `None` if it is neither.
    pub(super) fn current() -> Option<Policy> {
        // SAFETY: the system call reads and writes no memory of ours.
        let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        [Policy::Ordinary, Policy::Courteous].into_iter().find(|&policy| policy as libc::c_long == number)
    }

    /// Gives the policy to a live thread of this process.
    pub(super) fn set(self, thread: Pid) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the system call reads the structure, which lives until it returns, and no other memory.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                thread.as_raw_nonzero().get(),
                self as libc::c_int,
                &raw const parameters,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The number of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cpu(usize);

impl Cpu {
    /// The CPU `number`, whether it exists or not; `None` beyond the kernel's maximum.
    pub(super) fn from_number(number: usize) -> Option<Cpu> {
        (number < CpuSet::MAX_CPU).then_some(Cpu(number))
    }

    pub(super) fn number(self) -> usize {
        self.0
    }

    /// The CPU on which a thread of any process ran last.
    ///
    /// During the look the kernel holds the memory of the process. If the process exits just then, the last reference
    /// is dropped here, which waits for write-back of the process's changed mapped pages. So the caller holds no lock,
    /// and is not the only thread that answers requests.
    pub(super) fn of(thread: Pid) -> Option<Cpu> {
        // Field 39 of the file, counted from the state, which is field 3.
        stat(format_args!("/proc/{thread}/stat"), |mut fields| Cpu::from_number(fields.nth(36)?.parse().ok()?))
    }

    /// Binds a thread of this process to this CPU. An error if the thread `like` may not run there.
    pub(super) fn bind(self, thread: Pid, like: Pid) -> io::Result<()> {
        if !sched_getaffinity(Some(like))?.is_set(self.0) {
            return Err(io::Error::other(format!("CPU {} is somebody else's", self.0)));
        }
        let mut only = CpuSet::new();
        only.set(self.0);
        Ok(sched_setaffinity(Some(thread), &only)?)
    }
}

/// Lets a thread of this process run on all CPUs of the thread `like`.
pub(super) fn unbind(thread: Pid, like: Pid) -> io::Result<()> {
    Ok(sched_setaffinity(Some(thread), &sched_getaffinity(Some(like))?)?)
}

/// Whether a thread of this process runs, or waits for nothing but a CPU.
pub(super) fn is_runnable(thread: Pid) -> bool {
    let state = stat(format_args!("/proc/self/task/{thread}/stat"), |mut fields| Some(fields.next()? == "R"));
    state == Some(true)
}

/// Parses a `stat` file of a thread, from the state on. Allocates no memory: a thread that waits for a CPU may hold the
/// allocator's lock.
fn stat<T>(path: fmt::Arguments<'_>, look: impl FnOnce(SplitAsciiWhitespace<'_>) -> Option<T>) -> Option<T> {
    let (mut name, mut line) = ([0; 64], [0; 1024]);
    let mut end = Cursor::new(&mut name[..]);
    end.write_fmt(path).ok()?;
    let length = end.position() as usize;
    let file = open(&name[..length], OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = read(file, &mut line).ok()?;
    look(fields(&line[..length])?)
}

/// The fields after the thread's name, which may contain any byte.
fn fields(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let name = stat.iter().rposition(|&byte| byte == b')')?;
    Some(str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace())
}

/// Whether the calling thread may become courteous and then ordinary again. If the way back fails, the thread stays
/// courteous.
pub(super) fn can_be_both() -> io::Result<()> {
    unbind(gettid(), gettid())?;
    Policy::Courteous.set(gettid())?;
    Policy::Ordinary.set(gettid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_whatever_the_thread_is_called() {
        let state = |stat: &'static [u8]| fields(stat).and_then(|mut fields| fields.next());
        assert_eq!(state(b"12 (fuse-ring-0) R 1 12"), Some("R"));
        assert_eq!(state(b"12 (a) S (b) R 1"), Some("R"));
        assert_eq!(state(b"12 (\xff) D 1"), Some("D"));
        assert_eq!(state(b"12 (fuse"), None);
        assert_eq!(state(b""), None);
        assert!(is_runnable(gettid()));
    }

    #[test]
    fn a_thread_is_where_it_is_bound_to() {
        let before = sched_getaffinity(None).unwrap();
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).map(Cpu);
        let like = thread_that_waits();
        for cpu in cpus {
            cpu.bind(gettid(), like).unwrap();
            assert_eq!(Cpu::of(gettid()), Some(cpu));
        }
        unbind(gettid(), like).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let none = (0..CpuSet::MAX_CPU).find(|&cpu| !before.is_set(cpu)).unwrap();
        assert!(Cpu(none).bind(gettid(), like).is_err());
    }

    #[test]
    fn a_program_that_is_gone_is_nowhere() {
        let gone = std::thread::spawn(gettid).join().unwrap();
        while let Some(Cpu(_)) = Cpu::of(gone) {
            std::thread::yield_now();
        }
    }

    /// A thread that may run wherever this thread may, and is never bound.
    fn thread_that_waits() -> Pid {
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            say.send(gettid()).unwrap();
            loop {
                std::thread::park();
            }
        });
        said.recv().unwrap()
    }
}
