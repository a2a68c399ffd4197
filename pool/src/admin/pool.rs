//! An opened pool.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, PoolState, usable_size},
        vdev_config::{LeafConfig, VdevConfig, VdevTree},
    },
    txg::Engine,
    units::{Guid, VdevId},
    vdev::{Leaf, Vdev, labels},
};

/// An opened pool and what its labels say.
pub struct Pool {
    engine: Arc<Engine>,
    label: Mutex<Label>,
}

impl Pool {
    pub(super) fn new(engine: Arc<Engine>, label: Label) -> Pool {
        Pool { engine, label: Mutex::new(label) }
    }

    /// Its engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What its labels say, but for which device they are on.
    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.label.lock().pool_name.clone()
    }

    /// Closes the pool in order: any host may import it then. Nothing may change it meanwhile or after.
    ///
    /// The last commit comes first. Labels that still say "active" after a failure only cost the next import on another
    /// host a `-f`.
    pub fn export(&self) -> Result<()> {
        self.engine.commit()?;
        self.mark(PoolState::Exported)
    }

    /// Destroys the pool: it is not found any more, and its devices are free for other use. Until then all is there.
    pub fn destroy(&self) -> Result<()> {
        self.mark(PoolState::Destroyed)
    }

    fn mark(&self, state: PoolState) -> Result<()> {
        if self.engine.read_only() {
            return Ok(());
        }
        self.relabel(|label| label.state = state)
    }

    /// Gives the pool another name.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.relabel(|label| name.clone_into(&mut label.pool_name))
    }

    /// Adds devices, each a top-level vdev of its own.
    ///
    /// Crash points: before the labels of the old devices name the new ones, those are no part of the pool. After that
    /// and before the space layer's next commit, the pool opens with devices that have no chunks, and opening gives them
    /// theirs. After that commit they are in use.
    pub fn add(&self, devices: Vec<Arc<dyn Device>>) -> Result<()> {
        self.engine.writable()?;
        let added = self.describe_new(&devices)?;
        let mut label = self.label();
        label.vdevs.extend(added.iter().cloned());
        for (device, config) in devices.iter().zip(&added) {
            write_new_label(&**device, config, &label)?;
        }
        self.relabel(|label| label.vdevs.extend(added.iter().cloned()))?;
        self.engine.with_open_txg(|_| {
            for (device, config) in devices.iter().zip(&added) {
                let vdev = leaf(config, device);
                let (id, size) = (vdev.id(), vdev.size());
                self.engine.storage().vdevs.add(vdev);
                self.engine.storage().space.add_vdev(id, size);
            }
        });
        self.engine.commit()?;
        Ok(())
    }

    fn describe_new(&self, devices: &[Arc<dyn Device>]) -> Result<Vec<VdevConfig>> {
        let label = self.label.lock();
        let first = label.vdevs.last().map_or(0, |vdev| vdev.id.0 + 1);
        let region = label.region_size;
        if let Some(small) = devices.iter().find(|device| usable_size(device.size()) < region) {
            let problem = format!("{} is smaller than one region of this pool, {region} bytes", small.name());
            return Err(Error::Request(problem));
        }
        let describe =
            |(id, device): (u32, &Arc<dyn Device>)| describe(VdevId(id), Guid(self.engine.env().random()), &**device);
        Ok((first..).zip(devices).map(describe).collect())
    }

    /// Changes the labels of all devices.
    fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        let mut label = self.label.lock();
        change(&mut label);
        // Each writing needs a higher number, or a crash leaves nobody knowing which label is the newer one.
        label.txg = label.txg.next().max(self.engine.committed());
        write_labels(&self.engine, &label)
    }
}

pub(super) fn write_labels(engine: &Engine, label: &Label) -> Result<()> {
    for vdev in engine.storage().vdevs.all() {
        for leaf in vdev.leaves() {
            let own = Label { device: leaf.guid(), vdev: vdev.id(), ..label.clone() };
            labels::write_labels(&**leaf.device(), &own)?;
        }
    }
    Ok(())
}

pub(super) fn write_new_label(device: &dyn Device, config: &VdevConfig, label: &Label) -> Result<()> {
    let own = Label { device: config.tree.leaves()[0].guid, vdev: config.id, ..label.clone() };
    labels::write_new_labels(device, &own)
}

pub(super) fn describe(id: VdevId, guid: Guid, device: &dyn Device) -> VdevConfig {
    let leaf = LeafConfig { guid, size: usable_size(device.size()), path: device.name().to_owned() };
    VdevConfig { id, tree: VdevTree::Leaf(leaf) }
}

pub(super) fn leaf(config: &VdevConfig, device: &Arc<dyn Device>) -> Arc<dyn Vdev> {
    Arc::new(Leaf::new(config.id, config.tree.leaves()[0].guid, device.clone()))
}
