//! The queues of a mount on this machine, and the initial number of threads of each queue.
//!
//! The kernel has a queue for every possible CPU. An offline CPU sends no requests, but its queue must be registered
//! too.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

/// The idle threads of a queue. Two, because a request may come before a new thread is ready. A request without a
/// thread is not given to the new thread, but waits until some thread of the queue replies.
pub(super) const SPARE: usize = 2;
/// The initial threads of a queue: a serving thread, and spare threads for the case that it has to wait.
const AT_FIRST: usize = 1 + SPARE;
/// Machines with more CPUs are served by `/dev/fuse`: a mount would have hundreds of threads.
const MOST_QUEUES: usize = 64;

/// The initial number of threads of each queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout(Vec<usize>);

impl Layout {
    /// The layout for this machine. An error if the CPUs cannot be listed, are too many, or may not be used.
    pub(crate) fn of_this_machine() -> io::Result<Layout> {
        let cpus = |which: &str| -> io::Result<Vec<usize>> {
            let text = fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
            cpu_list(&text).ok_or_else(|| io::Error::other(format!("the list of {which} CPUs cannot be read")))
        };
        let (possible, online) = (cpus("possible")?, cpus("online")?);
        let allowed = sched_getaffinity(None)?;
        Layout::new(&possible, &online, |cpu| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu))
    }

    fn new(possible: &[usize], online: &[usize], may_use: impl Fn(usize) -> bool) -> io::Result<Layout> {
        if !possible.iter().copied().eq(0..possible.len()) || possible.len() > MOST_QUEUES {
            return Err(io::Error::other(format!("there are {} CPUs", possible.len())));
        }
        if !online.iter().all(|&cpu| may_use(cpu)) {
            return Err(io::Error::other("this process may not use all CPUs"));
        }
        let threads = |cpu| if online.contains(cpu) { AT_FIRST } else { 1 };
        Ok(Layout(possible.iter().map(threads).collect()))
    }

    /// The queues' numbers, each with its initial number of threads.
    pub(super) fn queues(&self) -> impl Iterator<Item = (u16, usize)> {
        self.0.iter().enumerate().map(|(number, &threads)| (number as u16, threads))
    }

    /// The number of threads of all queues.
    pub(super) fn threads(&self) -> usize {
        self.0.iter().sum()
    }
}

#[cfg(test)]
impl Layout {
    /// One thread a queue, with `difference` queues too many or too few.
    pub(crate) fn off_by(difference: isize) -> io::Result<Layout> {
        let layout = Layout::of_this_machine()?;
        let queues = layout.0.len().checked_add_signed(difference).filter(|queues| *queues > 0);
        queues.map(|queues| Layout(vec![1; queues])).ok_or_else(|| io::Error::other("there is one CPU"))
    }
}

/// The numbers in a list such as `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpu_list("0"), Some(vec![0]));
        assert_eq!(cpu_list("0-1,4,6-7"), Some(vec![0, 1, 4, 6, 7]));
        for wrong in ["", "a", "1-", "0-99999999999", "0-70000"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_cpu_that_is_offline_has_one_thread() {
        let layout = Layout::new(&[0, 1, 2, 3], &[0, 2], |_| true).unwrap();
        assert_eq!(layout.queues().collect::<Vec<_>>(), [(0, AT_FIRST), (1, 1), (2, AT_FIRST), (3, 1)]);
        assert_eq!(layout.threads(), 2 * AT_FIRST + 2);
    }

    #[test]
    fn machines_with_too_many_or_unusable_cpus_get_no_ring() {
        let of = |possible: &[usize]| Layout::new(possible, &[0], |cpu| cpu == 0);
        assert!(of(&[0, 1]).is_ok());
        assert!(of(&[0, 2]).is_err(), "a gap in the numbers");
        assert!(of(&(0..MOST_QUEUES).collect::<Vec<_>>()).is_ok());
        assert!(of(&(0..=MOST_QUEUES).collect::<Vec<_>>()).is_err());
        assert!(Layout::new(&[0, 1], &[0, 1], |cpu| cpu == 0).is_err(), "one is somebody else's");
    }
}
