//! Vdevs to create, and the features that they need.

use std::sync::Arc;

use super::shapes;
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{
            ALLOCATION_CLASSES, Compatibility, Label, RAIDZ, RAIDZ_EXPANSION, RAIDZ_SIZES, classes::VdevClass,
            usable_size,
        },
        vdev_config::{
            LeafConfig, MIRROR_MEMBERS, MemberConfig, MirrorConfig, RAIDZ_COLUMNS, RAIDZ_PARITY, RaidZConfig,
            RaidZMember, VdevConfig, VdevTree, Zone,
        },
    },
    units::{Guid, VdevId},
    vdev::{
        Leaf, Member, Mirror, RaidZ, Single, State, Vdev,
        raidz::zones::{in_order, on_sizes},
    },
};

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
                Err(Error::Request("the intent log needs a single device or a mirror, not a raidz".into()))
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

/// A vdev to create or add.
#[derive(Clone)]
pub enum NewVdev {
    /// One device, without redundancy.
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
                let zones = shapes::zones(label, raidz).expect("its shape was checked");
                Arc::new(RaidZ::new(config.id, raidz.guid, zones, least, members))
            }
            tree => {
                let alone = tree.leaves().zip(self.devices()).next().expect("a disk is one device");
                Arc::new(Single::new(config.id, leaf(alone.0, alone.1)))
            }
        }
    }
}
