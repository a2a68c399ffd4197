//! The engine on memory devices: commits, crashes at every write, checks.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use super::*;
use crate::{
    admin::{self, CreateOptions, OpenOptions},
    block::compression::CompressionChoice,
    check::{self, Ledger},
    device::{Device, Fate, MemoryDevice, Recorder},
    env::{Env, SeededEnv, noise},
    error::{Error, Result},
    format::{key::Key, pointer::Checksum},
    space::Seen,
    tree::{Batch, Block, Policy, View},
    units::{MIB, Txg},
};

mod ahead;
mod cached;
mod dropped;
mod rows;
mod seen;
mod suspension;
mod together;

const POLICY: Policy = Policy {
    compression: CompressionChoice::Lz4,
    checksum: Checksum::Blake3,
    copies: 1,
    small_blocks: 0,
    placement: crate::space::Placement::ANYWHERE,
};
/// The catalogue's key of the test's tree.
const TREE: Key = Key::new(1, 1, 0);

/// The least of an upper layer: keeps one tree's root in the catalogue, and frees the tree's dropped blocks.
struct OneTree;

impl SyncClient for OneTree {
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()> {
        for Written { root, level, kills, .. } in written {
            kills.iter().try_for_each(|pointer| sync.free(pointer))?;
            let put = |_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
                batch.put(TREE, [level], Some(&Block::Stored(root)));
                Ok(())
            };
            sync.catalogue(put)?;
        }
        Ok(())
    }
}

fn settings() -> Settings {
    Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
}

fn create(device: Arc<dyn Device>, seed: u64) -> (Arc<Engine>, Arc<Head>) {
    create_with(device, seed, 12)
}

fn create_with(device: Arc<dyn Device>, seed: u64, ashift: u8) -> (Arc<Engine>, Arc<Head>) {
    let options = CreateOptions { settings: settings(), ashift, ..CreateOptions::new("tank") };
    let pool = admin::create(vec![device], &options, Arc::new(SeededEnv::new(seed))).unwrap();
    let engine = pool.engine().clone();
    engine.set_client(Arc::new(OneTree));
    let head = engine.open_head(1, None);
    (engine, head)
}

fn open(device: Arc<dyn Device>) -> Result<(Arc<Engine>, Option<Arc<Head>>)> {
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    let pool = admin::open(vec![device], &options, Arc::new(SeededEnv::new(1)))?;
    let engine = pool.engine().clone();
    engine.set_client(Arc::new(OneTree));
    let root = engine.catalogue().read(|view| -> Result<_, Plain> {
        Ok(view.get(TREE)?.map(|entry| (entry.block().unwrap().pointer().unwrap(), entry.body()[0])))
    })?;
    let head = root.map(|root| engine.open_head(1, Some(root)));
    Ok((engine, head))
}

/// Puts a record of `len` bytes of `byte`, and kills the previous record.
fn put(head: &Head, offset: u64, byte: u8, len: usize) {
    put_with(head, POLICY, offset, byte, len);
}

/// As [`put`], a megabyte without compression.
fn put_whole(head: &Head, offset: u64) {
    put_with(head, Policy { compression: CompressionChoice::Off, ..POLICY }, offset, 1, 1 << 20);
}

fn put_with(head: &Head, policy: Policy, offset: u64, byte: u8, len: usize) {
    head.admit(len as u64).unwrap();
    let key = Key::new(7, 0, offset);
    head.update(|view, batch| -> Result<(), Plain> {
        if let Some(block) = view.get(key)?.and_then(|entry| entry.block()) {
            batch.kill(block);
        }
        let record = head.record(view.txg(), policy, vec![byte; len]);
        batch.put(key, [byte], Some(&Block::Pending(record)));
        Ok(())
    })
    .unwrap();
}

fn contents(head: &Head) -> BTreeMap<u64, (u8, usize)> {
    let entries = head.read(|view| -> Result<Vec<_>, Plain> {
        let entries: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
        Ok(entries?)
    });
    let entries = entries.unwrap();
    let content = |entry: &crate::tree::Entry| {
        let bytes = head.bytes(&entry.block().unwrap(), Seen::HELD).unwrap();
        assert!(bytes.iter().all(|&byte| byte == entry.body()[0]));
        (entry.key().offset, (bytes[0], bytes.len()))
    };
    entries.iter().map(content).collect()
}

fn findings(engine: &Arc<Engine>, head: Option<&Head>) -> Vec<check::Finding> {
    let mut ledger = Ledger::default();
    check::enter_catalogue(engine, &mut ledger);
    if let Some(root) = head.and_then(Head::clean_root) {
        check::walk_tree(engine, root, Txg::ZERO, &mut ledger, "tree", |ledger, node| {
            let leaf = node.leaf().unwrap();
            for pointer in leaf.items().iter().filter_map(|item| leaf.pointer(item)) {
                ledger.refer(&pointer, "record");
            }
        });
    }
    check::conclude(engine, &mut ledger).unwrap()
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let device = Arc::new(MemoryDevice::new("disk", 64 * MIB));
    let (engine, head) = create(device.clone(), 1);
    for offset in 0..300 {
        put(&head, offset, offset as u8, 1000 + offset as usize * 7);
    }
    engine.commit().unwrap();
    put(&head, 5, 99, 10);
    let before = contents(&head);
    engine.commit().unwrap();
    assert_eq!(findings(&engine, Some(&head)), []);
    drop((engine, head));
    let (engine, head) = open(device).unwrap();
    let head = head.unwrap();
    assert_eq!(contents(&head), before);
    assert_eq!(findings(&engine, Some(&head)), []);
}

#[test]
fn a_commit_with_nothing_to_do_does_nothing() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    put(&head, 1, 1, 10);
    let txg = engine.commit().unwrap();
    assert_eq!(engine.commit().unwrap(), txg);
}

/// Commits as an idle committer does.
fn tick(engine: &Engine, times: usize) {
    for _ in 0..times {
        engine.tick().unwrap();
    }
}

#[test]
fn freed_space_returns_on_an_idle_pool_which_then_rests() {
    let recorder = Recorder::new();
    let (engine, head) = create(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 1);
    let empty = engine.available();
    (0..20).for_each(|offset| put_whole(&head, offset));
    tick(&engine, 1);
    (0..20).for_each(|offset| put(&head, offset, offset as u8, 1000));
    tick(&engine, SETTLING_COMMITS);
    assert!(engine.available() + MIB > empty, "{} of {empty}", engine.available());
    assert!(engine.is_at_rest());
    let written = recorder.len();
    tick(&engine, 100);
    assert_eq!(recorder.len(), written);
}

#[test]
fn a_long_used_pool_comes_to_rest_despite_log_trimming() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    for round in 0..60 {
        put(&head, 1, round, 1000);
        tick(&engine, 1);
    }
    let last = engine.committed();
    tick(&engine, 50);
    assert!(engine.is_at_rest());
    assert!(engine.committed().0 - last.0 <= SETTLING_COMMITS as u64);
}

#[test]
fn a_held_state_lets_the_pool_rest_and_frees_its_space_later() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    (0..20).for_each(|offset| put_whole(&head, offset));
    let full = engine.commit().map(|_| engine.available()).unwrap();
    let (hold, ()) = engine.hold_committed(|_| Ok(())).unwrap();
    (0..20).for_each(|offset| put(&head, offset, offset as u8, 1000));
    tick(&engine, 50);
    assert!(engine.is_at_rest() && engine.available() <= full && !hold.is_lost());
    drop(hold);
    assert!(!engine.is_at_rest());
    tick(&engine, 1);
    assert!(engine.is_at_rest() && engine.available() >= full + 19 * MIB);
}

#[test]
fn a_pool_rewritten_over_and_over_never_fills() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    for round in 0..40 {
        for offset in 0..8 {
            put(&head, offset, round, 1 << 20);
        }
        engine.commit().unwrap();
    }
    assert_eq!(findings(&engine, Some(&head)), []);
}

/// A device on which each write takes 20 ms of the simulated time.
struct Slow {
    memory: MemoryDevice,
    env: Arc<SeededEnv>,
}

impl Device for Slow {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.env.sleep(Duration::from_millis(20));
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}

#[test]
fn writers_are_slowed_only_when_much_is_dirty_with_a_committer() {
    let env = Arc::new(SeededEnv::new(1));
    let device = Slow { memory: MemoryDevice::new("disk", 64 * MIB), env: env.clone() };
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create(vec![Arc::new(device)], &options, env.clone()).unwrap();
    let engine = pool.engine().clone();
    engine.set_client(Arc::new(OneTree));
    let head = engine.open_head(1, None);
    // The simulated time to admit `count` records of 256 KiB, with 8 MiB as the dirty limit.
    let slept = |count: u64| {
        let before = env.uptime();
        (0..count).for_each(|offset| put(&head, offset, 1, 256 << 10));
        env.uptime() - before
    };
    assert_eq!(slept(16), Duration::ZERO, "nobody commits");
    engine.commit().unwrap();
    let kicks = engine.attend();
    kicks.try_recv().expect("the commit was asked for");
    assert_eq!(slept(7), Duration::ZERO, "less than a quarter is not much");
    assert!(kicks.try_recv().is_err());
    assert!(slept(6) > Duration::from_millis(1));
    kicks.try_recv().expect("a commit was asked for");
    engine.commit().unwrap();
    assert_eq!(slept(4), Duration::ZERO);
    engine.unattended();
    assert_eq!(slept(16), Duration::ZERO);
}

/// Cuts a workload at every write, with the writes since the last flush kept, dropped or torn by chance; reopens. The
/// state must be that of a commit, not before the last acknowledged one, and the check must find nothing.
#[test]
fn a_crash_at_every_write_leaves_a_committed_state() {
    for seed in 0..3 {
        crash_run(seed);
    }
}

fn crash_run(seed: u64) {
    let recorder = Recorder::new();
    let device = Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB)));
    let (engine, head) = create(device, seed);
    engine.commit().unwrap();
    let created = recorder.len();
    let mut states = vec![(created, BTreeMap::new())];
    for round in 0..12u64 {
        for step in 0..5 {
            let offset = (round * 7 + step * (seed + 3)) % 23;
            put(&head, offset, (round * 16 + step) as u8, 500 + (offset as usize * 911) % 9000);
        }
        engine.commit().unwrap();
        states.push((recorder.len(), contents(&head)));
    }
    for cut in created..=recorder.len() {
        let mut fate = Fate::seeded(seed ^ (cut as u64) << 8);
        let image = recorder.images_at(cut, &mut fate).remove(0);
        let replay = format!("seed {seed}, cut {cut}");
        let (engine, head) = open(Arc::new(image)).unwrap_or_else(|error| panic!("{replay}: {error}"));
        let found = head.as_ref().map(|head| contents(head)).unwrap_or_default();
        let done = states.iter().rposition(|(end, _)| *end <= cut).unwrap();
        let next = states.get(done + 1).map(|(_, state)| state);
        assert!(found == states[done].1 || Some(&found) == next, "{replay}: state {done} or the next");
        assert_eq!(findings(&engine, head.as_deref()), [], "{replay}");
    }
}

#[test]
fn nobody_waits_for_what_was_given_up_before_it_was_stored() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    let record = head.update(|view, _| Ok::<_, Plain>(head.record(view.txg(), POLICY, noise(1, 8192)))).unwrap();
    put(&head, 0, 1, 100);
    engine.commit().unwrap();
    assert_eq!(head.settle(&Block::Pending(record)).unwrap(), None);
    // A second record, still in the tree, is stored now.
    put_noise(&head, 8192, 8192).unwrap();
    let block = head.read(|view| Ok::<_, Plain>(view.get(Key::new(7, 0, 8192))?.and_then(|entry| entry.block())));
    assert!(head.settle(&block.unwrap().unwrap()).unwrap().is_some());
}

/// As [`put`], of incompressible bytes, if there is room.
fn put_noise(head: &Head, offset: u64, len: usize) -> Result<()> {
    head.admit(len as u64)?;
    head.update(|view, batch| -> Result<(), Plain> {
        let record = head.record(view.txg(), POLICY, noise(offset, len));
        batch.put(Key::new(7, 0, offset), [], Some(&Block::Pending(record)));
        Ok(())
    })?;
    Ok(())
}

fn delete(head: &Head, offset: u64) {
    let key = Key::new(7, 0, offset);
    let delete = |view: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
        batch.kill(view.get(key)?.unwrap().block().unwrap());
        batch.delete(key);
        Ok(())
    };
    head.update(delete).unwrap();
}

/// Every second sector of a full pool becomes free, and records of 128 KiB are written there. Each record then has
/// about 256 pieces, too many for one gang header.
#[test]
fn records_are_stored_in_lonely_sectors() {
    let (engine, head) = create_with(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1, 9);
    let small = (0..).find(|&offset| put_noise(&head, offset, 512).is_err()).unwrap();
    engine.commit().unwrap();
    (0..small).step_by(2).for_each(|offset| delete(&head, offset));
    let large = small..small + 60;
    large.clone().for_each(|offset| put_noise(&head, offset, 128 << 10).unwrap());
    engine.commit().unwrap();
    let mut scattered = 0;
    for offset in large.clone() {
        let entry = head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, offset))?.unwrap()) }).unwrap();
        let pointer = entry.block().unwrap().pointer().unwrap();
        assert_eq!(*engine.read_block(&pointer, Seen::HELD).unwrap(), noise(offset, 128 << 10));
        scattered += usize::from(engine.storage().extents(&pointer).unwrap().len() > 100);
    }
    assert!(scattered > 10, "{scattered} records lie in lonely sectors");
    assert_eq!(findings(&engine, Some(&head)), []);
    large.chain((1..small).step_by(2)).for_each(|offset| delete(&head, offset));
    for _ in 0..4 {
        engine.commit_anyway().unwrap();
    }
    assert_eq!(findings(&engine, Some(&head)), []);
    let totals = engine.space_totals();
    assert!(totals.allocated < totals.size / 50, "{totals:?}");
}

/// As before, but all lonely sectors are filled, freed and filled again, until no commit finds two in a row. Refused
/// writes cost no commits, which would need room themselves; and everything can be deleted.
#[test]
fn a_pool_of_lonely_sectors_that_is_full_goes_on() {
    let device = Arc::new(MemoryDevice::new("disk", 64 * MIB));
    let (engine, head) = create_with(device.clone(), 1, 9);
    let fill = |from: u64| (from..).find(|&offset| put_noise(&head, offset, 512).is_err()).unwrap();
    let mut kept: Vec<u64> = Vec::new();
    let mut end = 0;
    for _ in 0..6 {
        let from = end;
        end = fill(from);
        engine.commit().unwrap();
        let (gone, stay): (Vec<u64>, Vec<u64>) = kept.into_iter().chain(from..end).partition(|offset| offset % 2 == 0);
        gone.into_iter().for_each(|offset| delete(&head, offset));
        kept = stay;
        engine.commit().unwrap();
        let large = (end..).find(|&offset| put_noise(&head, offset, 128 << 10).is_err()).unwrap();
        kept.extend(end..large);
        end = large;
        engine.commit().unwrap();
    }
    for _ in 0..4 {
        engine.commit_anyway().unwrap();
    }
    let before = engine.committed();
    for _ in 0..100 {
        assert!(matches!(head.admit(engine.available() + 1), Err(Error::OutOfSpace)));
    }
    assert!(engine.committed().0 - before.0 <= 4, "{before} {}", engine.committed());
    assert_eq!(findings(&engine, Some(&head)), []);
    drop((engine, head));

    let (engine, head) = open(device).unwrap();
    let head = head.unwrap();
    for (count, offset) in kept.into_iter().enumerate() {
        delete(&head, offset);
        if count % 1000 == 0 {
            engine.commit().unwrap();
        }
    }
    for _ in 0..4 {
        engine.commit_anyway().unwrap();
    }
    assert_eq!(findings(&engine, Some(&head)), []);
    let totals = engine.space_totals();
    assert!(totals.allocated < totals.size / 50, "{totals:?}");
}

/// Fills the pool with small records, frees every second one, and writes large ones into the holes.
#[test]
fn records_without_contiguous_room_are_stored_in_pieces() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    let put = |offset: u64, len: usize| -> Result<()> {
        head.admit(len as u64)?;
        head.update(|view, batch| -> Result<(), Plain> {
            let record = head.record(view.txg(), POLICY, noise(offset, len));
            batch.put(Key::new(7, 0, offset), [], Some(&Block::Pending(record)));
            Ok(())
        })?;
        Ok(())
    };
    let small = (0..).find(|&offset| put(offset, 8192).is_err()).unwrap();
    engine.commit().unwrap();
    for offset in (0..small).step_by(2) {
        let key = Key::new(7, 0, offset);
        let delete = |view: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
            batch.kill(view.get(key)?.unwrap().block().unwrap());
            batch.delete(key);
            Ok(())
        };
        head.update(delete).unwrap();
    }
    let large = (small..small + 40).take_while(|&offset| put(offset, 400_000).is_ok()).count() as u64;
    assert_eq!(large, 40, "half of the pool is free, in holes");
    engine.commit().unwrap();
    let is_gang = |offset: u64| {
        let entry = head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, offset))?.unwrap()) }).unwrap();
        let pointer = entry.block().unwrap().pointer().unwrap();
        engine.forget_read();
        assert_eq!(*engine.read_block(&pointer, Seen::HELD).unwrap(), noise(offset, 400_000));
        pointer.gang
    };
    assert!((small..small + large).filter(|&offset| is_gang(offset)).count() > 10);
    assert_eq!(findings(&engine, Some(&head)), []);
    for offset in small..small + large {
        let key = Key::new(7, 0, offset);
        let delete = |view: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
            batch.kill(view.get(key)?.unwrap().block().unwrap());
            batch.delete(key);
            Ok(())
        };
        head.update(delete).unwrap();
    }
    engine.commit().unwrap();
    assert_eq!(findings(&engine, Some(&head)), []);
}
