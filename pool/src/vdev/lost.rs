//! A vdev with too few devices that the pool can be opened without: a log vdev.
//!
//! No tree refers to a block on a log vdev, so the pool continues as if the vdev had been removed, but keeps its place
//! in the labels: there it is shown, and can be removed, or its devices are back with the next import. The vdev gets no
//! allocations and no writes, and its remaining devices get neither labels nor uberblocks. So they stay behind,
//! harmlessly: their log no longer belongs to the pool.

use std::{io, sync::Arc};

use super::{
    interface::Vdev,
    leaf::{Clear, Leaf},
    reads::{Begun, Check, Examined, Found, Sources},
    suspension::Suspension,
};
use crate::{
    error::{Error, Result},
    units::{Guid, VdevId},
};

/// A vdev without enough devices.
pub struct Lost {
    id: VdevId,
    guid: Guid,
    /// The name of a vdev of several devices.
    name: Option<String>,
    size: u64,
    /// The devices as described by the labels of the rest: at least one.
    leaves: Vec<Arc<Leaf>>,
}

impl Lost {
    /// A vdev of `size` bytes; with a name if it has several devices.
    pub fn new((id, guid): (VdevId, Guid), name: Option<String>, size: u64, leaves: Vec<Arc<Leaf>>) -> Lost {
        assert!(!leaves.is_empty(), "VDEV-2: a vdev has no device");
        Lost { id, guid, name, size, leaves }
    }

    fn refused<T>(&self, action: &'static str) -> Result<T> {
        let source = io::Error::from(io::ErrorKind::NotFound);
        Err(Error::Device { device: self.leaves[0].name().to_owned(), action, source })
    }
}

impl Vdev for Lost {
    fn id(&self) -> VdevId {
        self.id
    }

    fn guid(&self) -> Guid {
        self.guid
    }

    fn join(&self, _: &Arc<Suspension>) {}

    fn size(&self) -> u64 {
        self.size
    }

    fn read_checked(&self, _: u64, _: &mut [u8], _: Check<'_>) -> Result<Found> {
        self.refused("read")
    }

    fn begin(self: Arc<Self>, _: u64, _: usize, _: Sources) -> Begun {
        Box::new(|_| None)
    }

    fn examine(&self, _: u64, _: usize, is_good: Check<'_>) -> Examined {
        Examined::of_one(self.guid, self.refused("read"), is_good)
    }

    fn repair(&self, _: Guid, _: u64, _: &Arc<Vec<u8>>) -> Result<()> {
        self.refused("write")
    }

    fn write_shared(&self, _: u64, _: Arc<Vec<u8>>) -> Result<()> {
        self.refused("write")
    }

    /// Succeeds, because nothing was written.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn clear(&self, _: u64, _: u64, _: Clear) -> Result<()> {
        Ok(())
    }

    fn note_checksum_error(&self, _: Guid) {}

    fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.leaves.clone()
    }

    fn group_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn is_lost(&self) -> bool {
        true
    }

    fn labelled(&self) -> Vec<Arc<Leaf>> {
        Vec::new()
    }

    fn committing(&self) -> Vec<Arc<Leaf>> {
        Vec::new()
    }
}
