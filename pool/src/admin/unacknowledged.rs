//! Unacknowledged states: on a device that was away when the pool continued from the state before.
//!
//! A commit returns when all devices that the labels call complete durably have its uberblock. If power fails before,
//! its state may be on only some of them. An import that finds one of these continues from the new state. An import
//! that finds none continues from the state before, and no acknowledged data is missing. But a device with the new
//! state that returns later has a newest uberblock on no line, and by that alone looks modified separately.
//!
//! The labels tell the cases apart. A pool that continues without a device, from an import on or later, has the labels
//! of the rest call the device behind before the next flush returns, and so before anything is acknowledged
//! ([`crate::vdev::Group`]). So a state is *unacknowledged*, and its device stale and not split, if
//!
//! 1. the newest label calls the device behind, and does not list the state among the ones that the device may have,
//! 2. in the device's own rings the state directly follows the last one that the device may have by the newest label,
//! 3. some device, not of a log, is called complete both by the newest label and by the device's own, so the pool never
//!    continued without it. Log devices do not count, because both may have left a log behind.
//!
//! Why the state was not acknowledged: otherwise the device of condition 3 would have it too, because the device's own
//! label is no older than the last flush of that commit, and names every device that the commit left behind. If the
//! import that continued had the device of condition 3, it would have found the state there. If the device of condition
//! 3 returned later, it was judged like this one. (If the pool was rewound in between, the state may have been
//! acknowledged. The administrator gave it up then.)
//!
//! Why two halves that were used separately are still refused: each half has called all of the other half behind, so no
//! device is called complete by both. And at most one state is ever skipped: the next commit would have begun only
//! after an acknowledgement.
//!
//! An unacknowledged state is treated as absent. An import for writing erases it from its device, because its txg is
//! reused. The device is resilvered like any device that is behind: blocks of the erased state lie where the last
//! common state refers to nothing.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before it is erased in all rings of the device | the state in some rings, and skips it once more |
//! | later | a device that is behind |

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

/// An unacknowledged state, and the device that has it.
pub(super) struct Unacknowledged {
    pub(super) leaf: Guid,
    pub(super) device: Arc<dyn Device>,
    pub(super) txg: Txg,
}

/// Removes the newest state from a device's rings, newest first, if it is unacknowledged: see above. `behind` is the
/// newest label's record of the device.
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

/// The devices that a label calls complete, except log devices.
fn complete(label: &Label) -> BTreeSet<Guid> {
    let lacks = |device: &Guid| {
        let mut members = label.vdevs.iter().flat_map(|vdev| vdev.tree.members());
        members.any(|member| member.leaf.guid == *device && (member.behind.is_some() || member.is_offline))
    };
    let is_log = |vdev: &&VdevConfig| label.sections.classes.get(&vdev.id) == Some(&VdevClass::Log);
    let leaves = label.vdevs.iter().filter(|vdev| !is_log(vdev)).flat_map(|vdev| vdev.tree.leaves());
    leaves.map(|leaf| leaf.guid).filter(|device| !lacks(device)).collect()
}

/// Erases unacknowledged states from their devices. A device that fails the erasure is faulted, which is always
/// possible because it is behind; a device of a lost vdev is not used anyway.
pub(super) fn forget(vdevs: &[Arc<dyn Vdev>], unacknowledged: &[Unacknowledged]) -> Result<()> {
    for state in unacknowledged {
        let Err(error) = state.erase() else { continue };
        let is_of = |vdev: &&Arc<dyn Vdev>| vdev.leaves().iter().any(|leaf| leaf.guid() == state.leaf);
        let vdev = vdevs.iter().find(is_of);
        if !vdev.is_some_and(|vdev| vdev.is_lost() || vdev.degrade(state.leaf, Health::Faulted)) {
            return Err(error);
        }
        tracing::warn!("{} keeps {}, and is gone on without: {error}", state.device.name(), state.txg);
    }
    Ok(())
}

impl Unacknowledged {
    /// Erases the state from its device.
    fn erase(&self) -> Result<()> {
        tracing::warn!("{} has {}, which was never acknowledged; it is discarded", self.device.name(), self.txg);
        uberblocks::erase_uberblock(&*self.device, self.txg)
    }
}
