//! Assembling the devices of a pool into vdevs: which members of a mirror or a RAID-Z are complete, which are behind,
//! and which were modified separately.
//!
//! The newest label records what each member lacked when the label was written. A member that it calls complete is so
//! up to the newest uberblock: see [`crate::vdev::Group`]. The rings show what each device has. Both are consulted, and
//! the worse answer counts: a member is *complete* if the label calls it complete and no other such member of its vdev
//! has a newer uberblock. All others are resilvered with blocks born after the newest uberblock in their own rings.
//!
//! Lacking just the newest uberblock is not being behind. Power may have failed while it was written. Then only some
//! devices have it, but everything else had been flushed on all, and the devices with it may be too few for the vdev,
//! or unreadable. A commit returns only when all complete members have its uberblock, and an import first writes the
//! newest uberblock to members without it ([`super::open()`]). So none of them can lack more. If the devices with it
//! are away, the pool continues from the state before, and these devices are behind when they return: see
//! [`super::unacknowledged`].
//!
//! A member has one of two legitimate pasts. Its newest uberblock is an ancestor of the newest of all, or it is
//! recorded in the label, which states how far the member was when it went out of use. Anything else means that this
//! device was modified separately. The same holds for a member that is behind by the label and has a newer uberblock
//! than the complete ones. Neither side is more right, so the pool is refused as split.
//!
//! A rewind gives the members, one after the other and before any label, an uberblock that leaves their newest states
//! off its line: see [`super::rewind`]. If power fails in between, a member that the label calls complete lacks the new
//! uberblock, and its newest one is neither an ancestor nor recorded. Yet it has the state rewound to in its ring, and
//! nothing as late as the uberblock that repeats the state, so it joins the rewind. It cannot have been used alone:
//! then its own labels would be the newest and call the rest behind, or the labels of the rest would call it behind,
//! and both are refused.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    out_of_use,
    shapes::{shrunk, zones},
    unacknowledged::{Unacknowledged, pass_over},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, classes::VdevClass, usable_size},
        uberblock::Uberblock,
        vdev_config::{Behind, LeafConfig, Mark, MemberConfig, VdevConfig, VdevTree},
    },
    space::SAFE_STATES,
    txg::state_of,
    units::{Guid, Txg},
    vdev::{
        Leaf, Lost, Member, Mirror, RaidZ, Single, State, Vdev,
        uberblocks::{self, Standing},
    },
};

/// The devices of a pool by GUID.
pub(super) type ByGuid = BTreeMap<Guid, Arc<dyn Device>>;

/// The vdevs of a pool, and the uberblocks of the newest state's line, newest first: at least one.
pub(super) struct Assembly {
    pub(super) vdevs: Vec<Arc<dyn Vdev>>,
    pub(super) line: Vec<Uberblock>,
    /// Unacknowledged states to erase before anything is written.
    pub(super) unacknowledged: Vec<Unacknowledged>,
}

/// Assembles the devices that a label names. Every single device must be present and as large as the label says: a
/// truncated device has lost data, and its back labels. A mirror needs one complete member, a RAID-Z as many as it has
/// data columns. Only a log vdev may be lost.
pub(super) fn assemble(label: &Label, by_guid: &ByGuid) -> Result<Assembly> {
    let rings = Rings::read(label, by_guid)?;
    let found = |config: &VdevConfig| -> Result<Arc<dyn Vdev>> {
        match &config.tree {
            VdevTree::Mirror(mirror) => {
                let parts = Parts {
                    name: format!("mirror-{}", config.id),
                    tree: &config.tree,
                    members: config.tree.in_columns(),
                };
                let (least, members) = parts.put_together(label, by_guid, &rings)?;
                Ok(Arc::new(Mirror::new(config.id, mirror.guid, least, members)))
            }
            VdevTree::RaidZ(raidz) => {
                let zones = zones(label, raidz)?;
                let name = format!("raidz{}-{}", raidz.parity, config.id);
                let parts = Parts { name, tree: &config.tree, members: config.tree.in_columns() };
                let (least, members) = parts.put_together(label, by_guid, &rings)?;
                Ok(Arc::new(RaidZ::new(config.id, raidz.guid, zones, least, members)))
            }
            tree => {
                let leaf = tree.leaves().next().expect("a kind that is not known was refused");
                let missing =
                    || Error::Missing { device: leaf.guid, path: leaf.path.clone(), pool: label.pool_name.clone() };
                let device = by_guid.get(&leaf.guid).ok_or_else(missing)?;
                Ok(Arc::new(Single::new(config.id, rings.leaf(leaf, device)?)))
            }
        }
    };
    let is_log = |config: &VdevConfig| label.sections.classes.get(&config.id) == Some(&VdevClass::Log);
    let vdev = |config: &VdevConfig| match found(config) {
        // A log vdev that was missing and returns is outdated, and no label shows that; so a log vdev that cannot be
        // assembled counts as lost.
        Err(
            error @ (Error::Missing { .. } | Error::Incomplete { .. } | Error::Split { .. } | Error::Shrunk { .. }),
        ) if is_log(config) => {
            tracing::warn!("the pool is without a vdev for its intent log: {error}");
            Ok(lost(label, config, by_guid))
        }
        found => found,
    };
    let vdevs = label.vdevs.iter().map(vdev).collect::<Result<_>>()?;
    match rings.line.is_empty() {
        true => Err(Error::damaged(format!("pool {}", label.pool_name), "no device holds a valid uberblock")),
        false => Ok(Assembly { vdevs, line: rings.line, unacknowledged: rings.unacknowledged }),
    }
}

/// A log vdev with too few intact devices. The pool can be opened without it.
fn lost(label: &Label, config: &VdevConfig, by_guid: &ByGuid) -> Arc<dyn Vdev> {
    let absent = |config: &LeafConfig| {
        let (leaf, found) = (Leaf::absent(config), by_guid.get(&config.guid));
        let too_small = found.filter(|device| usable_size(device.size()) < config.size);
        leaf.set_trouble(too_small.map(|device| shrunk(&**device, config.size).to_string()));
        Arc::new(leaf)
    };
    let leaves: Vec<_> = config.tree.leaves().map(absent).collect();
    let guid = config.tree.guid().unwrap_or_else(|| leaves[0].guid());
    Arc::new(Lost::new((config.id, guid), config.tree.group_name(config.id), label.size_of(config), leaves))
}

/// The uberblock rings of the devices.
struct Rings {
    line: Vec<Uberblock>,
    /// The newest uberblock of each device, compared with the newest of all.
    found: BTreeMap<Guid, (Mark, Standing)>,
    /// All uberblocks of each device, newest first.
    rings: BTreeMap<Guid, Vec<Uberblock>>,
    unacknowledged: Vec<Unacknowledged>,
}

impl Rings {
    /// Reads the rings of the devices that a label names. A device that it does not name was detached, or is about to
    /// be added.
    fn read(label: &Label, by_guid: &ByGuid) -> Result<Rings> {
        let named: Vec<Guid> = label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).map(|leaf| leaf.guid).collect();
        let (mut rings, mut unacknowledged, mut failures) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (leaf, device) in named.iter().filter_map(|leaf| Some((*leaf, by_guid.get(leaf)?))) {
            let mut ring = match uberblocks::read_uberblocks(&**device, label.pool) {
                Ok(ring) => ring,
                Err(error) => {
                    failures.push(error);
                    continue;
                }
            };
            if let Some(txg) = pass_over(&mut ring, &**device, label.behind(leaf), label) {
                unacknowledged.push(Unacknowledged { leaf, device: device.clone(), txg });
            }
            rings.insert(leaf, ring);
        }
        if rings.is_empty() && !failures.is_empty() {
            return Err(failures.swap_remove(0));
        }
        let found = uberblocks::rank(&rings.values().cloned().collect::<Vec<_>>());
        let own = rings.keys().zip(found.newest).zip(found.standings);
        let own = own.map(|((guid, newest), standing)| (*guid, (newest, standing))).collect();
        Ok(Rings { line: found.candidates, found: own, rings, unacknowledged })
    }

    /// All uberblocks of a device, newest first.
    fn ring(&self, device: Guid) -> &[Uberblock] {
        self.rings.get(&device).map_or(&[], Vec::as_slice)
    }

    fn of(&self, device: Guid) -> (Mark, Standing) {
        self.found.get(&device).copied().unwrap_or((Mark::default(), Standing::Empty))
    }

    /// How far an absent device may be that was complete when last seen: at the newest state of all, or at the one
    /// before. It surely has the state before: a commit begins only when its predecessor is flushed on every device
    /// that the labels call complete, and a device gets its first uberblock before labels call it complete. If the
    /// rings hold no state before, the newest state's import continued from it.
    fn of_absent(&self) -> Behind {
        let mark = |state: &Uberblock| Mark { epoch: state.epoch, txg: state.txg };
        self.line.first().map_or(Behind::default(), |newest| Behind {
            has: self.line.get(1).map_or(Mark { epoch: newest.parent, txg: newest.forked_at }, mark),
            may_have: mark(newest),
        })
    }

    /// True if a state directly precedes another on the line.
    fn precedes(&self, older: Mark, newer: Mark) -> bool {
        let before = self.line.iter().find(|state| state.txg < newer.txg);
        before.is_some_and(|before| (before.epoch, before.txg) == (older.epoch, older.txg))
    }

    /// True if a member joins a rewind that it has not seen: power failed while the repeating uberblock, one of
    /// `states`, was written to the members. Labels written since by an import without this member would call it
    /// behind.
    fn goes_back(&self, member: &MemberConfig, label: &Label, states: &[Uberblock]) -> bool {
        let (own, standing) = self.of(member.leaf.guid);
        let repeats = |state: &&Uberblock| state_of(state) != state.txg && own.txg < state.txg;
        let mut repeats = states.iter().filter(repeats).peekable();
        let is_given_up = matches!(standing, Standing::Diverged { .. }) && member.behind.is_none();
        if !is_given_up || repeats.peek().is_none() || !self.have_heard(label) {
            return false;
        }
        let ring = self.ring(member.leaf.guid);
        let has = |state: &Uberblock| ring.iter().any(|own| (own.epoch, own.txg) == (state.parent, state.forked_at));
        // The vdev may be younger than the state.
        let is_younger = |state: &Uberblock| !ring.is_empty() && ring.iter().all(|own| own.txg > state.forked_at);
        repeats.any(|state| has(state) || is_younger(state))
    }

    /// The txg since which a device has had every state of the line, by its own rings; blocks freed before its resilver
    /// are missing. Zero if it has as many states as the pool may rewind.
    fn complete_since(&self, device: Guid) -> Txg {
        let ring = self.ring(device);
        let has = |state: &&Uberblock| ring.iter().any(|own| (own.epoch, own.txg) == (state.epoch, state.txg));
        let recent = &self.line[..self.line.len().min(SAFE_STATES)];
        let had = recent.iter().take_while(has).count();
        if had == recent.len() { Txg::ZERO } else { recent[had.saturating_sub(1)].txg }
    }

    /// True if a device that the label calls complete has the newest state.
    fn have_heard(&self, label: &Label) -> bool {
        let members = || label.vdevs.iter().flat_map(|vdev| vdev.tree.members());
        let is_behind = |device: &Guid| members().any(|m| m.leaf.guid == *device && m.behind.is_some());
        self.found.iter().any(|(device, (_, standing))| *standing == Standing::Current && !is_behind(device))
    }

    /// How far a device is: by its rings, or by the label if that is less.
    fn behind(&self, member: &MemberConfig) -> Behind {
        let own = self.of(member.leaf.guid).0;
        let known = member.behind.map_or(own, |behind| behind.has);
        Behind { has: if known.txg < own.txg { known } else { own }, may_have: own }
    }

    /// The leaf of a device that is present.
    fn leaf(&self, config: &LeafConfig, device: &Arc<dyn Device>) -> Result<Arc<Leaf>> {
        if usable_size(device.size()) < config.size {
            return Err(shrunk(&**device, config.size));
        }
        let leaf = Leaf::new(config.guid, device.clone());
        leaf.found_marks(Behind::at(self.of(config.guid).0));
        let ring = self.ring(config.guid);
        let has = |state: &&Uberblock| ring.iter().any(|own| (own.epoch, own.txg) == (state.epoch, state.txg));
        let had = self.line.iter().take(SAFE_STATES).rev().filter(has);
        had.for_each(|state| leaf.keep_state(&Arc::new(state.clone())));
        Ok(Arc::new(leaf))
    }
}

/// The members of a mirror or a RAID-Z, as a label describes them.
struct Parts<'a> {
    /// The vdev's name in messages.
    name: String,
    /// The vdev's configuration in the label, with its required columns.
    tree: &'a VdevTree,
    /// The members, each with its column.
    members: Vec<(usize, &'a MemberConfig)>,
}

impl Parts<'_> {
    /// The bytes of the smallest device, and the members with their states.
    fn put_together(&self, label: &Label, by_guid: &ByGuid, rings: &Rings) -> Result<(u64, Vec<Arc<Member>>)> {
        let configs: Vec<&MemberConfig> = self.members.iter().map(|(_, member)| *member).collect();
        let is_there = |member: &&&MemberConfig| by_guid.contains_key(&member.leaf.guid);
        let split = |alone: &MemberConfig| Error::Split { pool: label.pool_name.clone(), device: path(alone, by_guid) };
        let goes_back = |member: &MemberConfig, states| rings.goes_back(member, label, states);
        let is_apart = |member: &&&MemberConfig| is_split(member, rings) && !goes_back(member, &rings.line);
        if let Some(alone) = configs.iter().filter(is_there).find(is_apart) {
            return Err(split(alone));
        }
        let leaves: Vec<Option<Result<Arc<Leaf>>>> =
            configs.iter().map(|m| by_guid.get(&m.leaf.guid).map(|device| rings.leaf(&m.leaf, device))).collect();
        let usable = |at: usize| matches!(leaves[at], Some(Ok(_))) && !configs[at].is_offline;
        let whole = |at: &usize| usable(*at) && configs[*at].behind.is_none();
        let own = |at: usize| rings.of(configs[at].leaf.guid).0;
        let Some(newest) = (0..leaves.len()).filter(whole).map(own).max_by_key(|mark| mark.txg) else {
            return Err(self.incomplete(label, leaves));
        };
        let is_ahead = |member: &&&MemberConfig| {
            let own = rings.of(member.leaf.guid).0;
            own.txg > newest.txg && member.behind.is_some_and(|behind| !behind.knows(own))
        };
        if let Some(alone) = configs.iter().filter(is_there).find(is_ahead) {
            return Err(split(alone));
        }
        let lacks_one = |at: usize| rings.precedes(own(at), newest);
        // A member that joins a rewind lacks nothing, and not the next state either if that was being written to all.
        let newest_states = &rings.line[..rings.line.len().min(2)];
        let has_it = |at: usize| goes_back(configs[at], newest_states);
        // The devices of a vdev added just now may have the first commit's uberblock alone in their rings.
        let has_only_newest = |at: usize| {
            let is_it = |own: &Uberblock| (own.epoch, own.txg) == (newest.epoch, newest.txg);
            rings.rings.get(&configs[at].leaf.guid).is_some_and(|ring| ring.iter().all(is_it))
        };
        let is_first = (0..leaves.len()).filter(whole).all(has_only_newest);
        let is_current = |at: usize| own(at).txg == newest.txg || lacks_one(at) || has_it(at) || is_first;
        let is_complete = |at: &usize| whole(at) && is_current(*at);
        if !self.tree.suffice((0..leaves.len()).filter(is_complete).map(|at| self.members[at].0)) {
            return Err(self.incomplete(label, leaves));
        }
        let mut members = Vec::with_capacity(leaves.len());
        for (at, leaf) in leaves.iter().enumerate() {
            // A column that has just joined holds nothing yet.
            let is_empty = self.members[at].0 >= self.tree.counted();
            let state = match (usable(at), is_complete(&at)) {
                (_, true) => State::Complete,
                (true, false) if is_empty => State::Resilvered,
                (true, false) => State::Resilvering,
                (false, false) => State::Out,
            };
            members.push(self.member(at, leaf.as_ref(), state, label, rings));
        }
        Ok((self.least_size(&members), members))
    }

    /// The member in place `at`, with its device if the device opened and is in use.
    fn member(
        &self,
        at: usize,
        leaf: Option<&Result<Arc<Leaf>>>,
        state: State,
        label: &Label,
        rings: &Rings,
    ) -> Arc<Member> {
        let (column, config) = self.members[at];
        let behind = match (state, config.behind) {
            (State::Complete, _) => None,
            (State::Resilvering | State::Resilvered, _) => Some(rings.behind(config)),
            (_, behind) => Some(behind.unwrap_or_else(|| rings.of_absent())),
        };
        let leaf = match leaf {
            Some(Ok(leaf)) if state != State::Out => leaf.clone(),
            present => {
                let absent = Leaf::absent(&config.leaf);
                if let Some(Err(error)) = present {
                    tracing::error!("{} goes on without a device: {error}", self.name);
                    absent.set_trouble(Some(error.to_string()));
                }
                Arc::new(absent)
            }
        };
        let member = Member::new(leaf, state, &MemberConfig { behind, ..config.clone() });
        if label.had_too_many_errors(config) {
            out_of_use::note_errors(&member.leaf);
        }
        if state == State::Complete {
            member.note_complete_since(rings.complete_since(config.leaf.guid));
        }
        Arc::new(member.at_column(column))
    }

    /// The bytes of the smallest device. The size of absent members is taken from the label.
    fn least_size(&self, members: &[Arc<Member>]) -> u64 {
        let there = members.iter().filter(|member| member.state() != State::Out);
        let known = || self.members.iter().map(|(_, member)| member.leaf.size).min().unwrap_or(0);
        let absent = members.iter().any(|member| member.state() == State::Out).then(known);
        there.map(|member| member.leaf.size()).chain(absent).min().unwrap_or(0)
    }

    /// The error of a vdev without enough complete members: the problem of a member that would be complete, or the
    /// missing ones.
    fn incomplete(&self, label: &Label, leaves: Vec<Option<Result<Arc<Leaf>>>>) -> Error {
        let mut missing = Vec::new();
        for ((_, member), leaf) in self.members.iter().zip(leaves).filter(|((_, member), _)| member.behind.is_none()) {
            match leaf {
                Some(Err(error)) => return error,
                Some(Ok(_)) => {}
                None => missing.push(member.leaf.path.as_str()),
            }
        }
        let missing = match missing.len() {
            0 => "what the others had is".to_owned(),
            1 => format!("{} is", missing[0]),
            _ => format!("{} are", missing.join(" and ")),
        };
        let (vdev, pool) = (self.name.clone(), label.pool_name.clone());
        Error::Incomplete { vdev, pool, needed: self.tree.needed(), missing }
    }
}

/// True if a member was modified separately.
fn is_split(member: &MemberConfig, rings: &Rings) -> bool {
    let (own, standing) = rings.of(member.leaf.guid);
    let is_known = member.behind.is_some_and(|behind| behind.knows(own));
    matches!(standing, Standing::Diverged { .. }) && !is_known
}

fn path(member: &MemberConfig, by_guid: &ByGuid) -> String {
    by_guid.get(&member.leaf.guid).map_or_else(|| member.leaf.path.clone(), |device| device.name().to_owned())
}
