//! Devices that grow and shrink in a life. A device gets longer, which its pool notices at once or at the next import,
//! and uses on request. And the devices of a vdev are shrunk.
//!
//! Every other device is an image, which is truncated after a shrink. Space given up on the others is taken back at
//! times.

use std::sync::Arc;

use dataset::jobs::Job;
use pool::{
    admin::{MIN_DEVICE, ShrinkPlan, Wanted},
    device::Device,
    units::MIB,
    vdev::{Group, State, Vdev},
};

use super::{Life, devices::Operated};

/// The greatest length of a device, in bytes.
const LONGEST: u64 = 128 * MIB;

/// By how many bytes devices grow and shrink: part of a region, some regions, many.
const LONGER: [u64; 4] = [MIB / 2, 4 * MIB + 7, 9 * MIB, 24 * MIB];
const SMALLER: [u64; 4] = [2 * MIB, 5 * MIB, 8 * MIB, 24 * MIB];

impl Life {
    /// Makes a device longer.
    pub(super) fn lengthen_one(&mut self) -> Operated {
        let vdevs = self.world.engine().storage().vdevs.all();
        let leaves: Vec<_> = vdevs.iter().flat_map(|vdev| vdev.leaves()).collect();
        let Some(leaf) = self.pick(&leaves) else { return Ok(None) };
        let name = leaf.name().to_owned();
        let found = self.recorded.iter().find(|device| device.name() == name);
        let device = found.expect("every device of a life is known").clone();
        let there = self.expect("measure", device.measure())?;
        let longer = there + LONGER[self.below(LONGER.len())];
        if longer > LONGEST {
            return Ok(None);
        }
        device.make(longer);
        let is_noted = self.one_in(2);
        if is_noted {
            self.operator.heal(false);
            self.expect("measure the devices", self.world.pool.remeasure())?;
        }
        Ok(Some(("longer", format!("{name}: {there} to {longer} bytes, noted: {is_noted}"))))
    }

    /// Expands the pool onto the added length of all devices, or one vdev, which also takes back space given up.
    pub(super) fn use_what_has_grown(&mut self) -> Operated {
        if self.world.datasets.resize().is_under_way() {
            return Ok(None);
        }
        self.operator.heal(false);
        let pool = self.world.pool.clone();
        self.expect("measure the devices", pool.remeasure())?;
        let whole: Vec<_> =
            pool.engine().storage().vdevs.all().into_iter().filter(|vdev| self.is_whole(vdev)).collect();
        let only = if self.one_in(4) { None } else { self.pick(&whole) };
        let is_regained = match &only {
            Some(vdev) => self.expect("regain", pool.regain(vdev.id()))?,
            None => false,
        };
        let bytes = self.expect("expand", pool.expand(only.map(|vdev| vdev.id())))?;
        Ok((is_regained || bytes > 0).then(|| {
            (if is_regained { "regain" } else { "use growth" }, format!("{bytes} bytes, taken back: {is_regained}"))
        }))
    }

    /// Shrinks the devices of a vdev, if the data at their end finds room elsewhere.
    pub(super) fn make_one_smaller(&mut self) -> Operated {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        let pool = self.world.pool.clone();
        let less = SMALLER[self.below(SMALLER.len())];
        let plan = |vdev: Arc<dyn Vdev>| -> Option<ShrinkPlan> {
            let name = vdev.leaves()[0].name().to_owned();
            let now = vdev.labelled().iter().map(|leaf| leaf.device().size()).min()?;
            let is_possible = vdev.as_raidz().is_none() && self.is_whole(&vdev) && now > MIN_DEVICE + 2 * MIB;
            let wanted = Wanted::To(now.saturating_sub(less).max(MIN_DEVICE));
            Some(self.expect("plan a resize", pool.plan_shrink(&name, wanted))).filter(|_| is_possible)?.ok()
        };
        let plans: Vec<_> = pool.engine().storage().vdevs.all().into_iter().filter_map(plan).collect();
        let mut plans: Vec<_> = plans.into_iter().filter(|plan| plan.moving.fits()).collect();
        if plans.iter().any(|plan| plan.moving.bytes > 0) {
            plans.retain(|plan| plan.moving.bytes > 0);
        }
        let Some(plan) = self.pick(&plans) else { return Ok(None) };
        self.operator.heal(false);
        self.expect("resize", self.world.datasets.resize().start(&plan, None))?;
        let (name, bytes) = (plan.name, plan.moving.bytes);
        let kind = if bytes > 0 { "shrink" } else { "shrink empty" };
        Ok(Some((kind, format!("{name} from {} to {} bytes, {bytes} to be moved", plan.now, plan.size))))
    }

    /// Whether all devices of a vdev are present and complete, and no spare is in use.
    fn is_whole(&self, vdev: &Arc<dyn Vdev>) -> bool {
        let label = self.world.pool.label();
        let members = vdev.as_group().map(Group::members);
        let mut members = members.iter().flat_map(|members| members.iter());
        !vdev.is_lost()
            && members.all(|member| member.state() == State::Complete && !label.is_spare(member.leaf.guid()))
    }
}
