//! The content of files: where it is stored, and what a change leaves behind.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use pool::{
    block::compression::CompressionChoice,
    device::{Device, MemoryDevice, Pending},
    txg::Caching,
};

use super::world::World;
use crate::fs::{
    Attr, Caller, Errno, FallocateFlags, FileSystem, Ino, Options, ROOT, SetAttr, Whence,
    file::extent::Extent,
    inode::flag,
    key::{self, EXTENT},
};
use crate::property::DirectIo;

fn create(fs: &FileSystem, name: &str) -> Ino {
    fs.create(&Caller::default(), ROOT, name.as_bytes(), 0o644, true).unwrap().ino
}

fn read(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = Vec::new();
    fs.read(ino, 0, usize::MAX >> 1, &mut bytes).unwrap();
    bytes
}

fn truncate(fs: &FileSystem, ino: Ino, size: u64) -> Attr {
    fs.setattr(&Caller::default(), ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap()
}

/// Offset and length of every extent, and whether the extent is inline.
fn extents(fs: &FileSystem, ino: Ino) -> Vec<(u64, u64, bool)> {
    fs.read_tree(|view| {
        let items = view.range(key::from(ino, EXTENT, 0)).map(|entry| {
            let entry = entry?;
            Ok(match Extent::decode(entry.body()).unwrap() {
                Extent::Inline(bytes) => (entry.key().offset, bytes.len() as u64, true),
                Extent::Part { len, .. } => (entry.key().offset, len.into(), false),
            })
        });
        items.collect()
    })
    .unwrap()
}

#[test]
fn a_small_file_stays_in_the_tree_until_it_grows() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[1; 1000], false).unwrap();
    assert_eq!(extents(&world.fs, ino), [(0, 1000, true)]);
    world.fs.write(ino, 1000, &[2; 1000], false).unwrap();
    assert_eq!(extents(&world.fs, ino), [(0, 2000, false)]);
    assert_eq!(read(&world.fs, ino), [[1; 1000], [2; 1000]].concat());
    truncate(&world.fs, ino, 0);
    world.fs.write(ino, 0, b"small again", false).unwrap();
    assert_eq!(extents(&world.fs, ino), [(0, 11, true)]);
    world.check();
}

#[test]
fn writes_of_one_group_grow_one_extent() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    for part in 0..80u64 {
        world.fs.write(ino, part * 100, &[part as u8; 100], false).unwrap();
    }
    assert_eq!(extents(&world.fs, ino), [(0, 4096, false), (4096, 8000 - 4096, false)]);
    world.check();
}

#[test]
fn an_overwrite_adds_a_piece_until_there_are_many() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    let mut expected = vec![7; 4096];
    world.fs.write(ino, 0, &expected, false).unwrap();
    world.commit();
    for round in 0..40u64 {
        let at = (round * 1237 % 4000) as usize;
        world.fs.write(ino, at as u64, &[round as u8; 50], false).unwrap();
        expected[at..at + 50].fill(round as u8);
        world.commit();
        world.evict();
        assert!(extents(&world.fs, ino).len() <= 13);
        assert_eq!(read(&world.fs, ino), expected);
    }
    world.check();
}

#[test]
fn a_piece_is_trimmed_on_both_sides() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[1; 4096], false).unwrap();
    world.commit();
    world.fs.write(ino, 1000, &[2; 100], false).unwrap();
    assert_eq!(extents(&world.fs, ino), [(0, 1000, false), (1000, 100, false), (1100, 2996, false)]);
    world.check();
}

/// An incremental stream omits blocks born before its base, so a block under a new key gets a new birth.
#[test]
fn the_trimmed_rest_of_a_block_is_born_anew() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[1; 4096], false).unwrap();
    world.commit();
    world.fs.write(ino, 1000, &[2; 100], false).unwrap();
    world.commit();
    let births = world.fs.read_tree(|view| {
        let pointers =
            view.range(key::from(ino, EXTENT, 0)).map(|entry| Ok(entry?.block().unwrap().pointer().unwrap()));
        pointers.map(|pointer| pointer.map(|pointer| (pointer.birth, pointer.logical_birth))).collect()
    });
    let births: Vec<_> = births.unwrap();
    let (old, new) = (births[0].0, births[1].0);
    assert!(old < new);
    assert_eq!(births, [(old, old), (new, new), (old, new)]);
}

#[test]
fn records_of_zeros_are_holes() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[0; 3 * 4096], false).unwrap();
    assert_eq!(extents(&world.fs, ino), []);
    let attr = world.fs.getattr(ino).unwrap();
    assert_eq!((attr.size, attr.blocks), (3 * 4096, 0));
    assert_eq!(world.fs.seek(ino, 5, Whence::Data), Err(Errno::NXIO));
    assert_eq!(world.fs.seek(ino, 5, Whence::Hole), Ok(5));
}

#[test]
fn zeros_are_stored_where_compression_is_off() {
    let world = World::new(1);
    let mut options = world.fs.options();
    options.policy.compression = CompressionChoice::Off;
    world.fs.set_options(options);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[0; 3 * 4096], false).unwrap();
    assert_eq!(world.fs.getattr(ino).unwrap().blocks, 3 * 8);
    assert_eq!(world.fs.seek(ino, 5, Whence::Data), Ok(5));
    // A punched hole stays a hole.
    let punch = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
    world.fs.fallocate(ino, punch, 4096, 4096).unwrap();
    assert_eq!(world.fs.getattr(ino).unwrap().blocks, 2 * 8);
    world.check();
}

#[test]
fn a_new_record_size_is_for_new_files() {
    let world = World::new(1);
    let old = create(&world.fs, "old");
    world.fs.write(old, 0, &[1; 10_000], false).unwrap();
    let mut options = world.fs.options();
    options.recordsize = 8192;
    world.fs.set_options(options);
    let new = create(&world.fs, "new");
    for ino in [old, new] {
        world.fs.write(ino, 0, &[2; 16_384], false).unwrap();
    }
    assert_eq!(extents(&world.fs, old).len(), 4);
    assert_eq!(extents(&world.fs, new).len(), 2);
    world.check();
}

#[test]
fn a_large_file_is_truncated_and_freed_in_steps() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &vec![9; 2000 * 4096], false).unwrap();
    truncate(&world.fs, ino, 5000);
    assert_eq!(extents(&world.fs, ino), [(0, 4096, false), (4096, 904, false)]);
    world.check();
    world.fs.write(ino, 0, &vec![8; 2000 * 4096], false).unwrap();
    world.fs.unlink(ROOT, b"a").unwrap();
    assert!(world.fs.getattr(ino).is_ok(), "the background frees it");
    assert!(world.fs.reap_orphans(1));
    world.check();
    while world.fs.reap_orphans(1) {}
    assert_eq!(world.fs.getattr(ino), Err(Errno::NOENT));
    world.check();
}

#[test]
fn truncated_data_never_reappears() {
    for by_the_background in [true, false] {
        let world = World::new(1);
        let ino = create(&world.fs, "a");
        world.fs.write(ino, 0, &[9; 5 * 4096], false).unwrap();
        // The state after a crash between the first and the last step.
        world
            .fs
            .update_tree(|change| {
                let inode = change.edit(ino)?;
                inode.size = 4096;
                inode.set(flag::TRUNCATING, true);
                change.put(key::truncate(ino), [], None);
                Ok(())
            })
            .unwrap();
        world.check();
        let world = world.reopen();
        if by_the_background {
            while world.fs.reap_orphans(1) {}
            assert_eq!(extents(&world.fs, ino), [(0, 4096, false)]);
        }
        truncate(&world.fs, ino, 5 * 4096);
        assert_eq!(read(&world.fs, ino), [[9; 4096].as_slice(), &[0; 4 * 4096]].concat());
        world.check();
    }
}

#[test]
fn punching_alternate_ranges_leaves_few_pieces() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[5; 4096], false).unwrap();
    world.commit();
    let flags = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
    for at in (0..4096).step_by(128) {
        world.fs.fallocate(ino, flags, at, 64).unwrap();
        assert!(extents(&world.fs, ino).len() <= 12);
    }
    let bytes = read(&world.fs, ino);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if at % 128 < 64 { 0 } else { 5 }));
    world.check();
}

#[test]
fn impossible_ranges_are_refused() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    let fs = &world.fs;
    assert_eq!(fs.write(ino, i64::MAX as u64, b"x", false), Err(Errno::FBIG));
    assert_eq!(fs.write(ino, u64::MAX, b"xy", false), Err(Errno::FBIG));
    let too_long = SetAttr { size: Some(1 << 63), ..SetAttr::default() };
    assert_eq!(fs.setattr(&Caller::default(), ino, &too_long), Err(Errno::FBIG));
    assert_eq!(fs.fallocate(ino, FallocateFlags::default(), 0, 0), Err(Errno::INVAL));
    assert_eq!(fs.fallocate(ino, FallocateFlags::default(), 0, 1 << 40), Err(Errno::NOSPC));
    let mut out = Vec::new();
    assert_eq!(fs.read(ROOT, 0, 1, &mut out), Err(Errno::ISDIR));
    assert_eq!(fs.read(ino, u64::MAX, usize::MAX, &mut out), Ok(()));
    // The end of a file of the maximal length.
    assert_eq!(fs.write(ino, i64::MAX as u64 - 1, b"x", false), Ok(1));
    assert_eq!(fs.seek(ino, 0, Whence::Data), Ok(i64::MAX as u64 - 1));
    truncate(fs, ino, 0);
    world.check();
}

#[test]
fn a_full_pool_refuses_writes_and_can_be_emptied() {
    let world = World::new(1);
    let noise: Vec<u8> = (0..1u64 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect();
    let mut files = 0;
    let refused = loop {
        let ino = match world.fs.create(&Caller::default(), ROOT, format!("f{files}").as_bytes(), 0o644, true) {
            Ok(attr) => attr.ino,
            Err(errno) => break errno,
        };
        files += 1;
        if let Err(errno) = world.fs.write(ino, 0, &noise, false) {
            break errno;
        }
        assert!(files < 100, "the pool never fills");
    };
    assert_eq!(refused, Errno::NOSPC);
    for index in 0..files {
        world.fs.unlink(ROOT, format!("f{index}").as_bytes()).unwrap();
    }
    while world.fs.reap_orphans(100) {}
    for _ in 0..4 {
        world.commit();
        world.fs.mkdir(&Caller::default(), ROOT, b"d", 0o755).and_then(|_| world.fs.rmdir(ROOT, b"d")).unwrap();
    }
    world.check();
    let ino = create(&world.fs, "again");
    assert_eq!(world.fs.write(ino, 0, &noise, false), Ok(noise.len()));
}

#[test]
fn threads_that_write_one_file_leave_whole_writes() {
    let world = World::new(1);
    let ino = create(&world.fs, "a");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4u8)
            .map(|byte| {
                let fs = &world.fs;
                scope.spawn(move || {
                    (0..200).for_each(|_| assert_eq!(fs.write(ino, 1000, &[byte; 6000], false), Ok(6000)))
                })
            })
            .collect();
        let (fs, stop) = (&world.fs, &stop);
        let reader = scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut bytes = Vec::new();
                fs.read(ino, 1000, 6000, &mut bytes).unwrap();
                assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "a torn write was read");
            }
        });
        let committer = scope.spawn(|| {
            for _ in 0..20 {
                world.commit();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        committer.join().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    world.check();
}

#[test]
fn a_block_that_was_reused_under_a_slow_reader_is_no_damage() {
    let world = World::new(7);
    let ino = create(&world.fs, "a");
    world.fs.write(ino, 0, &[7; 10_000], false).unwrap();
    world.commit();
    world.evict();
    let mut look = world.fs.look_up(ino, 100, 20_000).unwrap();
    look.spoil();
    let mut bytes = vec![1];
    world.fs.read_looked_up(ino, look, 20_000, &mut bytes).unwrap();
    assert_eq!(bytes, [&[1][..], &[7; 9_900]].concat());
}

/// Fills the file with a megabyte of incompressible bytes.
fn put_noise(world: &World, ino: Ino) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    let content: Vec<u8> = (0..1 << 20).map(|_| next()).collect();
    world.fs.write(ino, 0, &content, false).unwrap();
    world.commit();
    world.evict();
    content
}

fn requests(world: &World) -> u64 {
    world.engine.storage().vdevs.all()[0].leaves()[0].counters().snapshot().reads
}

#[test]
fn a_sequential_read_takes_few_requests() {
    const STEP: usize = 8192;
    let world = World::new(8);
    let ino = create(&world.fs, "a");
    let content = put_noise(&world, ino);
    let before = requests(&world);
    let mut bytes = Vec::new();
    while bytes.len() < content.len() {
        world.fs.read(ino, bytes.len() as u64, STEP, &mut bytes).unwrap();
    }
    assert!(bytes == content);
    let taken = requests(&world) - before;
    // Without prefetch each read would take a request; at most half of the prefetch window is begun at a time.
    assert!(taken <= (content.len() / STEP / 3) as u64, "{taken} requests");
}

#[test]
fn what_is_read_ahead_follows_the_property() {
    const STEP: usize = 8192;
    for prefetch in [Caching::None, Caching::Metadata] {
        let world = World::new(8);
        let ino = create(&world.fs, "a");
        let content = put_noise(&world, ino);
        world.fs.set_options(Options { prefetch, ..world.fs.options() });
        let before = requests(&world);
        let mut bytes = Vec::new();
        while bytes.len() < content.len() {
            world.fs.read(ino, bytes.len() as u64, STEP, &mut bytes).unwrap();
        }
        assert!(bytes == content);
        let taken = requests(&world) - before;
        assert!(taken >= (content.len() / STEP) as u64, "{taken} requests with {prefetch:?}");
    }
}

#[test]
fn which_reads_bypass_the_cache_follows_the_property() {
    let world = World::new(9);
    let ino = create(&world.fs, "a");
    let content = put_noise(&world, ino);
    let again = |direct, asked, len: usize| {
        world.fs.set_options(Options { direct, ..world.fs.options() });
        world.evict();
        let mut taken = 0;
        for _ in 0..3 {
            let (before, mut bytes) = (requests(&world), Vec::new());
            world.fs.read_opened(ino, 0, len, asked, &mut bytes).unwrap();
            assert!(bytes == content[..len]);
            taken = requests(&world) - before;
        }
        taken > 0
    };
    // The cache of the test has room for it.
    let whole = 64 << 10;
    assert!(again(DirectIo::Always, false, whole));
    assert!(again(DirectIo::Standard, true, whole));
    assert!(!again(DirectIo::Standard, true, whole - 1), "only whole pages bypass the cache");
    assert!(!again(DirectIo::Standard, false, whole));
    assert!(!again(DirectIo::Disabled, true, whole));
}

/// A device that counts the reads which a caller waited for from the beginning.
struct Waited {
    memory: MemoryDevice,
    reads: AtomicU64,
}

impl Device for Waited {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.memory.read_at(offset, buf)
    }

    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let mut bytes = vec![0; len];
        Pending::Done(self.memory.read_at(offset, &mut bytes).map(|()| bytes))
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

#[test]
fn a_sequential_read_waits_neither_for_blocks_nor_for_nodes() {
    const STEP: usize = 8192;
    let device = Arc::new(Waited { memory: MemoryDevice::new("disk", 64 << 20), reads: AtomicU64::new(0) });
    let world = World::on(device.clone(), 10);
    let ino = create(&world.fs, "a");
    let content: Vec<u8> = (0..4).flat_map(|_| put_noise(&world, ino)).collect();
    world.fs.write(ino, 0, &content, false).unwrap();
    world.commit();
    world.evict();
    device.reads.store(0, Relaxed);
    let mut bytes = Vec::new();
    while bytes.len() < content.len() {
        world.fs.read(ino, bytes.len() as u64, STEP, &mut bytes).unwrap();
    }
    assert!(bytes == content);
    let waited = device.reads.load(Relaxed);
    // The path to the inode and to the first extent, and the first read, which nothing has prefetched.
    assert!(waited <= 4, "waited {waited} times");
}

#[test]
fn a_sequential_read_sees_changes_made_just_before() {
    const STEP: u64 = 16384;
    let world = World::new(9);
    let ino = create(&world.fs, "a");
    let mut content = put_noise(&world, ino);
    for at in (0..1 << 20).step_by(STEP as usize) {
        let mut bytes = Vec::new();
        world.fs.read(ino, at, STEP as usize, &mut bytes).unwrap();
        let expected = &content[at as usize..((at + STEP) as usize).min(content.len())];
        assert!(bytes == expected, "{at}");
        // The prefetch already under way reads other bytes than the next read returns.
        let (from, len) = (at + STEP + 5000, 3000_u64);
        match at / STEP % 4 {
            0 => {
                world.fs.write(ino, from, &vec![at as u8; len as usize], false).unwrap();
                content.resize(content.len().max((from + len) as usize), 0);
                content[from as usize..(from + len) as usize].fill(at as u8);
            }
            1 => {
                let flags = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
                let end = ((from + len) as usize).min(content.len());
                world.fs.fallocate(ino, flags, from, len).unwrap();
                content[(from as usize).min(end)..end].fill(0);
            }
            2 => world.commit(),
            _ => {
                // The blocks are reused for other content.
                world.fs.write(ino, at + STEP, &vec![3; 2 * STEP as usize], false).unwrap();
                content.resize(content.len().max((at + 3 * STEP) as usize), 0);
                content[(at + STEP) as usize..(at + 3 * STEP) as usize].fill(3);
                (0..5).for_each(|_| world.commit());
            }
        }
    }
    world.check();
}
