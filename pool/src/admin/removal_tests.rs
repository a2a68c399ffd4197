//! Removal of vdevs from a real pool on simulated devices, at every power failure.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    NewVdev, OpenOptions, Pool, SpareChange, create_of,
    members_tests::{Disk, disks},
    open, rewind,
    stamped::{Stamp, commit, reading, settings, stamp, writing},
    states,
};
use crate::{
    admin::CreateOptions,
    block::{Payload, compression::CompressionChoice},
    check::{self, Ledger},
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::{Env, SeededEnv},
    error::{Error, Result},
    format::{
        key::Key,
        label::DEVICE_REMOVAL,
        pointer::{BlockPointer, Checksum},
    },
    space::{Class, Packs, Regions, SAFE_STATES, Seen, SpaceIo, Targets},
    tree::{Batch, Block, Event, Miss, Node, Policy, Root, View, Walker},
    txg::{Engine, Plain, Sync, SyncClient, Vacating, Written},
    units::{MIB, Txg, VdevId},
    vdev::{Health, labels},
};

const GOES: VdevId = VdevId(1);
const ALL: Regions = Regions::Vdev(GOES);

fn disk(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 64 * MIB))
}

/// The catalogue item that names the kept blocks.
const KEPT: Key = Key::new(8, 9, 0);
/// The length of a kept block, in bytes.
const LEN: usize = 40_000;

/// Writes kept blocks in the first commit.
struct Keeper(Mutex<u64>);

impl SyncClient for Keeper {
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()> {
        for number in 0..std::mem::take(&mut *self.0.lock()) {
            let mut bytes = vec![0; LEN];
            let env = SeededEnv::new(number);
            bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&env.random().to_le_bytes()));
            let block = Block::Stored(sync.write_block(bytes, 1)?);
            sync.catalogue(|_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
                batch.put(Key { offset: number, ..KEPT }, [], Some(&block));
                Ok(())
            })?;
        }
        Stamp.sync(sync, written)
    }
}

pub(super) fn made(vdevs: &[NewVdev]) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Keeper(Mutex::new(60))));
    commit(&pool, 8);
    assert!(kept(pool.engine()).iter().any(|pointer| place(pool.engine(), pointer) == GOES) || vdevs.len() < 2);
    pool
}

/// All blocks that the catalogue's items name.
pub(super) fn kept(engine: &Arc<Engine>) -> Vec<BlockPointer> {
    let mut pointers = Vec::new();
    each_node(engine, |_, node| {
        pointers
            .extend(node.leaf().into_iter().flat_map(|leaf| leaf.items().iter().filter_map(|item| leaf.pointer(item))));
    });
    pointers
}

fn place(engine: &Engine, pointer: &BlockPointer) -> VdevId {
    engine.storage().space.resolve(pointer.addresses[0], pointer.stored).unwrap().0
}

fn each_node(engine: &Arc<Engine>, mut visit: impl FnMut(&BlockPointer, &Node)) {
    let (root, level) = engine.catalogue().clean_root().unwrap();
    let root = Miss::root(&Root::stored(root, level)).unwrap();
    let mut walker = Walker::new(root, Key::MIN, Txg::ZERO);
    while let Some(event) = walker.next(|place| engine.load_node(place, Seen::HELD)).unwrap() {
        if let Event::Enter(place, node) = event {
            visit(&place.pointer, &node);
        }
    }
}

/// The txg of the shown state, after a complete read from the devices.
pub(super) fn shown(engine: &Arc<Engine>) -> Txg {
    engine.forget_read();
    let mut ledger = Ledger::default();
    check::enter_catalogue(engine, &mut ledger);
    kept(engine).iter().for_each(|pointer| assert!(ledger.refer(pointer, "kept") < u32::MAX));
    assert_eq!(check::conclude(engine, &mut ledger).unwrap(), []);
    assert_eq!(kept(engine).len(), 61);
    stamp(engine).0
}

pub(super) fn opened_with(devices: &[Arc<dyn Device>], options: &OpenOptions, seed: u64) -> Result<Pool> {
    let pool = open(devices.to_vec(), options, Arc::new(SeededEnv::new(seed)))?;
    if !options.read_only {
        pool.engine().set_client(Arc::new(Stamp));
    }
    Ok(pool)
}

pub(super) fn opened(devices: &[Arc<dyn Device>], seed: u64) -> Pool {
    opened_with(devices, &writing(), seed).unwrap()
}

/// Copies every block that the catalogue refers to, like a walk over all trees.
pub(super) fn copy_all(engine: &Arc<Engine>) {
    assert!(copy_all_and(engine, || ()));
}

/// Like [`copy_all`], running `work` before the chunks change places; returns whether they do.
fn copy_all_and(engine: &Arc<Engine>, work: impl FnOnce()) -> bool {
    engine.commit_anyway().unwrap();
    let evacuation = engine.evacuation();
    {
        let still = engine.hold_still();
        each_node(engine, |pointer, _| assert!(still.evacuate(&[*pointer])[0].is_ok()));
        kept(engine).iter().for_each(|pointer| assert!(still.evacuate(&[*pointer])[0].is_ok()));
    }
    work();
    engine.hold_still().change_places(&evacuation).unwrap()
}

/// Empties regions, and reopens them when the table says where their chunks are.
fn empty(pool: &Pool, regions: &Regions) {
    let engine = pool.engine();
    engine.activate(DEVICE_REMOVAL).unwrap();
    engine.close(regions);
    while engine.vacate(regions, &Targets::Anywhere, Packs::Never).unwrap() != Vacating::Copying {}
    copy_all(engine);
    assert!(!engine.reopen(regions));
    engine.commit_anyway().unwrap();
    assert!(engine.has_changed_places(regions) && engine.reopen(regions));
}

/// Overwrites all space available for data, and frees it again.
fn scribble(engine: &Engine) {
    const PIECE: u32 = 256 << 10;
    let storage = engine.storage();
    engine.with_open_txg(|txg| {
        let take = || storage.space.allocate(txg, Class::Data, PIECE, 1, &storage.vdevs).ok();
        let taken: Vec<_> = std::iter::from_fn(take).map(|allocation| allocation.addresses[0]).collect();
        for address in taken {
            let (vdev, offset) = storage.space.resolve(address, PIECE).unwrap();
            storage.vdevs.write(vdev, offset, &[0xee; PIECE as usize]).unwrap();
            storage.space.free(txg, address, PIECE).unwrap();
        }
    });
}

/// Removes the vdev.
fn remove(pool: &Pool) {
    vacate(pool);
    pool.remove_vdev(GOES).unwrap();
}

/// Vacates the vdev for its removal.
fn vacate(pool: &Pool) {
    let engine = pool.engine();
    engine.activate(DEVICE_REMOVAL).unwrap();
    engine.close(&ALL);
    for _ in 0..100 {
        match engine.vacate(&ALL, &Targets::Anywhere, Packs::Never).unwrap() {
            Vacating::Working => {}
            Vacating::Copying => copy_all(engine),
            Vacating::Vacated => return engine.outlast_states().unwrap(),
            Vacating::Waiting => panic!("nobody holds a state"),
        }
    }
    panic!("it is not vacated");
}

fn vdevs(pool: &Pool) -> Vec<u32> {
    pool.label().vdevs.iter().map(|vdev| vdev.id.0).collect()
}

#[test]
fn chunks_stay_if_the_pool_was_suspended_during_their_copy() {
    let disks = ["a", "b"].map(|name| Arc::new(FaultDevice::new(disk(name))));
    let pool = made(&disks.clone().map(|disk| NewVdev::Disk(disk)));
    let (engine, suspension) = (pool.engine(), pool.engine().suspension());
    suspension.enable();
    engine.activate(DEVICE_REMOVAL).unwrap();
    engine.close(&ALL);
    while engine.vacate(&ALL, &Targets::Anywhere, Packs::Never).unwrap() != Vacating::Copying {}
    let fail = || {
        suspension.suspend(suspension.era(), &Error::Request("a cable was pulled".into()));
        disks[0].lose_cache();
        pool.clear(&|_| unreachable!("they are there")).unwrap();
    };
    assert!(!copy_all_and(engine, fail), "who was asked to hold them may have lost them");
    assert!(!engine.has_changed_places(&ALL));
    assert!(engine.reopen(&ALL));
    remove(&pool);
    let newest = commit(&pool, 3);
    assert_eq!((shown(pool.engine()), vdevs(&pool)), (newest, vec![0]));
}

#[test]
fn a_disk_leaves_and_nothing_is_lost() {
    let devices = [disk("a"), disk("b")];
    let pool = made(&devices.clone().map(NewVdev::Disk));
    assert_eq!(pool.engine().space_totals().size, 124 * MIB);
    remove(&pool);
    let newest = commit(&pool, 3);
    assert_eq!(shown(pool.engine()), newest);
    assert_eq!((vdevs(&pool), pool.engine().space_totals().size), (vec![0], 62 * MIB));
    assert!(labels::read_label(&*devices[1]).unwrap().is_none());
    drop(pool);
    let pool = opened(&devices[..1], 2);
    assert_eq!((shown(pool.engine()), pool.engine().space_totals().size), (newest, 62 * MIB));
    // Its number is not reused.
    pool.add(vec![devices[1].clone()]).unwrap();
    let newest = commit(&pool, 3);
    assert_eq!((vdevs(&pool), shown(pool.engine())), (vec![0, 2], newest));
    drop(pool);
    assert_eq!(shown(opened(&devices, 3).engine()), newest);
}

#[test]
fn after_a_crash_the_pool_is_whole_with_or_without_the_disk() {
    let recorder = Recorder::new();
    let devices: Vec<Arc<dyn Device>> =
        ["a", "b"].map(|name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>).to_vec();
    let pool = made(&[NewVdev::Disk(devices[0].clone()), NewVdev::Disk(devices[1].clone())]);
    let (begin, first) = (recorder.len(), pool.engine().committed());
    remove(&pool);
    let removed = recorder.len();
    let last = commit(&pool, 2);
    drop(pool);
    let mut outcomes = [0; 2];
    for (cut, seed) in (begin..=recorder.len()).zip(0..) {
        let what = format!("cut {cut} of {begin} to {removed}, seed {seed}");
        let images: Vec<Arc<dyn Device>> =
            recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter().map(|image| Arc::new(image) as _).collect();
        let there: Vec<Arc<dyn Device>> =
            images.iter().filter(|image| labels::read_label(&***image).unwrap().is_some()).cloned().collect();
        for state in states(&there, &writing()).unwrap().into_iter().take(SAFE_STATES) {
            let state = state.txg;
            let found =
                opened_with(&there, &reading(Some(state)), 5).unwrap_or_else(|e| panic!("{what}, {state}: {e}"));
            assert_eq!(shown(found.engine()), state, "{what}");
        }
        let pool = opened(&there, 7);
        let state = shown(pool.engine());
        assert!((first..=last).contains(&state), "{what}: {state}");
        let is_gone = vdevs(&pool) == [0];
        assert!(is_gone || vdevs(&pool) == [0, 1] && cut < removed, "{what}");
        outcomes[usize::from(is_gone)] += 1;
        // The removal can be completed.
        if !is_gone {
            remove(&pool);
        }
        let state = commit(&pool, 1);
        drop(pool);
        assert_eq!(shown(opened(&images[..1], 8).engine()), state, "{what}");
    }
    assert!(outcomes.iter().all(|count| *count > 3), "{outcomes:?}");
}

#[test]
fn after_a_crash_moved_chunks_are_whole_in_all_safe_states() {
    let recorder = Recorder::new();
    let device: Arc<dyn Device> = Arc::new(recorder.wrap(MemoryDevice::new("a", 64 * MIB)));
    let pool = made(&[NewVdev::Disk(device)]);
    let engine = pool.engine();
    let regions = Regions::Range(VdevId(0), 0..20);
    let is_there = |pointer: &BlockPointer| {
        engine.storage().space.lies_in(pointer.addresses[0], pointer.stored, &regions).unwrap()
    };
    assert!(kept(engine).iter().filter(|pointer| is_there(pointer)).count() > 50);
    let (begin, first) = (recorder.len(), engine.committed());
    empty(&pool, &regions);
    assert_eq!(kept(engine).iter().filter(|pointer| is_there(pointer)).count(), 0);
    let last = commit(&pool, SAFE_STATES + 2);
    drop(pool);
    for (cut, seed) in (begin..=recorder.len()).zip(0..) {
        let what = format!("cut {cut} of {begin} to {}, seed {seed}", recorder.len());
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        let there: Vec<Arc<dyn Device>> = images.into_iter().map(|image| Arc::new(image) as _).collect();
        let pool = opened(&there, 7);
        let state = shown(pool.engine());
        assert!((first..=last).contains(&state), "{what}: {state}");
        // All free space is overwritten, and power fails again.
        scribble(pool.engine());
        drop(pool);
        for kept in states(&there, &writing()).unwrap().into_iter().take(SAFE_STATES) {
            let found = opened_with(&there, &reading(Some(kept.txg)), 5);
            let found = found.unwrap_or_else(|error| panic!("{what}, {}: {error}", kept.txg));
            assert_eq!(shown(found.engine()), kept.txg, "{what}");
        }
    }
}

#[test]
fn rewinding_works_while_the_disk_is_there_and_not_beyond() {
    let devices = [disk("a"), disk("b")];
    let pool = made(&devices.clone().map(NewVdev::Disk));
    let before = pool.engine().committed();
    remove(&pool);
    drop(pool);
    let there = &devices[..1];
    let kept = states(there, &writing()).unwrap();
    assert!(kept.iter().any(|state| state.txg == before), "its uberblock is still in the ring");
    for state in kept.iter().take(SAFE_STATES) {
        assert_eq!(shown(opened_with(there, &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
    }
    let refused = opened_with(there, &reading(Some(before)), 3).err().unwrap().to_string();
    assert!(refused.contains("vdev 1, which was removed from the pool since"), "{refused}");
    let refused = rewind(there, before, &writing(), &SeededEnv::new(4)).unwrap_err().to_string();
    assert!(refused.contains("was removed"), "{refused}");
    let oldest = kept[SAFE_STATES - 1].txg;
    rewind(there, oldest, &writing(), &SeededEnv::new(4)).unwrap();
    assert_eq!(shown(opened(there, 5).engine()), oldest);
}

#[test]
fn a_removal_that_is_given_up_leaves_everything_as_it_was() {
    let devices = [disk("a"), disk("b")];
    let pool = made(&devices.clone().map(NewVdev::Disk));
    let engine = pool.engine();
    let size = engine.space_totals().size;
    engine.close(&ALL);
    while engine.vacate(&ALL, &Targets::Anywhere, Packs::Never).unwrap() != Vacating::Copying {}
    assert!(engine.space_totals().size < size);
    assert!(engine.reopen(&ALL));
    commit(&pool, 3);
    let totals = engine.space_totals();
    assert_eq!((totals.size, totals.allocated + totals.deferred + totals.free), (size, size));
    assert_eq!(shown(engine), engine.committed());
    // All space is usable.
    let used: Vec<VdevId> = engine.with_open_txg(|txg| {
        let storage = engine.storage();
        let take = || storage.space.allocate(txg, Class::Data, MIB as u32, 1, &storage.vdevs).ok();
        let taken: Vec<_> = std::iter::from_fn(take).map(|allocation| allocation.addresses[0]).collect();
        let place = |address| storage.space.resolve(address, MIB as u32).unwrap().0;
        let used = taken.iter().map(|address| place(*address)).collect();
        taken.iter().for_each(|address| storage.space.free(txg, *address, MIB as u32).unwrap());
        used
    });
    assert!(used.iter().filter(|vdev| **vdev == GOES).count() > 50, "{used:?}");
}

#[test]
fn without_enough_empty_chunks_there_are_no_twins() {
    let devices = [disk("a"), disk("b")];
    let pool = made(&devices.clone().map(NewVdev::Disk));
    let engine = pool.engine();
    let storage = engine.storage();
    let policy = Policy {
        compression: CompressionChoice::Off,
        checksum: Checksum::Blake3,
        copies: 1,
        small_blocks: 0,
        placement: crate::space::Placement::ANYWHERE,
    };
    let payload = Payload::new(Arc::new(vec![7; MIB as usize]), policy);
    let pointers: Vec<_> = engine.with_open_txg(|txg| {
        (0..80).map(|_| storage.write_blocks(txg, Class::Data, std::slice::from_ref(&payload)).unwrap()[0]).collect()
    });
    commit(&pool, 1);
    let plan = pool.plan_removal(GOES).unwrap();
    assert!(!plan.fits() && plan.needed >= 35, "{plan:?}");
    engine.close(&ALL);
    let refused = loop {
        match engine.vacate(&ALL, &Targets::Anywhere, Packs::Never) {
            Ok(Vacating::Working) => {}
            other => break other,
        }
    };
    assert!(matches!(refused, Err(crate::error::Error::OutOfSpace)), "{refused:?}");
    assert!(engine.reopen(&ALL));
    engine.with_open_txg(|txg| pointers.iter().for_each(|pointer| storage.free(txg, pointer).unwrap()));
    commit(&pool, SAFE_STATES + 1);
    remove(&pool);
    assert_eq!(shown(pool.engine()), pool.engine().committed());
}

#[test]
fn the_only_vdev_stays() {
    let pool = made(&[NewVdev::Disk(disk("a"))]);
    assert!(pool.plan_removal(VdevId(0)).unwrap_err().to_string().contains("only vdev"));
    assert!(pool.remove_vdev(VdevId(0)).is_err());
}

#[test]
fn what_is_kept_for_metadata_is_not_taken_for_twins() {
    let devices = [disk("a"), disk("b")];
    let pool = made(&devices.clone().map(NewVdev::Disk));
    let engine = pool.engine();
    assert!(pool.plan_removal(GOES).unwrap().fits());
    engine.close(&ALL);
    // Another writer takes the space first.
    let storage = engine.storage();
    let policy = Policy {
        compression: CompressionChoice::Off,
        checksum: Checksum::Blake3,
        copies: 1,
        small_blocks: 0,
        placement: crate::space::Placement::ANYWHERE,
    };
    let payload = Payload::new(Arc::new(vec![7; MIB as usize]), policy);
    let write = |txg| storage.write_blocks(txg, Class::Data, std::slice::from_ref(&payload));
    engine.with_open_txg(|txg| while storage.space.free_for(Class::Data) >= 2 * MIB && write(txg).is_ok() {});
    let spare = || storage.space.totals().free;
    let refused = loop {
        match engine.vacate(&ALL, &Targets::Anywhere, Packs::Never) {
            Ok(Vacating::Working) => {}
            other => break other,
        }
    };
    assert!(matches!(refused, Err(crate::error::Error::OutOfSpace)), "{refused:?}");
    assert!(spare() > storage.space.totals().last_resort, "what metadata needs is left");
    commit(&pool, 3);
}

#[test]
fn raidz_chunks_move_whole_only_to_a_raidz_of_equal_shape() {
    let devices = ["a", "b", "c", "d", "e", "f"].map(disk);
    let raidz = |devices: &[Arc<dyn Device>]| NewVdev::RaidZ { parity: 1, devices: devices.to_vec() };
    let pool = made(&[raidz(&devices[..3]), raidz(&devices[3..])]);
    remove(&pool);
    let newest = commit(&pool, 3);
    drop(pool);
    // Any two of the remaining devices suffice.
    assert_eq!(shown(opened(&devices[1..3], 2).engine()), newest);
    let pool = made(&[raidz(&["g", "h", "i"].map(disk)), NewVdev::Disk(disk("j"))]);
    let plan = pool.plan_removal(GOES).unwrap();
    assert!(plan.needed > 0 && plan.available == 0 && !plan.fits_whole(), "{plan:?}");
    assert!(plan.packed > 0 && plan.fits(), "{plan:?}");
}

/// The mirrors of `a` and `b` and of `c` and `d`. The second is being removed when `d` fails and the spare `s` steps
/// in.
fn leaving_with_a_spare(disks: &[Disk]) -> Pool {
    let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let pool = made(&[NewVdev::Mirror(devices[..2].to_vec()), NewVdev::Mirror(devices[2..4].to_vec())]);
    pool.add_spares(&devices[4..]).unwrap();
    pool.engine().close(&ALL);
    disks[3].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    let in_use = SpareChange::InUse { spare: "s".into(), device: "d".into() };
    assert_eq!(pool.spare_step().unwrap(), [in_use]);
    let refused = pool.plan_removal(GOES).unwrap_err().to_string();
    assert!(refused.contains("a resilver is in progress"), "only that keeps the removal from going on: {refused}");
    vacate(&pool);
    pool
}

#[test]
fn a_spare_in_use_in_a_vdev_that_leaves_is_available_again() {
    for fails in [false, true] {
        let disks = disks("a b c d s");
        let pool = leaving_with_a_spare(&disks);
        if fails {
            disks[4].vanish();
            commit(&pool, 1);
        }
        pool.remove_vdev(GOES).unwrap();
        let spares_of = |pool: &Pool| pool.spares().iter().map(|s| (s.used_in, s.leaf.health())).collect::<Vec<_>>();
        let health = if fails { Health::Unavailable } else { Health::Online };
        assert_eq!(spares_of(&pool), [(None, health)]);
        let newest = commit(&pool, 2);
        drop(pool);
        disks[4].heal();
        let devices: Vec<Arc<dyn Device>> = [0, 1, 4].map(|at: usize| disks[at].clone() as Arc<dyn Device>).to_vec();
        let pool = opened(&devices, 3);
        assert_eq!((shown(pool.engine()), spares_of(&pool)), (newest, vec![(None, Health::Online)]));
        assert!(pool.remove_spare("s").unwrap());
        assert_eq!(labels::read_label(&*disks[4]).unwrap(), None);
    }
}

#[test]
fn a_spare_survives_a_crash_while_its_vdev_is_removed() {
    let recorder = Recorder::new();
    let recorded = |name| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB)))));
    let pool = leaving_with_a_spare(&["a", "b", "c", "d", "s"].map(recorded));
    let begin = recorder.len();
    pool.remove_vdev(GOES).unwrap();
    drop(pool);
    let mut outcomes = [0; 3];
    for (cut, seed) in cuts(begin..=recorder.len(), 2) {
        let what = format!("cut {cut} of {begin} to {}, seed {seed}", recorder.len());
        let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        let there = images.iter().filter(|image| matches!(labels::read_label(&***image), Ok(Some(_))));
        let there: Vec<Arc<dyn Device>> = there.map(|image| image.clone() as Arc<dyn Device>).collect();
        let pool = opened(&there, 7);
        let is_gone = vdevs(&pool) == [0];
        if !is_gone {
            vacate(&pool);
            pool.remove_vdev(GOES).unwrap();
        }
        let health = pool.spares()[0].leaf.health();
        outcomes[usize::from(is_gone) + usize::from(is_gone && health != Health::Online)] += 1;
        // Power failed while its label was rewritten: it is missing, and free.
        if health != Health::Online {
            let spare: Arc<dyn Device> = images[4].clone();
            assert!(pool.remove_spare("s").unwrap());
            pool.add_spares(&[spare]).unwrap();
        }
        images[1].inject(Fault::failing(Operation::Write));
        commit(&pool, 1);
        let in_use = SpareChange::InUse { spare: "s".into(), device: "b".into() };
        assert_eq!(pool.spare_step().unwrap(), [in_use], "{what}");
        assert_eq!(shown(pool.engine()), pool.engine().committed(), "{what}");
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
