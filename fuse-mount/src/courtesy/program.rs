//! The program that a connection's threads answer, as its requests show it.
//!
//! There is *one* program while each request comes from the same thread as the request before, comes when no other
//! request is being answered, and is small. Then program and threads take turns, and a second CPU could not help. Now
//! and then another request may come between. Requests of the kernel itself, such as writing back dirty pages, never
//! count.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::Pid;

use super::scheduler::Cpu;
use super::{Courtesy, Staff};

/// A request of up to so many bytes, in either direction, is answered faster on the program's CPU.
const SMALL: usize = 64 << 10;
/// How many requests of a burst may be from elsewhere: another program's, and the first of our program after each.
const MOST_OTHERS: u32 = 4;
/// How often threads look up the program's CPU. A look costs as much as a small request, and each request to a thread
/// on another CPU several times as much.
const GLANCE: Duration = Duration::from_millis(1);

thread_local! {
    /// Set once this thread has answered a request.
    static COURTESY: RefCell<Option<Courtesy>> = const { RefCell::new(None) };
}

/// The program that threads answer.
pub(super) struct Program {
    /// The number of the thread that asked last; zero if there is none.
    id: AtomicU32,
    /// The number of requests being answered.
    answering: AtomicU32,
    /// The number of other requests since the last burst.
    others: AtomicU32,
    /// The number of the program's CPU at the last look; `usize::MAX` if the program was gone.
    cpu: AtomicUsize,
    /// The time of the last look, in microseconds since `made`.
    looked: AtomicU64,
    made: Instant,
}

impl Default for Program {
    fn default() -> Program {
        let none = || AtomicU32::new(0);
        let (cpu, looked) = (AtomicUsize::new(usize::MAX), AtomicU64::new(0));
        Program { id: none(), answering: none(), others: none(), cpu, looked, made: Instant::now() }
    }
}

/// A request that is being answered. It ends before the reply is sent, because then the program may send the next one.
pub(crate) struct Turn<'a>(&'a Program);

/// Makes the calling thread ordinary, following no program, before other work.
pub(crate) fn forget_program() {
    drop(COURTESY.take());
}

impl Staff {
    /// Begins to answer a request of `size` bytes from the thread with this number. Called by threads of a following
    /// staff, which serve no other staff.
    pub(crate) fn begin(self: &Arc<Staff>, id: u32, size: usize) -> Turn<'_> {
        let program = self.program.as_ref().expect("a staff that follows has a program");
        let is_one_more = program.begin(id, size);
        if !program.is_one() {
            self.is_quick.store(false, Ordering::Relaxed);
        }
        COURTESY.with_borrow_mut(|courtesy| {
            let courtesy = courtesy.get_or_insert_with(|| Courtesy::of(Arc::clone(self)));
            if is_one_more {
                courtesy.answered_to(Some(id));
            } else if !self.is_quick.load(Ordering::Relaxed) {
                courtesy.end();
            }
        });
        Turn(program)
    }
}

impl Program {
    /// The CPU of the program at the last look; `None` if the program was gone.
    pub(super) fn cpu(&self) -> Option<Cpu> {
        Cpu::from_number(self.cpu.load(Ordering::Relaxed))
    }

    /// Looks up the program's CPU, unless another thread has just done so. Called by a thread that answers the program
    /// and holds no lock: while the program waits for the answer it cannot exit, so the problem at [`Cpu::of`] cannot
    /// occur. A program does not wait for read-ahead; then other threads can still answer, which is enough.
    pub(super) fn look(&self, id: u32) {
        let now = self.made.elapsed().as_micros() as u64;
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) >= GLANCE.as_micros() as u64 || self.cpu().is_none() {
            self.looked.store(now, Ordering::Relaxed);
            let cpu = i32::try_from(id).ok().and_then(Pid::from_raw).and_then(Cpu::of);
            self.cpu.store(cpu.map_or(usize::MAX, Cpu::number), Ordering::Relaxed);
        }
    }

    /// Whether nearly all requests since the last burst are from the program.
    fn is_one(&self) -> bool {
        self.others.load(Ordering::Relaxed) <= MOST_OTHERS
    }

    /// Like [`Program::is_one`], called after each burst; a new burst begins.
    pub(super) fn was_one(&self) -> bool {
        self.others.swap(0, Ordering::Relaxed) <= MOST_OTHERS
    }

    /// Begins to answer a request; whether the same program sent the request before.
    fn begin(&self, id: u32, size: usize) -> bool {
        let is_alone = self.answering.fetch_add(1, Ordering::Relaxed) == 0;
        let is_same = self.id.load(Ordering::Relaxed) == id;
        if !is_same {
            self.id.store(id, Ordering::Relaxed);
        }
        let is_one_more = is_alone && is_same && id != 0 && size <= SMALL;
        if !is_one_more {
            // A large request of another program takes long enough to justify another CPU by itself.
            let weight = if is_same || size <= SMALL { 1 } else { MOST_OTHERS + 1 };
            self.others.fetch_add(weight, Ordering::Relaxed);
        }
        is_one_more
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

    use super::super::scheduler::Policy;
    use super::super::watch::LOOK;
    use super::super::{BURST, alone};
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// A program that sends no requests itself, and runs on the CPU that the test names.
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

    /// Answers as a thread of its own, until `answer` returns true.
    fn until_done(mut answer: impl FnMut(&Arc<Staff>) -> bool + Send) {
        let answers = move || {
            let (staff, since) = (Staff::following(), Instant::now());
            while !answer(&staff) {
                assert!(since.elapsed() < DEADLINE, "it does not come about");
            }
        };
        thread::scope(|scope| scope.spawn(answers).join().unwrap());
    }

    /// Whether this thread is courteous and bound to the program's CPU.
    fn is_with(cpu: usize) -> bool {
        Policy::current() == Some(Policy::Courteous) && cpus() == [cpu]
    }

    #[test]
    fn threads_follow_the_one_program_that_asks() {
        let Some(_alone) = alone() else { return };
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
        let Some(_alone) = alone() else { return };
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
    fn an_idle_thread_is_unbound() {
        let Some(_alone) = alone() else { return };
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

    /// Whether a thread becomes courteous or bound by answering these requests for some bursts.
    fn is_followed(ask: impl Fn(&Arc<Staff>, u32) + Send + Sync) -> bool {
        let (all, staff) = (cpus(), Staff::following());
        let answers = || {
            (0..20 * BURST).any(|number| {
                ask(&staff, number);
                Policy::current() == Some(Policy::Courteous) || cpus() != all
            })
        };
        thread::scope(|scope| scope.spawn(answers).join().unwrap())
    }

    #[test]
    fn several_programs_are_not_followed() {
        let Some(_alone) = alone() else { return };
        let programs = [Asking::new(), Asking::new()];
        let ask = |staff: &Arc<Staff>, program: usize| drop(staff.begin(programs[program].id, 0));
        assert!(!is_followed(|staff, number| ask(staff, number as usize % 2)));
        assert!(!is_followed(|staff, number| ask(staff, number as usize / 2 % 2)));
        // The second program asks only now and then.
        until_done(|staff| {
            (0..15).for_each(|_| ask(staff, 0));
            let is_followed = Policy::current() == Some(Policy::Courteous);
            ask(staff, 1);
            is_followed
        });
    }

    #[test]
    fn threads_leave_a_program_when_others_ask() {
        let Some(_alone) = alone() else { return };
        let programs = [Asking::new(), Asking::new()];
        let all = cpus();
        programs[0].go.send(all[0]).unwrap();
        for (others, size) in [(MOST_OTHERS + 1, 0), (1, SMALL + 1)] {
            until_done(|staff| {
                (0..2 * BURST).for_each(|_| drop(staff.begin(programs[0].id, 0)));
                let was_with = is_with(all[0]);
                // Each of another program than the request before.
                (0..others).for_each(|number| drop(staff.begin(programs[(number as usize + 1) % 2].id, size)));
                let is_ordinary = cpus() == all && Policy::current() == Some(Policy::Ordinary);
                assert!(is_ordinary || !was_with, "after {others} of {size} bytes");
                was_with
            });
        }
    }

    #[test]
    fn a_program_is_not_followed_while_another_request_is_answered() {
        let Some(_alone) = alone() else { return };
        let asking = Asking::new();
        let together = |staff: &Arc<Staff>, _| {
            let first = staff.begin(asking.id, 0);
            drop((staff.begin(asking.id, 0), first));
        };
        assert!(!is_followed(together));
    }

    #[test]
    fn a_program_that_wants_much_or_is_the_kernel_is_not_followed() {
        let Some(_alone) = alone() else { return };
        let asking = Asking::new();
        assert!(!is_followed(|staff, _| drop(staff.begin(asking.id, SMALL + 1))));
        assert!(!is_followed(|staff, _| drop(staff.begin(0, 0))));
    }

    #[test]
    fn a_program_that_is_gone_is_not_followed() {
        let Some(_alone) = alone() else { return };
        for id in [u32::MAX, i32::MAX.cast_unsigned()] {
            assert!(!is_followed(|staff, _| drop(staff.begin(id, 0))));
        }
    }
}
