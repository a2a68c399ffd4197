//! Devices that fail for a while, and the operator who sees to them.
//!
//! A step arms a fault: sooner or later a write or a flush fails, in the middle of whatever is done then. The pool is
//! suspended, and at that very instant, on the same thread, the operator is called: the devices work again, having lost
//! perhaps all that was not flushed, and the pool is cleared. So the step that was under way must succeed as if nothing
//! had happened, and keep its promise.
//!
//! In pools of many devices a step has a device refuse to be read that others can do without. Nobody may notice.
//!
//! Another step gives up: a commit fails while nobody can resume the pool, which is then opened anew from what the devices
//! hold. That must be a state that a power failure might have left. Then a scrub makes good what was done without: a block
//! of which a device refuses one copy is stored as long as it takes another.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use dataset::{admin::Progress, catalogue::ScrubState};
use parking_lot::Mutex;
use pool::{
    admin::Pool,
    device::{Device, Effect, Fault, FaultDevice, Operation},
    error::Error,
    vdev::{Group, Health, Member, State},
};
use rustix::io::Errno;

use super::{
    Life, Told,
    devices::{Told as DeviceTold, spared},
    plant::Plant,
};
use crate::{
    judge::fits,
    losses::refuse,
    observe,
    world::{Outcome, POOL},
};

/// How many writes or flushes may pass before the fault strikes: about two commits of them.
const PASSING: usize = 24;
/// How often it strikes at most, if it is met again.
const STRIKES: usize = 3;

/// The bytes that a device is filled with in a step.
const FILLING_STEP: u64 = 1 << 16;
/// The bytes that a scrub reads in a step.
const SCRUB_STEP: u64 = 1 << 20;

/// Who sees to the devices of a life.
#[derive(Default)]
pub(crate) struct Operator {
    devices: Mutex<Vec<Arc<FaultDevice>>>,
    /// Whether devices that have failed come back without what was not flushed.
    loses: AtomicBool,
    /// The device that refuses to be read.
    refusing: Mutex<Option<Arc<FaultDevice>>>,
    /// Lets the pool go on without clearing it: a defect.
    forgetful: bool,
    /// How often the pool was suspended.
    calls: AtomicU64,
}

impl Operator {
    pub(super) fn new(plant: Option<Plant>) -> Arc<Operator> {
        Arc::new(Operator { forgetful: plant == Some(Plant::ForgetfulClear), ..Operator::default() })
    }

    /// How often the operator was called.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A device that can fail from now on.
    pub(super) fn take_in(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let device = Arc::new(FaultDevice::new(device));
        self.devices.lock().push(device.clone());
        device
    }

    /// The device of this name.
    pub(super) fn device(&self, name: &str) -> Option<Arc<FaultDevice>> {
        self.devices.lock().iter().find(|device| device.name() == name).cloned()
    }

    /// Sees to an opened pool.
    pub(super) fn attend(self: &Arc<Operator>, pool: &Arc<Pool>) {
        let suspension = pool.engine().suspension();
        let (operator, pool) = (self.clone(), Arc::downgrade(pool));
        suspension.watch(move || operator.see_to(&pool));
        suspension.enable();
    }

    fn see_to(&self, pool: &Weak<Pool>) {
        let Some(pool) = pool.upgrade().filter(|pool| pool.engine().suspension().is_suspended()) else { return };
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.heal(self.loses.load(Ordering::Relaxed));
        if self.forgetful {
            return pool.engine().suspension().resume();
        }
        let reopen = |name: &str| Err(Error::Request(format!("{name} is in its place and must be taken as it is")));
        pool.clear(&reopen).expect("devices that work are taken back");
    }

    /// The device that refused to be read does so no more.
    fn end_refusal(&self) {
        if let Some(device) = self.refusing.lock().take() {
            device.heal();
        }
    }

    /// Every device works again.
    pub(super) fn heal(&self, lose_cache: bool) {
        self.refusing.lock().take();
        for device in self.devices.lock().iter() {
            device.heal();
            if lose_cache {
                device.lose_cache();
            }
        }
    }
}

impl Life {
    /// Arms a fault for some later step.
    pub(super) fn let_a_device_fail(&mut self) -> String {
        let loses = self.one_in(2);
        self.operator.loses.store(loses, Ordering::Relaxed);
        let times = 1 + self.below(STRIKES) as u64;
        self.arm(PASSING, times)
    }

    /// A device of which its vdev can do without refuses to be read, in part or everywhere, until another one is about to fail or
    /// somebody sees to it. Who reads finds the same elsewhere.
    pub(super) fn have_one_refuse(&mut self) -> DeviceTold {
        let is_asked = |group: &Group, member: &Member| member.state() == State::Complete && spared(group, member);
        let Some((_, member)) = self.pick(&self.members_where(is_asked)) else { return Ok(None) };
        self.operator.heal(false);
        let name = member.leaf.name().to_owned();
        let Some(device) = self.operator.device(&name) else { return Ok(None) };
        member.leaf.counters().clear_errors();
        refuse(&device, &mut self.random);
        *self.operator.refusing.lock() = Some(device);
        // Else what is read is what was read before.
        self.world.engine().forget_read();
        self.judge_live()?;
        if member.leaf.counters().snapshot().read_errors > 0 {
            *self.done.entry("refused").or_default() += 1;
        }
        self.world.engine().forget_read();
        Ok(Some(("refuse", name)))
    }

    fn arm(&mut self, passing: usize, times: u64) -> String {
        // Whether others can do without it is not to change before they have to.
        self.operator.end_refusal();
        let devices = self.operator.devices.lock().clone();
        let device = self.pick(&devices).expect("a pool has a device");
        let on = if self.one_in(3) { Operation::Flush } else { Operation::Write };
        let skip = self.below(if on == Operation::Flush { passing / 4 } else { passing }) as u64;
        device.inject(Fault { on, range: 0..u64::MAX, skip, times, effect: Effect::Fail(Errno::IO.raw_os_error()) });
        format!("{} will fail {times} times: {on:?}, after {skip}", device.name())
    }

    /// Takes devices of the mirror back that were done without, or goes on filling them.
    pub(super) fn see_to_the_mirror(&mut self) -> Outcome<String> {
        let taken = self.take_devices_back()?;
        let steps = self.below(40);
        let datasets = self.world.datasets.clone();
        for _ in 0..steps {
            if self.expect("resilver", datasets.resilver_step(FILLING_STEP))? == Progress::Idle {
                break;
            }
        }
        Ok(format!("{taken} devices taken back, {steps} steps of filling: {:?}", self.world.mirrored()))
    }

    /// Takes devices of the mirror back that were done without. They may have lost what was not flushed.
    pub(super) fn take_devices_back(&mut self) -> Outcome<usize> {
        let devices = self.operator.devices.lock().clone();
        let mut taken = 0;
        for (name, is_complete) in self.world.mirrored() {
            let Some(device) = devices.iter().find(|device| device.name() == name).filter(|_| !is_complete) else {
                continue;
            };
            let pool = self.world.pool.clone();
            let is_out = pool.find_device(&name).is_ok_and(|(_, leaf)| leaf.health() != Health::Online);
            if !is_out {
                continue;
            }
            device.heal();
            if self.one_in(2) {
                device.lose_cache();
            }
            let found: Arc<dyn Device> = device.clone();
            taken += usize::from(self.expect("take a device back", pool.put_online(&name, &|_| Ok(found.clone())))?);
        }
        Ok(taken)
    }

    /// Commits on a device that fails for good, gives up, and opens what is there.
    pub(super) fn give_up(&mut self) -> Told {
        self.world.engine().suspension().abandon();
        let armed = self.arm(PASSING / 2, u64::MAX);
        let committed = self.world.engine().commit_anyway().is_ok();
        self.world.engine().abandon();
        self.actors.iter_mut().for_each(|actor| actor.open.clear());
        let loses = self.one_in(2);
        self.operator.heal(loses);
        let cut = self.recorder.len();
        self.open_anew()?;
        let found = observe::pool(&self.world, &self.world.list()?)?;
        if committed {
            match self.model.differences(&found) {
                differences if differences.is_empty() => {}
                differences => return Err(format!("a commit was lost:\n  {}", differences.join("\n  "))),
            }
        } else {
            self.judge_given_up(cut, &found)?;
        }
        self.scrub()?;
        self.model = found;
        for actor in &mut self.actors {
            if !self.model.datasets.contains_key(&actor.dataset) {
                actor.dataset = POOL.into();
            }
        }
        Ok(Some(format!("{armed}; committed: {committed}, cache lost: {loses}; given up and opened again")))
    }

    /// Makes good what commits have done without while a device refused it: a copy of what has others.
    fn scrub(&mut self) -> Outcome<()> {
        let datasets = &self.world.datasets;
        // One that goes on has been past what is to be made good.
        let before = self.expect("the scrub's state", datasets.scrub_status())?;
        if before.is_some_and(|status| matches!(status.state, ScrubState::Running | ScrubState::Paused)) {
            self.expect("stop the scrub", datasets.stop_scrub())?;
        }
        self.expect("start a scrub", datasets.start_scrub())?;
        while self.expect("scrub", datasets.scrub_step(SCRUB_STEP))? == Progress::Worked {}
        let status = self.expect("the scrub's result", datasets.scrub_status())?;
        match status.ok_or("a scrub that has ended is not known")?.errors {
            0 => Ok(()),
            errors => Err(format!("a scrub finds {errors} blocks without a whole copy")),
        }
    }

    fn judge_given_up(&self, cut: usize, found: &crate::model::Pool) -> Outcome<()> {
        let (promised, begun) = self.history.span(cut);
        fits(&self.history, cut, promised..=begun, found)
    }
}
