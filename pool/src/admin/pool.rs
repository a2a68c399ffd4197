//! An opened pool.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::add::Addition;
use crate::{
    device::Device,
    error::Result,
    format::{
        label::{Compatibility, Label, PoolState, usable_size},
        vdev_config::{LeafConfig, VdevConfig, VdevTree},
    },
    txg::{Engine, Features},
    units::{Guid, Txg, VdevId},
    vdev::{Leaf, Vdev, labels},
};

/// An opened pool and what its labels say.
pub struct Pool {
    engine: Arc<Engine>,
    labels: Arc<Labels>,
}

/// The labels of an opened pool.
struct Labels {
    /// What all labels say: changed only after all were written.
    label: Mutex<Label>,
    /// The highest number that any label was given, also one that could not be written. Held by whoever changes labels.
    labelling: Mutex<Txg>,
}

impl Labels {
    /// Changes the labels of all devices.
    fn change(&self, engine: &Engine, change: impl FnOnce(&mut Label)) -> Result<()> {
        let mut highest = self.labelling.lock();
        let mut label = self.label.lock().clone();
        change(&mut label);
        self.replace(engine, &mut highest, label, &[])
    }

    /// Writes the labels of the pool's devices, and then those of the `joining` ones.
    ///
    /// Each writing needs a higher number than every one before, also than one that failed: a device may have its label.
    fn replace(&self, engine: &Engine, highest: &mut Txg, label: Label, joining: &[Arc<dyn Vdev>]) -> Result<()> {
        *highest = highest.next().max(engine.committed());
        let _labelling = engine.labelling.lock();
        let label = Label { txg: *highest, ..label };
        write_labels(&engine.storage().vdevs.all(), &label)?;
        write_labels(joining, &label)?;
        *self.label.lock() = label;
        Ok(())
    }
}

/// A feature is named by all labels, stably, before anything is written that needs it. A crash in between leaves a pool
/// that older programs refuse though they could read it; a crash while labels are written leaves labels of two ages, the
/// newer of which counts, and nothing that needs the feature.
impl Features for Labels {
    fn is_active(&self, feature: &str) -> bool {
        self.label.lock().features.contains_key(feature)
    }

    fn activate(&self, engine: &Engine, feature: &'static str) -> Result<()> {
        self.change(engine, |label| {
            label.features.insert(feature.to_owned(), Compatibility::None);
        })
    }
}

impl Pool {
    pub(super) fn new(engine: Arc<Engine>, label: Label) -> Pool {
        let labels = Arc::new(Labels { labelling: Mutex::new(label.txg), label: Mutex::new(label) });
        engine.set_features(labels.clone());
        Pool { engine, labels }
    }

    /// Its engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What its labels say, but for which device they are on.
    pub fn label(&self) -> Label {
        self.labels.label.lock().clone()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.labels.label.lock().pool_name.clone()
    }

    /// Closes the pool in order: any host may import it then. Nothing may change it meanwhile or after. A pool that was
    /// opened read-only has nothing to close.
    ///
    /// The last commit comes first. Labels that still say "active" after a failure only cost the next import on another
    /// host a `-f`.
    pub fn export(&self) -> Result<()> {
        if self.engine.read_only() {
            return Ok(());
        }
        self.engine.commit()?;
        self.relabel(|label| label.state = PoolState::Exported)
    }

    /// Destroys the pool: it is not found any more, and its devices are free for other use. Until then all is there.
    /// Also a pool that takes no changes is destroyed, if only its devices can be written.
    pub fn destroy(&self) -> Result<()> {
        self.relabel(|label| label.state = PoolState::Destroyed)
    }

    /// Gives the pool another name.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.engine.writable()?;
        self.relabel(|label| name.clone_into(&mut label.pool_name))
    }

    /// Adds devices, each a top-level vdev of its own.
    pub fn add(&self, devices: Vec<Arc<dyn Device>>) -> Result<()> {
        self.begin_add(devices)?.finish()
    }

    /// The first half of [`Pool::add`]: until [`Addition::finish`] is called, the devices are no part of the pool, and
    /// whoever made them may take them away again. No label can be changed meanwhile.
    pub fn begin_add(&self, devices: Vec<Arc<dyn Device>>) -> Result<Addition<'_>> {
        self.engine.writable()?;
        Addition::begin(self, self.labelling(), devices)
    }

    /// Held by whoever changes labels: the highest number that any was given.
    pub(super) fn labelling(&self) -> MutexGuard<'_, Txg> {
        self.labels.labelling.lock()
    }

    fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        self.labels.change(&self.engine, change)
    }

    /// Writes the labels of the pool's devices, and then those of the `joining` ones.
    pub(super) fn replace_labels(&self, highest: &mut Txg, label: Label, joining: &[Arc<dyn Vdev>]) -> Result<()> {
        self.labels.replace(&self.engine, highest, label, joining)
    }
}

pub(super) fn write_labels(vdevs: &[Arc<dyn Vdev>], label: &Label) -> Result<()> {
    for vdev in vdevs {
        for leaf in vdev.leaves() {
            let own = Label { device: leaf.guid(), vdev: vdev.id(), ..label.clone() };
            labels::write_labels(&*leaf.device(), &own).inspect_err(|_| leaf.note_fault())?;
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
