//! The vdevs of a pool and their devices as records, for `pool status`, `pool list -v` and `pool iostat`.

use std::sync::Arc;

use dataset::jobs::Kind;
use pool::{
    device::Flow,
    format::label::Label,
    space::SpaceTotals,
    units::VdevId,
    vdev::{Group, Health, Leaf, Member, State, Vdev},
};
use protocol::{IoCounts, IoSample, VdevKind, VdevRecord, VdevRole};

use super::{
    images::Sight,
    layout::{kind_of, name_of, role_of},
    open_pool::OpenPool,
    pool::allocated,
    spares,
};

/// What the records of one answer are made from, so that all records agree.
struct Records<'a> {
    pool: &'a OpenPool,
    totals: SpaceTotals,
    sight: Sight,
    label: Label,
    /// Some blocks have no good copy, so no resilver can complete.
    is_stuck: bool,
}

impl Records<'_> {
    fn of(&self, vdev: &dyn Vdev) -> VdevRecord {
        match vdev.as_group() {
            Some(group) => self.group(vdev, group),
            None => self.alone(vdev),
        }
    }

    /// A device of a vdev, with the space of the whole vdev.
    fn leaf(&self, vdev: &dyn Vdev, leaf: &Leaf) -> VdevRecord {
        let counts = leaf.counters().snapshot();
        let (state, note) = self.sight.state(leaf);
        let (size, allocated) = self.space(vdev.id());
        VdevRecord {
            kind: VdevKind::Disk,
            role: self.role(vdev),
            path: leaf.name().to_owned(),
            members: Vec::new(),
            note,
            guid: leaf.guid().0,
            state,
            size,
            allocated,
            fragmentation: self.fragmentation(vdev.id()),
            read_errors: counts.read_errors,
            write_errors: counts.write_errors,
            checksum_errors: counts.checksum_errors,
            trim: Some(self.pool.pass_record(Kind::Trim, vdev.id(), leaf)),
            initialization: Some(self.pool.pass_record(Kind::Initialize, vdev.id(), leaf)),
            slow: Some(leaf.meter().slow()),
        }
    }

    /// A vdev of one device, or a lost vdev, whose devices are shown as a group.
    fn alone(&self, vdev: &dyn Vdev) -> VdevRecord {
        let devices: Vec<VdevRecord> = vdev.leaves().iter().map(|leaf| self.leaf(vdev, leaf)).collect();
        let record = devices.first().cloned().expect("a vdev has devices");
        let note = self.note(vdev);
        match vdev.group_name() {
            None => VdevRecord { note: note.or(record.note), ..record },
            Some(name) => VdevRecord {
                kind: kind_of(vdev),
                path: name.to_owned(),
                members: devices,
                note,
                guid: vdev.guid().0,
                trim: None,
                initialization: None,
                slow: None,
                ..record
            },
        }
    }

    /// A mirror or a RAID-Z with its devices.
    fn group(&self, vdev: &dyn Vdev, group: &Group) -> VdevRecord {
        let all = group.members();
        let member = |member: &Arc<Member>| {
            let record = self.leaf(vdev, &member.leaf);
            VdevRecord { note: note_of(member, &all, self.is_stuck, &self.label).or(record.note), ..record }
        };
        let members = all.iter().map(member).collect();
        let spared = |guid: u64| {
            let member = all.iter().find(|member| member.leaf.guid().0 == guid)?;
            member.replaces().filter(|_| self.label.is_spare(member.leaf.guid())).map(|old| old.0)
        };
        let (size, allocated) = self.space(vdev.id());
        VdevRecord {
            kind: kind_of(vdev),
            role: self.role(vdev),
            members: spares::beside(members, &spared),
            note: self.note(vdev),
            guid: vdev.guid().0,
            size,
            allocated,
            fragmentation: self.fragmentation(vdev.id()),
            ..VdevRecord::idle(name_of(vdev), self.state(group))
        }
    }

    /// The state of a mirror or a RAID-Z.
    fn state(&self, group: &Group) -> protocol::State {
        let all = group.members();
        // A device with a removed file, or a slow device, still serves its data.
        let is_usable =
            |member: &&Arc<Member>| member.state() == State::Complete && member.leaf.health() == Health::Online;
        let is_out = |member: &Arc<Member>| {
            member.state() == State::Out || self.sight.state(&member.leaf).0 != protocol::State::Online
        };
        let usable = all.iter().filter(is_usable).map(|member| member.column());
        match (group.quorum().suffice(usable), all.iter().any(is_out)) {
            (false, _) => protocol::State::Unavail,
            (true, true) => protocol::State::Degraded,
            (true, false) => protocol::State::Online,
        }
    }

    fn role(&self, vdev: &dyn Vdev) -> VdevRole {
        role_of(vdev.id(), &self.label.sections.classes)
    }

    /// Size and allocated space of a vdev, in bytes.
    fn space(&self, vdev: VdevId) -> (u64, u64) {
        let space = self.totals.vdevs.iter().find(|total| total.vdev == vdev);
        space.map_or((0, 0), |space| (space.size, space.allocated))
    }

    fn fragmentation(&self, vdev: VdevId) -> u64 {
        self.pool.engine().storage().space.fragmentation(Some(vdev)).into()
    }

    /// A note on a vdev that is being removed.
    fn note(&self, vdev: &dyn Vdev) -> Option<String> {
        let is_closed = self.pool.engine().storage().space.is_closed(vdev.id());
        (is_closed && !vdev.is_lost()).then(|| "(removing)".to_owned())
    }
}

impl OpenPool {
    /// The vdevs, then the cache devices.
    pub(super) fn vdev_records(&self) -> Vec<VdevRecord> {
        let records = Records {
            pool: self,
            totals: self.engine().space_totals(),
            sight: self.images.sight(),
            label: self.pool.label(),
            is_stuck: self.is_stuck(),
        };
        self.vdevs().all().iter().map(|vdev| records.of(&**vdev)).chain(self.cache_records()).collect()
    }

    pub(super) fn io_counters(&self) -> IoSample {
        let totals = self.engine().space_totals();
        let classes = self.pool.label().sections.classes;
        let counts = |vdev: &dyn Vdev| {
            let space = totals.vdevs.iter().find(|total| total.vdev == vdev.id());
            let allocated = space.map_or(0, |space| space.allocated);
            let mut sum = IoCounts {
                name: name_of(vdev),
                role: role_of(vdev.id(), &classes),
                allocated,
                free: space.map_or(0, |space| space.size.saturating_sub(allocated)),
                ..IoCounts::default()
            };
            let member = |leaf: &Arc<Leaf>| {
                let counts = leaf.counters().snapshot();
                IoCounts {
                    name: leaf.name().to_owned(),
                    reads: counts.reads,
                    writes: counts.writes,
                    read_bytes: counts.read_bytes,
                    written_bytes: counts.written_bytes,
                    flow: leaf.meter().snapshot(),
                    ..IoCounts::default()
                }
            };
            let members: Vec<IoCounts> = vdev.leaves().iter().map(member).collect();
            for counts in &members {
                sum.reads += counts.reads;
                sum.writes += counts.writes;
                sum.read_bytes += counts.read_bytes;
                sum.written_bytes += counts.written_bytes;
                sum.flow.add(&counts.flow);
            }
            if vdev.group_name().is_some() {
                sum.members = members;
            }
            sum
        };
        let vdevs: Vec<IoCounts> = self.vdevs().all().iter().map(|vdev| counts(&**vdev)).collect();
        let total = |of: fn(&IoCounts) -> u64| vdevs.iter().map(of).sum();
        let mut flow = Flow::default();
        vdevs.iter().for_each(|vdev| flow.add(&vdev.flow));
        let pool = IoCounts {
            name: self.name().to_string(),
            role: VdevRole::Normal,
            allocated: allocated(&totals),
            free: totals.free,
            reads: total(|counts| counts.reads),
            writes: total(|counts| counts.writes),
            read_bytes: total(|counts| counts.read_bytes),
            written_bytes: total(|counts| counts.written_bytes),
            flow,
            members: Vec::new(),
        };
        let vdevs = vdevs.into_iter().chain(self.cache_counts()).collect();
        IoSample { elapsed: self.elapsed(), pool, vdevs }
    }
}

/// A note on a member, besides its state and its error counters.
fn note_of(member: &Member, all: &[Arc<Member>], is_stuck: bool, label: &Label) -> Option<String> {
    let state = if is_stuck { "incomplete" } else { "resilvering" };
    // An INUSE spare is not shown as a replacement.
    let is_spare = |other: &Member| label.is_spare(other.leaf.guid());
    let replaces = |other: &Member| other.replaces().filter(|_| !is_spare(other));
    let is_replaced = all.iter().any(|other| replaces(other) == Some(member.leaf.guid()));
    match (member.state(), replaces(member)) {
        (State::Resilvering | State::Resilvered, Some(old)) => {
            let old = all.iter().find(|other| other.leaf.guid() == old);
            let old = old.map_or_else(String::new, |old| format!(" {}", old.leaf.name()));
            Some(format!("({state}, replaces{old})"))
        }
        (State::Resilvering | State::Resilvered, None) => Some(format!("({state})")),
        _ if is_replaced => Some("(being replaced)".to_owned()),
        (State::Out, _) => member.leaf.trouble().map(|trouble| format!("({trouble})")),
        _ => None,
    }
}
