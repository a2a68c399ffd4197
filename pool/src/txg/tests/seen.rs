//! Blocks freed between look-up and read, with their sectors in use again.

use std::iter;

use super::*;
use crate::{block::Spares, format::pointer::BlockPointer, space::Seen, tree::Miss, vdev::Counts};

const RECORD: usize = 128 << 10;

/// A reader's block, and its token.
struct Look {
    block: Block,
    seen: Seen,
}

/// A pool with this checksum, a mirror with two disks; its tree has one record, filled with ones.
fn world(checksum: Checksum, disks: usize) -> (Arc<Engine>, Arc<Head>, Look) {
    let mut devices = (0..disks).map(|n| Arc::new(MemoryDevice::new(format!("disk{n}"), 64 * MIB)) as Arc<dyn Device>);
    let vdev = match disks {
        1 => admin::NewVdev::Disk(devices.next().unwrap()),
        _ => admin::NewVdev::Mirror(devices.collect()),
    };
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(7))).unwrap();
    let engine = pool.engine().clone();
    engine.set_client(Arc::new(OneTree));
    let head = engine.open_head(1, None);
    put_with(&head, policy(checksum), 0, 1, RECORD);
    engine.commit().unwrap();
    engine.forget_read();
    let look = look(&head);
    (engine, head, look)
}

fn commit(engine: &Engine, times: usize) {
    for _ in 0..times {
        engine.commit_anyway().unwrap();
    }
}

fn policy(checksum: Checksum) -> Policy {
    Policy { compression: CompressionChoice::Off, checksum, ..POLICY }
}

fn look(head: &Head) -> Look {
    let seen = head.read(|view| -> Result<_, Plain> {
        let entry = view.get(Key::new(7, 0, 0))?.unwrap();
        Ok(Look { block: entry.block().unwrap(), seen: view.seen() })
    });
    seen.unwrap()
}

/// Drops the record, and writes twos wherever there is room.
fn reuse(engine: &Engine, head: &Head, checksum: Checksum) {
    head.update(|view, batch| -> Result<(), Plain> {
        let entry = view.get(Key::new(7, 0, 0))?.unwrap();
        batch.kill(entry.block().unwrap());
        batch.delete(entry.key());
        Ok(())
    })
    .unwrap();
    commit(engine, 5);
    let mut offset = 0;
    while engine.available() > 2 * MIB {
        offset += RECORD as u64;
        put_with(head, policy(checksum), offset, 2, RECORD);
        if offset % (4 * MIB) == 0 {
            engine.commit().unwrap();
        }
    }
    engine.commit().unwrap();
    engine.forget_read();
}

fn errors(engine: &Engine) -> u64 {
    let leaves = engine.storage().vdevs.all().into_iter().flat_map(|vdev| vdev.leaves());
    leaves.map(|leaf| leaf.counters().snapshot()).map(|Counts { checksum_errors, .. }| checksum_errors).sum()
}

/// The byte on the device at the block's address, without verification.
fn lies_there(engine: &Engine, pointer: &BlockPointer) -> u8 {
    let storage = engine.storage();
    let (vdev, offset) = storage.space.resolve(pointer.addresses[0], pointer.stored).unwrap();
    let mut bytes = vec![0; RECORD];
    storage.vdevs.get(vdev).unwrap().read(offset, &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn a_block_that_was_freed_and_reused_is_neither_read_nor_blamed() {
    for (checksum, disks) in [(Checksum::Off, 1), (Checksum::Blake3, 1), (Checksum::Off, 2), (Checksum::Xxh3, 2)] {
        let (engine, head, Look { block, seen }) = world(checksum, disks);
        let (pointer, key) = (block.pointer().unwrap(), Key::new(7, 0, 0));
        reuse(&engine, &head, checksum);
        assert_eq!(lies_there(&engine, &pointer), 2, "others have its place");

        assert!(matches!(head.bytes_at(key, &block, seen), Err(Error::Stale)), "{checksum:?}");
        assert!(matches!(head.bytes(&block, seen), Err(Error::Stale)));
        assert!(matches!(head.bytes_past_cache(key, &block, seen), Err(Error::Stale)));
        assert!(matches!(engine.read_all_stored(&[pointer], &mut [None], seen, &Spares::default()), Err(Error::Stale)));
        let node = Miss { pointer, level: 0, low: Key::MIN, high: Key::MAX };
        let small = Miss { pointer: BlockPointer { stored: 4096, logical: 4096, ..pointer }, ..node };
        assert!(matches!(engine.load_node(&small, seen), Err(Error::Stale)));
        // Reads ahead on behalf of others are not cached either.
        head.bring(iter::repeat_n(&block, 2), iter::empty(), seen);
        head.bring(iter::empty(), iter::once(&block), seen);
        assert!(matches!(head.bytes_at(key, &block, seen), Err(Error::Stale)));
        assert!(engine.cache().data(&pointer).is_none());
        assert!(engine.next_suspect().is_none());
        assert_eq!(errors(&engine), 0, "{checksum:?} on {disks} disks");
    }
}

#[test]
fn a_block_that_comes_after_it_was_reused_is_not_kept() {
    let (engine, head, Look { block, seen }) = world(Checksum::Off, 1);
    // Requested in time, and collected too late: when the device answered is unknown.
    head.bring(iter::empty(), iter::once(&block), seen);
    reuse_keeping_prefetches(&engine, &head);
    assert!(matches!(head.bytes_at(Key::new(7, 0, 0), &block, seen), Err(Error::Stale)));
    assert!(engine.cache().data(&block.pointer().unwrap()).is_none());
}

fn reuse_keeping_prefetches(engine: &Engine, head: &Head) {
    head.update(|view, batch| -> Result<(), Plain> {
        batch.kill(view.get(Key::new(7, 0, 0))?.unwrap().block().unwrap());
        batch.delete(Key::new(7, 0, 0));
        Ok(())
    })
    .unwrap();
    commit(engine, 5);
}

#[test]
fn what_was_freed_can_be_read_for_three_commits() {
    let (engine, head, Look { block, seen }) = world(Checksum::Off, 1);
    let key = Key::new(7, 0, 0);
    head.update(|_, batch| -> Result<(), Plain> {
        batch.kill(block.clone());
        batch.delete(key);
        Ok(())
    })
    .unwrap();
    for _ in 0..=crate::space::DEFERRED_GROUPS - 1 {
        engine.commit_anyway().unwrap();
        engine.forget_read();
        assert!(head.bytes_at(key, &block, seen).unwrap().iter().all(|byte| *byte == 1));
    }
    engine.commit_anyway().unwrap();
    engine.forget_read();
    assert!(matches!(head.bytes_at(key, &block, seen), Err(Error::Stale)));
}

#[test]
fn what_is_pinned_can_be_read_until_room_is_short() {
    let (engine, head, _) = world(Checksum::Off, 1);
    let pinned = engine.pin();
    let root = head.clean_root().unwrap();
    let tree = engine.open_pinned(9, root.0, root.1, pinned);
    let Look { block, seen } = look(&tree);
    reuse_keeping_prefetches(&engine, &head);
    engine.forget_read();
    assert!(tree.bytes_at(Key::new(7, 0, 0), &block, seen).unwrap().iter().all(|byte| *byte == 1));
    engine.storage().space.give_up_holds();
    commit(&engine, 4);
    engine.forget_read();
    assert!(matches!(tree.bytes_at(Key::new(7, 0, 0), &block, seen), Err(Error::Stale)));
    assert!(matches!(tree.check_open(), Err(Error::Stale)));
    assert!(matches!(tree.read(|view| Ok::<_, Plain>(view.seen())), Err(Plain::Error(Error::Stale))));
}

#[test]
fn a_closed_tree_is_not_read_any_more() {
    let (engine, head, _) = world(Checksum::Off, 1);
    let (root, level) = head.clean_root().unwrap();
    let (snapshot, other) = (engine.open_frozen(9, root, level), engine.open_frozen(8, root, level));
    let place = Miss { pointer: root, level, low: Key::MIN, high: Key::MAX };
    assert!(snapshot.load_node(&place).is_ok());
    engine.close_head(9);
    assert!(matches!(snapshot.load_node(&place), Err(Error::Stale)));
    assert!(matches!(snapshot.read(|view| Ok::<_, Plain>(view.seen())), Err(Plain::Error(Error::Stale))));
    assert!(other.load_node(&place).is_ok());
}
