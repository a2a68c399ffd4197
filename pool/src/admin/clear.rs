//! Resuming after a device failure.
//!
//! A suspended pool stands still in the middle of a commit. To resume, each of its devices must be the same as before:
//! by its label, and with a state no older than the last one written to it, since earlier writes are no longer kept
//! here. Writes that its cache may have lost are replayed, and held threads try again.
//!
//! A device of a mirror or a RAID-Z that is not found is faulted, if the redundancy allows it.
//!
//! A device with abandoned requests under way cannot be taken back: they could still reach the device later, over newer
//! writes.

use std::sync::Arc;

use super::{pool::Pool, shapes::shrunk};
use crate::{
    device::Device,
    error::{Error, Result},
    format::label::{Label, usable_size},
    units::Guid,
    vdev::{Health, Leaf, Vdev, labels, uberblocks},
};

impl Pool {
    /// Clears the errors of all devices, and repairs lost labels. In a suspended pool, first takes back the devices in
    /// use, reopened by `reopen` if they do not answer, and resumes the pool. If a device needed by the redundancy is
    /// refused, the pool stays suspended.
    ///
    /// # Errors
    /// [`Error::Device`] if a device does not answer, [`Error::Request`] if it is not the same as before.
    pub fn clear(&self, reopen: &dyn Fn(&str) -> Result<Arc<dyn Device>>) -> Result<()> {
        self.resume(reopen)?;
        self.repair_labels_at_once();
        let vdevs = self.engine().storage().vdevs.all();
        let all = vdevs.iter().flat_map(|vdev| vdev.leaves());
        all.chain(self.caches()).for_each(|leaf| {
            leaf.counters().clear_errors();
            leaf.meter().clear_slow();
        });
        Ok(())
    }

    /// Like [`Pool::clear`], without clearing errors.
    ///
    /// # Errors
    /// Those of [`clear`](Pool::clear).
    pub fn resume(&self, reopen: &dyn Fn(&str) -> Result<Arc<dyn Device>>) -> Result<()> {
        self.engine().not_failed()?;
        if self.engine().suspension().is_suspended() {
            self.take_back(&self.engine().storage().vdevs.all(), reopen)?;
            self.engine().suspension().resume();
        }
        Ok(())
    }

    fn take_back(&self, vdevs: &[Arc<dyn Vdev>], reopen: &dyn Fn(&str) -> Result<Arc<dyn Device>>) -> Result<()> {
        let label = self.label();
        let in_use = vdevs.iter().flat_map(|vdev| vdev.labelled().into_iter().map(move |leaf| (vdev, leaf)));
        let in_use: Vec<(&Arc<dyn Vdev>, Arc<Leaf>)> = in_use.collect();
        let mut found: Vec<_> = in_use.iter().map(|(_, leaf)| find(&label, leaf, reopen)).collect();
        for vdev in vdevs {
            let whole: Vec<Guid> = vdev.committing().iter().map(|leaf| leaf.guid()).collect();
            let own: Vec<usize> = (0..in_use.len()).filter(|at| whole.contains(&in_use[*at].1.guid())).collect();
            let (back, away): (Vec<usize>, Vec<usize>) = own.iter().partition(|at| found[**at].is_ok());
            let back: Vec<Guid> = back.into_iter().map(|at| in_use[at].1.guid()).collect();
            let are_enough = vdev.as_group().map_or(!back.is_empty(), |group| group.are_enough(&back));
            if !are_enough && let Some(first) = away.first() {
                return found.swap_remove(*first).map(drop);
            }
        }
        for ((vdev, leaf), found) in in_use.iter().zip(found) {
            if let Err(error) = found.and_then(|device| leaf.take_back(device))
                && !vdev.degrade(leaf.guid(), Health::Unavailable)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The device of a leaf, as it is or reopened.
fn find(label: &Label, leaf: &Leaf, reopen: &dyn Fn(&str) -> Result<Arc<dyn Device>>) -> Result<Arc<dyn Device>> {
    let present = leaf.device();
    if present.outstanding() > 0 {
        let problem = format!("{} still has unanswered requests, which may yet be carried out", leaf.name());
        return Err(Error::Request(problem));
    }
    if present.is_in_place() && verify(label, leaf, &*present).is_ok() {
        return Ok(present);
    }
    // An open device is locked, so it is closed before it is reopened.
    drop(present);
    leaf.let_go();
    let device = reopen(leaf.name())?;
    verify(label, leaf, &*device)?;
    Ok(device)
}

/// Refuses a device that is not the same as before.
fn verify(label: &Label, leaf: &Leaf, device: &dyn Device) -> Result<()> {
    let refused = |problem: &str| Err(Error::Request(format!("{} {problem}", device.name())));
    let Some(found) = labels::read_label(device)? else { return refused("holds no Cenote pool") };
    if (found.pool, found.device) != (label.pool, leaf.guid()) {
        return refused("is a different device: its label names another pool or vdev");
    }
    if found.epoch != label.epoch {
        return refused("was imported by another host meanwhile, or is older than this import");
    }
    let there = device.measure().map_or(device.size(), |there| there.min(device.size()));
    if usable_size(there) < leaf.size() {
        return Err(shrunk(device, leaf.size()));
    }
    labels::settle_end(device, label, leaf.guid());
    let newest = uberblocks::read_uberblocks(device, label.pool)?.first().map(|uberblock| uberblock.txg);
    if newest.unwrap_or_default() < leaf.newest_uberblock() {
        return refused("is older than the last write to it");
    }
    Ok(())
}
