//! Attaching, detaching, replacing, offlining and onlining devices of mirrors and RAID-Zs, while the pool is in use.
//!
//! A device that joins a vdev is resilvered first: see [`crate::txg::Resilvering`]. Until complete it is not read, and
//! does not count for the vdev's redundancy.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | attaching: before a device of the pool names the new one | the pool without it: its label is older than any in the pool |
//! | attaching: later | the pool with it, behind since txg 0: it is resilvered |
//! | detaching: before a label leaves it out | the pool with it, behind |
//! | detaching: later | the pool without it; its own labels, if still present, name a pool without this device |
//! | replacing: until the new device is complete | both devices; the new one is resilvered |
//! | replacing: then, before the old one is left out | both devices; the process with the open pool then leaves the old one out |
//!
//! A spare joins and leaves like any device: see [`super::spares`].

use std::{ffi::OsStr, path::Path, sync::Arc};

use super::{
    pool::Pool,
    shapes::{shrunk, zones},
    spares::settle_spares,
    unacknowledged::pass_over,
    writing::write_new_label,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, device_size, usable_size},
        vdev_config::{
            Behind, LeafConfig, MIRROR_MEMBERS, MemberConfig, MirrorConfig, RaidZMember, VdevConfig, VdevTree,
        },
    },
    size::format_apart,
    space::SAFE_STATES,
    units::{Guid, Txg, VdevId},
    vdev::{
        Group, Health, Leaf, Member, Mirror, Single, State, Stays, Vdev, labels,
        raidz::zones::narrow,
        uberblocks::{self, Standing},
    },
};

/// Opens the device at a path.
pub type Reopen<'a> = &'a dyn Fn(&str) -> Result<Arc<dyn Device>>;

impl Pool {
    /// The device of this path or GUID. During a replacement two devices may have one path: then the one in use is
    /// meant, and the new one if both are.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none, and [`Error::Request`] for a cache device.
    pub fn find_device(&self, name: &str) -> Result<(Arc<dyn Vdev>, Arc<Leaf>)> {
        let vdevs = self.engine().storage().vdevs.all();
        let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves().into_iter().map(move |leaf| (vdev.clone(), leaf)));
        let is_it = |leaf: &Leaf| leaf.name() == name || leaf.guid().to_string() == name;
        let is_replaced = |vdev: &Arc<dyn Vdev>, leaf: &Leaf| {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            members.iter().any(|member| member.replaces() == Some(leaf.guid()))
        };
        let found = leaves
            .clone()
            .filter(|(_, leaf)| is_it(leaf))
            .min_by_key(|(vdev, leaf)| (leaf.health() != Health::Online, is_replaced(vdev, leaf)));
        found.ok_or_else(|| self.no_device(name, leaves.map(|(_, leaf)| leaf.name().to_owned()).collect()))
    }

    /// Why no device of a vdev has this path or GUID. `paths` are the devices of all vdevs.
    fn no_device(&self, name: &str, paths: Vec<String>) -> Error {
        if self.find_cache(name).is_some() {
            return Error::Request(format!("{name} is a cache device, and belongs to no vdev"));
        }
        let file = |path: &str| Path::new(path).file_name().map(OsStr::to_owned);
        let is_similar = |path: &String| file(path) == file(name) || path.starts_with(name);
        let similar = paths.into_iter().find(is_similar);
        Error::NoDevice { pool: self.label().pool_name, name: name.to_owned(), similar }
    }

    /// Attaches `new` to the device `beside`, a single device or a mirror member. With `replace`, also in a RAID-Z,
    /// `new` replaces `beside`: when the new device is complete, the old one leaves. If a spare stands in for `beside`,
    /// `beside` leaves at once, and the spare leaves later.
    ///
    /// # Errors
    /// [`Error::Request`] if the new device is too small, the mirror is full, `beside` is already being replaced, or a
    /// RAID-Z device is not to be replaced.
    pub fn attach(&self, beside: &str, new: Arc<dyn Device>, replace: bool) -> Result<()> {
        self.engine().writable()?;
        if replace {
            self.make_way(beside, &*new)?;
        }
        let mut highest = self.labelling();
        let mut label = self.label();
        let (vdev, named, size) = self.place_beside(&label, beside, &*new)?;
        let spare = if replace { self.yield_to_spare(&mut label, &*vdev, &named)? } else { None };
        let (old, leaving) = match spare {
            Some(spare) => (spare, Some(named)),
            None => (named, None),
        };
        let leaf = LeafConfig { guid: Guid(self.engine().env().random()), size, path: new.name().to_owned() };
        let joining = MemberConfig {
            behind: Some(Behind::default()),
            replaces: replace.then(|| old.guid()),
            ..MemberConfig::whole(leaf.clone())
        };
        if replace {
            let tree = config_of(&mut label, vdev.id())?.tree.clone();
            check_replaceable(&tree, &old, |device| label.is_spare(device))?;
        }
        let leaf = Arc::new(Leaf::new(leaf.guid, new));
        self.join(&mut highest, label, (&vdev, &old), &leaf, &joining)?;
        if let (Some(failed), Some(group)) = (leaving, vdev.as_group()) {
            self.go_on_without(&vdev, group, failed.guid());
            failed.let_go();
        }
        Ok(())
    }

    /// Checks whether [`Pool::attach`] would attach a device of this name and size beside a device; changes nothing.
    ///
    /// # Errors
    /// As [`Pool::attach`].
    pub fn check_attach(&self, beside: &str, new: &dyn Device) -> Result<()> {
        self.engine().writable()?;
        let mut label = self.label();
        let (vdev, named, size) = self.place_beside(&label, beside, new)?;
        let random = || Guid(self.engine().env().random());
        let joining = MemberConfig::whole(LeafConfig { guid: random(), size, path: new.name().to_owned() });
        joined(config_of(&mut label, vdev.id())?.tree.clone(), &named, &joining, random).map(drop)
    }

    /// Checks whether [`Pool::attach`] would replace a device by a device of this name and size; changes nothing.
    ///
    /// # Errors
    /// As [`Pool::attach`].
    pub fn check_replace(&self, old: &str, new: &dyn Device) -> Result<()> {
        self.engine().writable()?;
        let mut label = self.label();
        let (vdev, named, _) = self.place_beside(&label, old, new)?;
        let tree = config_of(&mut label, vdev.id())?.tree.clone();
        let stands_in =
            |member: &MemberConfig| member.replaces == Some(named.guid()) && label.is_spare(member.leaf.guid);
        // The new device takes the place of the spare.
        if tree.members().any(stands_in) {
            Ok(())
        } else {
            check_replaceable(&tree, &named, |device| label.is_spare(device))
        }
    }

    /// The vdev and the device for a new device to join, and the usable bytes of the new device.
    fn place_beside(&self, label: &Label, beside: &str, new: &dyn Device) -> Result<(Arc<dyn Vdev>, Arc<Leaf>, u64)> {
        let (vdev, named) = self.find_device(beside)?;
        if vdev.is_lost() {
            return Err(Error::Request(format!("{beside} belongs to a missing log vdev; to forget it: pool remove")));
        }
        let room = room_for(label, vdev.id(), named.guid())?;
        let size = room.taken(usable_size(new.size())).ok_or_else(|| too_small(new, &room))?;
        Ok((vdev, named, size))
    }

    /// Makes a labelled device a member of a vdev, beside or instead of `old`, and writes labels that name the new
    /// member.
    pub(super) fn join(
        &self,
        highest: &mut Txg,
        mut label: Label,
        (vdev, old): (&Arc<dyn Vdev>, &Arc<Leaf>),
        leaf: &Arc<Leaf>,
        joining: &MemberConfig,
    ) -> Result<()> {
        let random = || Guid(self.engine().env().random());
        let config = config_of(&mut label, vdev.id())?;
        let size = config.tree.device_size();
        config.tree = joined(config.tree.clone(), old, joining, random)?;
        let (id, described) = (vdev.id(), config.tree.clone());
        if !label.is_spare(leaf.guid()) {
            write_new_label(&*leaf.device(), leaf.guid(), id, &Label { txg: Txg::ZERO, ..label.clone() })?;
        }
        let column = vdev.as_group().and_then(|group| group.member(old.guid())).map_or(0, |beside| beside.column());
        let member = Arc::new(Member::new(leaf.clone(), State::Resilvering, joining).at_column(column));
        let alone: Arc<dyn Vdev> = Arc::new(Single::new(id, member.leaf.clone()));
        self.replace_labels(highest, label, &[alone])?;
        match vdev.as_group() {
            Some(present) => {
                let mut members: Vec<Arc<Member>> = present.members().iter().cloned().chain([member]).collect();
                members.sort_by_key(|member| member.column());
                present.set_members(members);
            }
            None => {
                let whole = MemberConfig::whole(LeafConfig { guid: old.guid(), size, path: old.name().to_owned() });
                let members = vec![Arc::new(Member::new(old.clone(), State::Complete, &whole)), member];
                let guid = described.guid().expect("it is a mirror now");
                let vdevs = &self.engine().storage().vdevs;
                vdevs.add(Arc::new(Mirror::new(id, guid, vdev.size().min(members[1].leaf.size()), members)));
            }
        }
        Ok(())
    }

    /// Takes a device out of its mirror, and erases its labels; a spare becomes available again. A mirror with one
    /// device left becomes a single device. In a RAID-Z a device can leave only if a second one shares its column
    /// during a replacement.
    ///
    /// A remaining member must have been complete for as many commits as the pool may rewind, because a resilvered
    /// device lacks blocks freed before. So these commits are made first.
    ///
    /// # Errors
    /// [`Error::Request`] if the device is not in a mirror, or no remaining member is complete.
    pub fn detach(&self, device: &str) -> Result<()> {
        self.have_leave(device, None)
    }

    /// Like [`Pool::detach`], but only if the `heir`, the replacing device, is complete.
    fn have_leave(&self, device: &str, heir: Option<Guid>) -> Result<()> {
        self.engine().writable()?;
        loop {
            self.outlast(device)?;
            // From now on the remaining members are the only source of the data.
            self.engine().storage().vdevs.flush()?;
            if self.leave(device, heir)? {
                return Ok(());
            }
        }
    }

    /// Takes a device out of its vdev. `false` if the member with all states to rewind to has failed in the meantime:
    /// another member then has to outlast the device.
    fn leave(&self, device: &str, heir: Option<Guid>) -> Result<bool> {
        let mut highest = self.labelling();
        let (vdev, leaf) = self.find_device(device)?;
        let mirror =
            vdev.as_group().ok_or_else(|| Error::Request(format!("{device} is the only device of its vdev")))?;
        let member = mirror.member(leaf.guid()).expect("it was found there");
        let is_raidz = mirror.members().iter().any(|other| other.column() != member.column());
        if is_raidz && mirror.of_column(member.column()).len() == 1 {
            let problem = format!("{} cannot lose a device: replace {device} instead", mirror.name());
            return Err(Error::Request(problem));
        }
        let was_in_use = member.state() != State::Out;
        match mirror.take_out_to_leave(leaf.guid(), heir, safe_since(self.engine().committed())) {
            Ok(()) => {}
            Err(Stays::TooSoon) => return Ok(false),
            Err(Stays::Needed) => return Err(only_complete(Some(mirror), &leaf)),
            Err(Stays::HeirFailed) => {
                let problem = format!("the replacement of {} has failed meanwhile", leaf.name());
                return Err(Error::Request(problem));
            }
        }
        let mut label = self.label();
        if !label.is_spare(leaf.guid()) {
            settle_spares(&mut label, mirror, leaf.guid());
        }
        let config = config_of(&mut label, vdev.id())?;
        config.tree = without(config.tree.clone(), leaf.guid());
        self.replace_labels(&mut highest, label, &[])?;
        self.go_on_without(&vdev, mirror, leaf.guid());
        self.see_how_far_rows_go(&vdev)?;
        self.release(&leaf, was_in_use);
        Ok(true)
    }

    /// Closes a device that labels no longer name in its vdev. A spare becomes available again; the labels of any other
    /// device are erased.
    pub(super) fn release(&self, leaf: &Leaf, was_in_use: bool) {
        let device = was_in_use.then(|| leaf.device());
        leaf.let_go();
        if self.label().is_spare(leaf.guid()) {
            self.make_available(leaf.guid(), device);
        } else if let Some(Err(error)) = device.map(|device| labels::clear_labels(&*device)) {
            tracing::warn!("{} still says that it is of the pool: {error}", leaf.name());
        }
    }

    /// Reduces a vdev to its members other than `device`, which labels no longer name.
    pub(super) fn go_on_without(&self, vdev: &Arc<dyn Vdev>, group: &Group, device: Guid) {
        let rest: Vec<Arc<Member>> =
            group.members().iter().filter(|member| member.leaf.guid() != device).cloned().collect();
        match &rest[..] {
            [alone] => {
                let vdevs = &self.engine().storage().vdevs;
                vdevs.add(Arc::new(Single::new(vdev.id(), alone.leaf.clone())));
            }
            _ => group.set_members(rest),
        }
        // A thread that waits for a replacement waits until here.
        group.forget_replaced(device);
    }

    /// Recomputes the zones of a RAID-Z: rows may be able to widen after a smaller device has left.
    fn see_how_far_rows_go(&self, vdev: &Arc<dyn Vdev>) -> Result<()> {
        let mut label = self.label();
        if let (Some(raidz), VdevTree::RaidZ(config)) =
            (vdev.as_raidz(), &config_of(&mut label, vdev.id())?.tree.clone())
        {
            raidz.set_zones(zones(&label, config)?);
        }
        Ok(())
    }

    /// Commits until another member of the column has all states to rewind to.
    pub(super) fn outlast(&self, device: &str) -> Result<()> {
        let (vdev, leaf) = self.find_device(device)?;
        let since = vdev.as_group().and_then(|group| group.outlasted_since(leaf.guid()));
        while since.is_some_and(|since| since > safe_since(self.engine().committed())) {
            self.engine().commit_anyway()?;
        }
        Ok(())
    }

    /// Takes a device of a mirror or a RAID-Z offline: for good, or until the next import if `temporary`.
    ///
    /// # Errors
    /// [`Error::Request`] if the device is in no such vdev, or the redundancy does not allow it.
    pub fn put_offline(&self, device: &str, temporary: bool) -> Result<()> {
        self.engine().writable()?;
        if let Some(cache) = self.find_cache(device) {
            return self.put_cache_offline(&cache, temporary);
        }
        let (vdev, leaf) = self.find_device(device)?;
        let group = vdev.as_group().ok_or_else(|| only_complete(None, &leaf))?;
        // From now on the device is offline by the administrator's wish.
        self.say_why(leaf.guid(), None)?;
        if !group.put_offline(leaf.guid(), !temporary) {
            return Err(only_complete(Some(group), &leaf));
        }
        self.engine().storage().vdevs.flush()?;
        // Abandoned requests may still reach the device; `put_online` checks for them.
        if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(())
    }

    /// Brings a device of a mirror or a RAID-Z back online, and resilvers what it missed. `false` if the device is in
    /// use already.
    ///
    /// # Errors
    /// [`Error::Device`] if the device does not answer, [`Error::Request`] if it is not the same device,
    /// [`Error::Split`] if it was modified separately.
    pub fn put_online(&self, device: &str, reopen: Reopen<'_>) -> Result<bool> {
        self.engine().writable()?;
        if let Some(cache) = self.find_cache(device) {
            return self.put_cache_online(&cache, reopen);
        }
        let (vdev, leaf) = self.find_device(device)?;
        if vdev.is_lost() {
            return Err(Error::Request(format!(
                "{device} belongs to a missing log vdev: if the device is back, export and import the pool; if the device is lost: pool remove"
            )));
        }
        let is_out = |group: &&Group| group.member(leaf.guid()).is_some_and(|member| member.state() == State::Out);
        let Some(mirror) = vdev.as_group().filter(is_out) else { return Ok(false) };
        if leaf.device().outstanding() > 0 {
            let problem = format!("{} still has unanswered requests, which may yet be carried out", leaf.name());
            return Err(Error::Request(problem));
        }
        // An open device is locked, so it is closed before it is reopened.
        leaf.let_go();
        let found = reopen(leaf.name())?;
        let behind = self.recognise(&vdev, &leaf, &*found)?;
        let errors = leaf.counters().snapshot().checksum_errors;
        self.watched().forgive(leaf.guid(), errors, self.engine().env().uptime());
        {
            // A concurrent examination of labels must wait, because the device's labels are from before it went
            // offline.
            let mut highest = self.labelling();
            mirror.take_back(leaf.guid(), found, behind);
            if let Err(error) = self.replace_labels(&mut highest, self.label(), &[]) {
                // The next flush writes them.
                tracing::warn!("labels do not say that {} is back: {error}", leaf.name());
            }
        }
        self.engine().storage().vdevs.flush()?;
        self.say_why(leaf.guid(), None)?;
        Ok(true)
    }

    /// Detaches devices whose replacements are complete. A spare replaces no device for good.
    pub fn finish_replacing(&self) -> Result<()> {
        let label = self.label();
        let replaced = |vdev: &Arc<dyn Vdev>| {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            let takes_over =
                |member: &&Arc<Member>| member.state() == State::Complete && !label.is_spare(member.leaf.guid());
            let complete = members.iter().filter(takes_over);
            complete.filter_map(|member| Some((member.replaces()?, member.leaf.guid()))).collect::<Vec<_>>()
        };
        let replaced: Vec<(Guid, Guid)> = self.engine().storage().vdevs.all().iter().flat_map(replaced).collect();
        replaced.iter().try_for_each(|(device, heir)| self.have_leave_if_it_may(*device, Some(*heir)).map(drop))
    }

    /// Like [`Pool::have_leave`]; `false` if the device stays because its replacement, or the device that it stands in
    /// for, has failed during the preceding commits.
    pub(super) fn have_leave_if_it_may(&self, device: Guid, heir: Option<Guid>) -> Result<bool> {
        match self.have_leave(&device.to_string(), heir) {
            Ok(()) => Ok(true),
            Err(Error::Request(problem)) => {
                tracing::warn!("{problem}");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks that the device is the same one and was not modified separately; returns its newest uberblocks.
    fn recognise(&self, vdev: &Arc<dyn Vdev>, leaf: &Leaf, found: &dyn Device) -> Result<Behind> {
        let label = self.label();
        let refused = |problem: &str| Err(Error::Request(format!("{} {problem}", found.name())));
        let Some(own) = labels::read_label(found)? else { return refused("holds no Cenote pool") };
        if (own.pool, own.device) != (label.pool, leaf.guid()) {
            return refused("is a different device: its label names another pool or vdev");
        }
        let leaves = label.vdevs.iter().filter(|config| config.id == vdev.id()).flat_map(|config| config.tree.leaves());
        let size = leaves.filter(|own| own.guid == leaf.guid()).map(|own| own.size).next().unwrap_or(0);
        if usable_size(found.size()) < size {
            return Err(shrunk(found, size));
        }
        labels::settle_end(found, &label, leaf.guid());
        let devices = self.engine().storage().vdevs.devices();
        let behind = vdev.as_group().and_then(|mirror| mirror.member(leaf.guid())?.behind());
        let ring = |device: &dyn Device| uberblocks::read_uberblocks(device, label.pool);
        let mut own = ring(found)?;
        if let Some(txg) = pass_over(&mut own, found, behind, &label) {
            uberblocks::erase_uberblock(found, txg)?;
        }
        let rings = devices.iter().map(|device| ring(&**device).unwrap_or_default());
        let ranking = uberblocks::rank(&rings.chain([own]).collect::<Vec<_>>());
        let (mark, standing) = (ranking.newest[devices.len()], ranking.standings[devices.len()]);
        let is_known = behind.is_some_and(|behind| behind.knows(mark));
        let is_later = mark.txg > self.engine().committed();
        if (matches!(standing, Standing::Diverged { .. }) || is_later) && !is_known {
            return Err(Error::Split { pool: label.pool_name, device: found.name().to_owned() });
        }
        let known = behind.map_or(mark, |behind| behind.has);
        Ok(Behind { has: if known.txg < mark.txg { known } else { mark }, may_have: mark })
    }
}

/// Space requirements for a device that replaces another one, or is attached beside it.
pub(super) struct Room {
    /// Bytes that the device must have.
    pub(super) needed: u64,
    /// Bytes of the existing device.
    given: u64,
}

impl Room {
    /// Bytes to use of a device with `usable` bytes; `None` if it is too small. More than the existing device has is
    /// used only by an explicit expansion.
    pub(super) fn taken(&self, usable: u64) -> Option<u64> {
        (usable >= self.needed).then_some(usable.min(self.given))
    }
}

/// The requirements in the place of a vdev's device, by a label.
pub(super) fn room_for(label: &Label, vdev: VdevId, device: Guid) -> Result<Room> {
    let none = || Error::Request(format!("the pool has no device {device} in vdev {vdev}"));
    let tree = label.vdevs.iter().find(|config| config.id == vdev).map(|config| &config.tree).ok_or_else(none)?;
    let leaf = tree.leaves().find(|leaf| leaf.guid == device).ok_or_else(none)?;
    let (sector, region) = (1 << label.ashift, label.region_size);
    let needed = tree.needed_in_place_of(device, sector, region);
    // During an expansion the rows must reach as far as at its beginning.
    let is_narrow = matches!(tree, VdevTree::RaidZ(raidz) if narrow(raidz, sector, region).is_some());
    let needed = if is_narrow { needed.max(leaf.size) } else { needed };
    Ok(Room { needed, given: leaf.size.max(needed) })
}

/// The error for a device that is too small.
pub(super) fn too_small(new: &dyn Device, room: &Room) -> Error {
    let (size, needed) = format_apart(new.size(), device_size(room.needed));
    Error::Request(format!("{} is too small: {size}, at least {needed} needed", new.name()))
}

pub(super) fn config_of(label: &mut Label, id: VdevId) -> Result<&mut VdevConfig> {
    let found = label.vdevs.iter_mut().find(|config| config.id == id);
    found.ok_or_else(|| Error::Request(format!("the pool has no vdev {id}")))
}

/// Refuses to replace a device that is being replaced, or that replaces another. A label cannot hold two replacements
/// of one device, so a device with a spare in its place cannot be replaced either.
pub(super) fn check_replaceable(tree: &VdevTree, old: &Leaf, is_spare: impl Fn(Guid) -> bool) -> Result<()> {
    match tree.members().find(|member| member.replaces == Some(old.guid())) {
        Some(spare) if is_spare(spare.leaf.guid) => {
            let problem = format!(
                "the spare {0} is in use for {1}: detach {1} to keep the spare in its place, or {0} to return the spare",
                spare.leaf.path,
                old.name()
            );
            return Err(Error::Request(problem));
        }
        Some(_) => return Err(Error::Request(format!("{} is already being replaced", old.name()))),
        None => {}
    }
    if tree.members().any(|member| member.leaf.guid == old.guid() && member.replaces.is_some()) {
        return Err(Error::Request(format!("{} is replacing another device; detach one of them first", old.name())));
    }
    Ok(())
}

/// The vdev's configuration after one more device has joined.
fn joined(tree: VdevTree, old: &Leaf, joining: &MemberConfig, random: impl Fn() -> Guid) -> Result<VdevTree> {
    let mut mirror = match tree {
        VdevTree::RaidZ(_) if joining.replaces.is_none() => {
            let problem =
                format!("{} is a device of a raidz; to expand the raidz, name the raidz, such as raidz1-0", old.name());
            return Err(Error::Request(problem));
        }
        VdevTree::RaidZ(mut raidz) => {
            let at = raidz.members.iter().position(|member| member.member.leaf.guid == old.guid());
            let at = at.expect("a label describes all devices");
            let column = raidz.members[at].column;
            raidz.members.insert(at + 1, RaidZMember { column, member: joining.clone() });
            return Ok(VdevTree::RaidZ(raidz));
        }
        VdevTree::Mirror(mirror) => mirror,
        tree => MirrorConfig { guid: random(), members: tree.leaves().cloned().map(MemberConfig::whole).collect() },
    };
    if mirror.members.len() == *MIRROR_MEMBERS.end() {
        return Err(Error::Request(format!("a mirror has at most {} devices", MIRROR_MEMBERS.end())));
    }
    mirror.members.push(joining.clone());
    Ok(VdevTree::Mirror(mirror))
}

/// Removes a device from a vdev's configuration.
pub(super) fn leave_out(tree: &mut VdevTree, device: Guid) {
    match tree {
        VdevTree::Mirror(mirror) => mirror.members.retain(|member| member.leaf.guid != device),
        VdevTree::RaidZ(raidz) => raidz.members.retain(|member| member.member.leaf.guid != device),
        VdevTree::Leaf(_) | VdevTree::Other { .. } => return,
    }
    assert!(tree.leaves().next().is_some(), "ADMIN-4: the last device of a vdev leaves");
    tree.members_mut().for_each(|member| member.replaces = member.replaces.filter(|replaced| *replaced != device));
}

/// The vdev's configuration after a device has left; a mirror of one device becomes a single device.
pub(super) fn without(mut tree: VdevTree, device: Guid) -> VdevTree {
    leave_out(&mut tree, device);
    match &tree {
        VdevTree::Mirror(mirror) if mirror.members.len() == 1 => VdevTree::Leaf(mirror.members[0].leaf.clone()),
        _ => tree,
    }
}

/// A member complete since this txg or earlier has every state to which a pool at `committed` may rewind.
pub(super) fn safe_since(committed: Txg) -> Txg {
    committed.back(SAFE_STATES as u64)
}

fn only_complete(group: Option<&Group>, leaf: &Leaf) -> Error {
    let others = |group: &Group| {
        let members = group.members();
        let is_other = |m: &&Arc<Member>| m.state() == State::Complete && m.leaf.guid() != leaf.guid();
        group.quorum().suffice(members.iter().filter(is_other).map(|member| member.column()))
    };
    Error::Request(match group {
        Some(group) if group.needed() > 1 && others(group) => {
            let spared = group.member(leaf.guid()).and_then(|own| group.member(own.replaces()?));
            let device = spared.map_or_else(|| leaf.name().to_owned(), |old| old.leaf.name().to_owned());
            format!("no other device of {} has all data of {}: replace {device} instead", group.name(), leaf.name())
        }
        Some(group) if group.needed() > 1 => {
            format!("{} needs {} complete devices, including {}", group.name(), group.needed(), leaf.name())
        }
        _ => format!("no other device has all data of {}", leaf.name()),
    })
}
