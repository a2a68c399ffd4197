//! Changing the GUID of a pool, so that it can be imported beside a copy.
//!
//! Labels, uberblocks and frames of the intent log all carry the GUID, and an import accepts only one GUID. So the GUID
//! changes with a commit: its uberblock is the first with the new GUID, and then the labels name it. No frame is
//! written in between, and the commit includes everything that earlier frames recorded.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the labels of a device name the new GUID | the pool under the old one, at the commit before, with all later frames: nothing overwrote them |
//! | while labels are written | labels of both GUIDs: the devices that still have the old one are recognized by the uberblock of the new one in their rings, and join |
//! | later | the pool under the new one |
//!
//! The commit is acknowledged only after all labels name the GUID. An absent device would not be recognized later, so
//! all must be present and complete. The rings begin anew: no earlier state can be rewound to.

use super::pool::Pool;
use crate::{
    device::Device,
    error::{Error, Result},
    format::label::Label,
    units::{Guid, Txg},
    vdev::{Health, State, Vdev, uberblocks},
};

impl Pool {
    /// Changes the GUID of the pool, and commits.
    ///
    /// # Errors
    /// [`Error::Request`] if a device is missing or incomplete. If a label cannot be written, the pool takes no more
    /// changes: the next import finds the old GUID or the new one.
    pub fn renumber(&self, guid: Guid) -> Result<Txg> {
        self.engine().writable()?;
        self.check_all_there()?;
        self.engine().renumber(guid, || self.relabel(|label| label.pool = guid))
    }

    /// Refuses a pool with a missing or incomplete device.
    fn check_all_there(&self) -> Result<()> {
        let vdevs = self.engine().storage().vdevs.all();
        let incomplete = |vdev: &dyn Vdev| {
            let members = vdev.as_group().map(|group| group.members()).unwrap_or_default();
            members.iter().find(|member| member.state() != State::Complete).map(|member| member.leaf.name().to_owned())
        };
        let spares = self.engine().storage().vdevs.spares().into_iter().chain(self.caches());
        let missing =
            spares.into_iter().find(|leaf| leaf.health() != Health::Online).map(|leaf| leaf.name().to_owned());
        match vdevs.iter().find_map(|vdev| incomplete(&**vdev)).or(missing) {
            Some(name) => {
                Err(Error::Request(format!("{name} is missing or incomplete; all devices must be online and complete")))
            }
            None => Ok(()),
        }
    }
}

/// True if a device with another pool GUID in its own label belongs to the pool of `label` after all: power failed
/// while the GUID was changed. Then both labels are of one import, and a device in a vdev has an uberblock with the new
/// GUID.
pub fn was_renumbered(label: &Label, own: &Label, device: &dyn Device) -> bool {
    let is_named = || label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == own.device);
    let has_uberblock = || uberblocks::read_uberblocks(device, label.pool).is_ok_and(|ring| !ring.is_empty());
    let is_older = (own.epoch, own.pool != label.pool) == (label.epoch, true) && own.txg < label.txg;
    is_older && (label.is_spare(own.device) || label.is_cache(own.device) || is_named() && has_uberblock())
}
