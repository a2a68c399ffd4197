//! A pool gets another number, so that it can be imported beside a copy of it.
//!
//! Labels, uberblocks and frames of the intent log all name the number, and an import takes only those of one. So the number
//! changes with a commit: its uberblock is the first of the new number, and then the labels name it. No frame is written
//! meanwhile, and what frames have promised before is in that commit.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the labels of a device name the new number | the pool under the old one, at the commit before, with all frames that came after it: nothing overwrote them |
//! | while labels are written | labels of both numbers: the devices that still say the old one are known by the uberblock of the new one in their rings, and go along |
//! | after that | the pool under the new one |
//!
//! The commit has returned to nobody before all labels name the number. A device that is away would not be known again, so
//! all have to be there, and complete. The rings begin anew: no state from before can be gone back to.

use super::pool::Pool;
use crate::{
    device::Device,
    error::{Error, Result},
    format::label::Label,
    units::{Guid, Txg},
    vdev::{Health, State, Vdev, uberblocks},
};

impl Pool {
    /// Gives the pool another number, and commits.
    ///
    /// # Errors
    /// [`Error::Request`] if a device is missing or lacks something. If a label cannot be written, the pool takes no more changes:
    /// whoever opens it again has the old number or the new one.
    pub fn renumber(&self, guid: Guid) -> Result<Txg> {
        self.engine().writable()?;
        self.check_all_there()?;
        self.engine().renumber(guid, || self.relabel(|label| label.pool = guid))
    }

    /// Refuses a pool of which a device is missing or lacks something.
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
                Err(Error::Request(format!("{name} is missing or lacks something, and would not be known again")))
            }
            None => Ok(()),
        }
    }
}

/// Whether a device whose own label has another number is of the pool of `label` after all: power failed while the number was
/// changed. Then both labels are of one import, and a device that is in a vdev has an uberblock of the new number.
pub fn was_renumbered(label: &Label, own: &Label, device: &dyn Device) -> bool {
    let is_named = || label.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).any(|leaf| leaf.guid == own.device);
    let has_uberblock = || uberblocks::read_uberblocks(device, label.pool).is_ok_and(|ring| !ring.is_empty());
    let is_older = (own.epoch, own.pool != label.pool) == (label.epoch, true) && own.txg < label.txg;
    is_older && (label.is_spare(own.device) || label.is_cache(own.device) || is_named() && has_uberblock())
}
