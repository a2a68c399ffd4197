//! Splitting a pool: one device of each mirror leaves, and together they become a new pool with all committed data.
//!
//! The new pool has a GUID of its own, so uberblocks and intent log frames of the old pool are not valid in it. Each of
//! its devices gets one uberblock, which repeats the last committed state under the new GUID and a new epoch. Later
//! writes, and synchronous writes since that state, belong to the old pool alone.
//!
//! Commits are paused from the choice of the state on, so that the state is on every leaving device and none of its
//! blocks is overwritten. The order is as follows, with a flush after each step:
//!
//! 1. the leaving devices are taken out of use, and get nothing more
//! 2. their labels name the new pool, as a destroyed one: they count as free
//! 3. they get the uberblock
//! 4. the labels of the old pool leave them out
//! 5. their labels say that the new pool is exported
//!
//! | power fails | the old pool | the new pool |
//! | --- | --- | --- |
//! | before the first label of step 2 | with all devices; a device that labels call behind is resilvered | does not exist |
//! | within step 2 | with the devices whose labels still name it; the rest are missing | does not exist: it counts as destroyed |
//! | then, before a label of step 4 | without the leaving devices: they are missing, and can be replaced | the same |
//! | within step 4 | labels of two ages; the newer counts: the same, or without them | the same |
//! | then, before a label of step 5 | without them; they are free, and can be attached again | the same |
//! | within step 5 | the same | whole: the newer label counts |
//! | later | the same | whole |
//!
//! So no device ever belongs to both: each label names one pool, and a pool takes only devices labelled with its GUID.
//! And no device is lost: a device of no pool counts as free. The old pool has all data at each of these instants, on
//! the staying devices, which had all states to rewind to before the first step; the new pool has one state.

use std::sync::Arc;

use super::{
    members::safe_since,
    open::{chosen, first_txg, line},
    pool::Pool,
    rewind::repeating,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, PoolState, sections::Sections},
        uberblock::{Epoch, Uberblock},
        vdev_config::{LeafConfig, VdevConfig, VdevTree},
    },
    units::{Guid, Txg, VdevId},
    vdev::{Group, Leaf, State, Vdev, labels, uberblocks},
};

/// A device that leaves in a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The mirror that the device leaves.
    pub vdev: VdevId,
    /// The mirror's name.
    pub mirror: String,
    /// The device's GUID.
    pub device: Guid,
    /// The device's path.
    pub path: String,
}

/// A leaving device, with the vdev that it leaves.
struct Part {
    vdev: Arc<dyn Vdev>,
    leaf: Arc<Leaf>,
    device: Arc<dyn Device>,
}

impl Part {
    fn group(&self) -> &Group {
        self.vdev.as_group().expect("it is of a mirror")
    }
}

impl Pool {
    /// Chooses the leaving devices: of each mirror the named one, otherwise the last complete one.
    ///
    /// # Errors
    /// [`Error::Request`] if a vdev is no mirror, is being resilvered or removed, or would have no complete device
    /// left; if a named device is not in the pool, or two are of one mirror.
    pub fn plan_split(&self, devices: &[String]) -> Result<Vec<Leaving>> {
        let mut named: Vec<(VdevId, Arc<Leaf>)> = Vec::with_capacity(devices.len());
        for name in devices {
            let (vdev, leaf) = self.find_device(name)?;
            if let Some((_, other)) = named.iter().find(|(id, _)| *id == vdev.id()) {
                let problem =
                    format!("{name} and {} belong to the same mirror; name one device for each mirror", other.name());
                return Err(Error::Request(problem));
            }
            named.push((vdev.id(), leaf));
        }
        let label = self.label();
        let leaving = |vdev: &Arc<dyn Vdev>| {
            let wanted = named.iter().find(|(id, _)| *id == vdev.id()).map(|(_, leaf)| leaf);
            let is_mirror = label.vdevs.iter().any(|c| c.id == vdev.id() && matches!(c.tree, VdevTree::Mirror(_)));
            let Some(mirror) = vdev.as_group().filter(|_| is_mirror) else { return Err(no_mirror(&**vdev)) };
            if self.engine().storage().space.is_closed(vdev.id()) {
                return Err(Error::Request(format!("{} is being removed from the pool", mirror.name())));
            }
            let leaf = leaver(mirror, wanted)?;
            let (device, path) = (leaf.guid(), leaf.name().to_owned());
            Ok(Leaving { vdev: vdev.id(), mirror: mirror.name().to_owned(), device, path })
        };
        self.engine().storage().vdevs.all().iter().map(leaving).collect()
    }

    /// Splits off the devices chosen by [`Pool::plan_split`] as an exported pool of this name. Returns its label. The
    /// new pool has everything committed before the call.
    ///
    /// # Errors
    /// [`Error::Request`] if the plan is no longer possible; then nothing has changed. [`Error::Device`] if a label or
    /// an uberblock could not be written: then the leaving devices are out of use, and may be detached, replaced or
    /// attached again.
    pub fn split(&self, name: &str, leaving: &[Leaving]) -> Result<Label> {
        self.engine().writable()?;
        self.engine().commit()?;
        leaving.iter().try_for_each(|one| self.outlast(&one.device.to_string()))?;
        let mut highest = self.labelling_still();
        let names: Vec<String> = leaving.iter().map(|one| one.device.to_string()).collect();
        if self.plan_split(&names)? != leaving {
            return Err(Error::Request("the devices of the pool have changed meanwhile; try again".into()));
        }
        let parts = leaving.iter().map(|one| self.part(one)).collect::<Result<Vec<Part>>>()?;
        let devices: Vec<Arc<dyn Device>> = parts.iter().map(|part| part.device.clone()).collect();
        let label = self.label();
        let line = line(&label, &devices)?;
        let base = chosen(&label, &line, highest.held_at())?;
        take_out(&parts, highest.held_at())?;

        *highest = highest.next().max(highest.held_at());
        let new = self.new_label(name, &label, &parts, *highest);
        self.write_own(&parts, &new)?;
        let repeated = repeated(&new, base, self.engine().env().now())?;
        publish(&devices, &repeated)?;

        self.leave_out(&mut highest, label, &parts)?;
        let exported = Label { state: PoolState::Exported, txg: new.txg.next(), ..new };
        self.write_own(&parts, &exported)?;
        parts.iter().for_each(|part| part.leaf.let_go());
        Ok(exported)
    }

    fn part(&self, leaving: &Leaving) -> Result<Part> {
        let (vdev, leaf) = self.find_device(&leaving.device.to_string())?;
        let device = leaf.device();
        Ok(Part { vdev, leaf, device })
    }

    /// The label of the new pool, still marked as destroyed.
    fn new_label(&self, name: &str, label: &Label, parts: &[Part], txg: Txg) -> Label {
        let alone = |config: &VdevConfig| {
            let part = parts.iter().find(|part| part.vdev.id() == config.id).expect("a device of each vdev leaves");
            let leaf = LeafConfig {
                guid: part.leaf.guid(),
                size: config.tree.device_size(),
                path: part.leaf.name().to_owned(),
            };
            VdevConfig { id: config.id, tree: VdevTree::Leaf(leaf) }
        };
        Label {
            pool_name: name.to_owned(),
            pool: Guid(self.engine().env().random()),
            state: PoolState::Destroyed,
            epoch: Epoch(self.engine().env().random()),
            created: label.created,
            txg,
            vdevs: label.vdevs.iter().map(alone).collect(),
            // Spares stay with the old pool.
            sections: Sections {
                classes: label.sections.classes.clone(),
                ends: label.sections.ends.clone(),
                ..Sections::default()
            },
            ..label.clone()
        }
    }

    /// Writes labels to the leaving devices.
    fn write_own(&self, parts: &[Part], label: &Label) -> Result<()> {
        let own = |part: &Part| Label { device: part.leaf.guid(), vdev: part.vdev.id(), ..label.clone() };
        parts.iter().try_for_each(|part| labels::write_labels(&*part.device, &own(part)))
    }

    /// Removes the leaving devices from the old pool's labels, and from its mirrors.
    fn leave_out(&self, highest: &mut Txg, mut label: Label, parts: &[Part]) -> Result<()> {
        for part in parts {
            let config = label.vdevs.iter_mut().find(|config| config.id == part.vdev.id());
            let config = config.expect("it was found there");
            config.tree = super::members::without(config.tree.clone(), part.leaf.guid());
        }
        self.replace_labels(highest, label, &[])?;
        parts.iter().for_each(|part| self.go_on_without(&part.vdev, part.group(), part.leaf.guid()));
        Ok(())
    }
}

/// The device of a mirror that leaves.
fn leaver(mirror: &Group, wanted: Option<&Arc<Leaf>>) -> Result<Arc<Leaf>> {
    let members = mirror.members();
    let refused = |problem: String| Err(Error::Request(problem));
    let is_in_motion = |state| matches!(state, State::Resilvering | State::Resilvered);
    if members.iter().any(|member| is_in_motion(member.state()) || member.replaces().is_some()) {
        return refused(format!("{} is being resilvered; wait until the resilver finishes", mirror.name()));
    }
    let complete = || members.iter().filter(|member| member.state() == State::Complete);
    let found = match wanted {
        Some(leaf) => complete().find(|member| member.leaf.guid() == leaf.guid()),
        None => complete().next_back(),
    };
    match (found, wanted) {
        (None, Some(leaf)) => refused(format!("{} lacks data of {}", leaf.name(), mirror.name())),
        (Some(_), _) if complete().count() > 1 => Ok(found.expect("it is there").leaf.clone()),
        _ => refused(format!("{} has only one complete device", mirror.name())),
    }
}

fn no_mirror(vdev: &dyn Vdev) -> Error {
    let name = vdev.as_group().map(|group| group.name().to_owned());
    let name = name.or_else(|| vdev.leaves().first().map(|leaf| leaf.name().to_owned()));
    Error::Request(format!("{} is not a mirror: only a pool of mirrors can be split", name.unwrap_or_default()))
}

/// Takes all leaving devices out of use, or none: the staying devices must have all states to rewind to from
/// `committed`.
fn take_out(parts: &[Part], committed: Txg) -> Result<()> {
    let outcomes =
        parts.iter().map(|part| part.group().take_out_to_leave(part.leaf.guid(), None, safe_since(committed)));
    let done = outcomes.take_while(std::result::Result::is_ok).count();
    let is_quiet = parts.iter().all(|part| part.device.outstanding() == 0);
    if done == parts.len() && is_quiet {
        return Ok(());
    }
    for part in &parts[..done] {
        let behind = part.group().member(part.leaf.guid()).and_then(|member| member.behind()).unwrap_or_default();
        part.group().take_back(part.leaf.guid(), part.device.clone(), behind);
    }
    Err(Error::Request(match parts.get(done) {
        Some(part) => format!("{} has no other device that was complete in the last commits", part.group().name()),
        None => "a device still has unanswered requests".to_owned(),
    }))
}

/// The uberblock that repeats the committed state as the only state of the new pool.
fn repeated(new: &Label, base: &Uberblock, now: i64) -> Result<Uberblock> {
    Ok(Uberblock {
        pool: new.pool,
        txg: first_txg(new, base, base, &[])?,
        epoch: new.epoch,
        parent: base.epoch,
        forked_at: base.txg,
        written: now,
        counters: repeating(base),
        ..base.clone()
    })
}

/// Writes the uberblock to all devices, and flushes.
fn publish(devices: &[Arc<dyn Device>], uberblock: &Uberblock) -> Result<()> {
    let all: Vec<&dyn Device> = devices.iter().map(|device| &**device).collect();
    uberblocks::write_uberblock(&all, uberblock).into_iter().collect::<Result<()>>()?;
    let failed =
        |device: &dyn Device, source| Err(Error::Device { device: device.name().to_owned(), action: "flush", source });
    all.iter().try_for_each(|device| device.flush().or_else(|source| failed(*device, source)))
}
