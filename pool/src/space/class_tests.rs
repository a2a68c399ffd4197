//! Classes of devices: where blocks go, that a class is never a wall, and that only the log goes to log devices.

use super::{
    tests::{Memory, plain},
    *,
};
use crate::{
    error::Error,
    format::{label::classes::VdevClass, pointer::Address},
    units::{KIB, Txg, VdevId},
};

const SECTOR: u32 = 512;
const REGION: u64 = 64 * KIB;
const BYTES: u32 = 4096;

/// Devices of so many regions each, and their classes.
fn shapes(vdevs: &[(u64, Option<VdevClass>)]) -> Vec<VdevShape> {
    (0..).zip(vdevs).map(|(id, &(regions, class))| VdevShape { class, ..plain(id, regions * REGION) }).collect()
}

fn made(vdevs: &[(u64, Option<VdevClass>)]) -> (Space, Memory) {
    let shapes = shapes(vdevs);
    (Space::create(SECTOR, REGION, &shapes), Memory::new(&shapes))
}

/// The devices of a block's copies.
fn devices(space: &Space, allocation: &Allocation) -> Vec<u32> {
    allocation.addresses().iter().map(|address| space.resolve(*address, 1).unwrap().0.0).collect()
}

/// Allocates until there is no room; the devices of the first copies.
fn fill(space: &Space, memory: &Memory, purpose: Purpose, bytes: u32, copies: u8) -> Vec<u32> {
    std::iter::from_fn(|| match space.allocate(Txg(1), purpose, bytes, copies, memory) {
        Ok(allocation) => Some(devices(space, &allocation)[0]),
        Err(Error::OutOfSpace) => None,
        Err(error) => panic!("{error}"),
    })
    .collect()
}

const SPECIAL: Option<VdevClass> = Some(VdevClass::Special);
const LOG: Option<VdevClass> = Some(VdevClass::Log);

#[test]
fn metadata_lies_on_devices_for_it_and_data_on_the_others() {
    let (space, memory) = made(&[(64, None), (32, SPECIAL), (64, None), (32, SPECIAL), (16, LOG)]);
    let (mut metadata, mut data) = ([0; 5], [0; 5]);
    for _ in 0..200 {
        let large = space.allocate(Txg(1), Class::Data, 16 * KIB as u32, 1, &memory).unwrap();
        data[space.resolve(large.addresses[0], 1).unwrap().0.0 as usize] += 1;
        let both = devices(&space, &space.allocate(Txg(1), Class::Metadata, BYTES, 2, &memory).unwrap());
        assert!(both[0] != both[1], "two copies on one of two devices");
        both.iter().for_each(|device| metadata[*device as usize] += 1);
        let own = devices(&space, &space.allocate_own(Txg(1), BYTES, 2, &memory).unwrap());
        assert!(own.iter().all(|device| [1, 3].contains(device)), "{own:?}");
    }
    assert_eq!(metadata, [0, 200, 0, 200, 0]);
    assert!(data[0] > 50 && data[2] > 50 && data[0] + data[2] == 200, "{data:?}");
}

#[test]
fn a_single_device_for_metadata_takes_all_copies() {
    let (space, memory) = made(&[(64, None), (32, SPECIAL)]);
    let both = devices(&space, &space.allocate(Txg(1), Class::Metadata, BYTES, 2, &memory).unwrap());
    assert_eq!(both, [1, 1]);
}

#[test]
fn room_is_found_exactly_as_if_devices_had_no_classes() {
    for (purpose, bytes, copies) in [
        (Purpose::Data, BYTES, 1),
        (Purpose::Data, BYTES, 2),
        (together(1), BYTES, 1),
        (Purpose::Metadata, BYTES, 1),
        (Purpose::Metadata, 1, 2),
        (Purpose::SmallData, 1, 1),
    ] {
        for sizes in [[64, 16], [16, 64], [40, 2]] {
            let (plain, memory) = made(&[(sizes[0], None), (sizes[1], None)]);
            let expected = fill(&plain, &memory, purpose, bytes, copies).len();
            let (classed, memory) = made(&[(sizes[0], None), (sizes[1], SPECIAL)]);
            let found = fill(&classed, &memory, purpose, bytes, copies);
            assert_eq!(found.len(), expected, "{purpose:?} of {bytes} bytes, {copies} copies, {sizes:?}");
            // First all of the preferred device, then the rest.
            let preferred = u32::from(purpose.class() == Class::Metadata);
            if purpose != Purpose::SmallData {
                let first_stray = found.iter().position(|device| *device != preferred).unwrap_or(found.len());
                assert!(found[first_stray..].iter().all(|device| *device != preferred), "{purpose:?} {sizes:?}");
            }
            // The reserve for metadata is there, whichever class has filled the pool.
            if purpose.class() == Class::Data {
                assert_eq!(plain.free_for(Class::Data), classed.free_for(Class::Data));
                let rest = [&plain, &classed].map(|space| fill(space, &memory, Purpose::Metadata, BYTES, 1).len());
                assert_eq!(rest[0], rest[1]);
                assert!(rest[0] > 0);
            }
            classed.sync(Txg(1), &memory).unwrap();
        }
    }
}

fn together(file: u64) -> Purpose {
    Purpose::Placed(Placement { file: Some(file), ..Placement::ANYWHERE })
}

fn on(preferred: Preferred) -> Purpose {
    Purpose::Placed(Placement { preferred, ..Placement::ANYWHERE })
}

#[test]
fn records_lie_on_preferred_devices_while_there_is_room() {
    let (space, memory) = made(&[(16, None), (64, None), (16, None), (16, SPECIAL), (8, LOG)]);
    let devices_of =
        |purpose, copies| devices(&space, &space.allocate(Txg(1), purpose, BYTES, copies, &memory).unwrap());
    let one = Preferred::default().and(VdevId(2));
    let two = one.and(VdevId(0));
    assert!((0..10).all(|_| devices_of(on(one), 1) == [2]));
    let copies = devices_of(on(one), 2);
    assert!(copies[0] == 2 && [0, 1].contains(&copies[1]), "the second copy lies elsewhere: {copies:?}");
    let mut copies = devices_of(on(two), 2);
    copies.sort_unstable();
    assert_eq!(copies, [0, 2]);
    let files = [0, 1, 2, 3].map(|file| {
        let placement = Placement { file: Some(file), preferred: two };
        devices_of(Purpose::Placed(placement), 1)[0]
    });
    assert!(files[0] != files[1] && files[..2] == files[2..], "each file on one of them, in turn: {files:?}");
    // A placement never causes a refusal, and log devices take no blocks.
    let log = Preferred::default().and(VdevId(4)).and(VdevId(1000));
    assert!((0..10).all(|_| [0, 1, 2].contains(&devices_of(on(log), 1)[0])));
    let special = Preferred::default().and_special();
    let taken = fill(&space, &memory, on(special), BYTES, 1);
    assert_eq!(taken[0], 3);
    let sectors = |device| taken.iter().filter(|taken| **taken == device).count() as u64 * u64::from(BYTES);
    let left = 16 * REGION - sectors(3);
    assert!(left <= 16 * REGION / 4, "all but what is kept for metadata: {left} bytes are left");
    assert!(sectors(1) > 32 * REGION, "and then as anybody's");
    let (space, memory) = made(&[(16, None), (64, None), (16, None)]);
    space.close(&Regions::Vdev(VdevId(2)));
    let taken = fill(&space, &memory, on(one), BYTES, 1);
    assert!(taken.len() > 500 && !taken.contains(&2), "what is about to leave gets nothing");
}

#[test]
fn whole_files_take_devices_in_turn_while_there_is_room() {
    let (space, memory) = made(&[(64, None), (16, None), (64, SPECIAL), (64, None), (8, LOG)]);
    let device = |file| devices(&space, &space.allocate(Txg(1), together(file), BYTES, 1, &memory).unwrap())[0];
    for round in 0..100 {
        assert_eq!([0, 1, 2, 3, 4, 5].map(|file| device(10 * 3 + file)), [0, 1, 3, 0, 1, 3], "round {round}");
    }
    // The small device is full at last, and then its files lie elsewhere.
    let taken: Vec<u32> = (0..300).map(|_| device(1)).collect();
    assert_eq!(taken[0], 1);
    assert!([0, 3].contains(taken.last().unwrap()));
    let room = 16 * REGION - u64::from(BYTES);
    assert!(space.totals().vdevs[1].allocated >= room, "{:?}", space.totals().vdevs[1]);
    let run = space.allocate_run(Txg(1), together(2), &[BYTES; 20], 1, &memory).unwrap();
    assert!(run.iter().all(|block| devices(&space, block) == [3]));
    space.close(&Regions::Vdev(VdevId(3)));
    assert_eq!([0, 1, 2].map(device)[0], 0);
}

#[test]
fn small_records_leave_a_quarter_to_metadata() {
    let (space, memory) = made(&[(64, None), (16, SPECIAL)]);
    let sectors = u64::from(BYTES / SECTOR);
    let on_special = |devices: &[u32]| devices.iter().filter(|device| **device == 1).count() as u64 * sectors;
    let taken: Vec<u32> = (0..300)
        .map(|_| devices(&space, &space.allocate(Txg(1), Purpose::SmallData, BYTES, 1, &memory).unwrap())[0])
        .collect();
    let all = 16 * REGION / u64::from(SECTOR);
    assert!((all / 4 * 3..all / 4 * 3 + 2 * sectors).contains(&on_special(&taken)), "{}", on_special(&taken));
    assert_eq!(taken[0], 1);
    assert_eq!(*taken.last().unwrap(), 0);
    let metadata = space.allocate(Txg(1), Class::Metadata, BYTES, 1, &memory).unwrap();
    assert_eq!(devices(&space, &metadata), [1]);
}

#[test]
fn without_devices_for_metadata_small_records_are_records() {
    let (space, memory) = made(&[(64, None)]);
    let small = space.allocate(Txg(1), Purpose::SmallData, BYTES, 1, &memory).unwrap().addresses[0];
    let record = space.allocate(Txg(1), Purpose::Data, BYTES, 1, &memory).unwrap().addresses[0];
    assert_eq!((small.chunk, small.sector + BYTES / SECTOR), (record.chunk, record.sector));
}

#[test]
fn a_log_device_takes_only_the_log_and_counts_as_no_pool_space() {
    let (space, memory) = made(&[(64, None), (16, SPECIAL), (4, LOG)]);
    let before = space.totals();
    assert_eq!(before.size, 80 * REGION);
    assert_eq!(before.vdevs[2].size, 4 * REGION);
    fill(&space, &memory, Purpose::Data, BYTES, 1);
    fill(&space, &memory, Purpose::Metadata, BYTES, 1);
    assert_eq!(space.totals().vdevs[2].allocated, 0);
    // A full pool has room for its log.
    let area = REGION as u32 / 2;
    for round in 0..4 {
        let log = space.allocate_log(Txg(1), area, &memory).unwrap();
        let (device, offset) = space.resolve(log.addresses[0], area).unwrap();
        assert_eq!(device, VdevId(2), "{round}, at {offset}");
        assert!(!space.is_log_astray(log.addresses[0]));
    }
    assert_eq!(space.totals().vdevs[2].allocated, 4 * u64::from(area));
    let root = space.sync(Txg(1), &memory).unwrap();
    let shapes = shapes(&[(64, None), (16, SPECIAL), (4, LOG)]);
    let opened = Space::open(&root, SECTOR, REGION, &shapes, Txg(1), &memory).unwrap();
    assert_eq!(opened.totals(), space.totals());
    fill(&opened, &memory, Purpose::Metadata, 1, 1);
    assert_eq!(opened.totals().vdevs[2].allocated, 4 * u64::from(area), "after it was opened again");
}

#[test]
fn without_room_on_its_device_the_log_lies_where_metadata_does() {
    let (space, memory) = made(&[(64, None), (16, SPECIAL), (1, LOG)]);
    let area = REGION as u32;
    let on = |allocation: Allocation| space.resolve(allocation.addresses[0], area).unwrap().0.0;
    assert_eq!(on(space.allocate_log(Txg(1), area, &memory).unwrap()), 2);
    let second = space.allocate_log(Txg(1), area, &memory).unwrap();
    assert_eq!(on(second), 1);
    assert!(space.is_log_astray(second.addresses[0]));
    space.close(&Regions::Vdev(VdevId(2)));
    assert!(!space.is_log_astray(second.addresses[0]), "a device that leaves is not for it any more");
    fill(&space, &memory, Purpose::Data, BYTES, 1);
    assert!(matches!(space.allocate_log(Txg(1), area, &memory), Err(Error::OutOfSpace)));
}

#[test]
fn what_leaves_goes_to_a_device_for_the_same_if_there_is_room() {
    let (space, memory) = made(&[(64, None), (16, SPECIAL), (16, SPECIAL), (8, LOG)]);
    let block = (0..).map(|_| space.allocate(Txg(1), Class::Metadata, BYTES, 1, &memory).unwrap().addresses[0]);
    let on = |address: &Address| space.resolve(*address, BYTES).unwrap().0.0;
    let there = block.take(1000).find(|address| on(address) == 1).expect("turns are taken");
    space.close(&Regions::Vdev(VdevId(1)));
    assert_eq!(
        space.moving_plan(&Regions::Vdev(VdevId(1)), &Targets::Anywhere).available,
        64 + 16 - space.layout.load().reserve()
    );
    space.pair(&Regions::Vdev(VdevId(1)), &Targets::Anywhere, Packs::Never).unwrap();
    assert_eq!(space.twin(there, BYTES).unwrap().unwrap().0, VdevId(2));
}
