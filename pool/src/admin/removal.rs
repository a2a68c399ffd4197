//! Removal of vacated vdevs: see [`crate::txg::Vacating`].
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before a label leaves the vdev out | the pool with it, and nothing on it: the resumed removal completes |
//! | while labels are written | labels of two ages; the newer counts: the same, or the pool without it |
//! | later | the pool without it; its own labels, until they are erased, name a pool without this vdev |
//!
//! A vdev being removed may still need a spare, for data not copied yet. The labels that leave the vdev out still list
//! the spare, so the same label takes the spare out of use: at any time it is a member, or available.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before a label leaves the vdev out | the pool with the vdev, and the spare in use there |
//! | then, before the spare's own label is new | an available spare with old rings: see [`super::spares`] |
//! | while its own label is rewritten | a missing spare: it can be removed and added again |
//!
//! By then none of the last [`crate::space::SAFE_STATES`] states has anything on the vdev. A leaving vdev gets neither
//! labels nor uberblocks, so a failed device in it does not block the removal.

use std::sync::Arc;

use super::pool::Pool;
use crate::{
    error::{Error, Result},
    space::{MovingPlan, Regions, Targets},
    units::VdevId,
    vdev::{Leaf, Vdev},
};

impl Pool {
    /// The vdev of this name: the path or GUID of a single device, the GUID of a vdev of several devices, or its name
    /// in `pool status`, such as `mirror-1`.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none, and [`Error::Request`] if the name is of a member.
    pub fn find_vdev(&self, name: &str) -> Result<Arc<dyn Vdev>> {
        let vdevs = self.engine().storage().vdevs.all();
        let is_it = |vdev: &&Arc<dyn Vdev>| vdev.guid().to_string() == name || vdev.group_name() == Some(name);
        if let Some(vdev) = vdevs.iter().find(is_it) {
            return Ok(vdev.clone());
        }
        let (vdev, _) = self.find_device(name)?;
        match vdev.as_group() {
            None => Ok(vdev),
            Some(group) => Err(Error::Request(format!(
                "{name} is a device of {0}: only a whole vdev can be removed, such as '{0}'{1}",
                group.name(),
                if group.needed() == 1 { "; pool detach takes a device out of its mirror" } else { "" },
            ))),
        }
    }

    /// Plans the removal of a vdev.
    ///
    /// # Errors
    /// [`Error::Request`] if no normal vdev would remain, or a device is being resilvered.
    pub fn plan_removal(&self, id: VdevId) -> Result<MovingPlan> {
        let vdevs = self.engine().storage().vdevs.all();
        let classes = self.label().sections.classes;
        if !classes.contains_key(&id) && vdevs.iter().all(|vdev| vdev.id() == id || classes.contains_key(&vdev.id())) {
            let but = if vdevs.len() > 1 { " that is neither log nor special" } else { "" };
            return Err(Error::Request(format!("it is the only vdev of the pool{but}")));
        }
        // A vdev already being removed may still get a spare.
        let is_staying = |vdev: &&Arc<dyn Vdev>| vdev.id() == id && !self.engine().storage().space.is_closed(id);
        let is_spare = |leaf: &Arc<Leaf>| self.label().is_spare(leaf.guid());
        if let Some(spare) = vdevs.iter().filter(is_staying).flat_map(|vdev| vdev.leaves()).find(is_spare) {
            return Err(Error::Request(format!("the spare {} is in use there; detach it first", spare.name())));
        }
        if vdevs.iter().any(|vdev| vdev.resilvering().is_some()) {
            return Err(Error::Request("a resilver is in progress; wait until it finishes".into()));
        }
        Ok(self.engine().storage().space.moving_plan(&Regions::Vdev(id), &Targets::Anywhere))
    }

    /// Removes a vacated vdev that no state to rewind to needs. The labels of its devices are erased; spares in use
    /// there become available again. After an error the vdev is part of the pool or not, depending on the labels
    /// written, and the call may be repeated.
    ///
    /// # Errors
    /// [`Error::Request`] if the vdev is not empty, [`Error::Device`] if a label could not be written.
    pub fn remove_vdev(&self, id: VdevId) -> Result<()> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let vdev = storage.vdevs.get(id)?;
        let mut highest = self.labelling();
        if !storage.space.is_closed(id) || !storage.space.is_vacated(&Regions::Vdev(id)) {
            return Err(Error::Request(format!("vdev {id} is not empty")));
        }
        let mut label = self.label();
        label.vdevs.retain(|config| config.id != id);
        label.sections.classes.remove(&id);
        storage.vdevs.remove(id);
        if let Err(error) = self.replace_labels(&mut highest, label, &[]) {
            storage.vdevs.add(vdev);
            return Err(error);
        }
        storage.space.forget_vdev(id);
        let labelled = vdev.labelled();
        for leaf in vdev.leaves() {
            self.release(&leaf, labelled.iter().any(|labelled| labelled.guid() == leaf.guid()));
        }
        Ok(())
    }
}
