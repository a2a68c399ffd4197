//! An opened pool.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    add::{self, Addition},
    assemble::zones,
    caches::write_cache_labels,
    spares::{Watched, write_spare_labels},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{
            ALLOCATION_CLASSES, Compatibility, Label, PoolState, RAIDZ, RAIDZ_EXPANSION, RAIDZ_SIZES,
            classes::VdevClass, usable_size,
        },
        vdev_config::{
            LeafConfig, MIRROR_MEMBERS, MemberConfig, MirrorConfig, RAIDZ_COLUMNS, RAIDZ_PARITY, RaidZConfig,
            RaidZMember, VdevConfig, VdevTree, Zone,
        },
    },
    txg::{Engine, Features, Still},
    units::{Guid, Txg, VdevId},
    vdev::{
        Health, Leaf, Member, Mirror, RaidZ, Single, State, Vdev, labels,
        mend::LabelsExamined,
        raidz::zones::{in_order, on_sizes},
    },
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
    // Dropped first.
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

    fn mend(&self, still: &Still<'_>) -> LabelsExamined {
        self.mend_in_vdevs(still)
    }

    fn mend_apart(&self, engine: &Engine) -> LabelsExamined {
        self.mend_in_no_vdev(engine)
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
        let (told, weak) = (labels.clone(), Arc::downgrade(&engine));
        engine.storage().vdevs.set_teller(Box::new(move || match weak.upgrade() {
            Some(engine) => told.change_in_commit(&engine, |_| {}),
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

    /// The pool's name.
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

    /// Renames the pool.
    ///
    /// # Errors
    /// If the pool takes no changes, or labels could not be written.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.engine.writable()?;
        self.relabel(|label| name.clone_into(&mut label.pool_name))
    }

    /// Adds devices, each as a top-level vdev.
    pub fn add(&self, devices: Vec<Arc<dyn Device>>) -> Result<()> {
        self.begin_add(devices.into_iter().map(NewVdev::Disk).collect())?.finish()
    }

    /// The first half of adding vdevs: until [`Addition::finish`] the devices are no part of the pool, and the caller
    /// may take them back. Labels are locked in between.
    pub fn begin_add(&self, vdevs: Vec<impl Into<ClassedVdev>>) -> Result<Addition<'_>> {
        self.begin_add_with(vdevs, &[])
    }

    /// Like [`Pool::begin_add`], with spares: all become part of the pool, or none.
    pub fn begin_add_with(
        &self,
        vdevs: Vec<impl Into<ClassedVdev>>,
        spares: &[Arc<dyn Device>],
    ) -> Result<Addition<'_>> {
        self.engine.writable()?;
        Addition::begin(self, self.labelling(), vdevs.into_iter().map(Into::into).collect(), spares)
    }

    /// The features that labels will name once these vdevs are added, and do not name yet.
    ///
    /// # Errors
    /// [`Error::Request`] if such a vdev is impossible.
    pub fn features_of(&self, vdevs: &[ClassedVdev]) -> Result<Vec<String>> {
        add::features_of(&self.label(), vdevs)
    }

    /// Locks the labels.
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

/// Writes labels to all devices in use, and then to the `joining` vdevs; returns the final label. A device that fails
/// the write is faulted if its vdev's redundancy allows it, and the final label records the fault.
///
/// Each round needs a txg above all earlier rounds, even failed ones: a device may have got its label.
pub(super) fn settle_labels(
    engine: &Engine,
    highest: &mut Txg,
    mut label: Label,
    joining: &[Arc<dyn Vdev>],
) -> Result<Label> {
    let _labelling = engine.labelling.lock();
    label.forget_gone();
    loop {
        let vdevs = engine.storage().vdevs.all();
        let news: Vec<Option<u64>> = vdevs.iter().map(|vdev| vdev.news()).collect();
        for config in &mut label.vdevs {
            if let Some(vdev) = vdevs.iter().find(|vdev| vdev.id() == config.id) {
                vdev.describe(&mut config.tree);
            }
        }
        write_labels(&vdevs, &label)?;
        if vdevs.iter().map(|vdev| vdev.news()).eq(news.iter().copied()) {
            write_labels(joining, &label)?;
            let told = vdevs.iter().zip(news).filter_map(|(vdev, news)| Some((vdev, news?)));
            told.for_each(|(vdev, news)| vdev.told(news));
            return Ok(label);
        }
        *highest = highest.next();
        label.txg = *highest;
    }
}

/// Brings the labels of devices in no vdev up to date.
pub(super) fn write_labels_apart(engine: &Engine, label: &Label) {
    write_spare_labels(&engine.storage().vdevs.spares(), label);
    write_cache_labels(engine, label);
}

/// Writes labels to all devices in use. A device that fails the write is faulted if its vdev's redundancy allows it.
pub(super) fn write_labels(vdevs: &[Arc<dyn Vdev>], label: &Label) -> Result<()> {
    let leaves: Vec<(&Arc<dyn Vdev>, Arc<Leaf>)> =
        vdevs.iter().flat_map(|vdev| vdev.labelled().into_iter().map(move |leaf| (vdev, leaf))).collect();
    let own = |(vdev, leaf): &(&Arc<dyn Vdev>, Arc<Leaf>)| {
        (leaf.device(), Label { device: leaf.guid(), vdev: vdev.id(), ..label.clone() })
    };
    let own: Vec<(Arc<dyn Device>, Label)> = leaves.iter().map(own).collect();
    let devices: Vec<(&dyn Device, &Label)> = own.iter().map(|(device, label)| (&**device, label)).collect();
    let mut outcome = Ok(());
    for ((vdev, leaf), written) in leaves.iter().zip(labels::write_all_labels(&devices)) {
        if let Err(error) = written
            && !vdev.do_without(leaf.guid(), Health::of(&error))
        {
            leaf.note_fault();
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

/// Erases a device and labels it as the one of this GUID in a vdev.
pub(super) fn write_new_label(device: &dyn Device, guid: Guid, vdev: VdevId, label: &Label) -> Result<()> {
    let own = Label { device: guid, vdev, ..label.clone() };
    labels::write_new_labels(device, &own)
}

/// Enters the features that the vdevs of a label need.
pub(super) fn name_features(label: &mut Label) {
    for vdev in &label.vdevs {
        if let VdevTree::RaidZ(raidz) = &vdev.tree {
            label.features.insert(RAIDZ.to_owned(), Compatibility::None);
            if !raidz.zones.is_empty() {
                label.features.insert(RAIDZ_EXPANSION.to_owned(), Compatibility::None);
            }
            if raidz.is_unequal() {
                label.features.insert(RAIDZ_SIZES.to_owned(), Compatibility::None);
            }
        }
    }
    if !label.sections.classes.is_empty() {
        // Existing data is readable without knowing the feature.
        label.features.entry(ALLOCATION_CLASSES.to_owned()).or_insert(Compatibility::Read);
    }
}

/// A vdev to create, with its class, if it has one.
#[derive(Clone)]
pub struct ClassedVdev {
    /// Its kind and devices.
    pub vdev: NewVdev,
    /// The vdev's class; `None` for a normal vdev.
    pub class: Option<VdevClass>,
}

impl From<NewVdev> for ClassedVdev {
    fn from(vdev: NewVdev) -> ClassedVdev {
        ClassedVdev { vdev, class: None }
    }
}

impl ClassedVdev {
    /// The same vdev, with its devices in the order of best use.
    pub(super) fn in_order(self, sector: u64, region: u64) -> ClassedVdev {
        ClassedVdev { vdev: self.vdev.in_order(sector, region), ..self }
    }

    /// Refuses an impossible vdev, or an impossible class for it.
    pub(super) fn check(&self) -> Result<()> {
        match (&self.vdev, self.class) {
            (NewVdev::RaidZ { .. }, Some(VdevClass::Log)) => {
                Err(Error::Request("the intent log lies on a single device or on a mirror, not on a raidz".into()))
            }
            (_, Some(VdevClass::Other(code))) => Err(Error::Request(format!("no vdev can be of class {code}"))),
            _ => self.vdev.check(),
        }
    }

    /// Enters the vdev's class into a label.
    pub(super) fn note_class(&self, id: VdevId, label: &mut Label) {
        label.sections.classes.extend(self.class.map(|class| (id, class)));
    }
}

/// A vdev to create.
#[derive(Clone)]
pub enum NewVdev {
    /// One device.
    Disk(Arc<dyn Device>),
    /// Devices with equal content; their number is within
    /// [`MIRROR_MEMBERS`](crate::format::vdev_config::MIRROR_MEMBERS).
    Mirror(Vec<Arc<dyn Device>>),
    /// Devices that share data and parity: more than parity, and at most [`RAIDZ_COLUMNS`]. Extra space on larger
    /// devices is used in narrower rows, if more devices have it than there is parity.
    RaidZ {
        /// Devices that may be lost, within [`RAIDZ_PARITY`].
        parity: u8,
        /// The devices in the order of the columns, if all have one size. Otherwise the largest become the first
        /// columns.
        devices: Vec<Arc<dyn Device>>,
    },
}

impl NewVdev {
    /// The devices, in the order given.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        match self {
            NewVdev::Disk(device) => std::slice::from_ref(device),
            NewVdev::Mirror(devices) | NewVdev::RaidZ { devices, .. } => devices,
        }
    }

    /// Usable bytes of the smallest device.
    pub fn size(&self) -> u64 {
        self.devices().iter().map(|device| usable_size(device.size())).min().unwrap_or(0)
    }

    /// Approximate bytes for the pool: the smallest device's, times the number of data columns.
    pub(super) fn capacity(&self) -> u64 {
        let data = match self {
            NewVdev::RaidZ { parity, devices } => devices.len().saturating_sub(usize::from(*parity)),
            NewVdev::Disk(_) | NewVdev::Mirror(_) => 1,
        };
        self.size().saturating_mul(data as u64)
    }

    /// Refuses a mirror or a RAID-Z of too few devices, or of too many.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            NewVdev::Mirror(devices) if !MIRROR_MEMBERS.contains(&devices.len()) => Err(Error::Request(format!(
                "a mirror has {} to {} devices, not {}",
                MIRROR_MEMBERS.start(),
                MIRROR_MEMBERS.end(),
                devices.len()
            ))),
            NewVdev::RaidZ { parity, .. } if !RAIDZ_PARITY.contains(parity) => {
                Err(Error::Request(format!("a raidz has a parity of 1 to 3, not {parity}")))
            }
            NewVdev::RaidZ { parity, devices }
                if !(usize::from(*parity) + 1..=RAIDZ_COLUMNS).contains(&devices.len()) =>
            {
                Err(Error::Request(format!(
                    "a raidz{parity} has {} to {RAIDZ_COLUMNS} devices, not {}",
                    parity + 1,
                    devices.len()
                )))
            }
            _ => Ok(()),
        }
    }

    /// The same vdev; a RAID-Z on devices of different sizes has them in order of size, if there are narrower rows
    /// then.
    fn in_order(self, sector: u64, region: u64) -> NewVdev {
        match self {
            NewVdev::RaidZ { parity, devices } => {
                let devices = in_order(devices, |device| usable_size(device.size()), parity, sector, region);
                NewVdev::RaidZ { parity, devices }
            }
            NewVdev::Disk(_) | NewVdev::Mirror(_) => self,
        }
    }

    /// The zones of a RAID-Z with rows of several widths.
    fn zones(&self, sector: u64, region: u64) -> Vec<Zone> {
        let NewVdev::RaidZ { parity, devices } = self else { return Vec::new() };
        let sizes: Vec<u64> = devices.iter().map(|device| usable_size(device.size())).collect();
        on_sizes(&sizes, *parity, sector, region)
    }

    /// The vdev's configuration in a label, for a pool with these sectors and regions.
    pub(super) fn describe(&self, id: VdevId, (sector, region): (u64, u64), guid: &dyn Fn() -> Guid) -> VdevConfig {
        let zones = self.zones(sector, region);
        let size = |device: &Arc<dyn Device>| match zones[..] {
            [] => self.size(),
            _ => usable_size(device.size()),
        };
        let leaf = |device: &Arc<dyn Device>| {
            let (size, path) = (size(device), device.name().to_owned());
            LeafConfig { guid: guid(), size, path }
        };
        let tree = match self {
            NewVdev::Disk(device) => VdevTree::Leaf(leaf(device)),
            NewVdev::Mirror(devices) => {
                let members = devices.iter().map(|device| MemberConfig::whole(leaf(device))).collect();
                VdevTree::Mirror(MirrorConfig { guid: guid(), members })
            }
            NewVdev::RaidZ { parity, devices } => {
                let members = (0..).zip(devices);
                let member = |(column, device)| RaidZMember { column, member: MemberConfig::whole(leaf(device)) };
                let members = members.map(member).collect();
                VdevTree::RaidZ(RaidZConfig { guid: guid(), parity: *parity, members, zones })
            }
        };
        VdevConfig { id, tree }
    }

    /// The vdev of this configuration, on all-new devices.
    pub(super) fn vdev(&self, label: &Label, config: &VdevConfig) -> Arc<dyn Vdev> {
        let leaf = |config: &LeafConfig, device: &Arc<dyn Device>| Arc::new(Leaf::new(config.guid, device.clone()));
        let member = |((column, config), device): ((usize, &MemberConfig), &Arc<dyn Device>)| {
            Arc::new(Member::new(leaf(&config.leaf, device), State::Complete, config).at_column(column))
        };
        let members = config.tree.in_columns().into_iter().zip(self.devices()).map(member).collect();
        let least = config.tree.device_size();
        match &config.tree {
            VdevTree::Mirror(mirror) => Arc::new(Mirror::new(config.id, mirror.guid, least, members)),
            VdevTree::RaidZ(raidz) => {
                let zones = zones(label, raidz).expect("its shape was checked");
                Arc::new(RaidZ::new(config.id, raidz.guid, zones, least, members))
            }
            tree => {
                let alone = tree.leaves().zip(self.devices()).next().expect("a disk is one device");
                Arc::new(Single::new(config.id, leaf(alone.0, alone.1)))
            }
        }
    }
}
