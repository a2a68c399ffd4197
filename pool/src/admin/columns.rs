//! Expanding a RAID-Z by a device and widening its rows, while the pool is in use: see [`crate::vdev::raidz::zones`].
//!
//! The device becomes a column behind the existing ones. Existing rows have nothing on it, so it lacks nothing, and
//! does not count: the redundancy is unchanged. It gets uberblocks with the next commit, like a resilvered device, and
//! is complete then.
//!
//! Wider rows take the place of emptied regions. Regions are closed and emptied. When no state to rewind to needs them
//! any more, labels give them up and name wide rows in their place. Before that, enough devices of the wide rows must
//! be complete; from then on the redundancy is judged by the wide rows. Only afterwards does the space layer have
//! chunks there.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | attaching: before a device of the pool names the new one | the pool without it: its label is older than any in the pool |
//! | attaching: then, before it has an uberblock | the pool with it; it holds all of its column, which is nothing, and gets the next uberblock |
//! | widening: before a label says so | the regions as they were, and nothing in them |
//! | while labels say so | labels of two ages; the newer counts: the same, or as after it |
//! | then, before the space layer's next commit | the new regions, to which opening gives chunks |
//! | after that commit | the new regions and their chunks |
//!
//! Chunks of given-up regions keep their rows in the chunk table, like chunks of a removed vdev. A state with data in
//! them is older, and refused.

use std::sync::Arc;

use super::{
    add::check_rows,
    members::config_of,
    new_vdev::name_features,
    pool::Pool,
    shapes::{shapes_of, zones},
    writing::write_new_label,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{Label, usable_size},
        vdev_config::{Behind, LeafConfig, MemberConfig, RAIDZ_COLUMNS, RaidZConfig, RaidZMember, VdevTree, Zone},
    },
    size::format_apart,
    units::{Guid, Txg, VdevId},
    vdev::{
        Group, Leaf, Member, Single, State, Vdev,
        raidz::zones::{narrow, space_on, wide_end, widened, with_column},
    },
};

/// A RAID-Z with rows that could have more columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    /// Position of the RAID-Z in the pool.
    pub vdev: VdevId,
    /// The vdev's name, as status shows it.
    pub name: String,
    /// The number of columns.
    pub columns: usize,
    /// The next regions to widen, emptied from the first on.
    pub narrow: Zone,
    /// Rows that can become as wide as these.
    pub rows: u64,
    /// Rows before these, already wide.
    pub done: u64,
}

impl Pool {
    /// Adds the device as a column to the RAID-Z of this name; existing rows stay as they are. Commits.
    ///
    /// # Errors
    /// [`Error::Request`] if the device is too small, or the RAID-Z has no room for another column, lacks a device, or
    /// is still being expanded.
    pub fn attach_column(&self, name: &str, new: Arc<dyn Device>) -> Result<VdevId> {
        self.engine().writable()?;
        let mut highest = self.labelling();
        let mut label = self.label();
        let vdev = self.describe_column(&mut label, name, &*new)?;
        let id = vdev.id();
        let (Some(raidz), Some(group)) = (vdev.as_raidz(), vdev.as_group()) else { return Err(not_raidz(name)) };
        let config = raidz_of(&mut label, id)?.clone();
        let RaidZMember { column, member } = config.members.last().expect("the new column is the last").clone();
        let leaf = member.leaf.clone();
        let zones = zones(&label, &config)?;
        write_new_label(&*new, leaf.guid, id, &Label { txg: Txg::ZERO, ..label.clone() })?;
        let member =
            Member::new(Arc::new(Leaf::new(leaf.guid, new)), State::Resilvered, &member).at_column(column as usize);
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

    /// Checks whether [`Pool::attach_column`] would add a device of this name and size; changes nothing. Returns the
    /// bytes that the RAID-Z gains once all rows are wide.
    ///
    /// # Errors
    /// As [`Pool::attach_column`].
    pub fn check_attach_column(&self, name: &str, new: &dyn Device) -> Result<u64> {
        self.engine().writable()?;
        let mut label = self.label();
        let vdev = self.describe_column(&mut label, name, new)?;
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(&mut label, vdev.id())?;
        let space = |columns| space_on(vec![config.device_size(); columns], config.parity, sector, region);
        Ok(space(config.columns()).saturating_sub(space(config.columns() - 1)))
    }

    /// Adds the device to the description of a RAID-Z, as its last column. Returns the vdev.
    fn describe_column(&self, label: &mut Label, name: &str, new: &dyn Device) -> Result<Arc<dyn Vdev>> {
        let vdev = self.find_vdev(name)?;
        let (Some(_), Some(group)) = (vdev.as_raidz(), vdev.as_group()) else { return Err(not_raidz(name)) };
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(label, vdev.id())?;
        check_attachable(config, group, sector, region)?;
        check_rows(region / sector, config.data_columns() as u64 + 1, region)?;
        let size = config.device_size();
        if usable_size(new.size()) < size {
            let (size, needed) = format_apart(new.size(), crate::format::label::device_size(size));
            let problem = format!("{} is too small: {size}, at least {needed} needed", new.name());
            return Err(Error::Request(problem));
        }
        let leaf = LeafConfig { guid: Guid(self.engine().env().random()), size, path: new.name().to_owned() };
        let member = MemberConfig { behind: Some(Behind::default()), ..MemberConfig::whole(leaf) };
        let column = config.columns();
        let outgrown = || Error::Request(format!("{} has reached its maximum number of regions", group.name()));
        config.zones = with_column(config, sector, region).ok_or_else(outgrown)?;
        config.members.push(RaidZMember { column: column as u32, member });
        name_features(label);
        Ok(vdev)
    }

    /// The first RAID-Z with rows that could have more columns.
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

    /// Gives up the first `count` regions of [`Widening::narrow`], which must be empty in every state to rewind to, and
    /// makes wide rows of them. After an error labels may or may not record the new rows, and the call may be repeated.
    ///
    /// # Errors
    /// [`Error::Request`] if data lies there or too few columns are complete, [`Error::Device`] if a label could not be
    /// written.
    pub fn widen(&self, id: VdevId, count: u32) -> Result<()> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let vdev = storage.vdevs.get(id)?;
        let (Some(raidz), Some(group)) = (vdev.as_raidz(), vdev.as_group()) else {
            return Err(Error::Request(format!("vdev {id} is not a raidz")));
        };
        let mut highest = self.labelling();
        let mut label = self.label();
        let (sector, region) = (1 << label.ashift, label.region_size);
        let config = raidz_of(&mut label, id)?;
        let outgrown = || Error::Request(format!("{} has reached its maximum number of regions", group.name()));
        let has_none = || Error::Request(format!("{} has only wide rows", group.name()));
        let given_up = narrow(config, sector, region).ok_or_else(has_none)?;
        let regions = given_up.first_region..given_up.first_region.saturating_add(count);
        if !storage.space.is_unused(id, regions) {
            return Err(Error::Request(format!("something lies in the regions of {} that it gives up", group.name())));
        }
        config.zones = widened(config, count, sector, region).ok_or_else(outgrown)?;
        let config = config.clone();
        let zones = zones(&label, &config)?;
        // From now on a loss is judged as if the wide rows held data.
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

fn not_raidz(name: &str) -> Error {
    Error::Request(format!("{name} is not a raidz"))
}

fn raidz_of(label: &mut Label, id: VdevId) -> Result<&mut RaidZConfig> {
    match &mut config_of(label, id)?.tree {
        VdevTree::RaidZ(raidz) => Ok(raidz),
        _ => Err(Error::Request(format!("vdev {id} is not a raidz"))),
    }
}

/// Refuses a RAID-Z that cannot have another column now.
fn check_attachable(config: &RaidZConfig, group: &Group, sector: u64, region: u64) -> Result<()> {
    let name = group.name();
    let refused = |problem: String| Err(Error::Request(problem));
    if config.columns() == RAIDZ_COLUMNS {
        return refused(format!("a raidz has at most {RAIDZ_COLUMNS} devices, and {name} already has {RAIDZ_COLUMNS}"));
    }
    if narrow(config, sector, region).is_some() {
        return refused(format!("{name} is being expanded; wait until the expansion finishes"));
    }
    let members = group.members();
    if members.len() > config.columns() {
        return refused(format!("a device of {name} is being replaced; wait until the replacement finishes"));
    }
    match members.iter().find(|member| member.state() != State::Complete) {
        Some(member) => {
            let device = member.leaf.name();
            refused(format!(
                "{name} is degraded: {device} lacks data; wait for its resilver before attaching another device"
            ))
        }
        None => Ok(()),
    }
}
