//! Requests about the pool itself: properties, state, devices, counters, history.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use dataset::{
    admin::Sharing,
    jobs::records,
    property::{
        Backing, FEATURE, POOL, PoolFigure, Property, Source,
        pool::{ALTROOT, ASHIFT, CACHE_SIZE, DIRTY_LIMIT, READONLY},
        size::format_bytes,
    },
};
use pool::{
    block::storage::Vdevs,
    device::{Device, MemoryDevice},
    format::label::{CACHE_DEVICES, KNOWN_FEATURES, Label, SPARES},
    space::SpaceTotals,
    vdev::{Health, Leaf, Member, State, Vdev},
};
use protocol::{
    Assignment, Failure, HistoryRecord, IoCounts, IoSample, Layout, PoolRecord, PoolStatus, PropertyRecord, VdevKind,
    VdevRecord, VdevRole, VdevSpec, VdevTreeSpec,
};

use super::{
    dataset::each_once,
    devices::{NewDevices, check_new},
    layout::{apart, asked, check_replication, devices_of, estimate, grouped, kind_of, name_of, role_of, shown_caches},
    open_pool::OpenPool,
    refusal::OrRefused,
    spares,
};
use crate::health::{self, Verdict};

/// Text for a value that does not exist.
const NONE: &str = "-";
const NANOS: i64 = 1_000_000_000;
/// How long `pool status` waits for the examination of bad copies found by readers, and the polling interval.
const EXAMINATION: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(5);

impl OpenPool {
    pub(super) fn pool_record(&self, names: &[String], vdevs: bool) -> Result<PoolRecord, Failure> {
        let all: Vec<String>;
        let names = match names {
            [] => {
                let features = KNOWN_FEATURES.iter().map(|name| format!("{FEATURE}{name}"));
                all = POOL.iter().map(|definition| definition.name.to_owned()).chain(features).collect();
                &all
            }
            names => {
                all = each_once(names);
                &all
            }
        };
        self.images.look();
        Ok(PoolRecord {
            name: self.name().to_string(),
            guid: self.guid(),
            state: self.state().to_string(),
            txg: self.engine().committed().0,
            properties: names.iter().map(|name| self.pool_property(name)).collect::<Result<_, _>>()?,
            vdevs: if vdevs { self.vdev_records() } else { Vec::new() },
            spares: if vdevs { self.spare_records() } else { Vec::new() },
        })
    }

    fn pool_property(&self, name: &str) -> Result<PropertyRecord, Failure> {
        let record = |value: String, source| PropertyRecord { name: name.to_owned(), value, source, received: None };
        if let Some(feature) = name.strip_prefix(FEATURE) {
            let state = self.datasets.feature_state(feature).or_refused("open", self.name())?;
            return Ok(record(state.to_owned(), Source::Local));
        }
        let found = Property::of_pool(name).ok();
        let Some(definition) = found.as_ref().and_then(Property::definition) else {
            return Ok(record(NONE.to_owned(), Source::Default));
        };
        let usual = definition.default.unwrap_or(NONE).to_owned();
        let (value, default) = match definition.backing {
            Backing::Pool(figure) => {
                let value = self.figure(figure)?.unwrap_or_else(|| NONE.to_owned());
                return Ok(record(value, Source::None));
            }
            Backing::Constant => return Ok(record(usual, definition.source_of_constant())),
            _ if READONLY.is(name) => (self.engine().read_only().then(|| "on".to_owned()), usual),
            _ if ASHIFT.is(name) => (Some(self.pool.label().ashift.to_string()), usual),
            _ if CACHE_SIZE.is(name) => (self.kept(name)?, self.defaults.cache.to_string()),
            _ if DIRTY_LIMIT.is(name) => (self.kept(name)?, self.defaults.dirty.to_string()),
            _ => (self.kept(name)?, usual),
        };
        let source = if value.is_some() { Source::Local } else { Source::Default };
        let value = value.unwrap_or(default);
        Ok(record(if value.is_empty() { NONE.to_owned() } else { value }, source))
    }

    /// The stored value of a property.
    fn kept(&self, name: &str) -> Result<Option<String>, Failure> {
        self.datasets.pool_property(name).or_refused("open", self.name())
    }

    /// A computed value; `None` if unavailable, for example while the pool is suspended.
    fn figure(&self, figure: PoolFigure) -> Result<Option<String>, Failure> {
        let totals = self.engine().space_totals();
        let is_suspended = self.engine().suspension().is_suspended();
        let number = match figure {
            PoolFigure::Size => totals.size,
            PoolFigure::Capacity => percent(totals.size - totals.free, totals.size),
            PoolFigure::Free => totals.free,
            PoolFigure::Allocated => allocated(&totals),
            PoolFigure::Fragmentation => self.engine().storage().space.fragmentation(None).into(),
            PoolFigure::Guid => self.guid(),
            // Reading the catalogue may need a device, which a suspended pool lacks.
            PoolFigure::BcloneUsed | PoolFigure::BcloneSaved | PoolFigure::BcloneRatio | PoolFigure::Freeing
                if is_suspended =>
            {
                return Ok(None);
            }
            PoolFigure::BcloneUsed => self.sharing()?.used,
            PoolFigure::BcloneSaved => self.sharing()?.saved,
            PoolFigure::BcloneRatio => return Ok(Some(ratio(self.sharing()?))),
            PoolFigure::Freeing => self.datasets.freeing().or_refused("open", self.name())?,
            PoolFigure::Leaked => 0,
            PoolFigure::ExpandSize => {
                return Ok(Some(self.pool.growth()).filter(|bytes| *bytes > 0).map(|b| b.to_string()));
            }
            PoolFigure::Name => return Ok(Some(self.name().to_string())),
            PoolFigure::Altroot => return Ok(Some(self.altroot.clone()).filter(|altroot| !altroot.is_empty())),
            PoolFigure::Health => return Ok(Some(self.state().to_string())),
            PoolFigure::DedupRatio => return Ok(Some("1.00".to_owned())),
            PoolFigure::Version | PoolFigure::Checkpoint => return Ok(None),
        };
        Ok(Some(number.to_string()))
    }

    fn sharing(&self) -> Result<Sharing, Failure> {
        self.datasets.sharing().or_refused("open", self.name())
    }

    pub(crate) fn set_pool(&self, assignments: &[Assignment]) -> Result<(), Failure> {
        for Assignment { name, .. } in assignments {
            if ALTROOT.is(name) || READONLY.is(name) {
                let problem = format!("property '{name}' can only be set at import");
                return Err(Failure::cannot("set property for", self.name(), problem));
            }
        }
        for Assignment { name, value } in assignments {
            self.datasets.set_pool_property(name, value).or_refused("set property for", self.name())?;
        }
        self.tune();
        Ok(())
    }

    /// Number of mounted file systems, by kernel transport.
    fn transports(&self) -> BTreeMap<String, u64> {
        let mut count = BTreeMap::new();
        for mount in self.mounts.iter().flat_map(|mounts| mounts.list()) {
            *count.entry(mount.transport).or_default() += 1;
        }
        count
    }

    pub(super) fn status(&self) -> Result<PoolStatus, Failure> {
        self.images.look();
        self.await_examinations();
        let vdevs = self.vdev_records();
        let has_own = |vdev: &VdevRecord| vdev.read_errors + vdev.write_errors + vdev.checksum_errors > 0;
        let has_errors = vdevs.iter().any(|vdev| has_own(vdev) || vdev.members.iter().any(has_own));
        // Read before the damage: a block examined after this point is part of the damage read below.
        let (waiting, passed) = self.engine().unexamined();
        let unexamined = waiting + passed;
        // Reading the catalogue may need a device, which a suspended pool lacks.
        let (damaged, freeing) = match self.engine().suspension().is_suspended() {
            true => (None, 0),
            false => (
                Some(self.datasets.damaged_names().or_refused("open", self.name())?),
                self.datasets.freeing().or_refused("open", self.name())?,
            ),
        };
        let jobs = records(&self.datasets, &self.pool).or_refused("open", self.name())?;
        let Verdict { state, status, action } =
            self.verdict(damaged.as_ref().map(Vec::len), unexamined > 0, has_errors, &jobs)?;
        Ok(PoolStatus {
            name: self.name().to_string(),
            guid: self.guid(),
            state: state.to_string(),
            txg: self.engine().committed().0,
            status,
            action,
            jobs,
            transports: self.transports(),
            activity: (freeing > 0).then(|| format!("freeing {} of destroyed datasets", format_bytes(freeing))),
            vdevs,
            spares: self.spare_records(),
            damaged,
            unexamined,
        })
    }

    /// Waits up to [`EXAMINATION`] until the bad copies just found by readers are examined.
    fn await_examinations(&self) {
        let engine = self.engine();
        if engine.unexamined().0 == 0 || !(engine.read_only() || engine.writable().is_ok()) {
            return;
        }
        self.jobs.wake();
        let end = engine.env().uptime() + EXAMINATION;
        while engine.unexamined().0 > 0 && engine.env().uptime() < end {
            thread::sleep(GLANCE);
        }
    }

    fn vdev_records(&self) -> Vec<VdevRecord> {
        let totals = self.engine().space_totals();
        let sight = self.images.sight();
        let is_stuck = self.is_stuck();
        let label = self.pool.label();
        let space_layer = &self.engine().storage().space;
        let classes = self.pool.label().sections.classes;
        let is_leaving = |vdev: &dyn Vdev| space_layer.is_closed(vdev.id()) && !vdev.is_lost();
        let note = |vdev: &dyn Vdev| is_leaving(vdev).then(|| "(removing)".to_owned());
        let record = |vdev: &dyn Vdev| {
            let role = role_of(vdev.id(), &classes);
            let space = totals.vdevs.iter().find(|total| total.vdev == vdev.id());
            let fragmentation = space_layer.fragmentation(Some(vdev.id())).into();
            let leaf_record = |leaf: &Leaf| {
                let counts = leaf.counters().snapshot();
                let (state, seen) = sight.state(leaf);
                VdevRecord {
                    kind: VdevKind::Disk,
                    role,
                    path: leaf.name().to_owned(),
                    members: Vec::new(),
                    note: seen,
                    guid: leaf.guid().0,
                    state: state.to_string(),
                    size: space.map_or(0, |space| space.size),
                    allocated: space.map_or(0, |space| space.allocated),
                    fragmentation,
                    read_errors: counts.read_errors,
                    write_errors: counts.write_errors,
                    checksum_errors: counts.checksum_errors,
                    trim: Some(self.trim_record(vdev.id(), leaf)),
                }
            };
            let Some(mirror) = vdev.as_group() else {
                let devices: Vec<VdevRecord> = vdev.leaves().iter().map(|leaf| leaf_record(leaf)).collect();
                let record = devices.first().cloned().expect("a vdev has devices");
                return match vdev.group_name() {
                    None => VdevRecord { note: note(vdev).or(record.note), ..record },
                    // A lost vdev: its devices are shown as a group.
                    Some(name) => VdevRecord {
                        kind: kind_of(vdev),
                        path: name.to_owned(),
                        members: devices,
                        note: note(vdev),
                        guid: vdev.guid().0,
                        trim: None,
                        ..record
                    },
                };
            };
            let all = mirror.members();
            let member_record = |member: &Arc<Member>| {
                let record = leaf_record(&member.leaf);
                VdevRecord { note: note_of(member, &all, is_stuck, &label).or(record.note), ..record }
            };
            let members: Vec<VdevRecord> = all.iter().map(member_record).collect();
            let is_usable = |(_, member): &(&VdevRecord, &Arc<Member>)| {
                // A device with a removed file, or a slow device, still serves its data.
                member.state() == State::Complete && member.leaf.health() == Health::Online
            };
            let usable = members.iter().zip(all.iter()).filter(is_usable).map(|(_, member)| member.column());
            let too_few = !mirror.quorum().suffice(usable);
            let spared = |guid: u64| {
                let member = all.iter().find(|member| member.leaf.guid().0 == guid)?;
                member.replaces().filter(|_| label.is_spare(member.leaf.guid())).map(|old| old.0)
            };
            let members = spares::beside(members, &spared);
            let is_out = |member: &Arc<Member>| {
                member.state() == State::Out || sight.state(&member.leaf).0 != health::State::Online
            };
            let state = match (too_few, all.iter().any(is_out)) {
                (true, _) => Health::Unavailable.as_str(),
                (false, true) => "DEGRADED",
                (false, false) => Health::Online.as_str(),
            };
            VdevRecord {
                kind: kind_of(vdev),
                role,
                path: name_of(vdev),
                members,
                note: note(vdev),
                guid: vdev.guid().0,
                state: state.to_owned(),
                size: space.map_or(0, |space| space.size),
                allocated: space.map_or(0, |space| space.allocated),
                fragmentation,
                read_errors: 0,
                write_errors: 0,
                checksum_errors: 0,
                trim: None,
            }
        };
        let vdevs = self.vdevs().all();
        vdevs.iter().map(|vdev| record(&**vdev)).chain(self.cache_records()).collect()
    }

    fn vdevs(&self) -> &Vdevs {
        &self.engine().storage().vdevs
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
                    ..IoCounts::default()
                }
            };
            let members: Vec<IoCounts> = vdev.leaves().iter().map(member).collect();
            for counts in &members {
                sum.reads += counts.reads;
                sum.writes += counts.writes;
                sum.read_bytes += counts.read_bytes;
                sum.written_bytes += counts.written_bytes;
            }
            if vdev.group_name().is_some() {
                sum.members = members;
            }
            sum
        };
        let vdevs: Vec<IoCounts> = self.vdevs().all().iter().map(|vdev| counts(&**vdev)).collect();
        let total = |of: fn(&IoCounts) -> u64| vdevs.iter().map(of).sum();
        let pool = IoCounts {
            name: self.name().to_string(),
            role: VdevRole::Normal,
            allocated: allocated(&totals),
            free: totals.free,
            reads: total(|counts| counts.reads),
            writes: total(|counts| counts.writes),
            read_bytes: total(|counts| counts.read_bytes),
            written_bytes: total(|counts| counts.written_bytes),
            members: Vec::new(),
        };
        let vdevs = vdevs.into_iter().chain(self.cache_counts()).collect();
        IoSample {
            elapsed: self.engine().env().uptime().saturating_sub(self.opened).as_nanos().try_into().unwrap_or(u64::MAX),
            pool,
            vdevs,
        }
    }

    /// The history; with `internal`, including internal events.
    pub(super) fn history(&self, internal: bool) -> Result<Vec<HistoryRecord>, Failure> {
        // Commits the latest lines. If the pool takes no more changes, the history up to the last commit is still
        // readable.
        if let Err(error) = self.engine().commit() {
            tracing::debug!("the history may lack its latest lines: {error}");
        }
        let events = self.datasets.history().or_refused("open", self.name())?;
        let record = |event: dataset::admin::Event| HistoryRecord {
            time: event.time.div_euclid(NANOS),
            txg: event.txg.0,
            internal: event.user.is_empty(),
            user: event.user.parse().ok().map(|user| (user, event.host)),
            text: event.command,
        };
        Ok(events.into_iter().map(record).filter(|record| internal || !record.internal).collect())
    }

    pub(super) fn add_vdevs(
        &self,
        vdevs: &[VdevTreeSpec],
        spares: &[VdevSpec],
        force: bool,
        dry_run: bool,
    ) -> Result<Layout, Failure> {
        const ACTION: &str = "add to";
        let name = self.name().to_string();
        let (vdevs, caches) = apart(vdevs);
        let vdevs = &vdevs[..];
        let (present, specs) = (self.vdevs().all(), devices_of(vdevs));
        if !force && !vdevs.is_empty() {
            check_replication(vdevs, &present, &self.pool.label().sections.classes, ACTION, &name)?;
        }
        let all: Vec<VdevSpec> = specs.iter().chain(&caches).chain(spares).cloned().collect();
        let devices = check_new(&all, ACTION, &name, force)?;
        if !force {
            let (others, standing) = devices.split_at(specs.len() + caches.len());
            self.check_spares(spares, standing, &others[..specs.len()])?;
        }
        self.check_features(vdevs, &devices, (!spares.is_empty(), !caches.is_empty())).or_refused(ACTION, &name)?;
        if dry_run {
            let highest = present.last().map(|vdev| vdev.id()).max(self.engine().storage().space.highest_vdev());
            let next = highest.map_or(0, |highest| highest.0 as usize + 1);
            let mut layout = self.layout();
            let paths = caches.iter().map(|cache| cache.path.to_text()).collect::<Vec<_>>();
            let (had, kept) = layout.vdevs.into_iter().partition(|vdev| vdev.role == VdevRole::Cache);
            let (had, kept): (Vec<_>, Vec<_>) = (had, kept);
            let (sector, region) = (self.engine().sector().into(), self.pool.label().region_size);
            let mut new = asked(vdevs, next);
            layout.size += estimate(&mut new, vdevs, &devices, sector, Some(region));
            layout.vdevs = kept.into_iter().chain(new).chain(had).chain(shown_caches(paths.into_iter())).collect();
            layout.spares.extend(spares.iter().map(|spare| spare.path.to_text()));
            return Ok(layout);
        }
        if vdevs.is_empty() {
            self.add_spares(spares, force)?;
            self.add_caches(&caches, force)?;
            return Ok(self.layout());
        }
        let standing: Vec<VdevSpec> = specs.iter().chain(spares).cloned().collect();
        let taken = NewDevices::take(&standing, ACTION, &name, force)?;
        let mut devices = taken.devices();
        let spare_devices = devices.split_off(specs.len());
        let addition = self.pool.begin_add_with(grouped(vdevs, devices), &spare_devices).or_refused(ACTION, &name)?;
        // From here on a label may name the devices, even after a failure.
        taken.keep();
        addition.finish().or_refused(ACTION, &name)?;
        // Cache devices can be removed at any time, unlike the vdevs above, so they are added last.
        self.add_caches(&caches, force)?;
        Ok(self.layout())
    }

    /// Refuses vdevs on devices of these sizes, spares, or cache devices if the labels would need a disabled feature.
    fn check_features(
        &self,
        vdevs: &[VdevTreeSpec],
        sizes: &[u64],
        (spares, caches): (bool, bool),
    ) -> dataset::error::Result<()> {
        let placeholder = |(spec, size): (VdevSpec, &u64)| -> Arc<dyn Device> {
            Arc::new(MemoryDevice::new(spec.path.to_text(), *size))
        };
        let devices = devices_of(vdevs).into_iter().zip(sizes).map(placeholder).collect();
        let mut needed = self.pool.features_of(&grouped(vdevs, devices))?;
        needed.extend(spares.then(|| SPARES.to_owned()));
        needed.extend(caches.then(|| CACHE_DEVICES.to_owned()));
        needed.iter().try_for_each(|feature| self.datasets.check_feature(feature))
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

/// Space in use, in bytes, including freed space that is not reusable yet.
fn allocated(totals: &SpaceTotals) -> u64 {
    totals.size - totals.free
}

/// `bcloneratio`: bytes referenced per byte that shared blocks take, with two decimals.
fn ratio(sharing: Sharing) -> String {
    let Sharing { used, saved } = sharing;
    let hundredths = if used == 0 { 100 } else { (u128::from(used) + u128::from(saved)) * 100 / u128::from(used) };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_sharing_is_that_of_all_references() {
        assert_eq!(ratio(Sharing { used: 0, saved: 0 }), "1.00");
        assert_eq!(ratio(Sharing { used: 3, saved: 2 }), "1.66");
        assert_eq!(ratio(Sharing { used: 1, saved: u64::MAX }), "18446744073709551616.00");
    }

    #[test]
    fn percentages_neither_overflow_nor_divide_by_zero() {
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(1, 3), 33);
        assert_eq!(percent(0, 0), 0);
    }
}
