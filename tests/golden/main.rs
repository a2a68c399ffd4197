//! Pools and streams from earlier versions of Cenote, which every later version must read.
//!
//! For each generation of the format, the folder `images` holds: a pool as exported; the same pool as a power failure
//! left it a little later (with an intent log to replay); streams sent from it; and, beside each, a listing of
//! everything visible when it was made. The tests open and receive them with today's program, and compare. The script
//! in `script.rs` made them. The fourth generation is pools on vdevs of every kind, each in the middle of a job or
//! feature: see `vdevs.rs`. Today's script may place and pack blocks differently, which is not part of the format; so
//! new images are not compared.
//!
//! A committed image is never made again: `CENOTE_BLESS=1 cargo test -p dataset --test golden -- --test-threads 1`
//! writes only missing files. CONTRIBUTING.md says when a generation is added.

mod listing;
#[path = "../../pool/tests/format/pages.rs"]
mod pages;
mod script;
mod vdevs;
#[path = "../crash/world.rs"]
mod world;

use std::{fs, path::PathBuf, sync::Arc};

use dataset::{
    admin::{ReceiveRequest, SendFrom, SendRequest},
    error::Reader,
};
use pool::{
    admin::{ClassedVdev, NewVdev},
    device::MemoryDevice,
    env::SeededEnv,
};
use script::STREAMS;
use world::{DEVICE_SIZE, World, as_devices};

/// The generations made by the script. From the third on the pool is a mirror; before, each device was a vdev.
const GENERATIONS: &[u32] = &[1, 2, 3];
/// The limit on the size of an image or stream in bytes, because images are kept for ever.
const MOST: usize = 400_000;
/// The number of devices in the pool.
const DEVICES: usize = 2;

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/images").join(file)
}

/// A committed file. If it is missing and blessing was asked for, `make` makes it, on one thread.
fn committed(file: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = path(file);
    if !path.exists() && std::env::var_os("CENOTE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, make()).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The devices of a committed pool: `exported` or `crashed`.
fn devices(generation: u32, state: &str) -> Vec<Arc<MemoryDevice>> {
    let device = |at: usize| {
        let file = format!("{generation}-{state}-{at}.pages.zst");
        let packed = committed(&file, || pages::pack(&script::make(state)[at]));
        assert!(packed.len() < MOST, "{file}: {} bytes", packed.len());
        Arc::new(pages::unpack(&packed, &format!("disk{at}"), DEVICE_SIZE))
    };
    (0..DEVICES).map(device).collect()
}

fn open(generation: u32, state: &str) -> World {
    World::import(as_devices(&devices(generation, state)), 2).unwrap()
}

/// All checks, on an idle pool.
fn check(world: &World) {
    world.engine().commit().unwrap();
    world.check().unwrap();
    world.check_files(&world.list().unwrap()).unwrap();
}

/// Compares with the listing made with the image.
fn assert_listed(file: &str, seen: &str) {
    let listed = committed(file, || seen.as_bytes().to_vec());
    assert_same(file, seen, std::str::from_utf8(&listed).unwrap());
}

/// Fails with the first line that differs.
fn assert_same(what: &str, seen: &str, expected: &str) {
    for (number, (line, expected)) in seen.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "{what}, line {}", number + 1);
    }
    assert_eq!(seen.lines().count(), expected.lines().count(), "{what}: lines");
}

#[test]
fn an_exported_pool_opens_with_its_content() {
    for &generation in GENERATIONS {
        let world = open(generation, "exported");
        assert_listed(&format!("{generation}-exported.txt"), &listing::of_pool(&world));
        check(&world);
        world.clean_up().unwrap();
        check(&world);
    }
}

#[test]
fn a_pool_that_lost_power_replays_its_log() {
    for &generation in GENERATIONS {
        let world = open(generation, "crashed");
        let seen = listing::of_pool(&world);
        assert_listed(&format!("{generation}-crashed.txt"), &seen);
        assert!(seen.contains(script::ONLY_LOGGED), "what only the log held is there");
        check(&world);
        world.clean_up().unwrap();
        check(&world);
    }
}

#[test]
fn a_pool_of_old_goes_on_and_is_opened_again() {
    for &generation in GENERATIONS {
        let images = devices(generation, "exported");
        let world = World::import(as_devices(&images), 3).unwrap();
        world.clean_up().unwrap();
        script::go_on(&world);
        check(&world);
        let seen = listing::of_pool(&world);
        world.datasets.close_all().unwrap();
        world.pool.export().unwrap();
        let world = World::import(as_devices(&images), 4).unwrap();
        assert_same("after another import", &listing::of_pool(&world), &seen);
        check(&world);
    }
}

fn receive(world: &World, stream: &[u8], into: &str) {
    let request = ReceiveRequest::plain(into.parse().unwrap());
    let (_, received) = world.datasets.receive(request, &mut &stream[..], 0, &mut |_| {});
    received.unwrap_or_else(|error| panic!("receive into {into}: {error}"));
}

fn new_pool() -> World {
    let devices = (0..DEVICES).map(|at| Arc::new(MemoryDevice::new(format!("new{at}"), DEVICE_SIZE)) as _);
    let mirror = ClassedVdev { vdev: NewVdev::Mirror(devices.collect()), class: None };
    let world = World::create(&[mirror], Arc::new(SeededEnv::new(5)));
    // Reading files must change nothing.
    script::set(&world, "tank", &[("atime", "off")]);
    world
}

#[test]
fn streams_of_old_are_received() {
    for &generation in GENERATIONS {
        let target = new_pool();
        for stream in STREAMS {
            let file = format!("{generation}-{}.stream", stream.name);
            let bytes =
                committed(&file, || send(&open(generation, "exported"), stream.snapshot, stream.from, stream.package));
            assert!(bytes.len() < MOST, "{file}: {} bytes", bytes.len());
            receive(&target, &bytes, stream.into);
        }
        assert_listed(&format!("{generation}-received.txt"), &listing::of_received(&target));
        check(&target);
    }
}

#[test]
fn a_pool_of_old_sends_what_it_holds() {
    for &generation in GENERATIONS {
        let (source, target) = (open(generation, "exported"), new_pool());
        for stream in STREAMS {
            receive(&target, &send(&source, stream.snapshot, stream.from, stream.package), stream.into);
        }
        assert_listed(&format!("{generation}-received.txt"), &listing::of_received(&target));
    }
}

fn send(world: &World, snapshot: &str, from: Option<&str>, package: bool) -> Vec<u8> {
    let request = SendRequest {
        from: from.map(|from| SendFrom::Base(from.parse().unwrap())),
        replicate: package,
        properties: package,
        ..SendRequest::plain(snapshot.parse().unwrap())
    };
    let mut bytes = Vec::new();
    world.datasets.send(&request, Reader::default(), &mut bytes, 0, &mut |_| {}).unwrap();
    bytes
}
