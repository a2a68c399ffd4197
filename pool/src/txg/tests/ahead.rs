//! Sequential reads: the next blocks are prefetched by then, each block is read once, and reads return the right bytes
//! whatever happens to the prefetch.

use std::{
    iter,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::*;
use crate::{
    admin::{NewVdev, Pool, create_of},
    device::Pending,
    format::pointer::BlockPointer,
    space::Seen,
    tree::Miss,
};

const RECORDS: u64 = 64;
const RECORD: u64 = 64 << 10;
/// The budget of prefetch with the cache of these tests, in bytes.
const BUDGET: u64 = MIB;

/// A device that performs a prefetched read only when it is waited for, and counts its requests.
struct Late {
    memory: Arc<MemoryDevice>,
    asked: Arc<Asked>,
}

/// In bytes.
#[derive(Default)]
struct Asked {
    /// Read at once.
    at_once: AtomicU64,
    /// Begun to be read; waited for; and begun, but neither waited for nor given up.
    begun: AtomicU64,
    fetched: AtomicU64,
    pending: AtomicU64,
    most_pending: AtomicU64,
}

/// A request under way.
struct Request {
    asked: Arc<Asked>,
    len: u64,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.asked.pending.fetch_sub(self.len, Relaxed);
    }
}

impl Device for Late {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.asked.at_once.fetch_add(buf.len() as u64, Relaxed);
        self.memory.read_at(offset, buf)
    }

    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let request = Request { asked: self.asked.clone(), len: len as u64 };
        request.asked.begun.fetch_add(request.len, Relaxed);
        let pending = request.asked.pending.fetch_add(request.len, Relaxed) + request.len;
        request.asked.most_pending.fetch_max(pending, Relaxed);
        let memory = self.memory.clone();
        Pending::Begun(Box::new(move || {
            request.asked.fetched.fetch_add(request.len, Relaxed);
            let mut bytes = vec![0; request.len as usize];
            memory.read_at(offset, &mut bytes).map(|()| bytes)
        }))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}

/// A pool on [`Late`] devices, with consecutive records.
struct World {
    devices: Vec<Arc<Late>>,
    pool: Pool,
    head: Arc<Head>,
    blocks: Vec<Block>,
}

impl World {
    fn new(count: usize, shape: impl Fn(Vec<Arc<dyn Device>>) -> Vec<NewVdev>) -> World {
        let late = |number| Late {
            memory: Arc::new(MemoryDevice::new(format!("disk{number}"), 128 * MIB)),
            asked: Arc::default(),
        };
        let devices: Vec<Arc<Late>> = (0..count).map(|number| Arc::new(late(number))).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let vdevs = shape(devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect());
        let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
        pool.engine().set_client(Arc::new(OneTree));
        let head = pool.engine().open_head(1, None);
        (0..RECORDS).for_each(|index| put_noise(&head, index * RECORD, RECORD as usize).unwrap());
        pool.engine().commit().unwrap();
        let entries = head.read(|view| -> Result<Vec<_>, Plain> {
            let entries: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
            Ok(entries?)
        });
        let blocks = entries.unwrap().iter().map(|entry| entry.block().unwrap()).collect();
        let world = World { devices, pool, head, blocks };
        world.forget();
        world.count();
        world
    }

    fn disk() -> World {
        World::new(1, |devices| devices.into_iter().map(NewVdev::Disk).collect())
    }

    fn mirror() -> World {
        World::new(2, |devices| vec![NewVdev::Mirror(devices)])
    }

    /// Nothing is in memory any more.
    fn forget(&self) {
        self.pool.engine().tune(0, 8 * MIB);
        self.pool.engine().tune(4 * MIB, 8 * MIB);
    }

    /// Reads records as a file system reads the file `object`; returns for each whether its bytes are right.
    fn read(&self, object: u64, records: impl Iterator<Item = u64>) -> Vec<bool> {
        let read = |record: u64| {
            let ahead = self.head.look_ahead(object, record * RECORD..(record + 1) * RECORD, RECORDS * RECORD).now;
            let ahead = (ahead.start / RECORD) as usize..ahead.end.div_ceil(RECORD) as usize;
            let block = &self.blocks[record as usize];
            self.head.bring(iter::once(block), self.blocks[ahead].iter(), Seen::HELD);
            let bytes = self.head.bytes_at(Key::new(7, 0, record * RECORD), block, Seen::HELD);
            bytes.is_ok_and(|bytes| *bytes == noise(record * RECORD, RECORD as usize))
        };
        records.map(read).collect()
    }

    fn asked(&self, of: impl Fn(&Asked) -> &AtomicU64) -> u64 {
        self.devices.iter().map(|device| of(&device.asked).load(Relaxed)).sum()
    }

    /// Counts requests from now on.
    fn count(&self) {
        for Asked { at_once, begun, fetched, most_pending, .. } in self.devices.iter().map(|device| &*device.asked) {
            [at_once, begun, fetched, most_pending].into_iter().for_each(|count| count.store(0, Relaxed));
        }
    }

    /// Flips a byte of a record on a device.
    fn spoil(&self, device: usize, record: usize) {
        let pointer: BlockPointer = self.blocks[record].pointer().unwrap();
        let space = &self.pool.engine().storage().space;
        let (_, offset) = space.resolve(pointer.addresses[0], pointer.stored).unwrap();
        self.spoil_at(device, offset);
    }

    /// Flips a byte near a place of the vdev.
    fn spoil_at(&self, device: usize, offset: u64) {
        let at = crate::format::label::DATA_START + offset + 77;
        let mut byte = [0];
        let memory = &self.devices[device].memory;
        memory.read_at(at, &mut byte).unwrap();
        memory.write_at(at, &[byte[0] ^ 1]).unwrap();
    }
}

#[test]
fn what_is_read_in_order_is_on_its_way_and_read_once() {
    let world = World::disk();
    assert!(world.read(1, 0..RECORDS).iter().all(|right| *right));
    let at_once = world.asked(|asked| &asked.at_once);
    let begun = world.asked(|asked| &asked.begun);
    assert_eq!(at_once + begun, RECORDS * RECORD, "nothing is read twice");
    // The first read starts no stream.
    assert_eq!(at_once, RECORD);
    assert_eq!(world.asked(|asked| &asked.fetched), begun, "all that was begun was asked for");
    let most = world.asked(|asked| &asked.most_pending);
    assert!((BUDGET / 4..=BUDGET / 2).contains(&most), "{most} bytes were on their way at a time");
}

#[test]
fn nodes_that_will_be_asked_for_are_on_their_way_and_read_once() {
    const ITEMS: u64 = 2000;
    let world = World::disk();
    let put = |_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
        (0..ITEMS).for_each(|item| batch.put(Key::new(9, 0, item), noise(item, 64), None));
        Ok(())
    };
    world.head.update(put).unwrap();
    world.pool.engine().commit().unwrap();
    world.forget();
    world.count();
    let items = |from: u64, to: u64| Key::new(9, 0, from)..Key::new(9, 0, to);
    let read = |range: Range<Key>| {
        let found = world.head.read(|view| -> Result<Vec<_>, Plain> {
            let found: Result<Vec<_>, _> = view.range(range.clone()).collect();
            Ok(found?)
        });
        found.unwrap().iter().for_each(|entry| assert_eq!(entry.body(), noise(entry.key().offset, 64)));
    };
    let asked = || [world.asked(|asked| &asked.at_once), world.asked(|asked| &asked.begun)];
    // Without the root in memory, the addresses of other nodes are unknown.
    world.head.begin_nodes(items(0, ITEMS));
    world.head.begin_nodes(items(0, ITEMS));
    read(items(0, 1));
    let [leaf, root] = asked();
    assert!(leaf > 0 && root > 0);
    world.head.begin_nodes(items(1, ITEMS / 2));
    let [_, begun] = asked();
    assert!(begun > root + leaf, "{begun} bytes");
    read(items(0, ITEMS / 2));
    assert_eq!(asked(), [leaf, begun], "all of them were on their way");
    assert_eq!(world.asked(|asked| &asked.fetched), begun);
    // Nodes in memory are not requested again.
    world.head.begin_nodes(items(0, ITEMS / 2));
    assert_eq!(asked(), [leaf, begun]);
}

#[test]
fn a_node_on_its_way_that_comes_bad_is_read_by_who_needs_it() {
    let world = World::mirror();
    let (root, _) = world.head.clean_root().unwrap();
    let space = &world.pool.engine().storage().space;
    let places: Vec<u64> =
        root.addresses().iter().map(|address| space.resolve(*address, root.stored).unwrap().1).collect();
    places.iter().for_each(|offset| world.spoil_at(0, *offset));
    let mut came_bad = 0;
    for _ in 0..8 {
        world.forget();
        world.count();
        world.head.begin_nodes(Key::MIN..Key::MAX);
        let begun = |device: usize| world.devices[device].asked.begun.load(Relaxed);
        assert!(begun(0) + begun(1) > 0);
        came_bad += u64::from(begun(0) > 0);
        let found = world.head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, 0))?) });
        assert!(found.unwrap().is_some());
        assert_eq!(world.asked(|asked| &asked.at_once) > 0, begun(0) > 0, "what has come good is not read again");
    }
    assert!((1..8).contains(&came_bad), "{came_bad} of 8");
    let errors = |leaf: &Arc<crate::vdev::Leaf>| leaf.counters().snapshot().checksum_errors;
    let counted: Vec<u64> = world.pool.engine().storage().vdevs.all()[0].leaves().iter().map(errors).collect();
    assert!(counted[0] <= came_bad && counted[1] == 0, "what is on its way counts nothing: {counted:?}");
}

/// As if a record were a node.
fn as_node(block: &Block) -> Miss {
    Miss { pointer: block.pointer().unwrap(), level: 0, low: Key::MIN, high: Key::MAX }
}

#[test]
fn prefetched_nodes_are_few_and_take_no_room_from_data() {
    let world = World::disk();
    let engine = world.pool.engine();
    // No two of the nodes lie near each other.
    let nodes: Vec<Miss> = world.blocks.iter().step_by(3).map(as_node).collect();
    assert!(nodes.len() > 16);
    engine.begin_nodes(&world.head, &nodes, Seen::HELD);
    engine.begin_nodes(&world.head, &nodes, Seen::HELD);
    assert_eq!(world.asked(|asked| &asked.begun), 16 * RECORD);
    let data = engine.look_ahead(&world.head, 1, 0..RECORD, RECORDS * RECORD);
    assert_eq!(data, Outlook::default());
    assert!(!engine.look_ahead(&world.head, 1, RECORD..2 * RECORD, RECORDS * RECORD).now.is_empty());
    assert!(engine.load_node_of(&world.head, &nodes[0], Seen::HELD).is_err(), "it is none");
    engine.begin_nodes(&world.head, &nodes, Seen::HELD);
    assert_eq!(world.asked(|asked| &asked.begun), 17 * RECORD, "one has come");
}

#[test]
fn what_is_larger_than_a_node_may_be_is_not_taken_for_one() {
    let world = World::disk();
    let miss = as_node(&world.blocks[0]);
    let large = Miss { pointer: BlockPointer { logical: 1 << 20, ..miss.pointer }, ..miss };
    world.pool.engine().begin_nodes(&world.head, &[large], Seen::HELD);
    assert_eq!(world.asked(|asked| &asked.begun), 0);
    // The block is prefetched as data, and never kept as a node.
    let large = Block::Stored(large.pointer);
    world.head.bring(iter::empty(), iter::once(&large), Seen::HELD);
    assert!(world.pool.engine().load_node_of(&world.head, &as_node(&large), Seen::HELD).is_err());
    assert!(!world.pool.engine().has_node(&as_node(&large)));
}

#[test]
fn several_streams_share_what_may_be_on_its_way() {
    let world = World::disk();
    let quarter = RECORDS / 4;
    for record in 0..quarter {
        for object in 0..4 {
            assert_eq!(world.read(object, iter::once(object * quarter + record)), [true]);
        }
    }
    let (at_once, begun) = (world.asked(|asked| &asked.at_once), world.asked(|asked| &asked.begun));
    assert!(world.asked(|asked| &asked.most_pending) <= BUDGET);
    assert!(begun >= RECORDS * RECORD / 2, "{begun} bytes were on their way, and {at_once} not");
}

#[test]
fn random_reads_are_not_prefetched() {
    let world = World::disk();
    let scattered = (0..RECORDS).map(|at| at * 23 % RECORDS);
    assert!(world.read(1, scattered).iter().all(|right| *right));
    assert_eq!(world.asked(|asked| &asked.begun), 0);
    assert_eq!(world.asked(|asked| &asked.at_once), RECORDS * RECORD);
}

#[test]
fn what_nobody_comes_for_gives_its_place_to_others() {
    let world = World::disk();
    // Streams that end with most of their prefetch under way.
    for object in 0..8 {
        world.read(object, 8 * object..8 * object + 4);
    }
    assert!(world.asked(|asked| &asked.pending) > BUDGET / 2, "there is hardly any room for others");
    // Enough bytes to give up the prefetch of ended streams.
    world.read(100, 0..RECORDS);
    world.forget();
    world.count();
    assert!(world.read(200, 0..RECORDS).iter().all(|right| *right));
    let begun = world.asked(|asked| &asked.begun);
    assert!(begun >= RECORDS * RECORD / 2, "{begun} bytes");
}

#[test]
fn a_bad_block_keeps_nobody_from_its_neighbours_and_counts_once() {
    let world = World::disk();
    [1, 17, 18, 40].into_iter().for_each(|record| world.spoil(0, record));
    let right = world.read(1, 0..RECORDS);
    let wrong: Vec<usize> = (0..right.len()).filter(|record| !right[*record]).collect();
    assert_eq!(wrong, [1, 17, 18, 40]);
    let leaves = world.pool.engine().storage().vdevs.all()[0].leaves();
    assert_eq!(leaves[0].counters().snapshot().checksum_errors, 4);
}

#[test]
fn a_member_that_lies_is_found_out_and_another_one_asked() {
    let world = World::mirror();
    (0..RECORDS as usize).for_each(|record| world.spoil(0, record));
    assert!(world.read(1, 0..RECORDS).iter().all(|right| *right));
    let errors = |leaf: &Arc<crate::vdev::Leaf>| leaf.counters().snapshot().checksum_errors;
    let counted: Vec<u64> = world.pool.engine().storage().vdevs.all()[0].leaves().iter().map(errors).collect();
    assert!(counted[0] > 0 && counted[1] == 0, "{counted:?}");
}

#[test]
fn a_device_that_leaves_is_not_held_by_what_is_on_its_way() {
    let world = World::mirror();
    world.read(1, 0..4);
    assert!(world.asked(|asked| &asked.pending) > 0);
    world.pool.detach("disk1").unwrap();
    assert_eq!(Arc::strong_count(&world.devices[1]), 1, "only this test has it");
    assert!(world.read(1, 4..RECORDS).iter().all(|right| *right));
}

#[test]
fn a_pool_is_closed_when_all_has_come_that_was_on_its_way() {
    let world = World::disk();
    world.read(1, 0..4);
    let pending = world.asked(|asked| &asked.pending);
    let fetched = world.asked(|asked| &asked.fetched);
    assert!(pending > 0);
    let World { devices, pool, head, .. } = world;
    drop((pool, head));
    assert_eq!(devices[0].asked.fetched.load(Relaxed), fetched + pending);
    assert_eq!(devices[0].asked.pending.load(Relaxed), 0);
}
