//! Expanding into grown devices: a lengthened image, partition or volume. An open pool expands without a close, and so
//! does a pool opened later.
//!
//! A device's last two labels lie at its end. Growth is first recorded ([`Pool::remeasure`]): the back labels move to
//! the new end (see [`labels::move_back_labels`]), and nothing looks for labels at the old end any more. Opening a pool
//! rewrites all four labels, so in both cases the labels at the new end precede everything here. Then the labels name
//! the new size, and new regions become chunks; their first owner overwrites what is left of the old labels. Only whole
//! regions are taken; existing regions and all addresses in them stay the same. A vdev of several devices grows as far
//! as its smallest device; the excess of the rest stays unused until the smallest has grown too.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while a device's back labels move, or at opening while they are written | the pool as it was: the front labels name the old size |
//! | before a device of the pool names the new size | the pool as it was |
//! | then, before the space layer's next commit | the pool with the new size; opening gives the new regions chunks |
//! | after that commit | the pool with the new space |
//!
//! In the third case labels of two ages may be found, and the newer counts. A rewind to an earlier state finds the
//! regions without chunks, and opening gives them some, as in the third case. A device cut back to its old size
//! afterwards is refused: see [`open`](super::open::open).
//!
//! An expanded RAID-Z gets its new rows in its last zone, or in a zone behind, with all columns. During an expansion it
//! does not grow, because zones are given up from the front and would become too many: see [`lengthened`]. A RAID-Z on
//! devices of different sizes uses what each device has: it gets rows of the columns that go on behind its last zone,
//! and existing rows widen where more devices reach than before, as after an expansion by a column. A RAID-Z on devices
//! of one size stays so, because devices are mostly replaced one after another, and in the end all rows have all
//! columns. Only an explicit request for this vdev uses the excess of its first devices, as if it had been created on
//! them (see [`divided`]); from then on it is a RAID-Z on devices of different sizes. Columns keep their order, because
//! existing rows depend on it; so the excess of later devices stays unused until the devices before have grown as well.
//!
//! The labels that name the new sizes also record the division, so the same holds for power failures: before these
//! labels the RAID-Z has no zones, after them it has a zone of its old regions, with their numbers, and zones behind
//! with new numbers.
//!
//! Each growth may add a zone. Before labels could run out of room for zones while rows widen, the RAID-Z stays as it
//! is, and the administrator is told: see [`Pool::outgrown`].

use std::sync::Arc;

use super::{
    new_vdev::name_features,
    pool::Pool,
    shapes::{shapes_of, zones},
};
use crate::{
    block::storage::Vdevs,
    error::{Error, Result},
    format::{
        label::Label,
        vdev_config::{RaidZConfig, RaidZMember, VdevConfig, VdevTree},
    },
    units::VdevId,
    vdev::{
        Leaf, Vdev, labels,
        raidz::zones::{Zones, divided, is_outgrown, lengthened, regions_when_wide},
    },
};

impl Pool {
    /// Bytes by which the pool would grow with everything that its devices have grown.
    pub fn growth(&self) -> u64 {
        let label = self.label();
        let vdevs = &self.engine().storage().vdevs;
        label.vdevs.iter().filter_map(|config| grown(&label, config, vdevs)).map(|(_, more)| more).sum()
    }

    /// RAID-Zs that cannot use the growth of their devices, because they have grown too often, each with an
    /// explanation.
    pub fn outgrown(&self) -> Vec<(VdevId, String)> {
        let label = self.label();
        let (sector, region) = (1 << label.ashift, label.region_size);
        let vdevs = &self.engine().storage().vdevs;
        let is_outgrown = |config: &&VdevConfig| {
            let VdevTree::RaidZ(before) = &config.tree else { return false };
            vdevs.get(config.id).is_ok_and(|vdev| is_outgrown(before, &sized(before, &*vdev), sector, region))
        };
        let reason = |config: &VdevConfig| {
            let name = vdevs.get(config.id).ok()?.as_group()?.name().to_owned();
            let why = format!(
                "the labels cannot describe further growth of {name}, so added space stays unused; to use it, add another vdev (pool add), then remove {name} (pool remove)"
            );
            Some((config.id, why))
        };
        label.vdevs.iter().filter(is_outgrown).filter_map(reason).collect()
    }

    /// Records devices that have grown since they were opened; returns whether there are any. The new space is not used
    /// yet. A device that cannot be measured keeps its size.
    ///
    /// # Errors
    /// If the pool takes no changes, or labels could not be written.
    pub fn remeasure(&self) -> Result<bool> {
        self.engine().writable()?;
        let vdevs = || self.engine().storage().vdevs.all();
        // A returning device may be larger than before.
        vdevs().iter().filter_map(|vdev| vdev.as_group()).for_each(|group| group.remeasure());
        if grown_leaves(&vdevs(), &self.label()).is_empty() {
            return Ok(false);
        }
        // Commits are paused and labels locked. Another thread may have measured before the locks were taken, so the
        // devices are measured again.
        let mut highest = self.labelling_still();
        let vdevs = vdevs();
        let (mut has_moved, mut failure) = (false, None);
        for (leaf, size) in grown_leaves(&vdevs, &self.label()) {
            match labels::move_back_labels(&*leaf.device(), size) {
                Ok(()) => {
                    leaf.take_size();
                    has_moved = true;
                }
                Err(error) => failure = Some(error),
            }
        }
        if has_moved {
            vdevs.iter().filter_map(|vdev| vdev.as_group()).for_each(|group| group.remeasure());
            let label = self.label();
            self.replace_labels(&mut highest, label, &[])?;
        }
        failure.map_or(Ok(has_moved), Err)
    }

    /// Expands one vdev, or all, into the growth [recorded](Pool::remeasure) of the devices. Returns the bytes gained;
    /// writes nothing if there are none. With `only`, a RAID-Z also uses the excess of its larger devices, if it can.
    ///
    /// # Errors
    /// [`Error::Request`] if there is growth, but labels have no room to describe any of it. If the pool takes no
    /// changes, or a label could not be written: then the new space stays unused.
    pub fn expand(&self, only: Option<VdevId>) -> Result<u64> {
        self.engine().writable()?;
        let mut highest = self.labelling();
        let mut label = self.label();
        let storage = self.engine().storage();
        let (mut shapes, mut sum) = (Vec::new(), 0);
        for at in 0..label.vdevs.len() {
            let id = label.vdevs[at].id;
            if only.is_some_and(|only| only != id) {
                continue;
            }
            let apart = only.and_then(|_| grown_apart(&label, &label.vdevs[at], &storage.vdevs));
            let grown = apart.or_else(|| grown(&label, &label.vdevs[at], &storage.vdevs));
            let Some((config, more)) = grown else { continue };
            shapes.push((storage.vdevs.get(id)?, zones_of(&label, &config)?, shapes_of(&label, &config)));
            label.vdevs[at] = config;
            sum += more;
        }
        if shapes.is_empty() {
            return match self.outgrown().into_iter().find(|(id, _)| only.is_none_or(|only| only == *id)) {
                Some((_, why)) => Err(Error::Request(why)),
                None => Ok(0),
            };
        }
        // A divided RAID-Z needs the feature for devices of different sizes.
        name_features(&mut label);
        self.replace_labels(&mut highest, label, &[])?;
        for (vdev, zones, shapes) in shapes {
            if let (Some(raidz), Some(zones)) = (vdev.as_raidz(), zones) {
                raidz.set_zones(zones);
            }
            self.engine().with_open_txg(|_| shapes.iter().for_each(|&shape| storage.space.add_vdev(shape)));
        }
        // A commit may have to change labels.
        drop(highest);
        self.engine().commit()?;
        Ok(sum)
    }
}

/// Devices larger than recorded, with their sizes. A shrunk device is larger on purpose, and left out.
fn grown_leaves(vdevs: &[Arc<dyn Vdev>], label: &Label) -> Vec<(Arc<Leaf>, u64)> {
    let leaves = vdevs.iter().filter(|vdev| !vdev.is_lost()).flat_map(|vdev| vdev.labelled());
    let leaves = leaves.filter(|leaf| label.end_of(leaf.guid()).is_none());
    leaves.filter_map(|leaf| leaf.grown().ok().flatten().map(|size| (leaf, size))).collect()
}

/// A vdev's configuration after growing, and the bytes of whole regions gained, if any; for a RAID-Z this includes what
/// widening of rows will gain.
fn grown(label: &Label, config: &VdevConfig, vdevs: &Vdevs) -> Option<(VdevConfig, u64)> {
    let (sector, region) = (1 << label.ashift, label.region_size);
    let vdev = vdevs.get(config.id).ok()?;
    let mut grown = config.clone();
    match (&config.tree, &mut grown.tree) {
        (VdevTree::RaidZ(before), VdevTree::RaidZ(raidz)) if !before.zones.is_empty() => {
            *raidz = sized(before, &*vdev);
            raidz.zones = lengthened(before, raidz, sector, region)?;
        }
        (_, tree) => tree.set_device_size(vdev.device_size()),
    }
    more_of(label, config, grown)
}

/// Like [`grown`], for a RAID-Z on devices of one size that is to use the excess of its first devices.
fn grown_apart(label: &Label, config: &VdevConfig, vdevs: &Vdevs) -> Option<(VdevConfig, u64)> {
    let VdevTree::RaidZ(before) = &config.tree else { return None };
    let mut raidz = before.clone();
    take_sizes(&mut raidz, &*vdevs.get(config.id).ok()?);
    raidz.zones = divided(before, &raidz, 1 << label.ashift, label.region_size).filter(|_| !before.is_unequal())?;
    more_of(label, config, VdevConfig { tree: VdevTree::RaidZ(raidz), ..config.clone() })
}

/// A grown vdev, with the bytes of whole regions gained, if any.
fn more_of(label: &Label, config: &VdevConfig, grown: VdevConfig) -> Option<(VdevConfig, u64)> {
    let (sector, region) = (1 << label.ashift, label.region_size);
    let regions = |config: &VdevConfig| match &config.tree {
        VdevTree::RaidZ(raidz) if !raidz.zones.is_empty() => regions_when_wide(raidz, sector, region),
        _ => label.size_of(config) / region,
    };
    let more = regions(&grown).checked_sub(regions(config)).filter(|more| *more > 0)?;
    Some((grown, more * region))
}

/// A RAID-Z with zones, with the current sizes of its devices. Devices of one size stay so.
fn sized(before: &RaidZConfig, vdev: &dyn Vdev) -> RaidZConfig {
    let mut sized = before.clone();
    match before.is_unequal() {
        true => take_sizes(&mut sized, vdev),
        false => sized.members.iter_mut().for_each(|member| member.member.leaf.size = vdev.device_size()),
    }
    sized
}

/// Enters the size of each member's device.
fn take_sizes(raidz: &mut RaidZConfig, vdev: &dyn Vdev) {
    let leaves = vdev.leaves();
    for RaidZMember { member, .. } in &mut raidz.members {
        let own = leaves.iter().find(|leaf| leaf.guid() == member.leaf.guid);
        member.leaf.size = own.map_or(0, |leaf| leaf.size()).max(member.leaf.size);
    }
}

/// The zones of a RAID-Z with several widths.
fn zones_of(label: &Label, config: &VdevConfig) -> Result<Option<Zones>> {
    match &config.tree {
        VdevTree::RaidZ(raidz) if !raidz.zones.is_empty() => zones(label, raidz).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        admin::{
            SAFE_STATES, rewind,
            stamped::{commit, disk, opened, reading, resized, shown, stamped, writing, writing_pool},
            states,
        },
        device::{Device, Fate, Fault, FaultDevice, Operation, Recorder, cuts},
        env::SeededEnv,
        error::ErrorKind,
        format::label::LABEL_SIZE,
        space::Class,
        units::MIB,
    };

    const SIZE: u64 = 64 * MIB;

    fn regions(pool: &crate::admin::Pool) -> u64 {
        pool.engine().space_totals().size / MIB
    }

    #[test]
    fn what_a_device_has_grown_is_used_and_found_again() {
        let (small, newest) = stamped(disk());
        let device: Arc<dyn Device> = Arc::new(resized(&*small, SIZE + 20 * MIB + 7));
        let pool = writing_pool(&device, 2);
        assert_eq!((shown(pool.engine()), regions(&pool), pool.growth()), (newest, 62, 20 * MIB));
        assert_eq!(pool.expand(None).unwrap(), 20 * MIB);
        assert_eq!((regions(&pool), pool.growth(), pool.expand(None).unwrap()), (82, 0, 0));
        // All space can be overwritten, also where the last labels were.
        let storage = pool.engine().storage();
        let fill = |txg| {
            let take = || storage.space.allocate(txg, Class::Data, MIB as u32, 1, &storage.vdevs).ok();
            let taken: Vec<_> = std::iter::from_fn(take).map(|allocation| allocation.addresses[0]).collect();
            for address in &taken {
                let (vdev, offset) = storage.space.resolve(*address, MIB as u32).unwrap();
                storage.vdevs.get(vdev).unwrap().write(offset, &[0xee; MIB as usize]).unwrap();
                storage.space.free(txg, *address, MIB as u32).unwrap();
            }
            taken.len()
        };
        assert!(pool.engine().with_open_txg(fill) > 65);
        let last = commit(&pool, 3);
        drop(pool);
        let again = writing_pool(&device, 3);
        assert_eq!((shown(again.engine()), regions(&again)), (last, 82));
        drop(again);
        let cut: Arc<dyn Device> = Arc::new(resized(&*device, SIZE));
        assert_eq!(opened(&cut, &writing(), 4).err().unwrap().kind(), ErrorKind::Device);
    }

    #[test]
    fn less_than_a_region_is_not_taken() {
        let (small, _) = stamped(disk());
        // The labels leave half a region of the device unused.
        for more in [0, 1, LABEL_SIZE, MIB / 2 - 1] {
            let device: Arc<dyn Device> = Arc::new(resized(&*small, SIZE + more));
            let pool = writing_pool(&device, 2);
            assert_eq!((pool.growth(), pool.expand(None).unwrap(), regions(&pool)), (0, 0, 62));
        }
    }

    #[test]
    fn after_a_crash_the_pool_has_the_old_space_or_the_new() {
        let recorder = Recorder::new();
        let (small, newest) = stamped(disk());
        let device: Arc<dyn Device> = Arc::new(recorder.wrap(resized(&*small, SIZE + 20 * MIB)));
        let pool = writing_pool(&device, 2);
        let begin = recorder.len();
        pool.expand(None).unwrap();
        let expanded = recorder.len();
        let last = commit(&pool, 2);
        drop(pool);
        let mut outcomes = [false; 2];
        for (cut, seed) in cuts(0..=recorder.len(), 4) {
            let image: Arc<dyn Device> = Arc::new(recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0));
            let pool = writing_pool(&image, 7);
            let state = shown(pool.engine());
            assert!((newest..=last).contains(&state), "cut {cut}, seed {seed}: {state}");
            let is_larger = regions(&pool) == 82;
            assert!(is_larger || regions(&pool) == 62 && cut < expanded, "cut {cut}, seed {seed}");
            assert!(!is_larger || cut > begin, "cut {cut}, seed {seed}");
            outcomes[usize::from(is_larger)] = true;
            // The import's outcome lasts, and expanding can be repeated.
            pool.expand(None).unwrap();
            let state = commit(&pool, 1);
            drop(pool);
            let again = writing_pool(&image, 8);
            assert_eq!((shown(again.engine()), regions(&again)), (state, 82), "cut {cut}, seed {seed}");
        }
        assert_eq!(outcomes, [true; 2]);
    }

    #[test]
    fn states_from_before_are_whole_and_get_the_new_space() {
        let (small, _) = stamped(disk());
        let device: Arc<dyn Device> = Arc::new(resized(&*small, SIZE + 20 * MIB));
        let pool = writing_pool(&device, 2);
        let before = pool.engine().committed();
        pool.expand(None).unwrap();
        drop(pool);
        let devices = std::slice::from_ref(&device);
        for state in states(devices, &writing()).unwrap().into_iter().take(SAFE_STATES) {
            assert_eq!(shown(opened(&device, &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
        }
        rewind(devices, before, &writing(), &SeededEnv::new(4)).unwrap();
        let pool = writing_pool(&device, 5);
        assert_eq!((shown(pool.engine()), regions(&pool)), (before, 82));
    }

    #[test]
    fn labels_that_cannot_be_written_leave_the_pool_as_it_was() {
        let (small, _) = stamped(disk());
        let faulty = Arc::new(FaultDevice::new(Arc::new(resized(&*small, SIZE + 20 * MIB))));
        let device: Arc<dyn Device> = faulty.clone();
        let pool = writing_pool(&device, 2);
        faulty.inject(Fault::failing(Operation::Write));
        assert_eq!(pool.expand(None).unwrap_err().kind(), ErrorKind::Device);
        faulty.heal();
        assert_eq!((regions(&pool), pool.growth()), (62, 20 * MIB));
        assert_eq!(pool.expand(None).unwrap(), 20 * MIB);
        assert_eq!(regions(&pool), 82);
    }
}
