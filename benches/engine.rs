//! The cost of the engine's own work, beside the plainest substitute.
//!
//! Everything happens in memory: the tree against a `BTreeMap`; names and small files of a file system against another
//! `BTreeMap`; several threads against one; large sequential writes against copying the same bytes, and against one
//! pass of compression and checksums on all CPUs. Both sides of a pair run alternately in one process, so their ratio
//! means something on any machine, even a busy one. The absolute numbers are valid only on an idle machine.
//!
//! Run by `cargo bench --bench engine`. Any other run (as a test) does everything once, on little data.

mod common;

use std::{
    collections::BTreeMap,
    hint::black_box,
    io::{self, Write as _},
    sync::Arc,
    time::Instant,
};

use common::{Result, make_dataset, make_pool, median, name};
use dataset::fs::{Caller, FileSystem, Ino, ROOT, SetQuota};
use dataset::property::OwnerKind;
use pool::{
    admin::NewVdev,
    device::MemoryDevice,
    format::{key::Key, pointer::BlockPointer},
    tree::{Batch, Miss, Node, NodeSource, Root, View},
    units::{GIB, MIB, Txg},
};

/// How often each pair is measured.
const RUNS: usize = 5;
/// The bytes of an item's body, and of a small file.
const BODY: usize = 64;
/// The bytes of one large write.
const WRITE: usize = MIB as usize;

/// The amount of work of each measurement.
struct Amount {
    items: u64,
    writes: u64,
    runs: usize,
}

/// One operation: the nanoseconds of our side and of the plain side, run by run.
#[derive(Default)]
struct Pair {
    here: Vec<f64>,
    plain: Vec<f64>,
}

/// All operations, by name.
type Pairs = BTreeMap<&'static str, Pair>;

fn main() -> Result<()> {
    let amount = match std::env::args().any(|argument| argument == "--bench") {
        true => Amount { items: 100_000, writes: 256, runs: RUNS },
        false => Amount { items: 1000, writes: 4, runs: 1 },
    };
    let mut small = Pairs::new();
    let mut large = Streams::new();
    let mut shared = Pairs::new();
    for _ in 0..amount.runs {
        tree(&mut small, amount.items)?;
        for titles in [FILES, CHARGED_FILES] {
            files(&mut small, amount.items, titles)?;
        }
        for (title, compression) in [("compression off", "off"), ("compression lz4", "lz4")] {
            stream(large.entry(title).or_default(), compression, amount.writes)?;
        }
        for (title, time) in SHARED.into_iter().zip(share(threads(), amount.items)?) {
            shared.entry(title).or_default().here.push(time);
        }
        for (title, time) in SHARED.into_iter().zip(share(1, amount.items)?) {
            shared.entry(title).or_default().plain.push(time);
        }
    }
    print(&mut small, &mut shared, &mut large)?;
    Ok(())
}

/// A sequential write: the nanoseconds a byte of the write, of a copy, and of a pass of compression and checksums.
#[derive(Default)]
struct Stream {
    here: Vec<f64>,
    copied: Vec<f64>,
    passed: Vec<f64>,
}

/// All sequential writes, by name.
type Streams = BTreeMap<&'static str, Stream>;

/// The number of threads that use all CPUs.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A tree that was never written misses nothing.
struct Nowhere;

impl NodeSource for Nowhere {
    fn node(&self, _: &BlockPointer) -> Option<Arc<Node>> {
        None
    }
}

fn tree(pairs: &mut Pairs, items: u64) -> Result<()> {
    let keys: Vec<Key> = (0..items).map(|index| Key::new(shuffled(index), 1, index)).collect();
    let (mut root, mut plain) = (Root::empty(Txg(1)), BTreeMap::new());
    pair(
        pairs,
        "tree: put",
        items,
        || keys.iter().try_for_each(|key| put(&mut root, *key)),
        || {
            plain.extend(keys.iter().map(|key| (*key, vec![1; BODY])));
            Ok(())
        },
    )?;
    let view = View::new(&root, &Nowhere, Txg(1));
    let look = || -> Result<()> {
        for key in &keys {
            let found = view.get(*key).map_err(missed)?.ok_or("an item is lost")?;
            black_box(found.body()[0]);
        }
        Ok(())
    };
    pair(pairs, "tree: get", items, look, || {
        for key in &keys {
            black_box(plain.get(key).map(|body| body[0]));
        }
        Ok(())
    })
}

fn put(root: &mut Root, key: Key) -> Result<()> {
    let mut batch = Batch::default();
    batch.put(key, [1; BODY], None);
    batch.apply(root, Txg(1), &Nowhere, &mut Vec::new()).map_err(missed)?;
    Ok(())
}

fn missed(miss: Miss) -> String {
    format!("a node of a tree in memory was not found: {miss:?}")
}

/// Making, finding and writing files: in a tree without accounting, and in one with accounting.
const FILES: [&str; 3] = ["file: create", "file: look up", "file: small write"];
const CHARGED_FILES: [&str; 3] = ["file: create, charged", "file: look up, charged", "file: small write, charged"];

fn files(pairs: &mut Pairs, files: u64, titles: [&'static str; 3]) -> Result<()> {
    let (_, datasets) = make_pool(&[NewVdev::Disk(Arc::new(MemoryDevice::new("disk", 4 * GIB)))])?;
    let fs = datasets.open_dataset(&name(common::POOL))?.fs().clone();
    if titles == CHARGED_FILES {
        fs.set_quota(OwnerKind::User, 0, SetQuota { bytes: Some(GIB), objects: None })?;
    }
    let names: Vec<String> = (0..files).map(|index| format!("file-{}", shuffled(index))).collect();
    let mut inodes: Vec<Ino> = Vec::new();
    let mut plain: BTreeMap<(Ino, &[u8]), Vec<u8>> = BTreeMap::new();
    let caller = Caller::default();
    let create = || -> Result<()> {
        for name in &names {
            inodes.push(fs.create(&caller, ROOT, name.as_bytes(), 0o644, true)?.ino);
        }
        Ok(())
    };
    pair(pairs, titles[0], files, create, || {
        plain.extend(names.iter().map(|name| ((ROOT, name.as_bytes()), Vec::new())));
        Ok(())
    })?;
    let lookup = || -> Result<()> {
        for name in &names {
            black_box(fs.lookup(ROOT, name.as_bytes())?);
        }
        Ok(())
    };
    pair(pairs, titles[1], files, lookup, || {
        for name in &names {
            black_box(plain.get(&(ROOT, name.as_bytes())));
        }
        Ok(())
    })?;
    let write = || -> Result<()> {
        for file in &inodes {
            fs.write(*file, 0, &[1; BODY], false)?;
        }
        Ok(())
    };
    pair(pairs, titles[2], files, write, || {
        for name in &names {
            plain.insert((ROOT, name.as_bytes()), vec![1; BODY]);
        }
        Ok(())
    })?;
    Ok(datasets.close_all()?)
}

/// Operations of several threads at once, each in a directory of its own.
const SHARED: [&str; 3] = ["create", "look up", "small write"];

/// Makes, finds and writes `files` files by `threads` threads together: wall-clock nanoseconds a file for each
/// operation.
fn share(threads: usize, files: u64) -> Result<[f64; 3]> {
    let (_, datasets) = make_pool(&[NewVdev::Disk(Arc::new(MemoryDevice::new("disk", 4 * GIB)))])?;
    let fs = datasets.open_dataset(&name(common::POOL))?.fs().clone();
    let caller = Caller::default();
    let each = (files / threads as u64).max(1);
    let mut lanes = Vec::new();
    for lane in 0..threads {
        lanes.push((fs.mkdir(&caller, ROOT, format!("lane-{lane}").as_bytes(), 0o755)?.ino, Vec::new()));
    }
    let title = |index: u64| format!("file-{}", shuffled(index)).into_bytes();
    let create = at_once(&mut lanes, each, |(folder, made)| {
        for index in 0..each {
            made.push(fs.create(&caller, *folder, &title(index), 0o644, true)?.ino);
        }
        Ok(())
    })?;
    let look = at_once(&mut lanes, each, |(folder, _)| {
        for index in 0..each {
            black_box(fs.lookup(*folder, &title(index))?);
        }
        Ok(())
    })?;
    let write = at_once(&mut lanes, each, |(_, made)| {
        for file in made {
            fs.write(*file, 0, &[1; BODY], false)?;
        }
        Ok(())
    })?;
    datasets.close_all()?;
    Ok([create, look, write])
}

/// Runs `act` on a thread for each lane: wall-clock nanoseconds for one of all their `each` units.
fn at_once<T: Send>(lanes: &mut [T], each: u64, act: impl Fn(&mut T) -> Result<()> + Sync) -> Result<f64> {
    let units = each * lanes.len() as u64;
    per_unit(units, || {
        std::thread::scope(|scope| {
            let act = &act;
            let running: Vec<_> = lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || act(lane).map_err(|error| error.to_string())))
                .collect();
            running.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic")).map_err(Into::into)
        })
    })
}

/// Writes a file and commits it, beside copying as many bytes, and beside compressing and checksumming as many on all
/// CPUs. Counted by the byte.
fn stream(stream: &mut Stream, compression: &str, writes: u64) -> Result<()> {
    let (_, datasets) = make_pool(&[NewVdev::Disk(Arc::new(MemoryDevice::new("disk", 4 * GIB)))])?;
    make_dataset(&datasets, "tank/data", &[("compression", compression), ("recordsize", "1M")])?;
    let fs = datasets.open_dataset(&name("tank/data"))?.fs().clone();
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, true)?.ino;
    let content = half_compressible();
    let bytes = writes * WRITE as u64;
    stream.here.push(per_unit(bytes, || write_all(&fs, file, &content, writes))?);
    // Not of zeros, whose pages the system would allocate only during the copy.
    let mut copy = vec![1; bytes as usize];
    stream.copied.push(per_unit(bytes, || {
        copy.chunks_mut(WRITE).for_each(|part| part.copy_from_slice(&content));
        black_box(&copy);
        Ok(())
    })?);
    let compresses = compression == "lz4";
    let mut lanes: Vec<Vec<u8>> = vec![vec![0; lz4_flex::block::get_maximum_output_size(WRITE)]; threads()];
    let each = (writes / lanes.len() as u64).max(1);
    let pass = at_once(&mut lanes, each * WRITE as u64, |room| {
        for _ in 0..each {
            let stored = match compresses {
                true => {
                    let len = lz4_flex::block::compress_into(&content, room)?;
                    &room[..len]
                }
                false => &content[..],
            };
            black_box(blake3::hash(stored));
        }
        Ok(())
    })?;
    stream.passed.push(pass);
    Ok(datasets.close_all()?)
}

fn write_all(fs: &FileSystem, file: Ino, content: &[u8], writes: u64) -> Result<()> {
    for index in 0..writes {
        fs.write(file, index * WRITE as u64, content, false)?;
    }
    Ok(fs.fsync(file)?)
}

/// Alternating noise and zeros, of 64 bytes each.
fn half_compressible() -> Vec<u8> {
    let word = |index: usize| if (index / 8).is_multiple_of(2) { shuffled(index as u64) } else { 0 };
    (0..WRITE / 8).flat_map(|index| word(index).to_le_bytes()).collect()
}

/// A pseudorandom number, different for each index (the finalizer of SplitMix64).
fn shuffled(index: u64) -> u64 {
    let mut state = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn pair(
    pairs: &mut Pairs,
    title: &'static str,
    units: u64,
    here: impl FnOnce() -> Result<()>,
    plain: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (here, plain) = (per_unit(units, here)?, per_unit(units, plain)?);
    let pair = pairs.entry(title).or_default();
    pair.here.push(here);
    pair.plain.push(plain);
    Ok(())
}

/// The nanoseconds that a unit of some work takes.
fn per_unit(units: u64, act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    act()?;
    Ok(start.elapsed().as_nanos() as f64 / units as f64)
}

fn print(small: &mut Pairs, shared: &mut Pairs, large: &mut Streams) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{:28}{:>12}{:>12}{:>10}", "ns an operation", "here", "BTreeMap", "ratio")?;
    for (title, pair) in small {
        let (here, plain) = (median(&mut pair.here), median(&mut pair.plain));
        writeln!(out, "{title:28}{here:>12.0}{plain:>12.0}{:>10.2}", here / plain)?;
    }
    let head = format!("ns a file, {} threads", threads());
    writeln!(out, "\n{head:28}{:>12}{:>12}{:>10}", "together", "one", "speed-up")?;
    for (title, pair) in shared {
        let (together, one) = (median(&mut pair.here), median(&mut pair.plain));
        writeln!(out, "{title:28}{together:>12.0}{one:>12.0}{:>10.2}", one / together)?;
    }
    writeln!(out, "\n{:28}{:>12}{:>12}{:>12}", "1 MiB writes, GB/s", "here", "memcpy", "one pass")?;
    for (title, stream) in large {
        // A byte a nanosecond is a gigabyte a second.
        let rate = |times: &mut Vec<f64>| 1.0 / median(times);
        let (here, copied, passed) = (rate(&mut stream.here), rate(&mut stream.copied), rate(&mut stream.passed));
        writeln!(out, "{title:28}{here:>12.2}{copied:>12.2}{passed:>12.2}")?;
    }
    Ok(())
}
