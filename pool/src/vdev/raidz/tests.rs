//! RAID-Z on devices that fail, return wrong bytes or vanish: any combination within the parity.

mod meanwhile;
mod members;

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    geometry::Geometry,
    zones::{widened, with_column},
    *,
};
use crate::{
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation},
    env::noise,
    format::{
        label::{DATA_START, device_size},
        vdev_config::{Behind, LeafConfig, MemberConfig, RaidZConfig, RaidZMember},
    },
    units::{KIB, MIB, Txg},
    vdev::{Health, Leaf, Vdev},
};

const SECTOR: u64 = 512;
const REGION: u64 = 256 * KIB;

/// A RAID-Z, and its devices.
struct World {
    raidz: Arc<RaidZ>,
    devices: Vec<Arc<FaultDevice>>,
}

fn device(n: u64) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(format!("disk{n}"), device_size(MIB)))))
}

fn member(n: u64, column: usize, device: &Arc<FaultDevice>, state: State) -> Arc<Member> {
    let leaf = Arc::new(Leaf::new(Guid(n), device.clone()));
    let config = LeafConfig { guid: Guid(n), size: leaf.size(), path: format!("disk{n}") };
    Arc::new(Member::new(leaf, state, &MemberConfig::whole(config)).at_column(column))
}

impl World {
    fn new(columns: usize, parity: usize) -> World {
        let geometry = Geometry::new(columns, parity, SECTOR, REGION).unwrap();
        let devices: Vec<Arc<FaultDevice>> = (0..columns as u64).map(device).collect();
        let members = (0..).zip(&devices).map(|(n, device)| member(n, n as usize, device, State::Complete)).collect();
        let raidz = RaidZ::new(VdevId(0), Guid(99), Zones::whole(geometry), MIB, members);
        World { raidz: Arc::new(raidz), devices }
    }

    /// An expanded RAID-Z: its first rows have the new column, the rest do not.
    fn widened(columns: usize, parity: usize) -> World {
        let devices: Vec<Arc<FaultDevice>> = (0..=columns as u64).map(device).collect();
        let members = (0..).zip(&devices).map(|(n, device)| member(n, n as usize, device, State::Complete)).collect();
        let config = |column: usize| {
            let leaf = LeafConfig { guid: Guid(column as u64), size: MIB, path: String::new() };
            RaidZMember { column: column as u32, member: MemberConfig::whole(leaf) }
        };
        let mut raidz = RaidZConfig {
            guid: Guid(99),
            parity: parity as u8,
            members: (0..columns).map(config).collect(),
            zones: Vec::new(),
        };
        raidz.zones = with_column(&raidz, SECTOR, REGION).unwrap();
        raidz.members.push(config(columns));
        raidz.zones = widened(&raidz, 2, SECTOR, REGION).unwrap();
        let zones = Zones::of(&raidz, SECTOR, REGION).unwrap();
        World { raidz: Arc::new(RaidZ::new(VdevId(0), Guid(99), zones, MIB, members)), devices }
    }

    /// Adds a second, complete member to the first column.
    fn twin(&self) -> Arc<FaultDevice> {
        let twin = device(7);
        let members =
            self.raidz.group.members().iter().cloned().chain([member(7, 0, &twin, State::Complete)]).collect();
        self.raidz.group.set_members(members);
        twin
    }

    fn row(&self) -> u64 {
        self.raidz.rows_of(0, 1).unwrap().shape.row_size()
    }

    /// Writes noise over a device's part of a block's rows.
    fn spoil(&self, device: usize, offset: u64, len: usize) {
        let rows = self.raidz.rows_of(offset, len as u64).unwrap();
        if device >= rows.shape.columns() {
            return;
        }
        let at = DATA_START + rows.place();
        let len = (rows.count * SECTOR) as usize;
        self.devices[device].write_at(at, &noise(1000 + device as u64, len)).unwrap();
    }

    fn states(&self) -> Vec<State> {
        self.raidz.group.members().iter().map(|member| member.state()).collect()
    }

    fn checksum_errors(&self) -> Vec<u64> {
        self.raidz.leaves().iter().map(|leaf| leaf.counters().snapshot().checksum_errors).collect()
    }

    fn examined(&self, offset: u64, bytes: &[u8]) -> (bool, Vec<Guid>) {
        let examined = self.raidz.examine_surely(offset, bytes.len(), &|read| read == bytes);
        assert!(examined.good.as_ref().is_none_or(|good| good == bytes));
        (examined.good.is_some(), examined.bad.into_iter().map(|(source, _)| source).collect())
    }
}

/// Whether a bulk read returns the expected bytes.
fn begun(raidz: &Arc<RaidZ>, offset: u64, expected: &[u8], sources: Sources) -> bool {
    let bytes = raidz.clone().begin(offset, expected.len(), sources)(&|read| read == expected);
    assert!(bytes.as_ref().is_none_or(|bytes| bytes == expected));
    bytes.is_some()
}

/// All sets of at most `most` of `count` devices.
fn sets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let all = 0..1u32 << count;
    let some = all.filter(|set| set.count_ones() as usize <= most);
    some.map(|set| (0..count).filter(|at| set & 1 << at != 0).collect()).collect()
}

/// The shapes for tests that try every combination of devices.
fn shapes() -> impl Iterator<Item = (usize, usize)> {
    (1..=3).flat_map(|parity| (parity + 1..=8).map(move |columns| (columns, parity)))
}

#[test]
fn everything_is_read_whichever_devices_vanish_within_parity() {
    for (columns, parity) in shapes() {
        for lost in sets(columns, parity) {
            let world = World::new(columns, parity);
            let block = noise(1, 61 * world.row() as usize - 100);
            let at = 5 * world.row();
            world.raidz.write(at, &block).unwrap();
            lost.iter().for_each(|device| world.devices[*device].vanish());
            let mut read = vec![0; block.len()];
            let found = world.raidz.read_checked(at, &mut read, &|read| read == block).unwrap();
            assert!(read == block && found != Found::Bad, "{lost:?} of {columns}-{parity}");
            // Pieces are readable too, and writes made now.
            world.raidz.write(at + 62 * world.row(), &block[..900]).unwrap();
            world.raidz.flush().unwrap();
            let mut piece = vec![0; 900];
            world.raidz.read(at + 62 * world.row(), &mut piece).unwrap();
            assert!(piece == block[..900]);
            world.raidz.read(at + 1024, &mut piece).unwrap();
            assert!(piece == block[1024..1924]);
            let expected = (0..columns).map(|at| if lost.contains(&at) { State::Out } else { State::Complete });
            assert_eq!(world.states(), expected.collect::<Vec<_>>());
            assert_eq!(world.raidz.news().is_some(), !lost.is_empty(), "the labels have to be told");
            assert_eq!(world.examined(at, &block), (true, vec![]), "who is not there is not bad");
            let pass = [Sources::Any, Sources::All].map(|sources| begun(&world.raidz, at, &block, sources));
            assert_eq!(pass, [true; 2], "{lost:?} of {columns}-{parity}");
        }
    }
}

#[test]
fn whichever_devices_lie_are_found_counted_and_repaired() {
    for (columns, parity) in shapes() {
        for liars in sets(columns, parity).into_iter().filter(|liars| !liars.is_empty()) {
            let world = World::new(columns, parity);
            // The last row is partial, and the rows lie in two bands.
            let block = noise(2, (3 * world.row() - SECTOR / 2) as usize);
            let (at, beside) = (62 * world.row(), 65 * world.row());
            world.raidz.write(at, &block).unwrap();
            world.raidz.write(beside, &block).unwrap();
            liars.iter().for_each(|device| world.spoil(*device, at, block.len()));
            let mut read = vec![0; block.len()];
            let found = world.raidz.read_checked(at, &mut read, &|read| read == block).unwrap();
            assert!(read == block, "{liars:?} of {columns}-{parity}");
            let counted: Vec<usize> = (0..columns).filter(|at| world.checksum_errors()[*at] > 0).collect();
            assert!(
                counted.iter().all(|device| liars.contains(device)),
                "{counted:?} of {liars:?}, {columns}-{parity}"
            );
            assert_eq!(found == Found::Good, counted.is_empty(), "who has given nothing is not asked");
            assert_eq!(
                begun(&world.raidz, at, &block, Sources::Any),
                counted.is_empty(),
                "{liars:?}, {columns}-{parity}"
            );
            assert!(!begun(&world.raidz, at, &block, Sources::All), "{liars:?}, {columns}-{parity}");
            let guids: Vec<Guid> = liars.iter().map(|device| Guid(*device as u64)).collect();
            assert_eq!(world.examined(at, &block), (true, guids.clone()), "{columns}-{parity}");
            let before: Vec<u64> = world.raidz.leaves().iter().map(|leaf| leaf.counters().snapshot().writes).collect();
            guids.iter().for_each(|bad| world.raidz.repair(*bad, at, &Arc::new(block.clone())).unwrap());
            for (n, leaf) in world.raidz.leaves().iter().enumerate() {
                let written = leaf.counters().snapshot().writes - before[n];
                assert_eq!(written, u64::from(liars.contains(&n)), "only who is bad is written to");
            }
            assert_eq!(world.examined(at, &block), (true, vec![]));
            assert_eq!(world.examined(beside, &block), (true, vec![]), "the neighbour is as it was");
        }
    }
}

#[test]
fn rows_of_two_widths_are_read_and_repaired() {
    for (columns, parity) in shapes().filter(|(columns, _)| *columns < 7) {
        for some in sets(columns + 1, parity) {
            let world = World::widened(columns, parity);
            let zones = world.raidz.zones();
            // The last region of each width: one row and a part of the next, and the whole region.
            let regions: Vec<u64> = (0..world.raidz.size() / REGION).collect();
            let last = |width: usize| {
                let has =
                    |region: &&u64| zones.rows(*region * REGION, 1).is_some_and(|rows| rows.shape.columns() == width);
                *regions.iter().rev().find(has).unwrap()
            };
            let lens = [61 * (columns - parity) * SECTOR as usize - 100, REGION as usize];
            let blocks: Vec<(u64, Vec<u8>)> = [last(columns), last(columns + 1)]
                .into_iter()
                .zip(lens.iter().cycle().skip(some.len() % 2))
                .map(|(region, len)| (region * REGION, noise(region, *len)))
                .collect();
            let what = format!("{some:?} of {columns} and one, parity {parity}");
            for (at, block) in &blocks {
                world.raidz.write(*at, block).unwrap();
            }
            some.iter().for_each(|device| {
                blocks
                    .iter()
                    .filter(|_| device % 2 == 1)
                    .for_each(|(at, block)| world.spoil(*device, *at, block.len()));
            });
            some.iter().filter(|device| *device % 2 == 0).for_each(|device| world.devices[*device].vanish());
            world.raidz.flush().unwrap();
            for (at, block) in &blocks {
                let mut read = vec![0; block.len()];
                let found = world.raidz.read_checked(*at, &mut read, &|read| read == *block).unwrap();
                assert!(read == *block && found != Found::Bad, "{what}");
                let (is_good, bad) = world.examined(*at, block);
                assert!(is_good, "{what}");
                bad.iter().for_each(|bad| world.raidz.repair(*bad, *at, &Arc::new(block.clone())).unwrap());
                assert_eq!(world.examined(*at, block), (true, vec![]), "{what}");
            }
            assert!(world.raidz.read(0, &mut [0; 512]).is_err(), "a region that was given up");
        }
    }
}

#[test]
fn some_devices_refuse_and_others_lie() {
    for (columns, parity) in shapes().filter(|(_, parity)| *parity > 1) {
        for both in sets(columns, parity).into_iter().filter(|both| both.len() > 1) {
            let (refuses, liars) = both.split_first().unwrap();
            let world = World::new(columns, parity);
            let block = noise(3, 4 * world.row() as usize);
            world.raidz.write(0, &block).unwrap();
            liars.iter().for_each(|device| world.spoil(*device, 0, block.len()));
            let sectors = DATA_START..DATA_START + 4 * SECTOR;
            world.devices[*refuses].inject(Fault { range: sectors, ..Fault::failing(Operation::Read) });
            let mut read = vec![0; block.len()];
            let found = world.raidz.read_checked(0, &mut read, &|read| read == block).unwrap();
            assert!(read == block && found != Found::Bad, "{both:?} of {columns}-{parity}");
            let guids: Vec<Guid> = both.iter().map(|device| Guid(*device as u64)).collect();
            assert_eq!(world.examined(0, &block), (true, guids));
            assert_eq!(world.states(), vec![State::Complete; columns], "bad sectors are no lost device");
        }
    }
}

#[test]
fn a_loss_beyond_parity_is_an_error() {
    for (columns, parity) in shapes() {
        for gone in sets(columns, parity + 1).into_iter().filter(|gone| gone.len() == parity + 1) {
            let world = World::new(columns, parity);
            let block = noise(4, 3 * world.row() as usize);
            let at = 62 * world.row();
            world.raidz.write(at, &block).unwrap();
            gone.iter().for_each(|device| world.spoil(*device, at, block.len()));
            let mut read = vec![0; block.len()];
            let found = world.raidz.read_checked(at, &mut read, &|read| read == block).unwrap();
            assert_eq!(found, Found::Bad, "{gone:?} of {columns}-{parity}");
            let (is_good, bad) = world.examined(at, &block);
            assert!(!is_good && bad.len() == columns, "nobody knows who is wrong: {bad:?}");
            gone.iter().for_each(|device| world.devices[*device].vanish());
            assert!(world.raidz.read(at, &mut read).is_err());
            assert!(world.raidz.write(at, &block).is_err());
            let complete = world.states().iter().filter(|state| **state == State::Complete).count();
            assert_eq!(complete, columns - parity, "as many as are needed are never faulted");
        }
    }
}

#[test]
fn a_block_that_was_written_as_it_is_is_suspected_of_nothing() {
    let world = World::new(8, 3);
    let block = noise(5, 10 * world.row() as usize);
    world.raidz.write(0, &block).unwrap();
    let reads = |world: &World| world.raidz.leaves().iter().map(|leaf| leaf.counters().snapshot().reads).sum::<u64>();
    let asked = std::cell::Cell::new(0);
    let never = |_: &[u8]| {
        asked.set(asked.get() + 1);
        false
    };
    let before = reads(&world);
    assert_eq!(world.raidz.read_checked(0, &mut vec![0; block.len()], &never).unwrap(), Found::Bad);
    assert_eq!((asked.get(), reads(&world) - before), (2, 5 + 8), "its data once, and all columns once");
}

#[test]
fn what_is_asked_for_is_read_of_the_devices_that_hold_it_alone() {
    let world = World::new(6, 2);
    let block = noise(6, 4 * world.row() as usize);
    world.raidz.write(0, &block).unwrap();
    let counts =
        |world: &World| world.raidz.leaves().iter().map(|leaf| leaf.counters().snapshot().read_bytes).collect();
    let mut sector = vec![0; SECTOR as usize];
    world.raidz.read(5 * SECTOR, &mut sector).unwrap();
    assert!(sector == block[5 * 512..6 * 512]);
    let one: Vec<u64> = counts(&world);
    assert_eq!(one, [0, SECTOR, 0, 0, 0, 0]);
    world.raidz.read(0, &mut vec![0; block.len()]).unwrap();
    let all: Vec<u64> = counts(&world);
    assert_eq!(all, [4, 5, 4, 4, 0, 0].map(|sectors| sectors * SECTOR), "no parity is read of what is whole");
}

#[test]
fn a_bulk_read_finds_a_single_wrong_byte_of_parity() {
    for (columns, parity) in shapes() {
        let world = World::new(columns, parity);
        let block = noise(3, world.row() as usize * 70 + 13);
        world.raidz.write(0, &block).unwrap();
        // The last byte of a long stretch, in each parity.
        let long = world.raidz.whole_rows(0, block.len()).unwrap();
        let stretch = long.stretches().next().unwrap();
        let last = stretch.on_device(SECTOR).end - 1;
        assert!(last > 4 * parity::PIECE, "it is compared in several pieces");
        for role in columns - parity..columns {
            let column = long.shape.column(&stretch, role);
            let at = DATA_START + last as u64;
            let mut byte = [0];
            world.devices[column].read_at(at, &mut byte).unwrap();
            world.devices[column].write_at(at, &[byte[0] ^ 1]).unwrap();
            assert!(!begun(&world.raidz, 0, &block, Sources::All), "{columns}-{parity}, role {role}");
            world.devices[column].write_at(at, &byte).unwrap();
        }
        for lost in 0..parity {
            // Each missing device leaves one check less.
            assert!(begun(&world.raidz, 0, &block, Sources::All), "{columns}-{parity} without {lost}");
            let role = columns - 1;
            let rows = world.raidz.whole_rows(0, block.len()).unwrap();
            let stretch = rows.stretches().last().unwrap();
            let column = rows.shape.column(&stretch, role);
            let at = DATA_START + stretch.on_device(SECTOR).start as u64 + 5;
            let mut byte = [0];
            world.devices[column].read_at(at, &mut byte).unwrap();
            world.devices[column].write_at(at, &[byte[0] ^ 1]).unwrap();
            assert!(!begun(&world.raidz, 0, &block, Sources::All), "{columns}-{parity} without {lost}");
            assert!(begun(&world.raidz, 0, &block, Sources::Any), "{columns}-{parity}: the bytes are good");
            world.devices[column].write_at(at, &byte).unwrap();
            // The first data column of the last stretch, so that its data is read with parity.
            let next = rows.shape.column(&stretch, lost);
            if lost + 1 < parity {
                world.raidz.degrade(Guid(next as u64), Health::Faulted);
            }
        }
    }
}

#[test]
fn of_what_is_discarded_only_whole_rows_are() {
    let world = World::new(4, 1);
    let block = noise(10, REGION as usize);
    let at = 2 * REGION;
    world.raidz.write(at, &block).unwrap();
    world.raidz.clear(at + SECTOR, 160 * world.row(), Clear::Discard).unwrap();
    let read = |row: u64| {
        let mut bytes = vec![1; world.row() as usize];
        world.raidz.read(at + row * world.row(), &mut bytes).unwrap();
        bytes
    };
    for row in [0, 160] {
        assert!(read(row) == block[(row * world.row()) as usize..][..world.row() as usize], "part of {row} is needed");
    }
    for row in [1, 100, 159] {
        assert!(read(row).iter().all(|byte| *byte == 0), "nobody needs {row}");
    }
}

#[test]
fn what_no_block_can_be_is_refused() {
    let world = World::new(4, 2);
    let size = world.raidz.size();
    assert_eq!(size % REGION, 0);
    for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (REGION - 512, 1024)] {
        assert!(world.raidz.read(offset, &mut vec![0; len]).is_err(), "{len} bytes at {offset}");
        let examined = world.raidz.examine(offset, len, &|_| true);
        assert!(examined.good.is_none() && examined.bad.len() == 1, "{len} bytes at {offset}");
        assert!(world.raidz.resilver(offset, &Arc::new(vec![0; len])).is_err() || world.raidz.resilvering().is_none());
        assert!(world.raidz.repair(Guid(1), offset, &Arc::new(vec![0; len])).is_err(), "{len} bytes at {offset}");
    }
    assert!(world.raidz.repair(Guid(1), 512, &Arc::new(vec![0; 512])).is_err(), "no block begins inside a row");
    assert!(world.raidz.write(size, &[1]).is_err());
    assert_eq!(world.states(), [State::Complete; 4], "nobody has failed");
}

#[test]
#[should_panic(expected = "whole rows")]
fn who_writes_from_inside_a_row_breaks_his_promise() {
    let _ = World::new(4, 1).raidz.write(SECTOR, &[1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Blocks in whole rows against plain memory, with as many devices missing or returning wrong bytes as there is
    /// parity.
    #[test]
    fn what_was_written_last_is_read_at_any_bytes(
        (columns, parity) in (1usize..=3).prop_flat_map(|parity| (parity + 1..=9, Just(parity))),
        writes in proptest::collection::vec((any::<u64>(), 1u64..100, 0u64..600), 1..12),
        reads in proptest::collection::vec((any::<u64>(), 1usize..40_000), 1..12),
        gone in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..=3),
    ) {
        let world = World::new(columns, parity);
        let row = world.row();
        let rows = REGION / row;
        let mut model = vec![0; world.raidz.size() as usize];
        for (seed, (at, count, cut)) in writes.into_iter().enumerate() {
            let region = at % (world.raidz.size() / REGION);
            let first = (at >> 8) % rows;
            let count = count.min(rows - first);
            let len = (count * row).saturating_sub(cut.min(row - 1)).max(1) as usize;
            let offset = region * REGION + first * row;
            let bytes = noise(seed as u64, len);
            world.raidz.write(offset, &bytes).unwrap();
            let held = &mut model[offset as usize..][..(count * row) as usize];
            held.fill(0);
            held[..len].copy_from_slice(&bytes);
        }
        let mut lost: Vec<(usize, bool)> = gone.into_iter().map(|(at, lies)| (at.index(columns), lies)).collect();
        lost.sort_unstable();
        lost.dedup_by_key(|(device, _)| *device);
        lost.truncate(parity);
        for (device, lies) in lost {
            match lies {
                true => world.devices[device].inject(Fault::corrupting(DATA_START..DATA_START + MIB)),
                false => world.devices[device].vanish(),
            }
        }
        for (at, len) in reads {
            let offset = at % world.raidz.size();
            let len = len.min((REGION - offset % REGION) as usize);
            let expected = &model[offset as usize..][..len];
            let mut read = vec![0; len];
            let found = world.raidz.read_checked(offset, &mut read, &|read| read == expected).unwrap();
            prop_assert!(found != Found::Bad && read == expected);
        }
    }
}

#[test]
fn a_bulk_read_fails_on_a_read_error_or_nonzero_padding() {
    let world = World::new(5, 2);
    let block = noise(8, 2 * world.row() as usize - 700);
    world.raidz.write(0, &block).unwrap();
    let shorter = &block[..block.len() - 300];
    assert!(begun(&world.raidz, 0, &block, Sources::All));
    assert!(begun(&world.raidz, 0, shorter, Sources::Any) && !begun(&world.raidz, 0, shorter, Sources::All));
    // In another row, where no block begins.
    assert!(world.raidz.clone().begin(SECTOR, 10, Sources::All)(&|_| true).is_none());
    world.devices[4].inject(Fault::failing(Operation::Read));
    assert!(!begun(&world.raidz, 0, &block, Sources::All));
}
