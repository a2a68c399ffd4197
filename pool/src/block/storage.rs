//! The devices and their space as one: translation of addresses to bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;

use crate::{
    device::Device,
    error::{Error, Result},
    space::{Space, SpaceIo},
    units::{Guid, VdevId},
    vdev::{Check, Examined, Leaf, Suspension, Vdev},
};

/// Writes the devices' health to the labels.
pub type LabelWriter = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// The top-level virtual devices of a pool.
#[derive(Default)]
pub struct Vdevs {
    vdevs: RwLock<BTreeMap<VdevId, Arc<dyn Vdev>>>,
    /// Available spares: devices of the pool in none of the vdevs.
    spares: RwLock<Vec<Arc<Leaf>>>,
    /// How often a vdev was replaced by another form of itself.
    forms: AtomicU64,
    suspension: Arc<Suspension>,
    label_writer: OnceLock<LabelWriter>,
}

impl Vdevs {
    /// The vdevs of a pool.
    pub fn new(vdevs: impl IntoIterator<Item = Arc<dyn Vdev>>) -> Vdevs {
        let all = Vdevs::default();
        vdevs.into_iter().for_each(|vdev| all.add(vdev));
        all
    }

    /// Whether errors of the devices have suspended the pool.
    pub fn suspension(&self) -> &Arc<Suspension> {
        &self.suspension
    }

    /// Adds a vdev, or another form of a known one: a disk becomes a mirror, and a mirror a disk.
    pub fn add(&self, vdev: Arc<dyn Vdev>) {
        vdev.join(&self.suspension);
        if self.vdevs.write().insert(vdev.id(), vdev).is_some() {
            self.forms.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often a vdev has changed its form. Counters of its members start again then.
    pub(crate) fn forms(&self) -> u64 {
        self.forms.load(Ordering::Acquire)
    }

    /// Forgets a vdev that was removed.
    pub(crate) fn remove(&self, id: VdevId) {
        self.vdevs.write().remove(&id);
    }

    /// The available spares.
    pub fn spares(&self) -> Vec<Arc<Leaf>> {
        self.spares.read().clone()
    }

    /// Adds an available spare.
    pub(crate) fn add_spare(&self, leaf: Arc<Leaf>) {
        self.spares.write().push(leaf);
    }

    /// Removes an available spare, which is now in use or removed from the pool.
    pub(crate) fn take_spare(&self, device: Guid) {
        self.spares.write().retain(|leaf| leaf.guid() != device);
    }

    /// All vdevs, by number.
    pub fn all(&self) -> Vec<Arc<dyn Vdev>> {
        self.vdevs.read().values().cloned().collect()
    }

    /// The complete devices.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        let vdevs = self.all();
        vdevs.iter().flat_map(|vdev| vdev.committing()).map(|leaf| leaf.device()).collect()
    }

    /// Stops waiting for any device.
    pub fn give_up(&self) {
        self.all().iter().flat_map(|vdev| vdev.leaves()).for_each(|leaf| leaf.device().give_up());
    }

    /// Sets the function that writes the devices' health to the labels. To be called once.
    pub(crate) fn set_label_writer(&self, label_writer: LabelWriter) {
        assert!(self.label_writer.set(label_writer).is_ok(), "a pool has one set of labels");
    }

    /// The number of vdevs.
    pub fn count(&self) -> usize {
        self.vdevs.read().len()
    }

    /// The vdev with this number.
    pub fn get(&self, id: VdevId) -> Result<Arc<dyn Vdev>> {
        let found = self.vdevs.read().get(&id).cloned();
        found.ok_or_else(|| Error::damaged("address", format!("there is no vdev {id}")))
    }

    /// Waits until everything written is on stable storage, on every device that the labels call complete. A device
    /// that failed and was faulted is no longer among these when this returns.
    pub fn flush(&self) -> Result<()> {
        self.flush_all(&self.all())
    }

    /// As [`Vdevs::flush`], for writes to some vdevs: other vdevs are not flushed.
    pub fn flush_only(&self, ids: &BTreeSet<VdevId>) -> Result<()> {
        let vdevs = self.all();
        self.flush_all(&vdevs.into_iter().filter(|vdev| ids.contains(&vdev.id())).collect::<Vec<_>>())
    }

    fn flush_all(&self, vdevs: &[Arc<dyn Vdev>]) -> Result<()> {
        vdevs.iter().try_for_each(|vdev| vdev.flush())?;
        match vdevs.iter().any(|vdev| vdev.news().is_some()) {
            true => self.write_labels(),
            false => Ok(()),
        }
    }

    /// Writes the devices' health to the labels. A failed label write suspends the pool like any failed write.
    fn write_labels(&self) -> Result<()> {
        loop {
            let era = self.suspension.era();
            match self.label_writer.get().map_or(Ok(()), |write_labels| write_labels()) {
                Err(error @ Error::Device { .. }) => self.suspension.hold(era, error)?,
                result => return result,
            }
        }
    }
}

impl SpaceIo for Vdevs {
    /// The space layer reads on behalf of writers, so a failed device suspends the pool. All of its reads are verified.
    fn read(&self, vdev: VdevId, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<()> {
        let vdev = self.get(vdev)?;
        Suspension::patiently(|| vdev.read_surely(offset, buf, is_good).map(drop))
    }

    fn examine(&self, vdev: VdevId, offset: u64, len: usize, is_good: Check<'_>) -> Result<Examined> {
        Ok(self.get(vdev)?.examine_surely(offset, len, is_good))
    }

    fn repair(&self, vdev: VdevId, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.get(vdev)?.repair(source, offset, good)
    }

    fn resilver(&self, vdev: VdevId, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        self.get(vdev)?.resilver(offset, bytes)
    }

    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.get(vdev)?.write(offset, bytes)
    }
}

/// The devices of a pool, and their free space.
pub struct Storage {
    /// The vdevs, with their spares and suspension.
    pub vdevs: Vdevs,
    /// The allocator over all vdevs.
    pub space: Space,
    /// The unit of allocation, in bytes.
    pub sector: u32,
}
