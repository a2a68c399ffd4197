//! The program that a connection's threads answer, as its requests show it.
//!
//! It is *one* program while each request comes from the thread that the one before came from, when nobody else's is
//! being answered, and is for something small. Then program and threads take turns, and another CPU could do nothing for
//! them. Now and then another request may come between. What the kernel asks for by itself, such as to write back what
//! programs have written, is never part of it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::thread::Pid;

use super::scheduler::Cpu;
use super::watch::LOOK;
use super::{Courtesy, Staff};

/// How many bytes a request may carry, either way, for the program to be better off with the threads on its CPU.
const SMALL: usize = 64 << 10;
/// How many other requests may come between those of a burst.
const MOST_OTHERS: u32 = 4;

thread_local! {
    /// This thread's, once it has answered a request.
    static COURTESY: RefCell<Option<Courtesy>> = const { RefCell::new(None) };
}

/// Whom threads answer.
#[derive(Default)]
pub(super) struct Program {
    /// The number of the thread that asked last, zero if nobody did.
    id: AtomicU32,
    /// How many requests are being answered.
    answering: AtomicU32,
    /// How many other requests came since the last burst.
    others: AtomicU32,
    last_seen: Mutex<Option<(Cpu, Instant)>>,
}

/// A request that is being answered. It ends before the reply is sent: by then the program may have sent another one.
pub(crate) struct Turn<'a>(Option<&'a Program>);

impl Staff {
    /// Begins to answer a request of the thread with this number, which carries so many bytes. To be called by threads that
    /// serve nobody else.
    pub(crate) fn begin(self: &Arc<Staff>, id: u32, size: usize) -> Turn<'_> {
        let Some(program) = &self.program else { return Turn(None) };
        let is_one_more = program.begin(id, size);
        COURTESY.with_borrow_mut(|courtesy| {
            let courtesy = courtesy.get_or_insert_with(|| Courtesy::of(Arc::clone(self)));
            if is_one_more {
                courtesy.answered();
            } else {
                if program.others.fetch_add(1, Ordering::Relaxed) >= MOST_OTHERS {
                    self.is_quick.store(false, Ordering::Relaxed);
                }
                courtesy.follow_suit();
            }
        });
        Turn(Some(program))
    }
}

impl Program {
    /// The CPU that it is on, or was a moment ago; `None` if there is no such program any more.
    pub(super) fn cpu(&self) -> Option<Cpu> {
        let now = Instant::now();
        let mut last_seen = self.last_seen.lock();
        if last_seen.is_none_or(|(_, when)| now.saturating_duration_since(when) >= LOOK / 2) {
            let id = i32::try_from(self.id.load(Ordering::Relaxed)).ok().and_then(Pid::from_raw);
            *last_seen = id.and_then(Cpu::of).map(|cpu| (cpu, now));
        }
        last_seen.map(|(cpu, _)| cpu)
    }

    /// To be asked after each burst. Whether the program asked nearly alone.
    pub(super) fn was_one(&self) -> bool {
        self.others.swap(0, Ordering::Relaxed) <= MOST_OTHERS
    }

    /// Begins to answer a request; whether it is one more of the same program.
    fn begin(&self, id: u32, size: usize) -> bool {
        let is_alone = self.answering.fetch_add(1, Ordering::Relaxed) == 0;
        let is_same = self.id.load(Ordering::Relaxed) == id;
        if !is_same {
            self.id.store(id, Ordering::Relaxed);
        }
        is_alone && is_same && id != 0 && size <= SMALL
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(program) = self.0 {
            program.answering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

    use super::super::scheduler::Policy;
    use super::super::{BURST, can_be_courteous};
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// A program that asks for nothing by itself, and goes where it is told.
    struct Asking {
        id: u32,
        go: Sender<usize>,
    }

    impl Asking {
        fn new() -> Asking {
            let (go, gone) = channel();
            let (say, said) = channel();
            thread::spawn(move || {
                say.send(gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                for cpu in gone {
                    let mut only = CpuSet::new();
                    only.set(cpu);
                    sched_setaffinity(None, &only).unwrap();
                }
            });
            Asking { id: said.recv().unwrap(), go }
        }
    }

    /// The CPUs that this thread may run on.
    fn cpus() -> Vec<usize> {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
    }

    /// Answers as a thread of its own, until `answer` says that it is done.
    fn until_done(mut answer: impl FnMut(&Arc<Staff>) -> bool + Send) {
        let answers = move || {
            let (staff, since) = (Staff::following(), Instant::now());
            while !answer(&staff) {
                assert!(since.elapsed() < DEADLINE, "it does not come about");
            }
        };
        thread::scope(|scope| scope.spawn(answers).join().unwrap());
    }

    /// Whether this thread is where the program is, and courteous.
    fn is_with(cpu: usize) -> bool {
        Policy::current() == Some(Policy::Courteous) && cpus() == [cpu]
    }

    #[test]
    fn threads_follow_the_one_program_that_asks() {
        if !can_be_courteous() {
            return;
        }
        let asking = Asking::new();
        for cpu in cpus() {
            asking.go.send(cpu).unwrap();
            until_done(|staff| {
                drop(staff.begin(asking.id, 0));
                is_with(cpu)
            });
        }
    }

    #[test]
    fn threads_follow_a_program_that_is_moved() {
        if !can_be_courteous() {
            return;
        }
        let asking = Asking::new();
        let all = cpus();
        let (first, last) = (all[0], all[all.len() - 1]);
        asking.go.send(first).unwrap();
        let mut has_moved = false;
        until_done(|staff| {
            drop(staff.begin(asking.id, 0));
            if is_with(first) && !has_moved {
                asking.go.send(last).unwrap();
                has_moved = true;
            }
            has_moved && is_with(last)
        });
    }

    #[test]
    fn who_is_not_asked_any_more_may_go_anywhere() {
        if !can_be_courteous() {
            return;
        }
        let asking = Asking::new();
        let all = cpus();
        asking.go.send(all[0]).unwrap();
        let mut was_with = false;
        until_done(|staff| {
            if was_with {
                thread::sleep(LOOK);
            } else {
                drop(staff.begin(asking.id, 0));
                was_with = is_with(all[0]);
            }
            was_with && cpus() == all && Policy::current() == Some(Policy::Ordinary)
        });
    }

    /// Whether a thread that answers these for some bursts is courteous then.
    fn becomes_courteous(ask: impl Fn(&Arc<Staff>, u32) + Send + Sync) -> bool {
        let staff = Staff::following();
        let answers = || {
            (0..20 * BURST).for_each(|number| ask(&staff, number));
            Policy::current() == Some(Policy::Courteous)
        };
        thread::scope(|scope| scope.spawn(answers).join().unwrap())
    }

    #[test]
    fn several_programs_are_not_followed() {
        let programs = [Asking::new(), Asking::new()];
        let is_followed = becomes_courteous(|staff, number| {
            drop(staff.begin(programs[number as usize % 2].id, 0));
        });
        assert!(!is_followed);
    }

    #[test]
    fn a_program_is_not_followed_while_another_request_is_answered() {
        let asking = Asking::new();
        let is_followed = becomes_courteous(|staff, _| {
            let first = staff.begin(asking.id, 0);
            drop((staff.begin(asking.id, 0), first));
        });
        assert!(!is_followed);
    }

    #[test]
    fn a_program_that_wants_much_or_is_the_kernel_is_not_followed() {
        let asking = Asking::new();
        assert!(!becomes_courteous(|staff, _| drop(staff.begin(asking.id, SMALL + 1))));
        assert!(!becomes_courteous(|staff, _| drop(staff.begin(0, 0))));
    }

    #[test]
    fn a_program_that_is_gone_is_not_followed() {
        for id in [u32::MAX, i32::MAX.cast_unsigned()] {
            assert!(!becomes_courteous(|staff, _| drop(staff.begin(id, 0))));
        }
    }
}
