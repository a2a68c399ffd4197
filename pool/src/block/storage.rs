//! The devices and their space as one: what turns addresses into bytes.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use crate::{
    device::Device,
    error::{Error, Result},
    space::{Space, SpaceIo},
    units::VdevId,
    vdev::{Suspension, Vdev},
};

/// The top-level virtual devices of a pool.
#[derive(Default)]
pub struct Vdevs {
    vdevs: RwLock<BTreeMap<VdevId, Arc<dyn Vdev>>>,
    suspension: Arc<Suspension>,
}

impl Vdevs {
    /// These devices.
    pub fn new(vdevs: impl IntoIterator<Item = Arc<dyn Vdev>>) -> Vdevs {
        let all = Vdevs::default();
        vdevs.into_iter().for_each(|vdev| all.add(vdev));
        all
    }

    /// Whether errors of the devices have suspended the pool.
    pub fn suspension(&self) -> &Arc<Suspension> {
        &self.suspension
    }

    /// One more device.
    pub fn add(&self, vdev: Arc<dyn Vdev>) {
        vdev.join(&self.suspension);
        self.vdevs.write().insert(vdev.id(), vdev);
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<Arc<dyn Vdev>> {
        self.vdevs.read().values().cloned().collect()
    }

    /// The devices that they are made of.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        let vdevs = self.all();
        vdevs.iter().flat_map(|vdev| vdev.leaves()).map(|leaf| leaf.device()).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.vdevs.read().len()
    }

    /// One of them.
    pub fn get(&self, id: VdevId) -> Result<Arc<dyn Vdev>> {
        let found = self.vdevs.read().get(&id).cloned();
        found.ok_or_else(|| Error::damaged("address", format!("there is no vdev {id}")))
    }

    /// Waits until everything written is on stable storage, on every device.
    pub fn flush(&self) -> Result<()> {
        self.all().iter().try_for_each(|vdev| vdev.flush())
    }
}

impl SpaceIo for Vdevs {
    /// The space layer reads for those who write: a device that fails is waited for.
    fn read(&self, vdev: VdevId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let vdev = self.get(vdev)?;
        Suspension::patiently(|| vdev.read(offset, buf))
    }

    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.get(vdev)?.write(offset, bytes)
    }
}

/// Devices, and which parts of them are free.
pub struct Storage {
    /// The devices.
    pub vdevs: Vdevs,
    /// Their space.
    pub space: Space,
    /// The unit of allocation, in bytes.
    pub sector: u32,
}
