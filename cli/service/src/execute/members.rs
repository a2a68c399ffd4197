//! Requests about members of mirrors and RAID-Zs: attach, detach, replace, offline, online; and the resilver
//! afterwards.

use std::{path::PathBuf, sync::Arc};

use dataset::jobs::Kind;
use pool::{
    device::{Access, Device, MemoryDevice},
    format::label::RAIDZ_EXPANSION,
    units::Guid,
    vdev::{Health, Member, State},
};
use protocol::{Failure, Layout, SplitRecord, VdevSpec};

use super::{
    devices::{self, NewDevices, check_new},
    job::Job,
    layout,
    open_pool::OpenPool,
    refusal::OrRefused,
};
use crate::health::Condition;

/// Maximum number of damaged files named in a refusal.
const NAMED: usize = 10;

/// Which conditions the members of mirrors and RAID-Zs are in: one flag per kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub(super) offline: bool,
    pub(super) unavailable: bool,
    pub(super) faulted: bool,
    pub(super) resilvering: bool,
    pub(super) stuck: bool,
    /// A log vdev is missing.
    pub(super) log_lost: bool,
}

impl Needs {
    /// The pool's conditions from these flags.
    pub(super) fn conditions(self) -> Vec<Condition> {
        let all = [
            (self.stuck, Condition::Stuck),
            (self.faulted, Condition::Faulted),
            (self.unavailable, Condition::Missing),
            (self.log_lost, Condition::LogLost),
            (self.offline, Condition::Offline),
            (self.resilvering, Condition::Resilvering),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, condition)| condition).collect()
    }
}

impl OpenPool {
    pub(super) fn reopen(&self, path: &str) -> pool::error::Result<Arc<dyn Device>> {
        let access = if self.engine().read_only() { Access::ReadOnly } else { Access::ReadWrite };
        Ok(devices::open_all(&[path.into()], access)?.remove(0))
    }

    /// Attaches a device to a mirror, replaces a device, or widens a RAID-Z by one column. A spare used as the
    /// replacement becomes INUSE.
    pub(super) fn attach(
        &self,
        beside: &str,
        new: &VdevSpec,
        replace: bool,
        force: bool,
        limit: Option<u64>,
    ) -> Result<Layout, Failure> {
        let action = if replace { "replace" } else { "attach to" };
        let raidz = self.pool.find_vdev(beside).ok().filter(|vdev| !replace && vdev.as_raidz().is_some());
        let device = match raidz {
            Some(_) => beside.to_owned(),
            None => self.pool.find_device(beside).or_refused(action, beside)?.1.name().to_owned(),
        };
        if replace && self.pool.use_spare(beside, &new.path.to_text()).or_refused(action, beside)? {
            self.jobs.wake();
            return Ok(self.layout());
        }
        self.check_not_own(&device, new, action, replace)?;
        let vacated = if replace { self.let_go_in_place(beside, new, force)? } else { None };
        let attached = self.attach_new(beside, new, raidz.is_some(), replace, force, limit);
        if let (Err(_), Some(number)) = (&attached, vacated) {
            self.take_back_in_place(number);
        }
        attached?;
        self.jobs.wake();
        Ok(self.layout())
    }

    /// Takes a new device and attaches the device as requested.
    fn attach_new(
        &self,
        beside: &str,
        new: &VdevSpec,
        is_column: bool,
        replace: bool,
        force: bool,
        limit: Option<u64>,
    ) -> Result<(), Failure> {
        let action = if replace { "replace" } else { "attach to" };
        let taken = NewDevices::take(std::slice::from_ref(new), action, beside, force)?;
        let device = taken.devices().remove(0);
        match is_column {
            true => {
                self.datasets.check_feature(RAIDZ_EXPANSION).or_refused(action, beside)?;
                self.datasets.expansion().prepare(limit).or_refused(action, beside)?;
                self.pool.attach_column(beside, device).map(drop).or_refused(action, beside)?;
            }
            false if limit.is_some() => {
                return Err(Failure::cannot(action, beside, "a limit is only supported for the expansion of a raidz"));
            }
            false => self.pool.attach(beside, device, replace).or_refused(action, beside)?,
        }
        taken.keep();
        Ok(())
    }

    /// The layout after replacing a device; changes nothing.
    pub(super) fn plan_replace(&self, old: &str, new: &VdevSpec, force: bool) -> Result<Layout, Failure> {
        const ACTION: &str = "replace";
        let leaf = self.pool.find_device(old).or_refused(ACTION, old)?.1;
        let path = new.path.to_text();
        let spares = self.pool.spares();
        let spare = spares.iter().find(|spare| spare.leaf.name() == path || spare.leaf.guid().to_string() == path);
        let (name, size) = match spare {
            Some(spare) if spare.used_in.is_some() => {
                let why = format!("the spare {} is already in use", spare.leaf.name());
                return Err(Failure::cannot(ACTION, old, why));
            }
            Some(spare) => (spare.leaf.name().to_owned(), spare.leaf.device().size()),
            None => {
                self.check_not_own(leaf.name(), new, ACTION, true)?;
                if self.in_place(old, new, force)?.is_some() {
                    return Ok(self.layout());
                }
                (path, check_new(std::slice::from_ref(new), ACTION, old, force)?.iter().sum())
            }
        };
        self.pool.check_replace(old, &MemoryDevice::new(name.clone(), size)).or_refused(ACTION, old)?;
        let mut layout = self.layout();
        for vdev in &mut layout.vdevs {
            let shown = vdev.devices.iter_mut().chain([&mut vdev.name]);
            shown.filter(|shown| **shown == leaf.name()).for_each(|shown| shown.clone_from(&name));
        }
        Ok(layout)
    }

    /// The layout after attaching a device beside a device, or to a RAID-Z; changes nothing.
    pub(super) fn plan_attach(&self, beside: &str, new: &VdevSpec, force: bool) -> Result<Layout, Failure> {
        const ACTION: &str = "attach to";
        let raidz = self.pool.find_vdev(beside).ok().filter(|vdev| vdev.as_raidz().is_some());
        let vdev = match &raidz {
            Some(raidz) => raidz.clone(),
            None => self.pool.find_device(beside).or_refused(ACTION, beside)?.0,
        };
        let sizes = check_new(std::slice::from_ref(new), ACTION, beside, force)?;
        let path = new.path.to_text();
        let planned = MemoryDevice::new(path.clone(), sizes.iter().sum());
        let mut layout = self.layout();
        if raidz.is_some() {
            self.datasets.check_feature(RAIDZ_EXPANSION).or_refused(ACTION, beside)?;
            layout.size += self.pool.check_attach_column(beside, &planned).or_refused(ACTION, beside)?;
        } else {
            self.pool.check_attach(beside, &planned).or_refused(ACTION, beside)?;
        }
        let name = layout::name_of(&*vdev);
        if let Some(shown) = layout.vdevs.iter_mut().find(|shown| shown.name == name) {
            layout::widen(shown, vdev.id(), path);
        }
        Ok(layout)
    }

    pub(super) fn detach(&self, device: &str, force: bool) -> Result<Layout, Failure> {
        const ACTION: &str = "detach";
        let heirs = self.incomplete_heirs(device)?;
        if heirs.is_empty() {
            self.pool.detach(device).or_refused(ACTION, device)?;
            return Ok(self.layout());
        }
        if !force {
            return Err(self.refuse_loss(device, &heirs)?);
        }
        let guids: Vec<Guid> = heirs.iter().map(|heir| heir.leaf.guid()).collect();
        self.datasets.resilver().accept_losses(&guids).or_refused(ACTION, device)?;
        match self.pool.detach(device) {
            // The background replacement may have detached the device already.
            Err(_) if self.pool.find_device(device).is_err() => {}
            detached => detached.or_refused(ACTION, device)?,
        }
        Ok(self.layout())
    }

    /// The devices that could take over from a device, apart from blocks without a good copy: its replacement, or, if
    /// no other device is complete, all devices being resilvered beside it.
    fn incomplete_heirs(&self, device: &str) -> Result<Vec<Arc<Member>>, Failure> {
        let (vdev, leaf) = self.pool.find_device(device).or_refused("detach", device)?;
        let own = vdev.as_group().and_then(|group| Some((group, group.member(leaf.guid())?.column())));
        let Some((group, column)) = own.filter(|_| self.is_stuck()) else { return Ok(Vec::new()) };
        let mut others = group.of_column(column);
        others.retain(|other| other.leaf.guid() != leaf.guid());
        let is_alone = others.iter().all(|other| other.state() != State::Complete);
        let takes_over = |other: &Arc<Member>| is_alone || other.replaces() == Some(leaf.guid());
        others.retain(|other| other.state() == State::Resilvering && takes_over(other));
        Ok(others)
    }

    fn refuse_loss(&self, device: &str, heirs: &[Arc<Member>]) -> Result<Failure, Failure> {
        let lost = self.datasets.resilver().status().map_or(0, |status| status.errors);
        let blocks = if lost == 1 { "one block".to_owned() } else { format!("{lost} blocks") };
        let heirs: Vec<&str> = heirs.iter().map(|heir| heir.leaf.name()).collect();
        let problem = format!("{} lacks {blocks} without a good copy on other devices", heirs.join(", "));
        let mut names = self.datasets.damaged_names().or_refused("detach", device)?;
        if names.len() > NAMED {
            let more = names.split_off(NAMED).len();
            names.push(format!("{more} more, see pool status -v {}", self.name()));
        }
        let hint =
            format!("affected: {}\nto give up the blocks: pool detach -f {} {device}", names.join(", "), self.name());
        Ok(Failure::cannot("detach", device, problem).hint(hint))
    }

    /// Splits one device off each mirror into a new pool; with `dry_run`, only reports the devices.
    pub(super) fn split(&self, name: &str, devices: &[String], dry_run: bool) -> Result<SplitRecord, Failure> {
        const ACTION: &str = "split";
        let plan = self.pool.plan_split(devices).or_refused(ACTION, self.name())?;
        let guid = match dry_run {
            true => 0,
            false => self.pool.split(name, &plan).or_refused(ACTION, self.name())?.pool.0,
        };
        let leaving = plan.into_iter().map(|leaving| (leaving.mirror, leaving.path)).collect();
        Ok(SplitRecord { guid, leaving, layout: self.layout() })
    }

    pub(super) fn renumber(&self, guid: u64) -> Result<(), Failure> {
        self.pool.renumber(Guid(guid)).or_refused("reguid", self.name()).map(drop)
    }

    pub(super) fn offline(&self, device: &str, temporary: bool) -> Result<(), Failure> {
        self.pool.put_offline(device, temporary).or_refused("offline", device)
    }

    pub(super) fn online(&self, device: &str, expand: bool) -> Result<(), Failure> {
        self.pool.put_online(device, &|path| self.reopen(path)).or_refused("online", device)?;
        self.jobs.wake();
        if expand { self.expand_vdev_of(device) } else { Ok(()) }
    }

    /// Brings failed members and cache devices back online: all, or only `device`. A missing device stays out of use.
    pub(super) fn take_back_failed(&self, device: Option<&str>) {
        for vdev in self.engine().storage().vdevs.all() {
            let Some(mirror) = vdev.as_group() else { continue };
            for member in mirror.members().iter().filter(|member| member.is_to_be_missed()) {
                let (name, guid) = (member.leaf.name(), member.leaf.guid().to_string());
                if device.is_none_or(|device| device == name || device == guid)
                    && let Err(error) = self.pool.put_online(&guid, &|path| self.reopen(path))
                {
                    tracing::warn!("{name} stays out of use: {error}");
                }
            }
        }
        self.take_caches_back(device);
        self.jobs.wake();
    }

    /// Waits until a new member is complete and the replaced device has left.
    pub(super) fn wait_for_resilver(&self, device: &str, job: &mut Job<'_>) -> Result<(), Failure> {
        while self.lacks(device)? {
            if self.datasets.resilver().is_paused() {
                return Err(Failure::cannot("resilver", device, "the resilver is paused"));
            }
            let record = self.record_of(Kind::Resilver)?;
            self.watch(Kind::Resilver, record.as_ref(), job)?;
        }
        Ok(())
    }

    /// Whether a device still has to be resilvered, or the replaced device is still present.
    fn lacks(&self, device: &str) -> Result<bool, Failure> {
        let refused = |why: &str| Err(Failure::cannot("resilver", device, why));
        // After a detach, a single device may be left of the mirror.
        let (vdev, leaf) = self.pool.find_device(device).or_refused("resilver", device)?;
        let Some(mirror) = vdev.as_group() else { return Ok(false) };
        let Some(member) = mirror.member(leaf.guid()) else { return refused("it has left the pool") };
        match member.state() {
            // An INUSE spare stays attached. The replacement of a spare is finished only when the spare is AVAIL again.
            State::Complete => Ok(member.replaces().is_some() && !self.pool.label().is_spare(leaf.guid())),
            State::Out => refused("it has failed, or was taken offline, before the resilver finished"),
            State::Resilvering | State::Resilvered => {
                match self.datasets.resilver().status().filter(|_| self.is_stuck()) {
                    Some(status) => Err(Failure::cannot(
                        "resilver",
                        device,
                        match status.errors {
                            1 => "one block cannot be read from any other device".to_owned(),
                            errors => format!("{errors} blocks cannot be read from any other device"),
                        },
                    )
                    .hint(format!("the replacement stays incomplete; details: pool status -v {}", self.name()))),
                    None => Ok(true),
                }
            }
        }
    }

    /// Resumes a paused expansion, or changes its rate limit.
    pub(super) fn resume_expansion(&self, limit: Option<u64>) -> Result<(), Failure> {
        self.datasets.expansion().go_on(limit).or_refused("expand", self.name())?;
        self.jobs.wake();
        Ok(())
    }

    /// Resumes a paused resilver, changes its rate limit, or else restarts the resilver from its beginning.
    pub(super) fn start_resilver(&self, limit: Option<u64>) -> Result<(), Failure> {
        self.datasets.resilver().start(limit).or_refused("resilver", self.name())?;
        self.jobs.wake();
        Ok(())
    }

    /// Whether devices lack blocks without a good copy on other devices.
    pub(super) fn is_stuck(&self) -> bool {
        self.datasets.resilver().is_stuck()
    }

    /// Whether a replacement is in progress that can still complete.
    pub(super) fn is_replacing(&self) -> bool {
        let vdevs = self.engine().storage().vdevs.all();
        let label = self.pool.label();
        let replaces = |member: &Arc<Member>| {
            member.replaces().is_some() && member.state() != State::Out && !label.is_spare(member.leaf.guid())
        };
        let mut groups = vdevs.iter().filter_map(|vdev| vdev.as_group());
        !self.is_stuck() && groups.any(|group| group.members().iter().any(replaces))
    }

    pub(super) fn layout(&self) -> Layout {
        let vdevs = self.engine().storage().vdevs.all();
        let size = self.engine().space_totals().size;
        let classes = self.pool.label().sections.classes;
        let shown = vdevs.iter().map(|vdev| layout::shown(&**vdev, &classes));
        let caches = layout::shown_caches(self.cache_paths().into_iter());
        let shown = shown.chain(caches).collect();
        Layout { pool: self.name().to_string(), vdevs: shown, spares: self.idle_spares(), size }
    }

    /// Paths of all devices, including spares and cache devices.
    pub(crate) fn device_paths(&self) -> Vec<PathBuf> {
        self.layout().paths().into_iter().map(PathBuf::from).collect()
    }

    pub(super) fn needs(&self) -> Needs {
        let mut needs = Needs { stuck: self.is_stuck(), ..Needs::default() };
        for vdev in self.engine().storage().vdevs.all() {
            needs.log_lost |= vdev.is_lost();
            let members = vdev.as_group().map(|mirror| mirror.members()).unwrap_or_default();
            let is_resilvered =
                |member: &&Arc<Member>| matches!(member.state(), State::Resilvering | State::Resilvered);
            let replaced: Vec<Guid> = members.iter().filter(is_resilvered).filter_map(|heir| heir.replaces()).collect();
            for member in members.iter() {
                match (member.state(), member.leaf.health()) {
                    (State::Complete, _) => {}
                    (State::Resilvering | State::Resilvered, _) => needs.resilvering = true,
                    // A device being replaced needs no attention.
                    (State::Out, _) if replaced.contains(&member.leaf.guid()) => {}
                    (State::Out, Health::Offline) => needs.offline = true,
                    (State::Out, Health::Faulted) => needs.faulted = true,
                    (State::Out, _) => needs.unavailable = true,
                }
            }
        }
        needs
    }
}
