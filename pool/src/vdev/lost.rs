//! A vdev that the pool can do without, and of which too few devices are there: one for the intent log.
//!
//! Nothing that a tree refers to lies on it, so the pool goes on as if it had been removed, but for its place in the labels:
//! there it is shown, and from there it is removed, or its devices are back with the next import. Nothing is allocated on
//! it, nothing is written to it, and its devices, those that are there among them, get neither labels nor uberblocks. So
//! they stay behind, which does no harm: what they hold is a log that is not this pool's any more.

use std::{io, sync::Arc};

use super::{Begun, Check, Examined, Found, Leaf, Sources, Suspension, Vdev};
use crate::{
    error::{Error, Result},
    units::{Guid, VdevId},
};

/// A vdev without devices.
pub struct Lost {
    id: VdevId,
    guid: Guid,
    /// What it is called, if it is of several devices.
    name: Option<String>,
    size: u64,
    /// As the labels of the others describe them: at least one.
    leaves: Vec<Arc<Leaf>>,
}

impl Lost {
    /// A vdev of this size, of these devices; with a name, if they are several.
    pub fn new((id, guid): (VdevId, Guid), name: Option<String>, size: u64, leaves: Vec<Arc<Leaf>>) -> Lost {
        assert!(!leaves.is_empty(), "a vdev has devices");
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

    fn mend(&self, _: Guid, _: u64, _: &Arc<Vec<u8>>) -> Result<()> {
        self.refused("write")
    }

    fn write_shared(&self, _: u64, _: Arc<Vec<u8>>) -> Result<()> {
        self.refused("write")
    }

    /// Nothing was written.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<()> {
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
