//! A RAID-Z gets a device more, and its rows become wider, while the pool is in use: see [`crate::vdev::raidz::zones`].
//!
//! The device becomes a column behind the others. The rows that there are have nothing on it, so it lacks nothing, and counts
//! for nothing: what may be lost is what could be lost before. It gets uberblocks with the next commit, as a device that was
//! filled does, and is complete then.
//!
//! Wider rows come where nothing lies: regions are closed and emptied, and when no state needs them any more that one may go
//! back to, the labels give them up and name as many rows with all columns. Before that the devices of these must be complete
//! of which there must be enough; from then on a loss counts by the wider rows. Only after that the space layer has chunks
//! there.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | attaching: before a device of the pool names the new one | the pool without it: its label is older than every other |
//! | attaching: after that, before it has an uberblock | the pool with it; it holds all that lies in its column, which is nothing, and gets the next uberblock |
//! | widening: before a label says so | the regions as they were, and nothing in them |
//! | while labels say so | labels of two ages, of which the newer counts: the same, or as after it |
//! | after that, before the space layer's next commit | the new regions, to which opening gives chunks |
//! | after that commit | the new regions and their chunks |
//!
//! Chunks of regions that were given up keep their rows in the table, as those of a vdev that was removed. A state that has
//! something in them is from before, and is refused.

use std::sync::Arc;

use super::{
    add::check_rows,
    assemble::zones,
    members::config_of,
    open::shapes_of,
    pool::{Pool, name_features, write_new_label},
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, usable_size},
        vdev_config::{Behind, LeafConfig, MemberConfig, RAIDZ_COLUMNS, RaidZConfig, RaidZMember, VdevTree, Zone},
    },
    units::{Guid, Txg, VdevId},
    vdev::{
        Group, Leaf, Member, Single, State, Vdev,
        raidz::zones::{narrow, wide_end, widened, with_column},
    },
};

/// A RAID-Z whose rows do not all have all of its columns that reach there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    /// Which.
    pub vdev: VdevId,
    /// What it is called.
    pub name: String,
    /// How many columns it has.
    pub columns: usize,
    /// The rows that come next: their regions, from the first on, are to be emptied.
    pub narrow: Zone,
    /// How many rows there are that can be as wide as those will be.
    pub rows: u64,
    /// How many come before those.
    pub done: u64,
}

impl Pool {
    /// Gives a RAID-Z that is called so the device as a column more; its rows stay as they are. Commits.
    ///
    /// # Errors
    /// [`Error::Request`] if the device is too small, or the RAID-Z has no room for it, lacks a device, or has rows that do
    /// not have all of its columns yet.
    pub fn attach_column(&self, name: &str, new: Arc<dyn Device>) -> Result<VdevId> {
        self.engine().writable()?;
        let mut highest = self.labelling();
        let vdev = self.find_vdev(name)?;
        let id = vdev.id();
        let (Some(raidz), Some(group)) = (vdev.as_raidz(), vdev.as_group()) else {
            return Err(Error::Request(format!("{name} is no raidz")));
        };
        let mut label = self.label();
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(&mut label, id)?;
        check_attachable(config, group, sector, region)?;
        check_rows(region / sector, config.data_columns() as u64 + 1, region)?;
        let size = config.device_size();
        if usable_size(new.size()) < size {
            let needed = crate::format::label::device_size(size);
            let problem = format!("{} is too small: it has {} bytes, and it takes {needed}", new.name(), new.size());
            return Err(Error::Request(problem));
        }
        let leaf = LeafConfig { guid: Guid(self.engine().env().random()), size, path: new.name().to_owned() };
        let member = MemberConfig { behind: Some(Behind::default()), ..MemberConfig::whole(leaf.clone()) };
        let column = config.columns();
        let outgrown = || Error::Request(format!("{} has no numbers left for regions", group.name()));
        config.zones = with_column(config, sector, region).ok_or_else(outgrown)?;
        config.members.push(RaidZMember { column: column as u32, member: member.clone() });
        let config = config.clone();
        name_features(&mut label);
        let zones = zones(&label, &config)?;
        write_new_label(&*new, leaf.guid, id, &Label { txg: Txg::ZERO, ..label.clone() })?;
        let member = Member::new(Arc::new(Leaf::new(leaf.guid, new)), State::Filled, &member).at_column(column);
        let member = Arc::new(member);
        let alone: Arc<dyn Vdev> = Arc::new(Single::new(id, member.leaf.clone()));
        self.replace_labels(&mut highest, label, &[alone])?;
        raidz.set_zones(zones);
        group.set_members(group.members().iter().cloned().chain([member]).collect());
        // A commit may have to change labels.
        drop(highest);
        self.engine().commit_anyway()?;
        Ok(id)
    }

    /// The first RAID-Z whose rows do not all have all of its columns that reach there.
    pub fn widening(&self) -> Option<Widening> {
        let vdevs = self.engine().storage().vdevs.all();
        let is_narrow = |vdev: &&Arc<dyn Vdev>| vdev.as_raidz().is_some_and(|raidz| raidz.zones().is_narrow());
        let vdev = vdevs.iter().find(is_narrow)?;
        let mut label = self.label();
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(&mut label, vdev.id()).ok()?;
        let narrow = narrow(config, sector, region)?;
        let name = vdev.as_group().map(|group| group.name().to_owned()).unwrap_or_default();
        let (rows, done) = (wide_end(config, sector, region)?, narrow.first_row);
        Some(Widening { vdev: vdev.id(), name, columns: config.columns(), narrow, rows, done })
    }

    /// Gives up the first `count` regions of [`Widening::narrow`], which are empty to every state that one may go back to,
    /// and makes rows of theirs with all columns that reach there. After an error the labels may say it or not, and this may be called again.
    ///
    /// # Errors
    /// [`Error::Request`] if something lies there or too few columns are complete, [`Error::Device`] if a label could not be
    /// written.
    pub fn widen(&self, id: VdevId, count: u32) -> Result<()> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let vdev = storage.vdevs.get(id)?;
        let (Some(raidz), Some(group)) = (vdev.as_raidz(), vdev.as_group()) else {
            return Err(Error::Request(format!("vdev {id} is no raidz")));
        };
        let mut highest = self.labelling();
        let mut label = self.label();
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(&mut label, id)?;
        let outgrown = || Error::Request(format!("{} has no numbers left for regions", group.name()));
        let has_none = || Error::Request(format!("{} has only wide rows", group.name()));
        let given_up = narrow(config, sector, region).ok_or_else(has_none)?;
        let regions = given_up.first_region..given_up.first_region.saturating_add(count);
        if !storage.space.is_unused(id, regions) {
            return Err(Error::Request(format!("something lies in the regions of {} that it gives up", group.name())));
        }
        config.zones = widened(config, count, sector, region).ok_or_else(outgrown)?;
        let config = config.clone();
        let zones = zones(&label, &config)?;
        // What is lost from now on is weighed as if something lay there already.
        if !group.set_quorum(zones.quorum()) {
            let needed = zones.quorum().needed;
            return Err(Error::Request(format!("{} needs {needed} complete devices for wider rows", group.name())));
        }
        let shapes = label.vdevs.iter().find(|config| config.id == id).map(|config| shapes_of(&label, config));
        self.replace_labels(&mut highest, label, &[])?;
        raidz.set_zones(zones);
        self.engine().with_open_txg(|_| storage.space.rezone(id, &shapes.unwrap_or_default()));
        // A commit may have to change labels.
        drop(highest);
        self.engine().commit_anyway()?;
        Ok(())
    }
}

fn raidz_of(label: &mut Label, id: VdevId) -> Result<&mut RaidZConfig> {
    match &mut config_of(label, id)?.tree {
        VdevTree::RaidZ(raidz) => Ok(raidz),
        _ => Err(Error::Request(format!("vdev {id} is no raidz"))),
    }
}

/// Refuses a RAID-Z that cannot have a column more now.
fn check_attachable(config: &RaidZConfig, group: &Group, sector: u64, region: u64) -> Result<()> {
    let name = group.name();
    let refused = |problem: String| Err(Error::Request(problem));
    if config.columns() == RAIDZ_COLUMNS {
        return refused(format!("a raidz has at most {RAIDZ_COLUMNS} devices, and {name} has as many"));
    }
    if narrow(config, sector, region).is_some() {
        return refused(format!("{name} is being expanded; its rows get all of its devices first"));
    }
    let members = group.members();
    if members.len() > config.columns() {
        return refused(format!("a device of {name} is being replaced; wait for its end"));
    }
    match members.iter().find(|member| member.state() != State::Complete) {
        Some(member) => {
            let device = member.leaf.name();
            refused(format!(
                "{name} is degraded: {device} lacks data; it has to be whole before it gets another device"
            ))
        }
        None => Ok(()),
    }
}
