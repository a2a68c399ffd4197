//! A pool that was opened, and its labels.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    watched::Watched,
    writing::{settle_labels, write_labels_apart},
};
use crate::{
    error::Result,
    format::label::{Compatibility, Label, PoolState},
    txg::{Engine, Features, Still},
    units::Txg,
    vdev::{Vdev, repair::LabelsExamined},
};

/// An opened pool and its labels.
pub struct Pool {
    engine: Arc<Engine>,
    labels: Arc<Labels>,
    /// Devices with too many errors.
    watched: Mutex<Watched>,
}

/// The labels of an opened pool.
pub(super) struct Labels {
    /// The current label: changed only after all copies were written.
    label: Mutex<Label>,
    /// The highest txg given to any label, even one that could not be written. Locked to change labels of the pool's
    /// vdevs; a commit may wait for it.
    labelling: Mutex<Txg>,
    /// Locked to change or write labels of devices in no vdev, or the set of these devices. Taken before commits are
    /// paused, and before `labelling`. No commit waits for it.
    apart: Mutex<()>,
    /// Devices in no vdev are due for the current labels.
    is_due_apart: AtomicBool,
}

/// The lock for changing labels, or the set of labelled devices; dereferences to the highest txg given to any label.
/// When it is dropped, commits resume, and only then are due labels of devices in no vdev written, because one such
/// device that hangs must not hold up commits.
pub(super) struct Labelling<'a> {
    // Declared first, so dropped first.
    highest: MutexGuard<'a, Txg>,
    still: Option<Still<'a>>,
    apart: LabellingApart<'a>,
}

/// The rest of a [`Labelling`] when commits have resumed.
pub(super) struct LabellingApart<'a> {
    pool: &'a Pool,
    // Dropped after the labels were written.
    _apart: MutexGuard<'a, ()>,
}

impl<'a> Labelling<'a> {
    /// Lets commits resume.
    pub(super) fn apart(self) -> LabellingApart<'a> {
        self.apart
    }

    /// The txg at which commits are paused.
    pub(super) fn held_at(&self) -> Txg {
        self.still.as_ref().expect("the pool is held still").txg()
    }
}

impl Deref for Labelling<'_> {
    type Target = Txg;

    fn deref(&self) -> &Txg {
        &self.highest
    }
}

impl DerefMut for Labelling<'_> {
    fn deref_mut(&mut self) -> &mut Txg {
        &mut self.highest
    }
}

impl Drop for LabellingApart<'_> {
    fn drop(&mut self) {
        // Prefetches under way may be of devices that have left.
        self.pool.engine().forget_ahead();
        if self.pool.labels.is_due_apart.swap(false, Ordering::AcqRel) {
            write_labels_apart(self.pool.engine(), &self.pool.label());
        }
    }
}

impl Labels {
    /// Locks the labels of the pool's vdevs.
    pub(super) fn hold(&self) -> MutexGuard<'_, Txg> {
        self.labelling.lock()
    }

    /// Locks the labels of devices in no vdev.
    pub(super) fn hold_apart(&self) -> MutexGuard<'_, ()> {
        self.apart.lock()
    }

    /// The current label.
    pub(super) fn current(&self) -> Label {
        self.label.lock().clone()
    }

    /// Changes the labels within a commit, or instead of one. The labels of spares and cache devices follow with the
    /// next change by an administrator, or the next import: they do not need a commit's changes, and a hanging spare
    /// must not hold up a commit.
    fn change_in_commit(&self, engine: &Engine, change: impl FnOnce(&mut Label)) -> Result<()> {
        let mut highest = self.labelling.lock();
        let mut label = self.label.lock().clone();
        change(&mut label);
        self.replace_in_vdevs(engine, &mut highest, label, &[])
    }

    fn replace_in_vdevs(
        &self,
        engine: &Engine,
        highest: &mut Txg,
        label: Label,
        joining: &[Arc<dyn Vdev>],
    ) -> Result<()> {
        *highest = highest.next().max(engine.committed());
        let label = Label { txg: *highest, ..label };
        let before = self.label.lock().txg;
        assert!(before < label.txg, "ADMIN-1: labels of {} follow labels of {before}", label.txg);
        let label = settle_labels(engine, highest, label, joining)?;
        *self.label.lock() = label;
        Ok(())
    }
}

/// All labels durably name a feature before anything is written that needs it. A crash in between leaves a pool that
/// older software refuses though it could read it. A crash while labels are written leaves labels of two ages, the
/// newer of which counts, and nothing that needs the feature.
impl Features for Labels {
    fn is_active(&self, feature: &str) -> bool {
        self.label.lock().features.contains_key(feature)
    }

    fn activate(&self, engine: &Engine, feature: &'static str) -> Result<()> {
        self.change_in_commit(engine, |label| {
            label.features.insert(feature.to_owned(), Compatibility::None);
        })
    }

    fn repair(&self, still: &Still<'_>) -> LabelsExamined {
        self.repair_in_vdevs(still)
    }

    fn repair_apart(&self, engine: &Engine) -> LabelsExamined {
        self.repair_in_no_vdev(engine)
    }
}

impl Pool {
    pub(super) fn new(engine: Arc<Engine>, label: Label) -> Pool {
        let labels = Arc::new(Labels {
            labelling: Mutex::new(label.txg),
            label: Mutex::new(label),
            apart: Mutex::default(),
            is_due_apart: AtomicBool::new(false),
        });
        engine.set_features(labels.clone());
        let (writer, weak) = (labels.clone(), Arc::downgrade(&engine));
        engine.storage().vdevs.set_label_writer(Box::new(move || match weak.upgrade() {
            Some(engine) => writer.change_in_commit(&engine, |_| {}),
            None => Ok(()),
        }));
        Pool { engine, labels, watched: Mutex::default() }
    }

    /// The transaction engine of the pool.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The current label, without the fields of a particular device.
    pub fn label(&self) -> Label {
        self.labels.label.lock().clone()
    }

    /// The pool's name, as in the labels.
    pub fn name(&self) -> String {
        self.labels.label.lock().pool_name.clone()
    }

    /// Exports the pool: any host may import it then. The caller allows no change during the export or after. Does
    /// nothing for a pool opened read-only.
    ///
    /// The last commit comes first. If labels still say "active" after a failure, the next import on another host
    /// merely needs `-f`.
    pub fn export(&self) -> Result<()> {
        if self.engine.read_only() {
            return Ok(());
        }
        self.engine.commit()?;
        self.relabel(|label| label.state = PoolState::Exported)
    }

    /// Destroys the pool: imports no longer find it, and its devices are free for other use. Until reuse all data is
    /// still there. A pool that takes no changes can be destroyed too, if its devices are writable.
    pub fn destroy(&self) -> Result<()> {
        self.relabel(|label| label.state = PoolState::Destroyed)
    }

    /// Writes the labels with another pool name.
    ///
    /// # Errors
    /// If the pool takes no changes, or labels could not be written.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.engine.writable()?;
        self.relabel(|label| name.clone_into(&mut label.pool_name))
    }

    pub(super) fn labelling(&self) -> Labelling<'_> {
        let apart = LabellingApart { pool: self, _apart: self.labels.apart.lock() };
        Labelling { highest: self.labels.labelling.lock(), still: None, apart }
    }

    /// Locks the labels and pauses commits until the lock is dropped, so that no uberblocks are written.
    pub(super) fn labelling_still(&self) -> Labelling<'_> {
        let apart = LabellingApart { pool: self, _apart: self.labels.apart.lock() };
        let still = self.engine.hold_still();
        Labelling { highest: self.labels.labelling.lock(), still: Some(still), apart }
    }

    /// Rewrites the labels of the vdevs with a higher txg. The caller has paused commits.
    pub(super) fn relabel_held_still(&self) -> Result<()> {
        self.labels.change_in_commit(&self.engine, |_| {})
    }

    /// Brings the labels of devices in no vdev up to date.
    pub(super) fn label_apart(&self) {
        let _apart = LabellingApart { pool: self, _apart: self.labels.apart.lock() };
        self.labels.is_due_apart.store(true, Ordering::Release);
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock()
    }

    pub(super) fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        let mut highest = self.labelling();
        let mut label = self.label();
        change(&mut label);
        self.replace_labels(&mut highest, label, &[])
    }

    /// Writes the labels of the pool's devices, and then of the `joining` ones; labels of devices in no vdev follow
    /// when the [`Labelling`] is dropped.
    pub(super) fn replace_labels(&self, highest: &mut Txg, label: Label, joining: &[Arc<dyn Vdev>]) -> Result<()> {
        self.replace_labels_in_vdevs(highest, label, joining)?;
        self.labels.is_due_apart.store(true, Ordering::Release);
        Ok(())
    }

    /// Like [`Pool::replace_labels`], but labels of devices in no vdev follow only with a later change.
    pub(super) fn replace_labels_in_vdevs(
        &self,
        highest: &mut Txg,
        label: Label,
        joining: &[Arc<dyn Vdev>],
    ) -> Result<()> {
        self.labels.replace_in_vdevs(&self.engine, highest, label, joining)
    }
}
