//! Vdevs leave a pool, when they are vacated: see [`crate::txg::Vacating`].
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before a label leaves the vdev out | the pool with it, and nothing on it: whoever goes on with the removal ends it |
//! | while labels are written | labels of two ages, of which the newer counts: the same, or the pool without it |
//! | after that | the pool without it; its own labels, until they are erased, name a pool that does not know it |
//!
//! Also a vdev on its way out may need a spare, for what has not been copied yet. The labels that leave the vdev out go on
//! listing that spare, so the same label takes it out of use: whatever fails, it is a member, or stands by.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before a label leaves the vdev out | the pool with the vdev, and the spare in use there |
//! | after that, before the spare's own label is new | a spare that stands by, whose rings are old: see [`super::spares`] |
//! | while its own label is made anew | a spare that is missing: it can be removed and added again |
//!
//! None of the last [`crate::space::SAFE_STATES`] states has anything on it by then. The vdev gets neither labels nor
//! uberblocks from the moment on at which it leaves, so a device of it that has failed does not keep it.

use std::sync::Arc;

use super::pool::Pool;
use crate::{
    error::{Error, Result},
    space::{MovingPlan, Regions, Targets},
    units::VdevId,
    vdev::{Leaf, Vdev},
};

impl Pool {
    /// The vdev of this name: the path or number of a device that is one by itself, the number of a vdev of several, or
    /// what `pool status` calls it, such as `mirror-1`.
    ///
    /// # Errors
    /// [`Error::Request`] if there is none, or it is a device of one.
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
                "{name} is a device of {0}: a whole vdev can be removed, '{0}'{1}",
                group.name(),
                if group.needed() == 1 { "; pool detach takes a device out of its mirror" } else { "" },
            ))),
        }
    }

    /// What it takes to remove a vdev.
    ///
    /// # Errors
    /// [`Error::Request`] if it is the last one that takes everything, or a device is being filled.
    pub fn plan_removal(&self, id: VdevId) -> Result<MovingPlan> {
        let vdevs = self.engine().storage().vdevs.all();
        let classes = self.label().sections.classes;
        if !classes.contains_key(&id) && vdevs.iter().all(|vdev| vdev.id() == id || classes.contains_key(&vdev.id())) {
            let but = if vdevs.len() > 1 { " that is neither log nor special" } else { "" };
            return Err(Error::Request(format!("it is the only vdev of the pool{but}")));
        }
        // One that is on its way out may get one yet.
        let is_staying = |vdev: &&Arc<dyn Vdev>| vdev.id() == id && !self.engine().storage().space.is_closed(id);
        let is_spare = |leaf: &Arc<Leaf>| self.label().is_spare(leaf.guid());
        if let Some(spare) = vdevs.iter().filter(is_staying).flat_map(|vdev| vdev.leaves()).find(is_spare) {
            return Err(Error::Request(format!("the spare {} is in use there; detach it first", spare.name())));
        }
        if vdevs.iter().any(|vdev| vdev.filling().is_some()) {
            return Err(Error::Request("a resilver is in progress; wait for its end".into()));
        }
        Ok(self.engine().storage().space.moving_plan(&Regions::Vdev(id), &Targets::Anywhere))
    }

    /// Takes a vdev out of the pool that is vacated and that no state needs that one may go back to; its devices are nobody's
    /// then, but for spares that are in use there, which stand by again. After an error it is part of the pool or not, as the labels tell that could be written, and this may be called
    /// again.
    ///
    /// # Errors
    /// [`Error::Request`] if something lies on it, [`Error::Device`] if a label could not be written.
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
