//! Simulating the loss of devices.
//!
//! A vdev with too few devices left is lost, with all data stored only there; a pool without one of its vdevs cannot
//! be imported. The report nevertheless counts the data with a copy on other vdevs, to show the effect of `copies`
//! and of the placement of metadata.

use std::sync::Arc;

use dataset::admin::{Datasets, Loss, Survivors};
use pool::{
    units::{Guid, VdevId},
    vdev::{Leaf, Vdev},
};
use protocol::{DatasetLoss, Failure, IdleLoss, LossReport, VdevLoss, VdevRole};

use super::{Cancel, job::Job, layout, open_pool::OpenPool, refusal::OrRefused};

const ACTION: &str = "simulate a loss in";

impl OpenPool {
    /// The data lost with these devices; a vdev's name means all its devices. If a whole vdev is lost, the last
    /// committed state is examined.
    pub(super) fn losses(&self, devices: &[String], job: &mut Job<'_>) -> Result<LossReport, Failure> {
        let (mut lost, mut idle) = (Vec::new(), Vec::new());
        for device in devices {
            match self.standing_apart(device) {
                Some(apart) => idle.push(apart),
                None => lost.extend(self.devices_of(device)?),
            }
        }
        let all = self.engine().storage().vdevs.all();
        let is_lost = |leaf: &Arc<Leaf>| lost.contains(&leaf.guid());
        let concerned = all.iter().filter(|vdev| vdev.leaves().iter().any(is_lost));
        let classes = self.pool.label().sections.classes;
        let role = |vdev: &dyn Vdev| layout::role_of(vdev.id(), &classes);
        let reported: Vec<(VdevId, VdevLoss)> =
            concerned.map(|vdev| (vdev.id(), vdev_loss(&**vdev, role(&**vdev), &is_lost))).collect();
        let is_fatal = |loss: &VdevLoss| !loss.survives && loss.role != VdevRole::Log;
        let gone: Vec<VdevId> = reported.iter().filter(|(_, loss)| is_fatal(loss)).map(|(id, _)| *id).collect();
        let datasets = if gone.is_empty() { self.unharmed()? } else { self.harmed(&gone, job)? };
        Ok(LossReport { vdevs: reported.into_iter().map(|(_, loss)| loss).collect(), idle, datasets })
    }

    /// An AVAIL spare or a cache device, neither of which stores the only copy of data.
    fn standing_apart(&self, name: &str) -> Option<IdleLoss> {
        let is_it = |leaf: &Leaf| leaf.name() == name || leaf.guid().to_string() == name;
        let mut spares = self.pool.spares().into_iter().filter(|spare| spare.used_in.is_none()).map(|spare| spare.leaf);
        let idle = |kind: &str, leaf: &Leaf| IdleLoss { kind: kind.to_owned(), path: leaf.name().to_owned() };
        let spare = spares.find(|leaf| is_it(leaf)).map(|leaf| idle("spare", &leaf));
        spare.or_else(|| self.pool.find_cache(name).map(|cache| idle("cache device", &cache)))
    }

    fn devices_of(&self, name: &str) -> Result<Vec<Guid>, Failure> {
        if let Ok((_, leaf)) = self.pool.find_device(name) {
            return Ok(vec![leaf.guid()]);
        }
        let vdev = self.pool.find_vdev(name).or_refused(ACTION, self.name())?;
        Ok(vdev.leaves().iter().map(|leaf| leaf.guid()).collect())
    }

    fn unharmed(&self) -> Result<Vec<DatasetLoss>, Failure> {
        let names = self.datasets.names_of_all().or_refused(ACTION, self.name())?;
        let whole = |name| DatasetLoss { name, blocks: None, lost_blocks: 0, files: 0, lost_files: 0 };
        Ok(names.into_iter().map(whole).collect())
    }

    fn harmed(&self, gone: &[VdevId], job: &mut Job<'_>) -> Result<Vec<DatasetLoss>, Failure> {
        let name = self.name();
        if !self.engine().read_only() {
            self.engine().commit().or_refused(ACTION, &name)?;
        }
        let state = self.pool.committed_state().or_refused(ACTION, &name)?;
        let datasets = Datasets::open(state.engine().clone(), name.clone()).or_refused(ACTION, &name)?;
        let cancels = job.cancels();
        let survivors = Survivors {
            is_left: &|vdev| !gone.contains(&vdev),
            goes_on: &|| !state.is_lost() && !cancels.iter().any(Cancel::is_cancelled),
        };
        let losses = datasets.losses(&survivors);
        job.check()?;
        if state.is_lost() {
            let problem = "the pool ran short of space and had to free blocks of the state under examination";
            return Err(Failure::cannot(ACTION, &name, problem).hint("free some space and try again"));
        }
        let reported = |Loss { name, blocks, lost_blocks, files, lost_files }| DatasetLoss {
            name,
            blocks: Some(blocks),
            lost_blocks,
            files,
            lost_files,
        };
        Ok(losses.or_refused(ACTION, &name)?.into_iter().map(reported).collect())
    }
}

fn vdev_loss(vdev: &dyn Vdev, role: VdevRole, is_lost: &dyn Fn(&Arc<Leaf>) -> bool) -> VdevLoss {
    // An incomplete device was never counted as redundancy.
    let whole = vdev.committing();
    let named = vdev.leaves().iter().filter(|leaf| is_lost(leaf)).map(|leaf| leaf.name().to_owned()).collect();
    let left: Vec<Guid> = whole.iter().filter(|leaf| !is_lost(leaf)).map(|leaf| leaf.guid()).collect();
    VdevLoss {
        name: layout::name_of(vdev),
        role,
        lost: named,
        left: left.len(),
        survives: vdev.as_group().map_or(left.len() == whole.len(), |group| group.are_enough(&left)),
    }
}
