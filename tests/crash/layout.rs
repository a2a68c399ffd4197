//! What a pool is made of: one device or a mirror of two, as the first lives have it, or many devices in vdevs of any kind.
//!
//! Lives of pools of many devices have seeds of their own, [`MANY`], from which follows the layout: one seed after the other
//! has the next one of [`LAYOUTS`].

use std::{fmt, ops::Range, sync::Arc};

use pool::{
    admin::{ClassedVdev, NewVdev},
    device::Device,
    format::label::classes::VdevClass,
    vdev::labels,
};

/// The seeds of lives of pools of many devices.
pub(crate) const MANY: Range<u64> = 9_000_000..10_000_000;
/// Of so many other lives one is that of a pool that is a mirror.
const MIRRORED: u64 = 3;

/// A vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Disk,
    /// Of so many devices.
    Mirror(usize),
    /// Of this parity, and so many devices.
    RaidZ(u8, usize),
}

impl Kind {
    /// How many devices it is made of.
    pub(crate) fn devices(self) -> usize {
        match self {
            Kind::Disk => 1,
            Kind::Mirror(devices) | Kind::RaidZ(_, devices) => devices,
        }
    }

    /// The vdev of these devices, which are as many.
    pub(crate) fn of(self, mut devices: Vec<Arc<dyn Device>>) -> NewVdev {
        assert_eq!(devices.len(), self.devices(), "each vdev gets its devices");
        match self {
            Kind::Disk => NewVdev::Disk(devices.remove(0)),
            Kind::Mirror(_) => NewVdev::Mirror(devices),
            Kind::RaidZ(parity, _) => NewVdev::RaidZ { parity, devices },
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Disk => write!(f, "disk"),
            Kind::Mirror(devices) => write!(f, "mirror of {devices}"),
            Kind::RaidZ(parity, devices) => write!(f, "raidz{parity} of {devices}"),
        }
    }
}

/// A vdev, and what it is there for if not for everything.
type Part = (Kind, Option<VdevClass>);

/// What pools of many devices are made of.
const LAYOUTS: [&[Part]; 10] = [
    &[(Kind::Mirror(3), None)],
    &[(Kind::RaidZ(1, 3), None)],
    &[(Kind::RaidZ(2, 5), None)],
    &[(Kind::RaidZ(3, 6), None)],
    &[(Kind::Mirror(2), None), (Kind::Mirror(2), None)],
    &[(Kind::RaidZ(1, 3), None), (Kind::RaidZ(1, 3), None)],
    &[(Kind::Disk, None), (Kind::Disk, None), (Kind::Mirror(2), Some(VdevClass::Special))],
    &[(Kind::Mirror(2), None), (Kind::Mirror(2), Some(VdevClass::Log))],
    &[(Kind::RaidZ(1, 3), None), (Kind::Mirror(2), None)],
    &[(Kind::RaidZ(2, 4), None), (Kind::Mirror(3), Some(VdevClass::Special)), (Kind::Disk, Some(VdevClass::Log))],
];

/// A seed of a life of a pool of many devices, from any number.
pub(crate) fn seed_of_many(number: u64) -> u64 {
    MANY.start + number % (MANY.end - MANY.start)
}

/// How many layouts pools of many devices have.
pub(crate) const COUNT: u64 = LAYOUTS.len() as u64;

/// What a pool is made of at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    parts: Vec<Part>,
    /// Whether it is one of many devices.
    pub(crate) is_many: bool,
}

impl Layout {
    /// That of a life. One with a defect that is not about many devices has one device.
    pub(crate) fn of(seed: u64, is_planted: bool) -> Layout {
        if MANY.contains(&seed) {
            let parts = LAYOUTS[(seed % COUNT) as usize].to_vec();
            return Layout { parts, is_many: true };
        }
        let is_mirrored = !is_planted && seed % MIRRORED == 1;
        let kind = if is_mirrored { Kind::Mirror(2) } else { Kind::Disk };
        Layout { parts: vec![(kind, None)], is_many: false }
    }

    /// Whether it is a mirror of two devices, and never anything else.
    pub(crate) fn is_mirrored(&self) -> bool {
        !self.is_many && self.parts[0].0 != Kind::Disk
    }

    /// How many devices it is made of.
    pub(crate) fn devices(&self) -> usize {
        self.parts.iter().map(|(kind, _)| kind.devices()).sum()
    }

    /// The vdevs of these devices.
    pub(crate) fn vdevs(&self, devices: &[Arc<dyn Device>]) -> Vec<ClassedVdev> {
        let mut rest = devices;
        let part = |(kind, class): &Part| {
            let (own, others) = rest.split_at(kind.devices());
            rest = others;
            ClassedVdev { vdev: kind.of(own.to_vec()), class: *class }
        };
        self.parts.iter().map(part).collect()
    }

    /// Those of the devices that an import would take: those that are labelled. Of few devices the first, on which the pool
    /// was made, is taken in any case.
    pub(crate) fn members(&self, devices: Vec<Arc<dyn Device>>) -> Vec<Arc<dyn Device>> {
        let belongs = |device: &dyn Device| matches!(labels::read_label(device), Ok(Some(_)));
        let is_taken = |at: usize, device: &dyn Device| !self.is_many && at == 0 || belongs(device);
        devices
            .into_iter()
            .enumerate()
            .filter(|(at, device)| is_taken(*at, &**device))
            .map(|(_, device)| device)
            .collect()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, class)) in self.parts.iter().enumerate() {
            let class = match class {
                Some(VdevClass::Log) => "log ",
                Some(_) => "special ",
                None => "",
            };
            write!(f, "{}{class}{kind}", if at > 0 { " + " } else { "" })?;
        }
        Ok(())
    }
}
