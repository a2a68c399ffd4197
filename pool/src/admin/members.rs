//! Devices of mirrors and RAID-Zs come, go, and come back, while the pool is in use.
//!
//! Whatever joins a vdev is *filled* first: see [`crate::txg::Filling`]. Until it has everything nothing is read from it,
//! and it is not enough to go on with.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | attaching: before a device of the pool names the new one | the pool without it: its label is older than every other |
//! | attaching: after that | the pool with it, behind the beginning of time: it is filled |
//! | detaching: before a label leaves it out | the pool with it, behind |
//! | detaching: after that | the pool without it; its own labels, if they are still there, name a pool that does not know it |
//! | replacing: until the new device is complete | both; the new one is filled |
//! | replacing: after that, before the old one is left out | both; whoever has the pool open leaves it out |
//!
//! A spare joins and leaves as other devices do: see [`super::spares`].

use std::sync::Arc;

use super::{
    assemble::zones,
    open::shrunk,
    pool::{Pool, write_new_label},
    spares::settle_spares,
    untold::pass_over,
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
    /// The device whose path or number this is. Of two at one path, of which one takes the other's place, it is the one that is
    /// in use, and the new one if both are.
    ///
    /// # Errors
    /// [`Error::Request`] if there is none.
    pub fn find_device(&self, name: &str) -> Result<(Arc<dyn Vdev>, Arc<Leaf>)> {
        let vdevs = self.engine().storage().vdevs.all();
        let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves().into_iter().map(move |leaf| (vdev.clone(), leaf)));
        let is_it = |leaf: &Leaf| leaf.name() == name || leaf.guid().to_string() == name;
        let is_replaced = |vdev: &Arc<dyn Vdev>, leaf: &Leaf| {
            let members = vdev.as_group().map(Group::members).unwrap_or_default();
            members.iter().any(|member| member.replaces() == Some(leaf.guid()))
        };
        let found = leaves
            .filter(|(_, leaf)| is_it(leaf))
            .min_by_key(|(vdev, leaf)| (leaf.health() != Health::Online, is_replaced(vdev, leaf)));
        found.ok_or_else(|| Error::Request(format!("no such device in pool: {name}")))
    }

    /// Makes `new` a device that holds the same as `beside`, which may be a single one or of a mirror. With `replace` it
    /// takes its place, also in a RAID-Z: when the new device is complete, the other one leaves. One for which a spare stands in
    /// leaves at once, and the spare follows.
    ///
    /// # Errors
    /// [`Error::Request`] if the new device is too small, the mirror is full, `beside` is being replaced already, or it is
    /// of a RAID-Z and is not to be replaced.
    pub fn attach(&self, beside: &str, new: Arc<dyn Device>, replace: bool) -> Result<()> {
        self.engine().writable()?;
        if replace {
            self.make_way(beside, &*new)?;
        }
        let mut highest = self.labelling();
        let mut label = self.label();
        let (vdev, named) = self.find_device(beside)?;
        if vdev.is_lost() {
            return Err(Error::Request(format!("{beside} is missing, and its pool goes on without it; pool remove")));
        }
        let room = room_for(&label, vdev.id(), named.guid())?;
        let size = room.taken(usable_size(new.size())).ok_or_else(|| too_small(&*new, &room))?;
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

    /// Makes a device that has a label part of a vdev, beside or instead of another one, and has the labels name it.
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
        let member = Arc::new(Member::new(leaf.clone(), State::Filling, joining).at_column(column));
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

    /// Takes a device out of its mirror, and makes it nobody's; a spare stands by again. The last two of a mirror are a single
    /// device after that. Of a RAID-Z, only one of two can leave of which one replaces the other.
    ///
    /// One that stays must have been complete for as many commits as one may go back: a device that was filled lacks what
    /// was dropped before. So these commits are made first.
    ///
    /// # Errors
    /// [`Error::Request`] if it is no device of a mirror, or no other one holds everything.
    pub fn detach(&self, device: &str) -> Result<()> {
        self.have_leave(device, None)
    }

    /// The same, if the `heir` that is to take its place has everything.
    fn have_leave(&self, device: &str, heir: Option<Guid>) -> Result<()> {
        self.engine().writable()?;
        loop {
            self.outlast(device)?;
            // What the others have is all there is from now on.
            self.engine().storage().vdevs.flush()?;
            if self.leave(device, heir)? {
                return Ok(());
            }
        }
    }

    /// Takes a device out of its vdev; `false` if the one has failed meanwhile that had all the states to which one may go
    /// back: then another one has to.
    fn leave(&self, device: &str, heir: Option<Guid>) -> Result<bool> {
        let mut highest = self.labelling();
        let (vdev, leaf) = self.find_device(device)?;
        let mirror =
            vdev.as_group().ok_or_else(|| Error::Request(format!("{device} is the only device of its vdev")))?;
        let member = mirror.member(leaf.guid()).expect("it was found there");
        let is_raidz = mirror.members().iter().any(|other| other.column() != member.column());
        if is_raidz && mirror.of_column(member.column()).len() == 1 {
            let problem = format!("{} cannot do with one device less: replace {device} instead", mirror.name());
            return Err(Error::Request(problem));
        }
        let was_in_use = member.state() != State::Out;
        match mirror.put_out_to_leave(leaf.guid(), heir, safe_since(self.engine().committed())) {
            Ok(()) => {}
            Err(Stays::TooSoon) => return Ok(false),
            Err(Stays::Needed) => return Err(only_complete(Some(mirror), &leaf)),
            Err(Stays::HeirFailed) => {
                let problem = format!("what was to take the place of {} has failed meanwhile", leaf.name());
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

    /// Lets go of a device that the labels leave out of its vdev: a spare stands by again, and any other one is nobody's.
    pub(super) fn release(&self, leaf: &Leaf, was_in_use: bool) {
        let device = was_in_use.then(|| leaf.device());
        leaf.let_go();
        if self.label().is_spare(leaf.guid()) {
            self.stand_by(leaf.guid(), device);
        } else if let Some(Err(error)) = device.map(|device| labels::clear_labels(&*device)) {
            tracing::warn!("{} still says that it is of the pool: {error}", leaf.name());
        }
    }

    /// Has a vdev go on without a device that the labels leave out.
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
        // Whoever waits for a replacement waits until here.
        group.forget_replaced(device);
    }

    /// Has a RAID-Z take note of rows that may become wider, because one that has left was smaller than who took its place.
    fn see_how_far_rows_go(&self, vdev: &Arc<dyn Vdev>) -> Result<()> {
        let mut label = self.label();
        if let (Some(raidz), VdevTree::RaidZ(config)) =
            (vdev.as_raidz(), &config_of(&mut label, vdev.id())?.tree.clone())
        {
            raidz.set_zones(zones(&label, config)?);
        }
        Ok(())
    }

    /// Commits until one of the others has all the states to which one may go back.
    pub(super) fn outlast(&self, device: &str) -> Result<()> {
        let (vdev, leaf) = self.find_device(device)?;
        let since = vdev.as_group().and_then(|group| group.outlasted_since(leaf.guid()));
        while since.is_some_and(|since| since > safe_since(self.engine().committed())) {
            self.engine().commit_anyway()?;
        }
        Ok(())
    }

    /// Puts a device of a mirror or a RAID-Z out of use: for good, or until the next import if it is `temporary`.
    ///
    /// # Errors
    /// [`Error::Request`] if it is no device of such a vdev, or the others do not hold everything.
    pub fn put_offline(&self, device: &str, temporary: bool) -> Result<()> {
        self.engine().writable()?;
        if let Some(cache) = self.find_cache(device) {
            return self.put_cache_offline(&cache, temporary);
        }
        let (vdev, leaf) = self.find_device(device)?;
        let group = vdev.as_group().ok_or_else(|| only_complete(None, &leaf))?;
        // From now on it is so because the operator wants it.
        self.say_why(leaf.guid(), None)?;
        if !group.put_offline(leaf.guid(), !temporary) {
            return Err(only_complete(Some(group), &leaf));
        }
        self.engine().storage().vdevs.flush()?;
        // Requests that were given up may still land: who takes it back has to see that.
        if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(())
    }

    /// Takes a device of a mirror or a RAID-Z back that is out of use, to be filled with what it has missed. `false` if it is in use.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not answer, [`Error::Request`] if it is not what it was, [`Error::Split`] if it was
    /// changed without the others.
    pub fn put_online(&self, device: &str, reopen: Reopen<'_>) -> Result<bool> {
        self.engine().writable()?;
        if let Some(cache) = self.find_cache(device) {
            return self.put_cache_online(&cache, reopen);
        }
        let (vdev, leaf) = self.find_device(device)?;
        if vdev.is_lost() {
            return Err(Error::Request(format!(
                "{device} is of a log that the pool goes on without: if it is there again, pool export and pool import \
                 take it back; if it is gone for good, pool remove"
            )));
        }
        let is_out = |group: &&Group| group.member(leaf.guid()).is_some_and(|member| member.state() == State::Out);
        let Some(mirror) = vdev.as_group().filter(is_out) else { return Ok(false) };
        if leaf.device().outstanding() > 0 {
            let problem =
                format!("{} has not answered earlier requests yet; they may still be carried out", leaf.name());
            return Err(Error::Request(problem));
        }
        // It is locked as long as it is open.
        leaf.let_go();
        let found = reopen(leaf.name())?;
        let behind = self.recognise(&vdev, &leaf, &*found)?;
        let errors = leaf.counters().snapshot().checksum_errors;
        self.watched().forgive(leaf.guid(), errors, self.engine().env().uptime());
        {
            // Whoever examines labels meanwhile waits: its own are from before it was put out of use.
            let mut highest = self.labelling();
            mirror.take_back(leaf.guid(), found, behind);
            if let Err(error) = self.replace_labels(&mut highest, self.label(), &[]) {
                // The next flush tells them.
                tracing::warn!("labels do not say that {} is back: {error}", leaf.name());
            }
        }
        self.engine().storage().vdevs.flush()?;
        self.say_why(leaf.guid(), None)?;
        Ok(true)
    }

    /// Lets go of devices whose place others have taken. A spare only stands in.
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

    /// The same as [`Pool::have_leave`]; `false` if the device stays, because one that is to take its place, or that it stands
    /// in for, has failed in the commits before, though others may hold all.
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

    /// Refuses a device that is not the one it was; how far it has come.
    fn recognise(&self, vdev: &Arc<dyn Vdev>, leaf: &Leaf, found: &dyn Device) -> Result<Behind> {
        let label = self.label();
        let refused = |problem: &str| Err(Error::Request(format!("{} {problem}", found.name())));
        let Some(own) = labels::read_label(found)? else { return refused("holds no Cenote pool") };
        if (own.pool, own.device) != (label.pool, leaf.guid()) {
            return refused("is not the device that was there: it belongs elsewhere");
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
        let told = behind.map_or(mark, |behind| behind.has);
        Ok(Behind { has: if told.txg < mark.txg { told } else { mark }, may_have: mark })
    }
}

/// What there is for a device that takes the place of another one, or stands beside it.
pub(super) struct Room {
    /// What it has to give to the vdev, in bytes.
    pub(super) needed: u64,
    /// What the other one gives.
    given: u64,
}

impl Room {
    /// What a device gives that could give so much, in bytes. More than the other one did is used only when it is asked for.
    pub(super) fn taken(&self, usable: u64) -> Option<u64> {
        (usable >= self.needed).then_some(usable.min(self.given))
    }
}

/// What there is in the place of a device of a vdev, by a label.
pub(super) fn room_for(label: &Label, vdev: VdevId, device: Guid) -> Result<Room> {
    let none = || Error::Request(format!("the pool has no device {device} in vdev {vdev}"));
    let tree = label.vdevs.iter().find(|config| config.id == vdev).map(|config| &config.tree).ok_or_else(none)?;
    let leaf = tree.leaves().find(|leaf| leaf.guid == device).ok_or_else(none)?;
    let (sector, region) = (1 << label.ashift, label.region_size);
    let needed = tree.needed_in_place_of(device, sector, region);
    // Rows that are to become wider go on as far as they did when that was begun.
    let is_narrow = matches!(tree, VdevTree::RaidZ(raidz) if narrow(raidz, sector, region).is_some());
    let needed = if is_narrow { needed.max(leaf.size) } else { needed };
    Ok(Room { needed, given: leaf.size.max(needed) })
}

/// The refusal of a device that has not what it takes.
pub(super) fn too_small(new: &dyn Device, room: &Room) -> Error {
    let needed = device_size(room.needed);
    Error::Request(format!("{} is too small: it has {} bytes, and it takes {needed}", new.name(), new.size()))
}

pub(super) fn config_of(label: &mut Label, id: VdevId) -> Result<&mut VdevConfig> {
    let found = label.vdevs.iter_mut().find(|config| config.id == id);
    found.ok_or_else(|| Error::Request(format!("the pool has no vdev {id}")))
}

/// Refuses to replace a device that is being replaced, or that replaces one. Two cannot stand for one in a label, so nobody
/// replaces a device for which a spare stands in.
pub(super) fn check_replaceable(tree: &VdevTree, old: &Leaf, is_spare: impl Fn(Guid) -> bool) -> Result<()> {
    match tree.members().find(|member| member.replaces == Some(old.guid())) {
        Some(spare) if is_spare(spare.leaf.guid) => {
            let problem = format!(
                "the spare {0} stands in for {1}: detach {1} to keep it there, or {0} before",
                spare.leaf.path,
                old.name()
            );
            return Err(Error::Request(problem));
        }
        Some(_) => return Err(Error::Request(format!("{} is being replaced already", old.name()))),
        None => {}
    }
    if tree.members().any(|member| member.leaf.guid == old.guid() && member.replaces.is_some()) {
        return Err(Error::Request(format!("{} is replacing another device; detach one of them first", old.name())));
    }
    Ok(())
}

/// What a vdev is made of when one more device has joined it.
fn joined(tree: VdevTree, old: &Leaf, joining: &MemberConfig, random: impl Fn() -> Guid) -> Result<VdevTree> {
    let mut mirror = match tree {
        VdevTree::RaidZ(_) if joining.replaces.is_none() => {
            let problem = format!(
                "{} is of a raidz, and nothing is attached to it alone: name the raidz, such as raidz1-0, to expand it",
                old.name()
            );
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

/// Leaves a device out of what a vdev is made of.
pub(super) fn leave_out(tree: &mut VdevTree, device: Guid) {
    match tree {
        VdevTree::Mirror(mirror) => mirror.members.retain(|member| member.leaf.guid != device),
        VdevTree::RaidZ(raidz) => raidz.members.retain(|member| member.member.leaf.guid != device),
        VdevTree::Leaf(_) | VdevTree::Other { .. } => {}
    }
    tree.members_mut().for_each(|member| member.replaces = member.replaces.filter(|replaced| *replaced != device));
}

/// What a vdev is made of when a device has left it: a mirror of one is that one.
pub(super) fn without(mut tree: VdevTree, device: Guid) -> VdevTree {
    leave_out(&mut tree, device);
    match &tree {
        VdevTree::Mirror(mirror) if mirror.members.len() == 1 => VdevTree::Leaf(mirror.members[0].leaf.clone()),
        _ => tree,
    }
}

/// Whoever has had everything since this transaction group or before has all the states to which one may go back from a
/// committed one.
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
            let stands_in_for = group.member(leaf.guid()).and_then(|own| group.member(own.replaces()?));
            let device = stands_in_for.map_or_else(|| leaf.name().to_owned(), |old| old.leaf.name().to_owned());
            format!("no other device of {} holds what {} holds: replace {device} instead", group.name(), leaf.name())
        }
        Some(group) if group.needed() > 1 => {
            format!("{} needs {} complete devices, and {} is one of so many", group.name(), group.needed(), leaf.name())
        }
        _ => format!("no other device holds all that {} holds", leaf.name()),
    })
}
