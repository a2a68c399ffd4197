//! A small pool, written once, and every later version of this format opens it.
//!
//! The image is kept as its nonzero pages, compressed. It must open, have exactly its original contents, and check
//! clean. Today's program need not write the same bytes: the choice of addresses is no part of the format.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, LazyLock},
};

use pool::{
    admin::{self, CreateOptions, OpenOptions},
    block::compression::CompressionChoice,
    check::{self, Ledger},
    device::MemoryDevice,
    env::SeededEnv,
    error::Result,
    format::{
        key::Key,
        label::PoolState,
        pointer::{BlockPointer, Checksum},
    },
    tree::{Batch, Block, Policy, View},
    txg::{Engine, Head, Plain, Settings, Sync, SyncClient, Written},
    units::{MIB, Txg},
    vdev::{labels, uberblocks},
};

use crate::{golden, pages};

const IMAGE: &str = "pool-1.pages.zst";
pub(crate) const SIZE: u64 = 64 * MIB;
/// The bound on the size of the compressed image, in bytes.
const MOST: usize = 100_000;
/// The catalogue's row of the tree: the level and pointer of its root.
const TREE: Key = Key::new(1, 1, 0);
/// The object with records: one record per transaction group and kind.
const RECORDS: u64 = 7;
/// The object with bodies only, enough for several leaves.
const BODIES: u64 = 8;

/// The least of an upper layer: keeps one tree's root in the catalogue, and frees the tree's dropped blocks.
pub(crate) struct OneTree;

impl SyncClient for OneTree {
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()> {
        for Written { root, level, kills, .. } in written {
            kills.iter().try_for_each(|pointer| sync.free(pointer))?;
            sync.catalogue(|_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
                batch.put(TREE, [level], Some(&Block::Stored(root)));
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The contents of the tree: key to body and, for a record, its content.
pub(crate) type Contents = BTreeMap<Key, (Vec<u8>, Option<Vec<u8>>)>;

const POLICIES: [(CompressionChoice, Checksum); 4] = [
    (CompressionChoice::Off, Checksum::Blake3),
    (CompressionChoice::Lz4, Checksum::Xxh3),
    (CompressionChoice::Zstd(3), Checksum::Sha256),
    (CompressionChoice::Gzip(6), Checksum::Off),
];

/// Compressible text that differs by `seed`.
fn record(seed: u64) -> Vec<u8> {
    (0..400 + seed * 40).flat_map(|line| format!("record {seed}, line {line}\n").into_bytes()).collect()
}

/// The items of the `round`th transaction group; later rounds overwrite some of the earlier ones.
pub(crate) fn round_of(round: u64) -> Contents {
    let records = (0..8).map(|n| (Key::new(RECORDS, 0, n + round * 4), (vec![n as u8], Some(record(n + round)))));
    let bodies = (0..300).map(|n| (Key::new(BODIES, 1, n * (round + 1)), (vec![round as u8; 150], None)));
    records.chain(bodies).collect()
}

pub(crate) const ROUNDS: u64 = 4;

/// The final contents of the tree.
pub(crate) fn expected() -> Contents {
    (0..ROUNDS).flat_map(round_of).collect()
}

pub(crate) fn settings() -> Settings {
    Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
}

pub(crate) fn put_all(head: &Head, contents: &Contents) -> Result<()> {
    head.update(|view, batch| -> Result<(), Plain> {
        for (key, (body, content)) in contents {
            if let Some(block) = view.get(*key)?.and_then(|entry| entry.block()) {
                batch.kill(block);
            }
            let (compression, checksum) = POLICIES[(key.offset % 4) as usize];
            let policy = Policy {
                compression,
                checksum,
                copies: 1 + (key.offset % 2) as u8,
                small_blocks: 0,
                placement: pool::space::Placement::ANYWHERE,
            };
            let record = content.clone().map(|bytes| Block::Pending(head.record(view.txg(), policy, bytes)));
            batch.put(*key, body.clone(), record.as_ref());
        }
        Ok(())
    })?;
    Ok(())
}

/// Makes the pool for the image.
fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new("disk", SIZE));
    let options = CreateOptions { settings: settings(), host: (1, "well".into()), ..CreateOptions::new("tank") };
    let pool = admin::create(vec![device.clone()], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(OneTree));
    let head = pool.engine().open_head(1, None);
    for round in 0..ROUNDS {
        put_all(&head, &round_of(round)).unwrap();
        pool.engine().commit().unwrap();
    }
    pool.export().unwrap();
    device.snapshot()
}

fn image() -> MemoryDevice {
    pages::unpack(&PACKED, "disk", SIZE)
}

/// The committed image. Only a missing image is made: a committed image is never rewritten. Tests run side by side, so
/// the file is read once.
static PACKED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = golden::path(IMAGE);
    if golden::blessing() && !path.exists() {
        fs::write(&path, pages::pack(&make())).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

#[test]
fn the_image_is_small() {
    assert!(PACKED.len() < MOST, "{} bytes", PACKED.len());
}

/// The root of the tree, from the catalogue.
pub(crate) fn root(engine: &Engine) -> (BlockPointer, u8) {
    let row = engine.catalogue().read(|view| -> Result<_, Plain> { Ok(view.get(TREE)?) }).unwrap();
    let row = row.expect("the catalogue has the tree's row");
    (row.block().unwrap().pointer().unwrap(), row.body()[0])
}

pub(crate) fn contents(head: &Head) -> Contents {
    let seen = head.engine().pin().seen();
    let entries = head.read(|view| -> Result<Vec<_>, Plain> {
        let entries: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
        Ok(entries?)
    });
    let content = |block: Block| head.bytes(&block, seen).unwrap().to_vec();
    entries.unwrap().iter().map(|entry| (entry.key(), (entry.body().to_vec(), entry.block().map(content)))).collect()
}

pub(crate) fn findings(engine: &Arc<Engine>) -> Vec<check::Finding> {
    let mut ledger = Ledger::default();
    check::enter_catalogue(engine, &mut ledger);
    check::walk_tree(engine, root(engine), Txg::ZERO, &mut ledger, "tree", |ledger, node| {
        let leaf = node.leaf().unwrap();
        for pointer in leaf.items().iter().filter_map(|item| leaf.pointer(item)) {
            ledger.refer(&pointer, "record");
        }
    });
    check::conclude(engine, &mut ledger).unwrap()
}

#[test]
fn the_labels_and_uberblocks_of_the_image_are_read() {
    let device = image();
    let label = labels::read_label(&device).unwrap().expect("a label");
    assert_eq!(
        (label.pool_name.as_str(), label.state, label.host_name.as_str()),
        ("tank", PoolState::Exported, "well")
    );
    let uberblocks = uberblocks::read_uberblocks(&device, label.pool).unwrap();
    let txgs: Vec<u64> = uberblocks.iter().map(|uberblock| uberblock.txg.0).collect();
    assert_eq!(txgs, (1..=1 + ROUNDS).rev().collect::<Vec<_>>());
    assert!(uberblocks.iter().all(|uberblock| uberblock.epoch == label.epoch));
}

#[test]
fn the_image_opens_holds_what_was_put_in_and_checks_clean() {
    for read_only in [true, false] {
        let options = OpenOptions { settings: settings(), read_only, ..OpenOptions::default() };
        let pool = admin::open(vec![Arc::new(image())], &options, Arc::new(SeededEnv::new(2))).unwrap();
        let engine = pool.engine();
        let (pointer, level) = root(engine);
        assert!(level > 0, "the tree has interior nodes");
        let head = engine.open_frozen(1, pointer, level);
        assert!(contents(&head) == expected());
        assert_eq!(findings(engine), []);
    }
}

#[test]
fn making_the_image_again_gives_the_same_image() {
    assert!(pages::pack(&make()) == pages::pack(&make()));
}
