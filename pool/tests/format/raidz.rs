//! A small pool on a RAID-Z of double parity, written once, and every later version opens it with any two devices
//! missing.
//!
//! So geometry and parity must match the committed bytes: the content of two devices is computed from the other three.

use std::{
    fs,
    sync::{Arc, LazyLock},
};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    format::label::{Compatibility, DATA_START, RAIDZ},
    vdev::labels,
};

use crate::{
    golden,
    image::{OneTree, ROUNDS, SIZE, contents, expected, findings, put_all, root, round_of, settings},
    pages,
};

const DEVICES: usize = 5;
const PARITY: u8 = 2;
/// The bound on the size of all images together, in bytes.
const MOST: usize = 200_000;

fn name(device: usize) -> String {
    format!("disk{device}")
}

/// Makes the pool for the images.
fn make() -> Vec<MemoryDevice> {
    let devices: Vec<_> = (0..DEVICES).map(|at| Arc::new(MemoryDevice::new(name(at), SIZE))).collect();
    let options = CreateOptions { settings: settings(), host: (1, "well".into()), ..CreateOptions::new("tank") };
    let members = devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let vdev = NewVdev::RaidZ { parity: PARITY, devices: members };
    let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(OneTree));
    let head = pool.engine().open_head(1, None);
    for round in 0..ROUNDS {
        put_all(&head, &round_of(round)).unwrap();
        pool.engine().commit().unwrap();
    }
    pool.export().unwrap();
    devices.iter().map(|device| device.snapshot()).collect()
}

/// The committed images. Only missing images are made: committed images are never rewritten.
static PACKED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let paths: Vec<_> = (0..DEVICES).map(|at| golden::path(&format!("raidz-1-{at}.pages.zst"))).collect();
    if golden::blessing() && paths.iter().all(|path| !path.exists()) {
        let images = make();
        paths.iter().zip(&images).for_each(|(path, image)| fs::write(path, pages::pack(image)).unwrap());
    }
    let read = |path: &std::path::PathBuf| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
});

/// The devices without those in `gone`.
fn devices(gone: &[usize]) -> Vec<Arc<dyn Device>> {
    let there = (0..DEVICES).filter(|at| !gone.contains(at));
    there.map(|at| Arc::new(pages::unpack(&PACKED[at], &name(at), SIZE)) as Arc<dyn Device>).collect()
}

#[test]
fn its_images_are_small() {
    assert!(PACKED.iter().map(Vec::len).sum::<usize>() < MOST);
}

#[test]
fn its_labels_name_the_feature() {
    for device in devices(&[]) {
        let label = labels::read_label(&*device).unwrap().expect("a label");
        assert_eq!(label.features.get(RAIDZ), Some(&Compatibility::None));
        assert_eq!((label.vdevs[0].tree.kind_name().as_str(), label.vdevs[0].tree.unit()), ("raidz", 3));
    }
}

#[test]
fn it_opens_with_any_two_devices_missing() {
    let pairs = (0..DEVICES).flat_map(|one| (one..DEVICES).map(move |other| [one, other]));
    for gone in [Vec::new()].into_iter().chain(pairs.map(|pair| pair.to_vec())) {
        for read_only in [true, false] {
            let options = OpenOptions { settings: settings(), read_only, ..OpenOptions::default() };
            let pool = admin::open(devices(&gone), &options, Arc::new(SeededEnv::new(2))).unwrap();
            let engine = pool.engine();
            let (pointer, level) = root(engine);
            let head = engine.open_frozen(1, pointer, level);
            assert!(contents(&head) == expected(), "without {gone:?}");
            assert_eq!(findings(engine), [], "without {gone:?}");
        }
    }
    for gone in [[0, 1, 2], [1, 3, 4]] {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        assert!(admin::open(devices(&gone), &options, Arc::new(SeededEnv::new(2))).is_err());
    }
}

/// The product in the field of the document.
fn product(mut a: u8, b: u8) -> u8 {
    (0..8).fold(0, |sum, bit| {
        let term = if b >> bit & 1 == 1 { a } else { 0 };
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        sum ^ term
    })
}

fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| product(power, base))
}

/// The parity roles of a row with these data roles.
fn parities(data: &[u8]) -> [u8; 3] {
    let weigh = |base: u8, (at, byte): (usize, &u8)| product(power(base, data.len() - 1 - at), *byte);
    [1, 2, 4].map(|base| data.iter().enumerate().fold(0, |sum, one| sum ^ weigh(base, one)))
}

/// Computes the parity of every row of the committed images by the document's rules alone, and compares.
#[test]
fn every_row_of_it_is_what_the_document_says() {
    assert_eq!(parities(&[0x53, 0xca, 0x0f]), [0x96, 0xd7, 0x59], "the example");
    let (devices, sector) = (devices(&[]), 4096);
    let label = labels::read_label(&*devices[0]).unwrap().unwrap();
    let (n, d) = (DEVICES as u64, 3);
    let rows_of_region = (label.region_size / sector).div_ceil(d);
    let regions = label.vdevs[0].tree.device_size() / sector / rows_of_region;
    let mut written = 0;
    for (region, row) in (0..regions).flat_map(|region| (0..rows_of_region).map(move |row| (region, row))) {
        let at = DATA_START + (region * rows_of_region + row) * sector;
        let shift = (region + row / 64) % n;
        let role = |role: u64| {
            let mut bytes = vec![0; sector as usize];
            devices[((role + shift) % n) as usize].read_at(at, &mut bytes).unwrap();
            bytes
        };
        let roles: Vec<Vec<u8>> = (0..n).map(role).collect();
        if roles.iter().flatten().all(|byte| *byte == 0) {
            continue;
        }
        written += 1;
        let (data, parity) = roles.split_at(d as usize);
        for byte in 0..sector as usize {
            let of = |roles: &[Vec<u8>]| roles.iter().map(|bytes| bytes[byte]).collect::<Vec<u8>>();
            assert_eq!(of(parity), parities(&of(data))[..2], "region {region}, row {row}, byte {byte}");
        }
    }
    assert!(written > 50, "{written} rows");
}
