//! Plants each code of the pool's check, and expects the same code.
//!
//! [`plant`] has an arm for each code, so a new code without a planting does not compile; CHECK.md must have a row for
//! each number of every layer.

use std::{collections::BTreeSet, sync::Arc};

use pool::{
    admin::{self, OpenOptions},
    block::{Payload, compression::CompressionChoice},
    check::{self, Code, Ledger},
    env::SeededEnv,
    error::ErrorKind,
    format::{
        key::Key,
        label::DATA_START,
        pointer::{Address, BlockPointer, Checksum},
    },
    space::Class,
    tree::Policy,
    txg::Plain,
    units::Txg,
};

use super::world::{World, noise};
use crate::{
    catalogue::{
        DatasetRow, Master, SHARING, SharedRow, SharingRow, SnapshotRow, dataset_key, shared_key, snapshot_key,
    },
    fs::{self, inode::Inode, key},
    lineage::{self, check::FindingKind},
};

const PAGE: &str = include_str!("../../../CHECK.md");

/// A dataset with a file and a snapshot, all committed.
fn world() -> World {
    let world = World::new(77);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &noise(1, 30_000));
    world.snapshot("tank/a@1").unwrap();
    world.write("tank/a", "file", &noise(2, 30_000));
    world.judge();
    world
}

/// A world, and the entries of `pool check` in its ledger.
struct Checked {
    world: World,
    ledger: Ledger,
}

impl Checked {
    fn of(world: World) -> Checked {
        world.engine.commit().unwrap();
        let mut ledger = Ledger::default();
        check::enter_catalogue(&world.engine, &mut ledger);
        lineage::check::check(&world.engine, &mut ledger).unwrap().enter(&mut ledger);
        match world.datasets.open_dataset(&"tank/a".parse().unwrap()) {
            Ok(dataset) => {
                for found in fs::check::check(dataset.head()).unwrap() {
                    ledger.find(check::Finding::new(Code::FileSystem, found.to_string()));
                }
            }
            Err(error) => ledger.find(check::Finding::new(Code::FileSystem, error.to_string())),
        }
        Checked { world, ledger }
    }

    fn codes(mut self) -> BTreeSet<Code> {
        let findings = check::conclude(&self.world.engine, &mut self.ledger).unwrap();
        findings.into_iter().map(|finding| finding.code).collect()
    }
}

/// The first block of the file's data.
fn data_block(world: &World) -> BlockPointer {
    let head = world.datasets.open_dataset(&"tank/a".parse().unwrap()).unwrap().head().clone();
    let found = head.read(|view| -> Result<_, Plain> {
        let mut entries = view.range(Key::MIN..Key::MAX).collect::<Result<Vec<_>, _>>()?.into_iter();
        Ok(entries.find_map(|entry| entry.block()?.pointer()))
    });
    found.unwrap().expect("the file has a block")
}

fn place(world: &World, address: Address, stored: u32) -> u64 {
    DATA_START + world.engine.storage().space.resolve(address, stored).unwrap().1
}

fn wreck(world: &World, block: &BlockPointer) {
    for &address in block.addresses() {
        world.devices[0].write_at(place(world, address, block.stored), &[0xee; 64]).unwrap();
    }
}

fn edit_dataset(world: &World, edit: impl Fn(&mut DatasetRow) + Send + 'static) {
    let id = world.datasets.open_dataset(&"tank/a".parse().unwrap()).unwrap().id();
    let change = move |tx: &mut crate::catalogue::Transaction<'_>| {
        let mut row: DatasetRow = tx.row(dataset_key(id))?;
        edit(&mut row);
        tx.set(dataset_key(id), &row)
    };
    world.datasets.run(change).unwrap();
}

/// Plants a code; returns the codes found.
fn plant(code: Code) -> BTreeSet<Code> {
    let world = world();
    match code {
        Code::UnreadableNode => {
            let head = world.datasets.open_dataset(&"tank/a".parse().unwrap()).unwrap().head().clone();
            let (root, _) = head.clean_root().unwrap();
            drop(head);
            let World { devices, engine, datasets } = world;
            datasets.close_all().unwrap();
            drop((datasets, engine));
            let world = World::open_all(devices, 3).unwrap();
            wreck(&world, &root);
            Checked::of(world).codes()
        }
        Code::DamagedCopy => {
            wreck(&world, &data_block(&world));
            Checked::of(world).codes()
        }
        Code::Overlap => {
            let block = data_block(&world);
            let mut checked = Checked::of(world);
            checked.ledger.refer(&BlockPointer { birth: block.birth.next(), ..block }, "somebody else");
            checked.codes()
        }
        Code::NotAllocated => {
            let block = data_block(&world);
            let mut bytes = vec![0; block.stored as usize];
            world.devices[0].read_at(place(&world, block.addresses[0], block.stored), &mut bytes).unwrap();
            let mut stray = BlockPointer { copies: 1, ..block };
            // The last sectors of a nearly empty chunk.
            let sectors = world.engine.storage().space.sector();
            stray.addresses[0].sector = (1 << 20) / sectors - block.stored.div_ceil(sectors);
            world.devices[0].write_at(place(&world, stray.addresses[0], stray.stored), &bytes).unwrap();
            let mut checked = Checked::of(world);
            checked.ledger.refer(&stray, "somebody");
            checked.codes()
        }
        Code::Leaked => {
            let policy = Policy {
                compression: CompressionChoice::Lz4,
                checksum: Checksum::Blake3,
                copies: 1,
                small_blocks: 0,
                placement: pool::space::Placement::ANYWHERE,
            };
            let lost = Payload::new(Arc::new(noise(9, 9000)), policy);
            world.engine.with_open_txg(|txg| world.engine.storage().write_blocks(txg, Class::Data, &[lost])).unwrap();
            Checked::of(world).codes()
        }
        Code::UnreadablePool => {
            let (root, _) = world.engine.catalogue().clean_root().unwrap();
            wreck(&world, &root);
            let World { devices, engine, datasets } = world;
            drop((datasets, engine));
            let options = OpenOptions { read_only: true, ..OpenOptions::default() };
            let refused = admin::open(devices, &options, Arc::new(SeededEnv::new(1))).err().unwrap();
            // A pool that cannot be opened for this reason is reported with this code alone.
            assert_eq!(refused.kind(), ErrorKind::Damage);
            BTreeSet::from([code])
        }
        Code::Catalogue => {
            edit_dataset(&world, |row| row.newest_txg = Txg(1));
            Checked::of(world).codes()
        }
        Code::Counter => {
            world.datasets.run(|tx| tx.edit_master(|master: &mut Master| master.physical.allocated += 1)).unwrap();
            Checked::of(world).codes()
        }
        Code::Deadlist => {
            let id = match world.datasets.resolve(&"tank/a@1".parse().unwrap()).unwrap() {
                crate::admin::Target::Snapshot(id) => id,
                other => panic!("{other:?}"),
            };
            let damage = move |tx: &mut crate::catalogue::Transaction<'_>| {
                let mut row: SnapshotRow = tx.row(snapshot_key(id))?;
                row.dead.logical += 1;
                tx.set(snapshot_key(id), &row)
            };
            world.datasets.run(damage).unwrap();
            Checked::of(world).codes()
        }
        Code::References => {
            let row = SharedRow::of(&data_block(&world), world.engine.sector());
            let (key, used) = (shared_key(data_block(&world).addresses[0]), row.space);
            let damage = move |tx: &mut crate::catalogue::Transaction<'_>| {
                tx.put(key, &row, None);
                tx.put(SHARING, &SharingRow { blocks: 1, used, saved: used }, None);
                Ok(())
            };
            world.datasets.run(damage).unwrap();
            Checked::of(world).codes()
        }
        Code::FileSystem => {
            let dataset = world.datasets.open_dataset(&"tank/a".parse().unwrap()).unwrap();
            let damage = |view: &pool::tree::View<'_>, batch: &mut pool::tree::Batch| -> Result<(), Plain> {
                let entry = view.get(key::inode(fs::ROOT))?.expect("there is a root");
                let inode = Inode::decode(entry.body()).expect("a good inode");
                batch.put(key::inode(fs::ROOT), Inode { nlink: 9, ..inode }.encode(), None);
                Ok(())
            };
            dataset.head().update(damage).unwrap();
            drop(dataset);
            Checked::of(world).codes()
        }
    }
}

/// The codes that necessarily accompany a code.
fn with_it(code: Code) -> BTreeSet<Code> {
    match code {
        // The node's only copy is damaged, the blocks under it are in no account, and the dataset cannot be opened.
        Code::UnreadableNode => [code, Code::DamagedCopy, Code::Leaked, Code::Counter, Code::FileSystem].into(),
        code => [code].into(),
    }
}

#[test]
fn each_code_is_planted_and_seen_as_itself() {
    let seen = Code::ALL.iter().map(|&code| (code, plant(code)));
    let wrong: Vec<_> = seen.filter(|(code, seen)| *seen != with_it(*code)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn each_number_stands_in_the_page_about_findings() {
    let rows = |letter: &str| PAGE.lines().filter(|line| line.starts_with(&format!("| {letter}"))).count();
    for code in Code::ALL {
        let row = format!("| C{:03} | {} | ", code.number(), code.name());
        assert!(PAGE.contains(&row), "CHECK.md has no row {row}");
    }
    for kind in FindingKind::ALL {
        assert!(PAGE.contains(&format!("| L{:02} | ", kind.number())), "CHECK.md has no row of {kind:?}");
    }
    for number in fs::check::Problem::NUMBERS {
        assert!(PAGE.contains(&format!("| F{number:02} | ")), "CHECK.md has no row of F{number:02}");
    }
    let expected = (Code::ALL.len(), FindingKind::ALL.len(), fs::check::Problem::NUMBERS.len());
    assert_eq!((rows("C"), rows("L"), rows("F")), expected);
}
