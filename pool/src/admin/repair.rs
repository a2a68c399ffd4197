//! Repair of lost labels and uberblock rings on devices in use, from the open pool's knowledge.
//!
//! A scrub calls this, and `pool clear` does. [`crate::vdev::repair`] says how a device is examined and in which order
//! it is written.
//!
//! A device that belongs elsewhere by now is taken out of use and not written to: it has the label of another pool or
//! device, or has lost all labels and holds another known format, or is shorter than before and cannot be lengthened.
//! If the vdev's redundancy does not allow that, nothing may be written to the device either, so the pool is suspended
//! until the device is restored (see [`super::clear`]). A pool that cannot be resumed continues, with a message.
//!
//! A truncated image is lengthened back to its size. The lost part becomes a hole that reads as zeros, and zeros pass
//! where nothing is verified (`checksum=off`). So a redundant member is first taken out of use, and labels record that
//! before the image is lengthened; then it is resilvered from the beginning.
//!
//! A device that has lost all of its labels may have lost everything else. It stays in use: its vdev considers it
//! complete, like a device with any other damage, and readers find the damage. A scrub repairs the rest.
//!
//! Labels of devices in no vdev may be older than the rest, and need no repair for that. These devices have no rings. A
//! hanging one must not hold up commits, so they are repaired apart, while commits are not paused.

use std::sync::Arc;

use super::{
    pool::{Labels, Pool},
    probe::probe_foreign,
    writing::NO_VDEV,
};
use crate::{
    error::{Error, Result},
    format::{
        label::{Label, device_size},
        vdev_config::Behind,
    },
    space::SAFE_STATES,
    txg::{Engine, Still},
    vdev::{
        Health, KEPT_STATES, Leaf, Vdev,
        repair::{self, LabelsExamined, LabelsFound},
    },
};

const _: () = assert!(KEPT_STATES >= SAFE_STATES, "a device alone is enough to go back");

impl Pool {
    /// Examines the labels and uberblocks of all devices, and repairs bad ones, unless that means waiting for a commit.
    pub(super) fn repair_labels_at_once(&self) {
        if let Some(still) = self.engine().try_hold_still() {
            still.repair_labels();
        }
    }
}

impl Labels {
    /// See [`crate::txg::Features::repair`].
    pub(super) fn repair_in_vdevs(&self, still: &Still<'_>) -> LabelsExamined {
        let engine = still.engine();
        let write = engine.writable().is_ok();
        let (mut sum, mut refused) = (LabelsExamined::default(), Vec::new());
        if write {
            sum += resilver_truncated_members(engine);
        }
        {
            let (_highest, _labelling) = (self.hold(), engine.labelling.lock());
            let label = self.current();
            for vdev in engine.storage().vdevs.all() {
                for leaf in vdev.labelled() {
                    let own = Label { device: leaf.guid(), vdev: vdev.id(), ..label.clone() };
                    match repair_member(engine, &*vdev, &leaf, &own, write) {
                        Ok(examined) => sum += examined,
                        Err(error) => refused.push((vdev.clone(), leaf, error)),
                    }
                }
            }
        }
        for (vdev, leaf, error) in &refused {
            sum += refuse(engine, &**vdev, leaf, error, write);
        }
        // Labels can be written only now: they record the devices out of use.
        if !refused.is_empty()
            && write
            && let Err(error) = engine.storage().vdevs.flush()
        {
            tracing::error!("labels do not say that a device is out of use: {error}");
        }
        sum
    }

    /// See [`crate::txg::Features::repair_apart`].
    pub(super) fn repair_in_no_vdev(&self, engine: &Engine) -> LabelsExamined {
        let _apart = self.hold_apart();
        let write = engine.writable().is_ok();
        let label = self.current();
        let mut sum = LabelsExamined::default();
        let spares = engine.storage().vdevs.spares();
        let is_named = |leaf: &Arc<Leaf>| label.is_spare(leaf.guid()) || label.is_cache(leaf.guid());
        let apart = spares.into_iter().chain(engine.secondary().devices());
        for leaf in apart.filter(|leaf| leaf.health() == Health::Online && is_named(leaf)) {
            let own = Label { device: leaf.guid(), vdev: NO_VDEV, ..label.clone() };
            sum += repair_apart(&leaf, &own, write).unwrap_or_else(|error| {
                tracing::error!("a device of the pool cannot be used: {error}");
                leaf.counters().count_checksum_error();
                if write {
                    engine.secondary().take_out(leaf.guid(), Health::Unavailable);
                    leaf.note_health(Health::Unavailable);
                    leaf.set_trouble(Some(error.to_string()));
                }
                LabelsExamined { bad: 1, ..LabelsExamined::default() }
            });
        }
        sum
    }
}

/// Takes truncated redundant members out of use, lengthens them back, and resilvers them from the beginning.
fn resilver_truncated_members(engine: &Engine) -> LabelsExamined {
    let vdevs = &engine.storage().vdevs;
    let mut cut = Vec::new();
    for vdev in vdevs.all().into_iter().filter(|vdev| vdev.as_group().is_some()) {
        let is_faulted = |leaf: &Arc<Leaf>| was_cut(leaf) && vdev.degrade(leaf.guid(), Health::Unavailable);
        cut.extend(vdev.committing().into_iter().filter(is_faulted).map(|leaf| (vdev.clone(), leaf)));
    }
    let mut sum = LabelsExamined::default();
    if cut.is_empty() {
        return sum;
    }
    if let Err(error) = vdevs.flush() {
        tracing::error!("labels do not say that a device is out of use: {error}");
        return sum;
    }
    for (vdev, leaf) in cut {
        vdev.note_checksum_error(leaf.guid());
        sum.bad += 1;
        match repair::repair_size(&*leaf.device(), device_size(leaf.size()), true) {
            Ok(_) => {
                let group = vdev.as_group().expect("only members of groups were faulted");
                group.take_back(leaf.guid(), leaf.device(), Behind::default());
            }
            Err(error) => {
                tracing::error!("{error}");
                leaf.set_trouble(Some(error.to_string()));
                leaf.let_go();
            }
        }
    }
    sum
}

/// True if a device is shorter than before. A device that does not answer is found when its labels are read.
fn was_cut(leaf: &Leaf) -> bool {
    let device = leaf.device();
    let size = device.size().max(device_size(leaf.size()));
    device.measure().is_ok_and(|there| there < size)
}

/// Repairs a device of a vdev.
fn repair_member(engine: &Engine, vdev: &dyn Vdev, leaf: &Leaf, own: &Label, write: bool) -> Result<LabelsExamined> {
    let device = &*leaf.device();
    let (labels, mut examined) = look(leaf, own, write)?;
    if vdev.committing().iter().any(|other| other.guid() == leaf.guid()) {
        examined += tolerated(repair::repair_uberblocks(device, engine.guid(), &leaf.states(), write));
    }
    let repaired = labels.repair(device, own, write);
    // A device with good labels may have bad sectors in the place of another label.
    examined += if labels.newest.is_some() { tolerated(repaired) } else { repaired? };
    if examined.repaired > 0 {
        tracing::warn!("labels or uberblocks of {} were lost, and are there again", leaf.name());
    }
    (0..examined.bad).for_each(|_| vdev.note_checksum_error(leaf.guid()));
    Ok(examined)
}

/// A failed repair counts as bad.
fn tolerated(repaired: Result<LabelsExamined>) -> LabelsExamined {
    repaired.unwrap_or_else(|error| {
        tracing::warn!("{error}");
        LabelsExamined { bad: 1, ..LabelsExamined::default() }
    })
}

/// Repairs a device in no vdev.
fn repair_apart(leaf: &Leaf, own: &Label, write: bool) -> Result<LabelsExamined> {
    let (found, mut examined) = look(leaf, own, write)?;
    examined += found.repair(&*leaf.device(), found.newest.as_ref().unwrap_or(own), write)?;
    (0..examined.bad).for_each(|_| leaf.counters().count_checksum_error());
    Ok(examined)
}

/// The labels of a device, checked to be the same device and as long as before.
fn look(leaf: &Leaf, own: &Label, write: bool) -> Result<(LabelsFound, LabelsExamined)> {
    let device = &*leaf.device();
    let examined = repair::repair_size(device, device.size().max(device_size(leaf.size())), write)?;
    let found = LabelsFound::look(device, own)?;
    if found.newest.is_none()
        && let Some(content) = probe_foreign(device).ok().flatten()
    {
        return Err(repair::taken(device, &format!("it contains {content}")));
    }
    Ok((found, examined))
}

/// Faults a device that belongs elsewhere or fails its repair; if the redundancy does not allow it, suspends the pool.
fn refuse(engine: &Engine, vdev: &dyn Vdev, leaf: &Arc<Leaf>, error: &Error, write: bool) -> LabelsExamined {
    tracing::error!("{error}");
    vdev.note_checksum_error(leaf.guid());
    let bad = LabelsExamined { bad: 1, ..LabelsExamined::default() };
    if !write {
        return bad;
    }
    let is_refusal = matches!(error, Error::Device { .. });
    let health = if is_refusal { Health::of(error) } else { Health::Unavailable };
    let is_without = vdev.degrade(leaf.guid(), health);
    if is_without || !is_refusal {
        leaf.set_trouble(Some(error.to_string()));
    }
    if is_without && leaf.device().outstanding() == 0 {
        // An open device is locked, and may belong to another owner now.
        leaf.let_go();
    } else if !is_without && !is_refusal {
        leaf.note_fault();
        let suspension = engine.suspension();
        suspension.suspend(suspension.era(), error);
    }
    bad
}
