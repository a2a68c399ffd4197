//! The vdevs of a pool: one device or a mirror of two in the plain lives, or many devices in vdevs of any kind.
//!
//! Lives of pools of many devices have seeds of their own, [`MANY`]. The seed determines the layout: successive seeds
//! take successive [`LAYOUTS`], with the job that moves chunks ([`Moves`]), and with the spares and cache devices
//! ([`Beside`]). The first round has the combinations listed, so every change runs them all; later rounds rotate the
//! jobs and the additional devices. In three of four of these lives devices have different sizes.

use std::{fmt, ops::Range, sync::Arc};

use pool::{
    admin::{ClassedVdev, NewVdev},
    device::Device,
    format::label::classes::VdevClass,
    units::MIB,
    vdev::labels,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::world::DEVICE_SIZE;

/// The seeds of lives of pools of many devices.
pub(crate) const MANY: Range<u64> = 9_000_000..10_000_000;
/// One of so many plain lives has a mirror.
const MIRRORED: u64 = 3;
/// The possible sizes of different devices, in bytes.
pub(crate) const SIZES: [u64; 4] = [DEVICE_SIZE, 72 * MIB, 80 * MIB, 96 * MIB];
/// One of so many lives of pools of many devices has devices of equal size.
const ALIKE: u64 = 4;

/// A vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Disk,
    /// The number of devices.
    Mirror(usize),
    /// Parity, and the number of devices.
    RaidZ(u8, usize),
}

impl Kind {
    /// The number of devices in the vdev.
    pub(crate) fn devices(self) -> usize {
        match self {
            Kind::Disk => 1,
            Kind::Mirror(devices) | Kind::RaidZ(_, devices) => devices,
        }
    }

    /// The vdev of these devices, exactly as many as needed.
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

/// A vdev, with its class if it is not a regular vdev.
type Part = (Kind, Option<VdevClass>);

/// The job that moves chunks, started early in a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    /// A vdev is added after much was written, and the pool is rebalanced.
    Rebalance,
    /// A RAID-Z is expanded by a device. Without a RAID-Z, the pool is rebalanced.
    Expansion,
    /// More than half of the written data is deleted, and the pool is defragmented.
    Defragment,
    /// A vdev is removed. With only one vdev, the pool is rebalanced.
    Removal,
    /// The devices of a vdev with data at its end are shrunk. In a pool of RAID-Zs only, the pool is rebalanced.
    Shrink,
}

const MOVES: [Moves; 5] = [Moves::Rebalance, Moves::Expansion, Moves::Defragment, Moves::Removal, Moves::Shrink];

/// The number of devices outside the vdevs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) spares: usize,
    pub(crate) caches: usize,
}

const NOTHING: Beside = Beside { spares: 0, caches: 0 };
const SPARE: Beside = Beside { spares: 1, caches: 0 };
const CACHE: Beside = Beside { spares: 0, caches: 1 };
const BOTH: Beside = Beside { spares: 1, caches: 1 };
const BESIDE: [Beside; 4] = [NOTHING, SPARE, CACHE, BOTH];

/// The vdevs of pools of many devices, with jobs and additional devices of the first round.
const LAYOUTS: [(&[Part], Moves, Beside); 10] = [
    (&[(Kind::Mirror(3), None)], Moves::Rebalance, SPARE),
    (&[(Kind::RaidZ(1, 3), None)], Moves::Expansion, CACHE),
    (&[(Kind::RaidZ(2, 5), None)], Moves::Expansion, SPARE),
    (&[(Kind::RaidZ(3, 6), None)], Moves::Defragment, CACHE),
    (&[(Kind::Mirror(2), None), (Kind::Mirror(2), None)], Moves::Defragment, SPARE),
    (&[(Kind::RaidZ(1, 3), None), (Kind::RaidZ(1, 3), None)], Moves::Rebalance, BOTH),
    (&[(Kind::Disk, None), (Kind::Disk, None), (Kind::Mirror(2), Some(VdevClass::Special))], Moves::Removal, CACHE),
    (&[(Kind::Mirror(2), None), (Kind::Mirror(2), Some(VdevClass::Log))], Moves::Shrink, NOTHING),
    (&[(Kind::RaidZ(1, 3), None), (Kind::Mirror(2), None)], Moves::Removal, SPARE),
    (
        &[(Kind::RaidZ(2, 4), None), (Kind::Mirror(3), Some(VdevClass::Special)), (Kind::Disk, Some(VdevClass::Log))],
        Moves::Expansion,
        BOTH,
    ),
];

impl Moves {
    /// The same job, or a rebalance if these vdevs do not support the job.
    fn fitting(self, parts: &[Part]) -> Moves {
        let regular = parts.iter().filter(|(_, class)| class.is_none());
        match self {
            Moves::Expansion if !parts.iter().any(|(kind, _)| matches!(kind, Kind::RaidZ(..))) => Moves::Rebalance,
            Moves::Removal if regular.count() == 1 => Moves::Rebalance,
            Moves::Shrink if parts.iter().all(|(kind, _)| matches!(kind, Kind::RaidZ(..))) => Moves::Rebalance,
            fitting => fitting,
        }
    }
}

/// The number of devices in these vdevs.
fn devices_of(parts: &[Part]) -> usize {
    parts.iter().map(|(kind, _)| kind.devices()).sum()
}

/// The element `after` places behind `first`, cyclically.
fn next<T: Copy + PartialEq>(all: &[T], first: T, after: usize) -> T {
    let at = all.iter().position(|one| *one == first).expect("it is one of all");
    all[(at + after) % all.len()]
}

/// The seed of a life of a pool of many devices, from any number.
pub(crate) fn seed_of_many(number: u64) -> u64 {
    MANY.start + number % (MANY.end - MANY.start)
}

/// The number of layouts of pools of many devices.
pub(crate) const COUNT: u64 = LAYOUTS.len() as u64;

/// The initial layout of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    parts: Vec<Part>,
    /// Whether the layout is one of [`LAYOUTS`].
    pub(crate) is_many: bool,
    /// The job that moves chunks, for many devices.
    pub(crate) moves: Option<Moves>,
    /// The spares and cache devices.
    pub(crate) beside: Beside,
    /// Whether the last spare put in stays for good.
    pub(crate) has_spares_stay: bool,
    /// The sizes of its devices, in bytes.
    pub(crate) sizes: Vec<u64>,
    /// Whether devices have different sizes, later devices too.
    pub(crate) is_unequal: bool,
    /// Whether freed space is trimmed automatically.
    pub(crate) is_trimmed: bool,
}

impl Layout {
    /// The layout of a life. With a planted defect that does not concern many devices, one device.
    pub(crate) fn of(seed: u64, is_planted: bool) -> Layout {
        if MANY.contains(&seed) {
            let (parts, moves, beside) = LAYOUTS[(seed % COUNT) as usize];
            let round = ((seed - MANY.start) / COUNT) as usize;
            let moves = next(&MOVES, moves, round);
            let beside = next(&BESIDE, beside, round / MOVES.len());
            let (parts, moves) = (parts.to_vec(), moves.fitting(parts));
            let mut random = StdRng::seed_from_u64(seed);
            let is_unequal = random.random_range(0..ALIKE) > 0 || moves == Moves::Shrink;
            // No device is shrunk below the smallest allowed size.
            let sizes = if moves == Moves::Shrink { &SIZES[1..] } else { &SIZES };
            let mut size = || if is_unequal { sizes[random.random_range(0..sizes.len())] } else { DEVICE_SIZE };
            let sizes = (0..devices_of(&parts)).map(|_| size()).collect();
            let (has_spares_stay, is_trimmed) = (seed.is_multiple_of(3), random.random_range(0..2) == 0);
            return Layout {
                parts,
                is_many: true,
                moves: Some(moves),
                beside,
                has_spares_stay,
                sizes,
                is_unequal,
                is_trimmed,
            };
        }
        let is_mirrored = !is_planted && seed % MIRRORED == 1;
        let kind = if is_mirrored { Kind::Mirror(2) } else { Kind::Disk };
        Layout {
            parts: vec![(kind, None)],
            is_many: false,
            moves: None,
            beside: NOTHING,
            has_spares_stay: false,
            sizes: vec![DEVICE_SIZE; kind.devices()],
            is_unequal: false,
            is_trimmed: false,
        }
    }

    /// Whether the pool is a mirror of two devices for all its life.
    pub(crate) fn is_mirrored(&self) -> bool {
        !self.is_many && self.parts[0].0 != Kind::Disk
    }

    /// A vdev to add whose chunks may swap places with existing chunks.
    pub(crate) fn peer(&self) -> Kind {
        match self.parts[0].0 {
            Kind::Disk | Kind::Mirror(2) => Kind::Disk,
            Kind::Mirror(_) => Kind::Mirror(2),
            raidz => raidz,
        }
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

    /// The devices that an import would take: those with labels. With few devices the first, on which the pool was
    /// made, is taken in any case.
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
        if self.is_unequal {
            write!(f, " of {:?} MiB", self.sizes.iter().map(|size| size / MIB).collect::<Vec<_>>())?;
        }
        let Beside { spares, caches } = self.beside;
        let beside = [(spares, "spare"), (caches, "cache")];
        beside.into_iter().filter(|(count, _)| *count > 0).try_for_each(|(count, what)| write!(f, " + {count} {what}"))
    }
}
