//! Adding and removing cache devices of a pool. [`crate::secondary`] says what they do.
//!
//! A cache device carries a label like every device of the pool, so that other software does not take it for free, and
//! is in no vdev. Labels list all cache devices. A missing, failed or foreign cache device is not used: no data is lost
//! with it.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | adding: before a device of the pool names it | the pool without it: its own label is older than any in the pool |
//! | adding: later | the pool with it |
//! | removing: before a label leaves it out | the pool with it |
//! | removing: later | the pool without it; its own label names a pool without this device |
//!
//! A cache device that stays offline over an import is recorded in the labels: see [`super::out_of_use`].

use std::sync::Arc;

use super::{
    assemble::ByGuid,
    members::Reopen,
    pool::Pool,
    shapes::shrunk,
    writing::{NO_VDEV, write_new_label},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{
            CACHE_DEVICES, Compatibility, Label,
            caches::{CacheConfig, MAX_CACHES},
            out_of_use::OutOfUse,
            usable_size,
        },
        vdev_config::LeafConfig,
    },
    txg::Engine,
    units::{Guid, Txg},
    vdev::{Health, Leaf, labels},
};

impl Pool {
    /// The cache devices, in the order of their addition.
    pub fn caches(&self) -> Vec<Arc<Leaf>> {
        self.engine().secondary().devices()
    }

    /// The cache device of this path or GUID.
    pub fn find_cache(&self, name: &str) -> Option<Arc<Leaf>> {
        self.caches().into_iter().find(|leaf| leaf.name() == name || leaf.guid().to_string() == name)
    }

    /// Adds cache devices. Their former content is lost.
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

    /// Removes a cache device at once; `false` if there is none of this path or GUID.
    pub fn remove_cache(&self, name: &str) -> Result<bool> {
        let mut highest = self.labelling();
        let Some(leaf) = self.find_cache(name) else { return Ok(false) };
        self.engine().writable()?;
        let mut label = self.label();
        label.sections.caches.retain(|other| other.leaf.guid != leaf.guid());
        let was_in_use = leaf.health() == Health::Online;
        self.replace_labels(&mut highest, label, &[])?;
        // The device may hang, so commits are let go on first.
        let _apart = highest.apart();
        self.engine().secondary().remove(leaf.guid());
        if was_in_use && let Err(error) = labels::clear_labels(&*leaf.device()) {
            tracing::warn!("{name} still says that it is of the pool: {error}");
        }
        leaf.let_go();
        Ok(true)
    }

    /// Takes a cache device offline, until it is brought online or, if `temporary`, until the next import.
    pub(super) fn put_cache_offline(&self, leaf: &Leaf, temporary: bool) -> Result<()> {
        // This comes first, because the device may hang, and must not be written its own label. If the labels cannot be
        // written, the device is offline until the next import.
        self.engine().secondary().take_out(leaf.guid(), Health::Offline);
        self.say_why(leaf.guid(), (!temporary).then_some(OutOfUse::Offline))?;
        // Abandoned requests may still reach the device; `put_cache_online` checks for them.
        if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(())
    }

    /// Brings a cache device back online; `false` if it is in use already.
    pub(super) fn put_cache_online(&self, leaf: &Leaf, reopen: Reopen<'_>) -> Result<bool> {
        if leaf.health() == Health::Online {
            return Ok(false);
        }
        if leaf.device().outstanding() > 0 {
            let problem = format!("{} still has unanswered requests, which may yet be carried out", leaf.name());
            return Err(Error::Request(problem));
        }
        // An open device is locked, so it is closed before it is reopened.
        leaf.let_go();
        let found = reopen(leaf.name())?;
        let label = self.label();
        let own = labels::read_label(&*found)?;
        if own.is_none_or(|own| (own.pool, own.device) != (label.pool, leaf.guid())) {
            let problem = "is a different device; remove the cache device, then add it again";
            return Err(Error::Request(format!("{} {problem}", leaf.name())));
        }
        let config = label.sections.caches.iter().find(|cache| cache.leaf.guid == leaf.guid());
        let size = config.map_or(0, |cache| cache.leaf.size).max(leaf.size());
        if usable_size(found.size()) < size {
            return Err(shrunk(&*found, size));
        }
        self.engine().secondary().take_back(leaf.guid(), found)?;
        self.say_why(leaf.guid(), None)?;
        // The device may have missed label changes.
        self.label_apart();
        Ok(true)
    }
}

/// Gives an engine the cache devices of a label, present or absent.
pub(super) fn open_caches(engine: &Engine, label: &Label, by_guid: &ByGuid) {
    for CacheConfig { leaf } in &label.sections.caches {
        let is_offline = label.sections.out_of_use.contains_key(&leaf.guid);
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
