//! Adding devices to an opened pool.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before a device of the pool names the new ones | the pool without them: their labels are older than any in the pool |
//! | before the space layer's next commit | the pool with them, without chunks; opening gives them theirs |
//! | after that commit | the pool with them |
//!
//! Spares may be added in the same step: the same labels name both, so all become part of the pool, or none.
//!
//! In the second case labels of two ages may be found, and the newer counts; the new devices have their labels by then.

use std::sync::Arc;

use super::{
    new_vdev::{ClassedVdev, NewVdev, name_features},
    pool::{Labelling, Pool},
    shapes::shapes_of,
    spares::name_spares,
    writing::{NO_VDEV, write_new_label},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{label::Label, vdev_config::VdevConfig},
    size::format_bytes,
    space::VdevShape,
    units::{Guid, Txg, VdevId},
    vdev::{Leaf, Vdev},
};

/// The least number of RAID-Z rows in a region: the remainder behind the last whole row is lost.
const LEAST_ROWS: u64 = 4;

/// Devices that are about to become part of a pool.
pub struct Addition<'a> {
    pool: &'a Pool,
    /// Locked from the first label until the pool has the devices: two additions at once would use the same vdev ids.
    highest: Labelling<'a>,
    /// The label to write.
    label: Label,
    joining: Vec<Arc<dyn Vdev>>,
    /// New spares, which join no vdev.
    spares: Vec<Arc<Leaf>>,
}

impl<'a> Addition<'a> {
    /// Gives the new devices labels older than any of the pool.
    pub(super) fn begin(
        pool: &'a Pool,
        highest: Labelling<'a>,
        classed: Vec<ClassedVdev>,
        spares: &[Arc<dyn Device>],
    ) -> Result<Addition<'a>> {
        let mut label = pool.label();
        classed.iter().try_for_each(ClassedVdev::check)?;
        let (sector, region) = units(&label);
        let classed: Vec<_> = classed.into_iter().map(|classed| classed.in_order(sector, region)).collect();
        let vdevs: Vec<NewVdev> = classed.iter().map(|classed| classed.vdev.clone()).collect();
        // A vdev's id is never reused: chunks that lay on the vdev still have it.
        let highest_yet = pool.engine().storage().space.highest_vdev();
        let added = describe_new(&label, &vdevs, highest_yet, &|| Guid(pool.engine().env().random()))?;
        label.vdevs.extend(added.iter().cloned());
        classed.iter().zip(&added).for_each(|(classed, config)| classed.note_class(config.id, &mut label));
        name_features(&mut label);
        let spares = name_spares(pool, &mut label, spares)?;
        let draft = Label { txg: Txg::ZERO, ..label.clone() };
        for (vdev, config) in vdevs.iter().zip(&added) {
            for (device, leaf) in vdev.devices().iter().zip(config.tree.leaves()) {
                write_new_label(&**device, leaf.guid, config.id, &draft)?;
            }
        }
        spares.iter().try_for_each(|leaf| write_new_label(&*leaf.device(), leaf.guid(), NO_VDEV, &draft))?;
        let joining = vdevs.iter().zip(&added).map(|(vdev, config)| vdev.vdev(&label, config)).collect();
        Ok(Addition { pool, highest, label, joining, spares })
    }

    /// Makes the devices part of the pool, and commits. After an error they may be part of it or not, depending on the
    /// labels written.
    pub fn finish(self) -> Result<()> {
        let Addition { pool, mut highest, label, joining, spares } = self;
        let shapes: Vec<VdevShape> = label.vdevs.iter().flat_map(|config| shapes_of(&label, config)).collect();
        if let Err(error) = pool.replace_labels(&mut highest, label, &joining) {
            // Some labels may now name devices that are not used. If these labels cannot be rewritten here, the next
            // label change does so; until then an import takes the devices as added.
            let _ = pool.replace_labels(&mut highest, pool.label(), &[]);
            return Err(error);
        }
        let storage = pool.engine().storage();
        pool.engine().with_open_txg(|_| {
            for vdev in joining {
                let own = shapes.iter().filter(|shape| shape.vdev == vdev.id());
                storage.vdevs.add(vdev.clone());
                own.for_each(|shape| storage.space.add_vdev(*shape));
            }
        });
        if !spares.is_empty() {
            pool.take_spares(spares);
        }
        // A commit may have to change labels.
        drop(highest);
        pool.engine().settle_log();
        pool.engine().commit()?;
        Ok(())
    }
}

impl Pool {
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
        self.engine().writable()?;
        Addition::begin(self, self.labelling(), vdevs.into_iter().map(Into::into).collect(), spares)
    }

    /// The features that labels will name once these vdevs are added, and do not name yet.
    ///
    /// # Errors
    /// [`Error::Request`] if such a vdev is impossible.
    pub fn features_of(&self, vdevs: &[ClassedVdev]) -> Result<Vec<String>> {
        features_of(&self.label(), vdevs)
    }
}

/// The features that a label with these vdevs would name in addition.
fn features_of(label: &Label, classed: &[ClassedVdev]) -> Result<Vec<String>> {
    classed.iter().try_for_each(ClassedVdev::check)?;
    let (sector, region) = units(label);
    let mut with_them = label.clone();
    for classed in classed.iter().cloned().map(|classed| classed.in_order(sector, region)) {
        with_them.vdevs.push(classed.vdev.describe(VdevId(0), (sector, region), &Guid::default));
        classed.note_class(VdevId(0), &mut with_them);
    }
    name_features(&mut with_them);
    Ok(with_them.features.into_keys().filter(|feature| !label.features.contains_key(feature)).collect())
}

fn describe_new(
    label: &Label,
    vdevs: &[NewVdev],
    highest_yet: Option<VdevId>,
    guid: &dyn Fn() -> Guid,
) -> Result<Vec<VdevConfig>> {
    let region = label.region_size;
    let is_small = |vdev: &&NewVdev| label.size_of(&vdev.describe(VdevId(0), units(label), &Guid::default)) < region;
    if let Some(small) = vdevs.iter().find(is_small) {
        let smallest =
            small.devices().iter().min_by_key(|device| device.size()).map_or("a vdev", |device| device.name());
        return Err(Error::Request(format!(
            "{smallest} is smaller than one region of this pool, {}",
            format_bytes(region)
        )));
    }
    check_regions(label, vdevs)?;
    let highest = label.vdevs.last().map(|vdev| vdev.id).max(highest_yet);
    let first = highest.map_or(Some(0), |highest| highest.0.checked_add(1));
    let range = first.and_then(|first| Some(first..first.checked_add(u32::try_from(vdevs.len()).ok()?)?));
    let ids = range.ok_or_else(|| Error::Request("the pool has reached its maximum number of vdevs".into()))?;
    Ok(ids.zip(vdevs).map(|(id, vdev)| vdev.describe(VdevId(id), units(label), guid)).collect())
}

/// Bytes of a sector and of a region.
fn units(label: &Label) -> (u64, u64) {
    (1 << label.ashift, label.region_size)
}

/// Refuses vdevs whose unit of allocation is so large that the pool's regions have room for hardly any.
pub(super) fn check_regions(label: &Label, vdevs: &[NewVdev]) -> Result<()> {
    let sectors = label.region_size >> label.ashift;
    let unit = |vdev: &NewVdev| u64::from(vdev.describe(VdevId(0), units(label), &Guid::default).tree.unit());
    vdevs.iter().try_for_each(|vdev| check_rows(sectors, unit(vdev), label.region_size))
}

/// Refuses rows of `unit` data sectors if a region of `sectors` sectors, or `region` bytes, holds too few of them.
pub fn check_rows(sectors: u64, unit: u64, region: u64) -> Result<()> {
    match sectors / unit < LEAST_ROWS {
        true => {
            let region = format_bytes(region);
            let problem = format!("the regions of this pool, {region}, are too small for a raidz of this width");
            Err(Error::Request(problem))
        }
        false => Ok(()),
    }
}
