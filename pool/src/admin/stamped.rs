//! For tests: a pool that records its txg in each state, and frees a block of the previous state.

use std::sync::Arc;

use super::{CreateOptions, OpenOptions, Pool, create, open};
use crate::{
    check::{self, Ledger},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    error::Result,
    format::{key::Key, pointer::BlockPointer},
    tree::{Batch, Block, View},
    txg::{Engine, Plain, Settings, Sync, SyncClient, Written},
    units::{MIB, Txg},
};

pub(super) fn settings() -> Settings {
    Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
}

pub(super) fn writing() -> OpenOptions {
    OpenOptions { settings: settings(), ..OpenOptions::default() }
}

pub(super) fn reading(state: Option<Txg>) -> OpenOptions {
    OpenOptions { read_only: true, state, ..writing() }
}

pub(super) fn disk() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("disk", 64 * MIB))
}

/// A copy of the device with another size, truncated or extended.
pub(super) fn resized(device: &dyn Device, size: u64) -> MemoryDevice {
    let copy = MemoryDevice::new(device.name(), size);
    let common = device.size().min(size);
    let mut page = vec![0; MIB as usize];
    for offset in (0..common).step_by(page.len()) {
        let page = &mut page[..(common - offset).min(MIB) as usize];
        device.read_at(offset, page).unwrap();
        if page.iter().any(|byte| *byte != 0) {
            copy.write_at(offset, page).unwrap();
        }
    }
    copy
}

fn made(device: Arc<dyn Device>) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    create(vec![device], &options, Arc::new(SeededEnv::new(1))).unwrap()
}

pub(super) fn opened(device: &Arc<dyn Device>, options: &OpenOptions, seed: u64) -> Result<Pool> {
    open(vec![device.clone()], options, Arc::new(SeededEnv::new(seed)))
}

/// The catalogue item that records the txg.
const KEY: Key = Key::new(7, 9, 0);

/// Writes the txg into each commit, and a block that the next commit frees.
pub(super) struct Stamp;

impl SyncClient for Stamp {
    fn sync(&self, sync: &mut Sync<'_>, _: Vec<Written>) -> Result<()> {
        let before = sync.look(|view| Ok(view.get(KEY)?.and_then(|entry| entry.block())))?;
        if let Some(pointer) = before.as_ref().and_then(Block::pointer) {
            sync.free(&pointer)?;
        }
        let txg = sync.txg().0;
        let block = Block::Stored(sync.write_block(vec![txg as u8; 5000], 1)?);
        let put = |_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
            batch.put(KEY, txg.to_le_bytes(), Some(&block));
            Ok(())
        };
        Ok(sync.catalogue(put)?)
    }
}

pub(super) fn commit(pool: &Pool, times: usize) -> Txg {
    for _ in 0..times {
        pool.engine().commit_anyway().unwrap();
    }
    pool.engine().committed()
}

pub(super) fn writing_pool(device: &Arc<dyn Device>, seed: u64) -> Pool {
    let pool = opened(device, &writing(), seed).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    pool
}

/// The txg recorded in the shown state, and its block.
pub(super) fn stamp(engine: &Engine) -> (Txg, BlockPointer) {
    let entry = engine.catalogue().read(|view| -> Result<_, Plain> { Ok(view.get(KEY)?) }).unwrap().unwrap();
    let pointer = entry.block().and_then(|block| block.pointer()).unwrap();
    (Txg(u64::from_le_bytes(entry.body().try_into().unwrap())), pointer)
}

/// The txg recorded in the shown state, after a complete check.
pub(super) fn shown(engine: &Arc<Engine>) -> Txg {
    let (txg, pointer) = stamp(engine);
    let mut ledger = Ledger::default();
    check::enter_catalogue(engine, &mut ledger);
    ledger.refer(&pointer, "stamp");
    assert_eq!(check::conclude(engine, &mut ledger).unwrap(), []);
    txg
}

/// An exported pool after some commits.
pub(super) fn stamped(device: Arc<dyn Device>) -> (Arc<dyn Device>, Txg) {
    let pool = made(device.clone());
    pool.engine().set_client(Arc::new(Stamp));
    let newest = commit(&pool, 8);
    (device, newest)
}
