//! States that nobody was told of: on a device that was away when the pool went on from the state before.
//!
//! A commit returns when all devices that the labels call complete have its uberblock for good. If power fails before, its
//! state may be on some of them only. An import that finds one of these goes on from that state. One that finds none goes on
//! from the state before, and nobody misses anything: but when a device comes back that has the state, its newest
//! uberblock is on nobody's line. That alone does not tell it from one that somebody has used on its own.
//!
//! The labels do. Whoever goes on without a device, be it from an import on or in the middle of work, has the labels of the
//! others call it behind before the next flush returns, and so before anything is acknowledged ([`crate::vdev::Group`]). So a
//! state is *untold*, and the device that has it stale and not apart, if
//!
//! 1. the newest label calls the device behind, and the state is not one that it knows the device may have,
//! 2. in the device's own rings the state comes right after the last one that it may have by the newest label,
//! 3. there is a device that both the newest label and the device's own call complete, and that nobody goes on without: none of
//!    a log, which both may have left behind.
//!
//! Why it was not acknowledged: then the device of 3 would have it as well, for the own label is no older than the last
//! flush of that commit, and names all that were gone on without. The import that went on had that device, or it came back
//! later; it would have been found there in the first case, and in the second been judged like this one. (If the pool went back to an
//! older state meanwhile, the state may have been acknowledged. It was given up then, by the operator.)
//!
//! Why two halves that were used apart are still refused: each has called all of the other half behind, so there is no
//! device that both call complete. And only one state is ever passed over: the commit after it would have begun when it was
//! acknowledged.
//!
//! An untold state is passed over as if it were not there. Whoever opens the pool to write erases it from its device, for its
//! number is used again. The device is filled as any other that is behind: what the state had written lies where the last
//! state that both have refers to nothing.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before it is erased in all rings of the device | the state in some, and passes over it once more |
//! | after that | a device that is behind |

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    device::Device,
    error::Result,
    format::{
        label::{Label, classes::VdevClass},
        uberblock::Uberblock,
        vdev_config::{Behind, Mark, VdevConfig},
    },
    units::{Guid, Txg},
    vdev::{Health, Vdev, labels, uberblocks},
};

/// A state that is passed over, and the device that has it.
pub(super) struct Untold {
    pub(super) leaf: Guid,
    pub(super) device: Arc<dyn Device>,
    pub(super) txg: Txg,
}

/// Takes the newest state out of what a device has in its rings, newest first, if nobody was told of it: see above. `behind`
/// is what the newest label says of the device.
pub(super) fn pass_over(
    ring: &mut Vec<Uberblock>,
    device: &dyn Device,
    behind: Option<Behind>,
    newest: &Label,
) -> Option<Txg> {
    let [state, before, ..] = &ring[..] else { return None };
    let mark = |state: &Uberblock| Mark { epoch: state.epoch, txg: state.txg };
    let behind = behind.filter(|behind| !behind.knows(mark(state)) && behind.may_have == mark(before))?;
    let went_on_from = (state.parent, state.forked_at) == (before.epoch, before.txg);
    let follows = state.epoch == behind.may_have.epoch || went_on_from;
    let own = labels::read_label(device).ok().flatten().filter(|own| follows && own.pool == newest.pool)?;
    if complete(&own).is_disjoint(&complete(newest)) {
        return None;
    }
    Some(ring.remove(0).txg)
}

/// The devices that a label calls complete, but for logs.
fn complete(label: &Label) -> BTreeSet<Guid> {
    let lacks = |device: &Guid| {
        let mut members = label.vdevs.iter().flat_map(|vdev| vdev.tree.members());
        members.any(|member| member.leaf.guid == *device && (member.behind.is_some() || member.is_offline))
    };
    let is_log = |vdev: &&VdevConfig| label.sections.classes.get(&vdev.id) == Some(&VdevClass::Log);
    let leaves = label.vdevs.iter().filter(|vdev| !is_log(vdev)).flat_map(|vdev| vdev.tree.leaves());
    leaves.map(|leaf| leaf.guid).filter(|device| !lacks(device)).collect()
}

/// Erases states of which nobody was told from the devices that have them. These are behind: one that refuses is done without,
/// as one of a lost vdev is already.
pub(super) fn forget(vdevs: &[Arc<dyn Vdev>], untold: &[Untold]) -> Result<()> {
    for state in untold {
        let Err(error) = state.erase() else { continue };
        let is_of = |vdev: &&Arc<dyn Vdev>| vdev.leaves().iter().any(|leaf| leaf.guid() == state.leaf);
        let vdev = vdevs.iter().find(is_of);
        if !vdev.is_some_and(|vdev| vdev.is_lost() || vdev.do_without(state.leaf, Health::Faulted)) {
            return Err(error);
        }
        tracing::warn!("{} keeps {}, and is gone on without: {error}", state.device.name(), state.txg);
    }
    Ok(())
}

impl Untold {
    /// Erases the state from its device.
    fn erase(&self) -> Result<()> {
        tracing::warn!("{} has {}, of which nobody was told; it is given up", self.device.name(), self.txg);
        uberblocks::erase_uberblock(&*self.device, self.txg)
    }
}
