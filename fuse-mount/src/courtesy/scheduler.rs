//! What the scheduler is told about a thread, and what it says.
//!
//! The system calls for policies are made directly, because not every C library passes them on.

#![allow(unsafe_code)]

use std::fs;
use std::io;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Ordinary = libc::SCHED_OTHER as isize,
    Courteous = libc::SCHED_IDLE as isize,
}

impl Policy {
    /// The policy of the thread that calls this; `None` if it is another one.
    pub(super) fn current() -> Option<Policy> {
        // SAFETY: the system call reads and writes no memory of ours.
        let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        [Policy::Ordinary, Policy::Courteous].into_iter().find(|&policy| policy as libc::c_long == number)
    }

    /// Gives it to a thread of this process, one that is alive.
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

/// A CPU's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cpu(usize);

impl Cpu {
    /// The one that a thread of any process ran on last.
    pub(super) fn of(thread: Pid) -> Option<Cpu> {
        let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
        // Counted from the state, which is the third of all.
        let cpu = fields(&stat)?.nth(36)?.parse().ok()?;
        (cpu < CpuSet::MAX_CPU).then_some(Cpu(cpu))
    }

    /// Lets a thread of this process run on no other.
    pub(super) fn bind(self, thread: Pid) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(self.0);
        Ok(sched_setaffinity(Some(thread), &only)?)
    }
}

/// Lets a thread of this process run wherever another one may.
pub(super) fn unbind(thread: Pid, like: Pid) -> io::Result<()> {
    Ok(sched_setaffinity(Some(thread), &sched_getaffinity(Some(like))?)?)
}

/// Whether a thread of this process runs, or waits for nothing but a CPU.
pub(super) fn is_runnable(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| fields(&stat).and_then(|mut fields| fields.next()) == Some("R"))
}

/// What a line of `/proc/*/stat` says from the thread's state on. It follows the name, which may contain anything.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace())
}

/// Whether the thread that calls this may have both policies. Should the way back fail, it stays courteous.
pub(super) fn can_be_both() -> io::Result<()> {
    Policy::Courteous.set(gettid())?;
    Policy::Ordinary.set(gettid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_whatever_the_thread_is_called() {
        let state = |stat| fields(stat).and_then(|mut fields| fields.next());
        assert_eq!(state("12 (fuse-ring-0) R 1 12"), Some("R"));
        assert_eq!(state("12 (a) S (b) R 1"), Some("R"));
        assert_eq!(state("12 (fuse"), None);
        assert_eq!(state(""), None);
    }

    #[test]
    fn a_thread_is_where_it_is_bound_to() {
        let before = sched_getaffinity(None).unwrap();
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).map(Cpu);
        for cpu in cpus {
            cpu.bind(gettid()).unwrap();
            assert_eq!(Cpu::of(gettid()), Some(cpu));
        }
        let parent = rustix::process::getpid();
        sched_setaffinity(None, &before).unwrap();
        assert!(Cpu::of(parent).is_some());
    }
}
