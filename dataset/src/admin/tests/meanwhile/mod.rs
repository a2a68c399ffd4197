//! What is read while something takes it away: each reader, stopped at its n-th read, beside each command that frees or
//! replaces what it reads.
//!
//! The content says whose it is: every byte of a file is the number of its state. When the command is done, all that it has
//! freed is written over with another's bytes, as soon as that is allowed. So a reader that believes what it should not has
//! these bytes, and one that blames a device has counted an error there. A reader may fail, or give the bytes of a state that
//! there was; what reads a whole snapshot is right, for the command is refused.
//!
//! One more reader or command is one more row: see [`readers::READERS`] and [`changes::CHANGES`].

mod changes;
mod readers;
mod stopping;

use std::{collections::BTreeMap, sync::Arc, thread};

use pool::{
    device::Device,
    format::{key::Key, pointer::Address},
    space::Extent,
    txg::Plain,
    units::{ChunkId, MIB},
};

use self::{
    changes::{CHANGES, Change},
    readers::{READERS, Read, Reader},
    stopping::Stopping,
};
use super::world::World;
use crate::{
    admin::{Assignment, Error},
    fs::{Caller, ROOT, SetXattr},
};

/// What is written over all that was freed.
const FOREIGN: u8 = 0xee;
/// The state that a stream brings.
pub(super) const RECEIVED: u8 = 9;
/// At which of its reads a reader is stopped.
const STOPS: [usize; 5] = [1, 2, 3, 5, 8];

/// The files of every state, and their lengths.
const FILES: [(&str, usize); 4] = [("big", 300_000), ("small", 9_000), ("tiny", 100), ("other", 40_000)];
/// An attribute that is a block of its own.
const XATTR: (&[u8], usize) = (b"user.large", 20_000);

/// A pool with the states 1 and 2 of `tank/a` as snapshots, and 3 as it is.
pub(super) struct Scene {
    world: World,
    device: Arc<Stopping>,
}

impl Scene {
    fn new(checksum: &str) -> Scene {
        let device = Stopping::new(64 * MIB);
        let world = World::over(vec![device.clone() as Arc<dyn Device>], 11);
        world.create("tank/a").unwrap();
        let set = |property: &str, value: &str| Assignment { property: property.to_owned(), value: value.to_owned() };
        let assignments = vec![set("checksum", checksum), set("compression", "off"), set("atime", "off")];
        world.datasets.set(&["tank/a".parse().unwrap()], &assignments).unwrap();
        for state in 1..=3 {
            put_state(&world, "tank/a", state);
            if state < 3 {
                world.snapshot(&format!("tank/a@{state}")).unwrap();
            }
        }
        world.work();
        world.engine.commit().unwrap();
        world.settle();
        Scene { world, device }
    }

    /// Nothing is in memory but the catalogue: a command waits for nobody who reads that.
    fn forget(&self) {
        self.world.engine.forget_read();
        let rows = self.world.engine.catalogue().read(|view| {
            let rows: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
            Ok::<_, Plain>(rows?.len())
        });
        assert!(rows.unwrap() > 0);
    }

    fn allocated(&self) -> BTreeMap<ChunkId, Vec<bool>> {
        let storage = self.world.engine.storage();
        let sectors = storage.space.region() as usize / storage.sector as usize;
        let mut allocated: BTreeMap<ChunkId, Vec<bool>> = BTreeMap::new();
        for Extent { chunk, sector, sectors: count } in storage.space.allocated_extents(&storage.vdevs).unwrap() {
            let map = allocated.entry(chunk).or_insert_with(|| vec![false; sectors]);
            map[sector as usize..(sector + count) as usize].fill(true);
        }
        allocated
    }

    /// Has what is free be used again, as soon as it may be, and writes over what is free and was not.
    fn reuse(&self, before: &BTreeMap<ChunkId, Vec<bool>>) {
        self.world.work();
        self.world.engine.commit().unwrap();
        self.world.settle();
        let storage = self.world.engine.storage();
        if storage.space.totals().deferred > 0 {
            // It is kept for the reader.
            return;
        }
        let after = self.allocated();
        for (chunk, was) in before {
            let is = |sector: usize| after.get(chunk).is_some_and(|map| map[sector]);
            for sector in (0..was.len()).filter(|sector| was[*sector] && !is(*sector)) {
                let address = Address { chunk: *chunk, sector: sector as u32 };
                let (vdev, offset) = storage.space.resolve(address, storage.sector).unwrap();
                storage.vdevs.get(vdev).unwrap().write(offset, &vec![FOREIGN; storage.sector as usize]).unwrap();
            }
        }
    }

    fn errors(&self) -> u64 {
        let leaves = self.world.engine.storage().vdevs.all().into_iter().flat_map(|vdev| vdev.leaves());
        leaves.map(|leaf| leaf.counters().snapshot()).map(|counts| counts.checksum_errors + counts.read_errors).sum()
    }
}

/// Gives every file of a data set this content.
pub(super) fn put_state(world: &World, dataset: &str, state: u8) {
    for (file, len) in FILES {
        world.write(dataset, file, &vec![state; len]);
        let fs = world.fs(dataset);
        let ino = fs.lookup(ROOT, file.as_bytes()).unwrap().ino;
        fs.setxattr(ino, XATTR.0, &vec![state; XATTR.1], SetXattr::Any).unwrap();
    }
    let fs = world.fs(dataset);
    fs.create(&Caller::default(), ROOT, format!("only-in-{state}").as_bytes(), 0o644, false).unwrap();
    world.engine.commit().unwrap();
}

/// One cell of the table, at one stop. Whether the reader was stopped.
fn play(checksum: &str, reader: &Reader, change: &Change, stop: usize) -> bool {
    let cell = format!("{} beside {} at read {stop}, checksum={checksum}", reader.name, change.name);
    let scene = Scene::new(checksum);
    (change.prepare)(&scene.world);
    let expected = (reader.read)(&scene.world).unwrap_or_else(|error| panic!("{cell}: {error}"));
    scene.world.engine.commit().unwrap();
    scene.world.settle();
    let before = scene.allocated();
    scene.forget();
    let mut was_stopped = false;
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            scene.device.arm(stop);
            (reader.read)(&scene.world)
        });
        was_stopped = scene.device.wait(|| reading.is_finished());
        let changed = (change.make)(&scene.world);
        match &changed {
            Err(Error::InUse { .. }) if was_stopped && reader.holds => {}
            Ok(()) if !(was_stopped && reader.holds && change.takes_snapshots) => {}
            other => panic!("{cell}: {other:?}"),
        }
        if reader.runs_short {
            scene.world.engine.storage().space.give_up_holds();
        }
        scene.reuse(&before);
        scene.device.go_on();
        judge(&cell, (reader, change), &expected, reading.join().unwrap());
        if changed.is_err() {
            (change.make)(&scene.world).unwrap_or_else(|error| panic!("{cell}, after it: {error}"));
        }
    });
    assert_eq!(scene.errors(), 0, "{cell}: a device is blamed");
    assert!(scene.world.engine.next_suspect().is_none(), "{cell}: a block is suspected");
    was_stopped
}

fn judge(cell: &str, (reader, change): (&Reader, &Change), expected: &Read, found: Result<Read, Error>) {
    match found {
        // What it read was taken away; but what is held, or only written beside, is there.
        Err(error) => {
            let is_there = reader.holds || !change.takes_snapshots && !reader.runs_short;
            assert!(!is_there, "{cell}: {error}");
        }
        Ok(found) if reader.is_live => {
            let is_a_state = |byte: &u8| [1, 2, 3, RECEIVED].contains(byte);
            for (file, bytes) in &found {
                assert!(bytes.iter().all(is_a_state), "{cell}: '{file}' has bytes that it never had");
                assert!(is_known(file), "{cell}: there was never a '{file}'");
            }
        }
        Ok(found) => assert!(found == *expected, "{cell}: it is not what it was"),
    }
}

/// Whether a state has a file of this name.
fn is_known(file: &str) -> bool {
    let name = file.trim_start_matches('/');
    let is_of = |known: &str| name.starts_with(known);
    name.len() <= 1 || FILES.iter().any(|(known, _)| is_of(known)) || is_of("only-in-") || is_of("more")
}

/// All commands beside one reader.
fn play_all(reader: &str) {
    let reader = READERS.iter().find(|known| known.name == reader).expect("a row of the table");
    for checksum in ["off", "on"] {
        for change in CHANGES {
            let stopped = STOPS.iter().filter(|stop| play(checksum, reader, change, **stop)).count();
            assert!(stopped > 0, "{} was never stopped", reader.name);
        }
    }
}

#[test]
fn a_snapshot_is_read_while_it_is_taken_away() {
    play_all("cat of a snapshot");
}

#[test]
fn a_file_is_read_while_its_data_set_is_replaced() {
    play_all("cat of a file");
}

#[test]
fn all_of_a_snapshot_is_copied_while_it_is_taken_away() {
    play_all("copy of a snapshot");
}

#[test]
fn a_snapshot_is_sent_while_it_is_taken_away() {
    play_all("send");
}

#[test]
fn snapshots_are_compared_while_they_are_taken_away() {
    play_all("diff of snapshots");
}

#[test]
fn a_data_set_is_compared_while_it_is_replaced() {
    play_all("diff to the data set");
}

#[test]
fn a_data_set_is_compared_while_room_is_short() {
    play_all("diff to the data set, short of room");
}

#[test]
fn every_reader_of_the_table_is_played() {
    let source = include_str!("mod.rs");
    let is_played = |reader: &&Reader| source.contains(&format!("play_all(\"{}\")", reader.name));
    assert_eq!(READERS.iter().filter(is_played).count(), READERS.len());
}
