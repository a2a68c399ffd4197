//! Putting the devices of a pool together to its vdevs: which members of a mirror are complete, which lack something, and
//! which were changed on their own.
//!
//! The newest label says what each member lacked when it was written, and what it calls complete is so up to the newest
//! uberblock: see [`crate::vdev::Mirror`]. The rings say what each device has. Both are asked, and the worse is believed:
//! a member is *complete* if the label says so and no other such member of its mirror has a newer uberblock. All others are
//! filled with what was born after the newest uberblock in their own rings.
//!
//! A member may have one of two pasts: its newest uberblock is an ancestor of the newest of all, or it is one that the label
//! knows, since that one says how far the member had come when it was put out of use. Everything else is a state that
//! somebody made of this device alone, and so is one of a member that lacks something, by the label, and has a newer
//! uberblock than those that do not. Neither side is more right than the other, so the pool is refused.
//!
//! Going back gives the members of a mirror an uberblock that leaves their newest states off its line, one after the other
//! and before any label: see [`super::rewind`]. Where power fails in between, a member has not got it that the label calls
//! complete, and its newest uberblock is neither an ancestor nor known. It has the state that was gone back to in its own
//! ring, though, and nothing as late as the uberblock that repeats it: it lacks only that one, and what came after. Nobody
//! can have used it alone: its own labels would then be the newest and say that the others lack something, or those of the
//! others say so of it, and either is refused.

use std::{collections::BTreeMap, sync::Arc};

use super::open::{ByGuid, shrunk};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, usable_size},
        uberblock::Uberblock,
        vdev_config::{Behind, LeafConfig, Mark, MemberConfig, MirrorConfig, VdevConfig, VdevTree},
    },
    txg::state_of,
    units::Guid,
    vdev::{
        Leaf, Member, Mirror, Single, State, Vdev,
        uberblocks::{self, Standing},
    },
};

/// The vdevs of a pool, and the uberblocks of the newest state's line, newest first: at least one.
pub(super) struct Assembly {
    pub(super) vdevs: Vec<Arc<dyn Vdev>>,
    pub(super) line: Vec<Uberblock>,
}

/// Puts the devices together that a label names. Every single device must be there, and be as large as the label says:
/// what lies behind the end of one that was cut short is lost, and its last labels are not where they were. A mirror needs
/// one that is complete.
pub(super) fn assemble(label: &Label, by_guid: &ByGuid) -> Result<Assembly> {
    let rings = Rings::read(label, by_guid)?;
    let vdev = |config: &VdevConfig| -> Result<Arc<dyn Vdev>> {
        match &config.tree {
            VdevTree::Mirror(mirror) => Ok(Arc::new(put_together(label, config, mirror, by_guid, &rings)?)),
            tree => {
                let leaf = tree.leaves().next().expect("a kind that is not known was refused");
                let missing =
                    || Error::Missing { device: leaf.guid, path: leaf.path.clone(), pool: label.pool_name.clone() };
                let device = by_guid.get(&leaf.guid).ok_or_else(missing)?;
                Ok(Arc::new(Single::new(config.id, rings.leaf(leaf, device)?)))
            }
        }
    };
    let vdevs = label.vdevs.iter().map(vdev).collect::<Result<_>>()?;
    match rings.line.is_empty() {
        true => Err(Error::damaged(format!("pool {}", label.pool_name), "no device holds a valid uberblock")),
        false => Ok(Assembly { vdevs, line: rings.line }),
    }
}

/// What the rings of the devices say.
struct Rings {
    line: Vec<Uberblock>,
    /// Of each device the newest uberblock, and how it stands to the newest of all.
    found: BTreeMap<Guid, (Mark, Standing)>,
}

impl Rings {
    /// Reads those of the devices that a label names. Others are no part of the pool: they were detached, or are about to
    /// be added.
    fn read(label: &Label, by_guid: &ByGuid) -> Result<Rings> {
        let named = label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves());
        let there: Vec<(Guid, &Arc<dyn Device>)> =
            named.filter_map(|leaf| Some((leaf.guid, by_guid.get(&leaf.guid)?))).collect();
        let devices: Vec<&dyn Device> = there.iter().map(|(_, device)| &***device).collect();
        let found = uberblocks::find_uberblocks(&devices, label.pool)?;
        let own = there.iter().zip(found.newest).zip(found.standings);
        let own = own.map(|(((guid, _), newest), standing)| (*guid, (newest, standing))).collect();
        Ok(Rings { line: found.candidates, found: own })
    }

    fn of(&self, device: Guid) -> (Mark, Standing) {
        self.found.get(&device).copied().unwrap_or((Mark::default(), Standing::Empty))
    }

    /// How far a device may have come that is not there and was complete when it was last heard of: to the newest state of
    /// all, or to the one before. It has that one, for a commit begins when what the one before has flushed is on every
    /// device that the labels call complete, and a device gets its first uberblock before they call it so. Where the rings
    /// name none before, it is what the newest one's import went on from.
    fn of_absent(&self) -> Behind {
        let mark = |state: &Uberblock| Mark { epoch: state.epoch, txg: state.txg };
        self.line.first().map_or(Behind::default(), |newest| Behind {
            has: self.line.get(1).map_or(Mark { epoch: newest.parent, txg: newest.forked_at }, mark),
            may_have: mark(newest),
        })
    }

    /// How far a device has come: by its rings, or by what the label says if that is less.
    fn behind(&self, member: &MemberConfig) -> Behind {
        let own = self.of(member.leaf.guid).0;
        let told = member.behind.map_or(own, |behind| behind.has);
        Behind { has: if told.txg < own.txg { told } else { own }, may_have: own }
    }

    /// A device that is there.
    fn leaf(&self, config: &LeafConfig, device: &Arc<dyn Device>) -> Result<Arc<Leaf>> {
        if usable_size(device.size()) < config.size {
            return Err(shrunk(&**device, config.size));
        }
        let leaf = Leaf::new(config.guid, device.clone());
        leaf.found_marks(Behind::at(self.of(config.guid).0));
        Ok(Arc::new(leaf))
    }
}

fn put_together(
    label: &Label,
    vdev: &VdevConfig,
    mirror: &MirrorConfig,
    by_guid: &ByGuid,
    rings: &Rings,
) -> Result<Mirror> {
    let is_there = |member: &&MemberConfig| by_guid.contains_key(&member.leaf.guid);
    if let Some(alone) = mirror.members.iter().filter(is_there).find(|member| is_split(label, member, by_guid, rings)) {
        return Err(Error::Split { pool: label.pool_name.clone(), device: path(alone, by_guid) });
    }
    let leaves: Vec<Option<Result<Arc<Leaf>>>> =
        mirror.members.iter().map(|m| by_guid.get(&m.leaf.guid).map(|device| rings.leaf(&m.leaf, device))).collect();
    let usable = |at: usize| matches!(leaves[at], Some(Ok(_))) && !mirror.members[at].is_offline;
    let whole = |at: &usize| usable(*at) && mirror.members[*at].behind.is_none();
    let txg = |at: usize| rings.of(mirror.members[at].leaf.guid).0.txg;
    let Some(newest) = (0..leaves.len()).filter(whole).map(txg).max() else {
        return Err(nobody_complete(label, vdev, mirror, leaves));
    };
    let is_ahead = |member: &&MemberConfig| {
        let own = rings.of(member.leaf.guid).0;
        own.txg > newest && member.behind.is_some_and(|behind| !behind.knows(own))
    };
    if let Some(alone) = mirror.members.iter().filter(is_there).find(is_ahead) {
        return Err(Error::Split { pool: label.pool_name.clone(), device: path(alone, by_guid) });
    }
    let mut members = Vec::with_capacity(leaves.len());
    for (at, leaf) in leaves.iter().enumerate() {
        let state = match (usable(at), whole(&at) && txg(at) == newest) {
            (_, true) => State::Complete,
            (true, false) => State::Filling,
            (false, false) => State::Out,
        };
        let config = &mirror.members[at];
        let behind = match (state, config.behind) {
            (State::Complete, _) => None,
            (State::Filling, _) => Some(rings.behind(config)),
            (_, behind) => Some(behind.unwrap_or_else(|| rings.of_absent())),
        };
        let leaf = match leaf {
            Some(Ok(leaf)) if state != State::Out => leaf.clone(),
            present => {
                let absent = Leaf::absent(&config.leaf);
                if let Some(Err(error)) = present {
                    tracing::error!("mirror-{} goes on without a device: {error}", vdev.id);
                    absent.set_trouble(Some(error.to_string()));
                }
                Arc::new(absent)
            }
        };
        members.push(Arc::new(Member::new(leaf, state, &MemberConfig { behind, ..config.clone() })));
    }
    let there = members.iter().filter(|member| member.state() != State::Out);
    // Members that are not there have no more than they are known to have.
    let absent = members.iter().any(|member| member.state() == State::Out).then(|| vdev.tree.size());
    let size = there.map(|member| member.leaf.size()).chain(absent).min().unwrap_or(0);
    Ok(Mirror::new(vdev.id, mirror.guid, size, members))
}

/// Whether somebody has changed a member without the others.
fn is_split(label: &Label, member: &MemberConfig, by_guid: &ByGuid, rings: &Rings) -> bool {
    let (own, standing) = rings.of(member.leaf.guid);
    let is_known = member.behind.is_some_and(|behind| behind.knows(own));
    matches!(standing, Standing::Diverged { .. }) && !is_known && !goes_back(label, member, by_guid, rings)
}

/// Whether a member that the label calls complete was about to go back with the others when power failed: what it has
/// beyond the state that was gone back to is older than the uberblock that repeats it, and that state is in its own ring.
fn goes_back(label: &Label, member: &MemberConfig, by_guid: &ByGuid, rings: &Rings) -> bool {
    let own = rings.of(member.leaf.guid).0;
    let repeats = |state: &&Uberblock| state_of(state) != state.txg && own.txg < state.txg;
    let mut repeats = rings.line.iter().filter(repeats).peekable();
    if member.behind.is_some() || repeats.peek().is_none() {
        return false;
    }
    let ring = by_guid.get(&member.leaf.guid).map(|device| uberblocks::read_uberblocks(&**device, label.pool));
    let ring = ring.and_then(Result::ok).unwrap_or_default();
    let has = |state: &Uberblock| ring.iter().any(|u| (u.epoch, u.txg) == (state.parent, state.forked_at));
    repeats.any(has)
}

fn path(member: &MemberConfig, by_guid: &ByGuid) -> String {
    by_guid.get(&member.leaf.guid).map_or_else(|| member.leaf.path.clone(), |device| device.name().to_owned())
}

/// The error of a mirror without a complete member: what is wrong with one that would be, or which are missing.
fn nobody_complete(
    label: &Label,
    config: &VdevConfig,
    mirror: &MirrorConfig,
    leaves: Vec<Option<Result<Arc<Leaf>>>>,
) -> Error {
    let mut missing = Vec::new();
    for (member, leaf) in mirror.members.iter().zip(leaves).filter(|(member, _)| member.behind.is_none()) {
        match leaf {
            Some(Err(error)) => return error,
            Some(Ok(_)) => {}
            None => missing.push(member.leaf.path.as_str()),
        }
    }
    let missing = match missing.len() {
        1 => format!("{} is", missing[0]),
        _ => format!("{} are", missing.join(" and ")),
    };
    Error::Incomplete { vdev: format!("mirror-{}", config.id), pool: label.pool_name.clone(), missing }
}
