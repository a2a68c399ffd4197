//! Cache devices of a pool: how they come and go. What they do stands in [`crate::secondary`].
//!
//! A cache device carries a label as every device of the pool does, so that nobody takes it for free, and is in no vdev. The
//! list of them stands in the labels. One that is missing, has failed or holds anything else is done without: nothing is lost
//! with it.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | adding: before a device of the pool names it | the pool without it: its own label is older than every other |
//! | adding: after that | the pool with it |
//! | removing: before a label leaves it out | the pool with it |
//! | removing: after that | the pool without it; its own label names a pool that does not know it |
//!
//! That it is offline the labels say if that is to last: see [`super::put_out`].

use std::sync::Arc;

use super::{
    members::Reopen,
    open::{ByGuid, shrunk},
    pool::{Pool, write_new_label},
    spares::NO_VDEV,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{
            CACHE_DEVICES, Compatibility, Label,
            caches::{CacheConfig, MAX_CACHES},
            put_out::PutOut,
            usable_size,
        },
        vdev_config::LeafConfig,
    },
    txg::Engine,
    units::{Guid, Txg},
    vdev::{Health, Leaf, labels},
};

impl Pool {
    /// The cache devices, in the order in which they were added.
    pub fn caches(&self) -> Vec<Arc<Leaf>> {
        self.engine().secondary().devices()
    }

    /// The cache device whose path or number this is.
    pub fn find_cache(&self, name: &str) -> Option<Arc<Leaf>> {
        self.caches().into_iter().find(|leaf| leaf.name() == name || leaf.guid().to_string() == name)
    }

    /// Adds cache devices. What they held is lost.
    ///
    /// # Errors
    /// [`Error::Request`] if there are too many.
    pub fn add_caches(&self, devices: &[Arc<dyn Device>]) -> Result<()> {
        self.engine().writable()?;
        let mut highest = self.labelling();
        let mut label = self.label();
        if label.sections.caches.len() + devices.len() > MAX_CACHES {
            return Err(Error::Request(format!("a pool has at most {MAX_CACHES} cache devices")));
        }
        let describe = |device: &Arc<dyn Device>| LeafConfig {
            guid: Guid(self.engine().env().random()),
            size: usable_size(device.size()),
            path: device.name().to_owned(),
        };
        let configs: Vec<LeafConfig> = devices.iter().map(describe).collect();
        label.sections.caches.extend(configs.iter().map(|leaf| CacheConfig { leaf: leaf.clone() }));
        label.features.insert(CACHE_DEVICES.to_owned(), Compatibility::Read);
        let draft = Label { txg: Txg::ZERO, ..label.clone() };
        for (device, config) in devices.iter().zip(&configs) {
            write_new_label(&**device, config.guid, NO_VDEV, &draft)?;
        }
        self.replace_labels(&mut highest, label, &[])?;
        let secondary = self.engine().secondary();
        for (device, config) in devices.iter().zip(&configs) {
            secondary.add(Arc::new(Leaf::new(config.guid, device.clone())));
        }
        Ok(())
    }

    /// Has a cache device leave the pool, at once; `false` if there is none of this path or number.
    pub fn remove_cache(&self, name: &str) -> Result<bool> {
        let mut highest = self.labelling();
        let Some(leaf) = self.find_cache(name) else { return Ok(false) };
        self.engine().writable()?;
        let mut label = self.label();
        label.sections.caches.retain(|other| other.leaf.guid != leaf.guid());
        let was_in_use = leaf.health() == Health::Online;
        self.replace_labels(&mut highest, label, &[])?;
        // It may hang.
        let _apart = highest.apart();
        self.engine().secondary().remove(leaf.guid());
        if was_in_use && let Err(error) = labels::clear_labels(&*leaf.device()) {
            tracing::warn!("{name} still says that it is of the pool: {error}");
        }
        leaf.let_go();
        Ok(true)
    }

    /// Puts a cache device out of use, until it is put online, or if it is `temporary`, the pool is imported again.
    pub(super) fn put_cache_offline(&self, leaf: &Leaf, temporary: bool) -> Result<()> {
        // First of all: it may hang, and must not be asked for its own labels. If they cannot be written, it is out of use
        // until the next import.
        self.engine().secondary().put_out(leaf.guid(), Health::Offline);
        self.say_why(leaf.guid(), (!temporary).then_some(PutOut::Offline))?;
        // Requests that were given up may still land: who takes it back has to see that.
        if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(())
    }

    /// Takes a cache device back that is out of use; `false` if it is in use.
    pub(super) fn put_cache_online(&self, leaf: &Leaf, reopen: Reopen<'_>) -> Result<bool> {
        if leaf.health() == Health::Online {
            return Ok(false);
        }
        if leaf.device().outstanding() > 0 {
            let problem =
                format!("{} has not answered earlier requests yet; they may still be carried out", leaf.name());
            return Err(Error::Request(problem));
        }
        // It is locked as long as it is open.
        leaf.let_go();
        let found = reopen(leaf.name())?;
        let label = self.label();
        let own = labels::read_label(&*found)?;
        if own.is_none_or(|own| (own.pool, own.device) != (label.pool, leaf.guid())) {
            let problem = "is not the device that was there; remove it, and add it anew";
            return Err(Error::Request(format!("{} {problem}", leaf.name())));
        }
        let config = label.sections.caches.iter().find(|cache| cache.leaf.guid == leaf.guid());
        let size = config.map_or(0, |cache| cache.leaf.size).max(leaf.size());
        if usable_size(found.size()) < size {
            return Err(shrunk(&*found, size));
        }
        self.engine().secondary().take_back(leaf.guid(), found)?;
        self.say_why(leaf.guid(), None)?;
        // It may have missed some.
        self.label_apart();
        Ok(true)
    }
}

/// Gives an engine the cache devices of a label: those that are there, and those that are not.
pub(super) fn open_caches(engine: &Engine, label: &Label, by_guid: &ByGuid) {
    for CacheConfig { leaf } in &label.sections.caches {
        let is_offline = label.sections.put_out.contains_key(&leaf.guid);
        let is_usable = |device: &&Arc<dyn Device>| !is_offline && usable_size(device.size()) >= leaf.size;
        let found = by_guid.get(&leaf.guid).filter(is_usable);
        let opened = match found {
            Some(device) => Leaf::new(leaf.guid, device.clone()),
            None => Leaf::absent(leaf),
        };
        if is_offline {
            opened.note_health(Health::Offline);
        }
        engine.secondary().add(Arc::new(opened));
    }
}

/// Has the labels of cache devices say what those of the pool do. One that refuses is not used any more.
pub(super) fn write_cache_labels(engine: &Engine, label: &Label) {
    let named = |leaf: &Arc<Leaf>| label.is_cache(leaf.guid()) && leaf.health() == Health::Online;
    for leaf in engine.secondary().devices().into_iter().filter(named) {
        let own = Label { device: leaf.guid(), vdev: NO_VDEV, ..label.clone() };
        if let Err(error) = labels::write_labels(&*leaf.device(), &own) {
            tracing::warn!("a cache device cannot be used: {error}");
            engine.secondary().put_out(leaf.guid(), Health::of(&error));
        }
    }
}
