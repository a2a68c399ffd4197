//! Vdevs all of whose devices are older copies of those that the pool was last used with: somebody has put an image from a
//! backup in their place, or a disk that was cloned.
//!
//! Within a mirror or a RAID-Z the rings tell who lacks what: see [`super::assemble`]. Between vdevs they do not. A commit
//! that one device does not take goes on as long as another one does, and so any number of them may be missing in the rings
//! of a whole vdev that has everything else (`publish` in [`crate::txg`]'s `sync`).
//!
//! The labels tell. An import writes labels with an epoch of its own to every vdev before it commits anything, be it to a
//! disk or to all devices of a group that it takes for complete, and fails if it cannot. Whoever is added later gets labels
//! of that epoch from the start. So what commits under an epoch is a pool each of whose vdevs has labels of this epoch or a
//! later one, and a vdev all of whose complete devices have labels of one that came *before* is not the one that was there.
//! What comes before is on the line: the epochs of the newest state's ancestors.
//!
//! | | labels say | |
//! | --- | --- | --- |
//! | power fails while an import writes labels, or before it commits | the epoch of the newest state, or a later one | is not refused |
//! | power fails while a commit writes uberblocks, or a device refuses any number of them | the epoch of the newest state | is not refused |
//! | the pool is suspended, exported, renamed, renumbered, or split | the epoch of the newest state | is not refused |
//! | a device of a group is put out, or away at an import | any, and the newest label calls it behind | is not asked, for it is not complete |
//! | the pool goes back, again and again: no label is written | any that is no ancestor's of the state that is repeated | is not refused: those that repeat are passed over |
//! | a log was gone on without, and is back | any | does no harm, for the newest state names a log elsewhere |
//! | a copy from before the last import that committed | an ancestor's | is refused |
//!
//! What this does not tell is a copy that was made since that import: its labels are of the same epoch, and its rings look
//! like those of a device that refused uberblocks.
//!
//! A vdev for the intent log that is outdated is as one that is lost if the log lies on it by the newest state: what was
//! promised since the last commit is not in it, so somebody has to say that this may be gone. Then it is used on. No frame
//! that it holds is of the newest state's import, and from its new labels on nobody is asked again. Any other vdev lacks
//! what trees refer to, and the pool is only read with it.

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

/// The vdevs for the intent log that are outdated.
///
/// # Errors
/// [`Error::OlderCopy`] if another one is, unless the pool is only read.
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

/// The imports that came before the one that committed the newest state.
fn earlier_imports(line: &[Uberblock]) -> BTreeSet<Epoch> {
    let is_own = |state: &&Uberblock| state_of(state) == state.txg;
    let Some(newest) = line.iter().find(is_own) else { return BTreeSet::new() };
    let before = line.iter().filter(|state| state.txg <= newest.txg);
    let epochs = before.flat_map(|state| [state.epoch, state.parent]);
    epochs.filter(|epoch| ![newest.epoch, Epoch::NONE].contains(epoch)).collect()
}

/// Whether all devices of a vdev that are taken for complete were labelled by one of these imports last. The labels are
/// read after the rings were: whoever has the pool open meanwhile labels before it commits.
fn is_outdated(vdev: &dyn Vdev, earlier: &BTreeSet<Epoch>) -> bool {
    let is_older = |leaf: &Arc<Leaf>| {
        labels::read_label(&*leaf.device()).is_ok_and(|own| own.is_some_and(|own| earlier.contains(&own.epoch)))
    };
    let leaves = vdev.committing();
    !leaves.is_empty() && leaves.iter().all(is_older)
}
