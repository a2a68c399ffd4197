//! Outdated vdevs: all of their devices are older copies of the ones last used in the pool, such as an image restored
//! from a backup, or a cloned disk.
//!
//! Within a mirror or a RAID-Z the rings show which member is behind: see [`super::assemble`]. Between vdevs they do
//! not. A commit succeeds as long as one device takes its uberblock, so the rings of a whole vdev that is otherwise
//! complete may lack any number of uberblocks (`publish` in [`crate::txg`]'s `sync`).
//!
//! The labels decide. Before an import commits anything, it writes labels with an epoch of its own to every vdev: to a
//! single disk, or to all complete devices of a group. If it cannot, it fails. A vdev added later gets labels of that
//! epoch from the start. So when commits under an epoch exist, every vdev has labels of this epoch or a later one. A
//! vdev all of whose complete devices have labels of an *earlier* epoch is not the one that was there. Earlier epochs
//! are the epochs on the line: of the newest state's ancestors.
//!
//! | | labels have | |
//! | --- | --- | --- |
//! | power fails while an import writes labels, or before it commits | the epoch of the newest state, or a later one | not refused |
//! | power fails while a commit writes uberblocks, or a device refuses any number of them | the epoch of the newest state | not refused |
//! | the pool is suspended, exported, renamed, renumbered, or split | the epoch of the newest state | not refused |
//! | a device of a group is out of use, or away at an import | any, and the newest label calls it behind | not considered, as it is not complete |
//! | the pool is rewound, repeatedly: no label is written | any but an ancestor's of the repeated state | not refused: repeating uberblocks are skipped |
//! | a log that the pool continued without is back | any | harmless, as the newest state names a log elsewhere |
//! | a copy from before the last import that committed | an ancestor's | refused |
//!
//! A copy made since that import is not recognized: its labels have the same epoch, and its rings look like those of a
//! device that refused uberblocks.
//!
//! An outdated log vdev counts as lost if the log of the newest state lies on it: synchronous writes since the last
//! commit are not in it, so the administrator must confirm their loss. Then the vdev stays in use. None of its frames
//! is of the newest state's import, and with its new labels no further confirmation is needed. Any other outdated vdev
//! lacks blocks that trees refer to, and the pool can only be opened read-only with it.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    error::{Error, Result},
    format::{
        label::{Label, classes::VdevClass},
        uberblock::{Epoch, Uberblock},
    },
    txg::state_of,
    vdev::{Leaf, Vdev, labels},
};

/// The outdated log vdevs.
///
/// # Errors
/// [`Error::OlderCopy`] if any other vdev is outdated, unless the pool is opened read-only.
pub(super) fn outdated_logs(
    label: &Label,
    vdevs: &[Arc<dyn Vdev>],
    line: &[Uberblock],
    read_only: bool,
) -> Result<Vec<Arc<dyn Vdev>>> {
    let earlier = earlier_imports(line);
    let is_log = |vdev: &Arc<dyn Vdev>| label.sections.classes.get(&vdev.id()) == Some(&VdevClass::Log);
    let outdated = vdevs.iter().filter(|vdev| !earlier.is_empty() && is_outdated(&***vdev, &earlier)).cloned();
    let (logs, others): (Vec<_>, Vec<_>) = outdated.partition(is_log);
    if let Some(device) = others.iter().flat_map(|vdev| vdev.committing()).next() {
        let error = Error::OlderCopy { pool: label.pool_name.clone(), device: device.name().to_owned() };
        if !read_only {
            return Err(error);
        }
        tracing::warn!("{error}; what can be read is read");
    }
    Ok(logs)
}

/// The epochs of imports before the one that committed the newest state.
fn earlier_imports(line: &[Uberblock]) -> BTreeSet<Epoch> {
    let is_own = |state: &&Uberblock| state_of(state) == state.txg;
    let Some(newest) = line.iter().find(is_own) else { return BTreeSet::new() };
    let before = line.iter().filter(|state| state.txg <= newest.txg);
    let epochs = before.flat_map(|state| [state.epoch, state.parent]);
    epochs.filter(|epoch| ![newest.epoch, Epoch::NONE].contains(epoch)).collect()
}

/// True if all complete devices of a vdev were last labelled by an import in `earlier`. The labels are read after the
/// rings: a process with the open pool writes labels before it commits.
fn is_outdated(vdev: &dyn Vdev, earlier: &BTreeSet<Epoch>) -> bool {
    let is_older = |leaf: &Arc<Leaf>| {
        labels::read_label(&*leaf.device()).is_ok_and(|own| own.is_some_and(|own| earlier.contains(&own.epoch)))
    };
    let leaves = vdev.committing();
    !leaves.is_empty() && leaves.iter().all(is_older)
}
