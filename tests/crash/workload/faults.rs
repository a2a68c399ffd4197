//! Devices that fail for a while, and the operator who repairs them.
//!
//! A step arms a fault: later, a write or a flush fails in the middle of some operation. The pool is suspended, and at
//! that very instant, on the same thread, the operator is called: the devices work again, perhaps without their
//! unflushed writes, and the pool is cleared. So the interrupted step must succeed as if there had been no failure, and
//! keep its promise.
//!
//! In pools of many devices a step makes reads fail on a device that its vdev does not need. No user may notice.
//!
//! Another step gives up: a commit fails with no operator to resume the pool, which is then opened again from the
//! devices. The state found must be one that a power failure could have left. Then a scrub restores lost redundancy: if
//! a device refuses one copy of a block, a commit stores the block as long as another copy is accepted.

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
    Life, Operated,
    devices::{Operated as DeviceOperated, spared},
    plant::Plant,
};
use crate::{
    judge::fits,
    losses::refuse,
    observe,
    world::{Outcome, POOL},
};

/// How many writes or flushes may pass before the fault: about two commits.
const PASSING: usize = 24;
/// How often the fault hits at most.
const STRIKES: usize = 3;

/// The bytes that a resilver copies in a step.
const RESILVER_STEP: u64 = 1 << 16;
/// The bytes that a scrub reads in a step.
const SCRUB_STEP: u64 = 1 << 20;

/// The operator of a life's devices.
#[derive(Default)]
pub(crate) struct Operator {
    devices: Mutex<Vec<Arc<FaultDevice>>>,
    /// Whether failed devices come back without their unflushed writes.
    loses: AtomicBool,
    /// The device whose reads fail.
    refusing: Mutex<Option<Arc<FaultDevice>>>,
    /// Planted defect: resumes the pool without clearing it.
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

    /// Wraps a device so that it can fail from now on.
    pub(super) fn take_in(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let device = Arc::new(FaultDevice::new(device));
        self.devices.lock().push(device.clone());
        device
    }

    /// The device of this name.
    pub(super) fn device(&self, name: &str) -> Option<Arc<FaultDevice>> {
        self.devices.lock().iter().find(|device| device.name() == name).cloned()
    }

    /// Attends to an opened pool from now on.
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

    /// Ends the read failures.
    fn end_refusal(&self) {
        if let Some(device) = self.refusing.lock().take() {
            device.heal();
        }
    }

    /// Makes every device work again.
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

    /// Makes reads fail on a device that its vdev does not need, in part or everywhere, until another device is about
    /// to fail or the operator acts. All reads must return the same data.
    pub(super) fn have_one_refuse(&mut self) -> DeviceOperated {
        let is_asked = |group: &Group, member: &Member| member.state() == State::Complete && spared(group, member);
        let Some((_, member)) = self.pick(&self.members_where(is_asked)) else { return Ok(None) };
        self.operator.heal(false);
        let name = member.leaf.name().to_owned();
        let Some(device) = self.operator.device(&name) else { return Ok(None) };
        member.leaf.counters().clear_errors();
        refuse(&device, &mut self.random);
        *self.operator.refusing.lock() = Some(device);
        // The cache must not answer these reads.
        self.world.engine().forget_read();
        self.judge_live()?;
        if member.leaf.counters().snapshot().read_errors > 0 {
            *self.done.entry("refused").or_default() += 1;
        }
        self.world.engine().forget_read();
        Ok(Some(("refuse", name)))
    }

    fn arm(&mut self, passing: usize, times: u64) -> String {
        // The redundancy that the choice relied on must hold until the fault.
        self.operator.end_refusal();
        let devices = self.operator.devices.lock().clone();
        let device = self.pick(&devices).expect("a pool has a device");
        let on = if self.one_in(3) { Operation::Flush } else { Operation::Write };
        let skip = self.below(if on == Operation::Flush { passing / 4 } else { passing }) as u64;
        device.inject(Fault { on, range: 0..u64::MAX, skip, times, effect: Effect::Fail(Errno::IO.raw_os_error()) });
        format!("{} will fail {times} times: {on:?}, after {skip}", device.name())
    }

    /// Brings faulted devices of the mirror online, or continues their resilver.
    pub(super) fn see_to_the_mirror(&mut self) -> Outcome<String> {
        let taken = self.take_devices_back()?;
        let steps = self.below(40);
        let datasets = self.world.datasets.clone();
        for _ in 0..steps {
            if self.expect("resilver", datasets.resilver().advance(RESILVER_STEP))? == Progress::Idle {
                break;
            }
        }
        Ok(format!("{taken} devices taken back, {steps} steps of resilver: {:?}", self.world.mirrored()))
    }

    /// Brings faulted devices of the mirror online, perhaps without their unflushed writes.
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

    /// Commits on a device that fails for good, gives up, and opens the pool again.
    pub(super) fn give_up(&mut self) -> Operated {
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

    /// Restores copies of blocks that commits left out while a device refused them.
    fn scrub(&mut self) -> Outcome<()> {
        let datasets = &self.world.datasets;
        // A scrub under way may be past these blocks.
        let before = self.expect("the scrub's state", datasets.scrub().status())?;
        if before.is_some_and(|status| matches!(status.state, ScrubState::Running | ScrubState::Paused)) {
            self.expect("stop the scrub", datasets.scrub().give_up())?;
        }
        self.expect("start a scrub", datasets.scrub().start())?;
        while self.expect("scrub", datasets.scrub().advance(SCRUB_STEP))? == Progress::Worked {}
        let status = self.expect("the scrub's result", datasets.scrub().status())?;
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
