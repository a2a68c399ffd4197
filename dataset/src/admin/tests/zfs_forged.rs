//! Forged streams of OpenZFS with right checksums: whatever they claim, the pool stays whole, and what lands is
//! consistent.

use super::{
    world::{World, name, refusal},
    zfs::{compare, manifest, texts, world_of},
};
use crate::{
    fs::{ROOT, check},
    zfs::tests::fixture,
};

pub(super) const HEADER: usize = 312;
const SUMMED: usize = 280;
pub(super) const OBJECT: u8 = 1;
pub(super) const WRITE: u8 = 3;
const END: u8 = 5;

/// The records of a stream: each a header and a payload.
pub(super) type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn payload_of(header: &[u8]) -> usize {
    let small = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().unwrap()) as usize;
    match header[0] {
        0 => small(4),
        OBJECT => small(28).next_multiple_of(8),
        WRITE if header[50] != 0 => number(header, 96) as usize,
        WRITE => number(header, 32) as usize,
        7 => small(16),
        8 => small(52).next_multiple_of(8),
        _ => 0,
    }
}

fn records(name: &str) -> Records {
    records_of(&fixture(name))
}

/// The records of a stream.
pub(super) fn records_of(stream: &[u8]) -> Records {
    let (mut all, mut rest) = (Records::new(), stream);
    while let Some((header, behind)) = rest.split_at_checked(HEADER) {
        let (payload, behind) = behind.split_at(payload_of(header));
        all.push((header.to_vec(), payload.to_vec()));
        rest = behind;
    }
    all
}

/// The stream of the records, with right checksums.
fn sealed(records: &Records) -> Vec<u8> {
    let (mut out, mut sums) = (Vec::new(), [0u64; 4]);
    let add = |sums: &mut [u64; 4], bytes: &[u8]| {
        for word in bytes.as_chunks::<4>().0 {
            let mut value = u64::from(u32::from_le_bytes(*word));
            for sum in sums.iter_mut() {
                *sum = sum.wrapping_add(value);
                value = *sum;
            }
        }
    };
    let coded = |sums: &[u64; 4]| sums.iter().flat_map(|sum| sum.to_le_bytes()).collect::<Vec<u8>>();
    for (header, payload) in records {
        let mut header = header.clone();
        if header[0] == END {
            header[8..40].copy_from_slice(&coded(&sums));
        }
        add(&mut sums, &header[..SUMMED]);
        if header[0] != 0 {
            header[SUMMED..].copy_from_slice(&coded(&sums));
        }
        add(&mut sums, &header[SUMMED..]);
        add(&mut sums, payload);
        out.extend(header);
        out.extend(payload);
    }
    out
}

/// Receives a forged stream. What lands is consistent.
fn receive(world: &World, records: &Records) -> bool {
    let landed = world.receive("tank/copy", &sealed(records), false).is_ok();
    match world.datasets.open_dataset(&name("tank/copy")) {
        Ok(dataset) => {
            assert!(landed, "nothing is visible of a refused stream");
            assert_eq!(check::check(dataset.head()).unwrap(), []);
            drop(dataset);
            world.destroy("tank/copy", true, false).unwrap();
        }
        Err(_) => assert!(!landed),
    }
    landed
}

#[test]
fn true_records_are_received_with_new_checksums() {
    let world = World::new(1);
    assert!(receive(&world, &records("enc-plain-full")));
    world.judge();
}

#[test]
fn every_false_header_is_refused_or_harmless() {
    let world = World::new(2);
    let records = records("enc-plain-full");
    for index in 0..records.len() {
        for at in [0, 8, 10, 16, 20, 24, 28, 31, 32, 34, 35, 39, 40, 50, 96] {
            let mut forged = records.clone();
            forged[index].0[at] ^= 0x41;
            receive(&world, &forged);
        }
    }
    world.judge();
}

#[test]
fn every_false_payload_is_refused_or_harmless() {
    let world = World::new(3);
    let records = records("enc-plain-full");
    for (index, (header, payload)) in records.iter().enumerate() {
        let is_structure = header[0] == OBJECT || number(header, 8) < 40 && !payload.is_empty();
        for at in (0..payload.len().min(2048)).step_by(23).filter(|_| is_structure) {
            let mut forged = records.clone();
            forged[index].1[at] = forged[index].1[at].wrapping_add(1);
            receive(&world, &forged);
        }
        // The greatest number in the place of every other one.
        for at in (0..payload.len().min(1024) / 8 * 8).step_by(8).filter(|_| is_structure) {
            let mut forged = records.clone();
            forged[index].1[at..at + 8].fill(0xff);
            receive(&world, &forged);
        }
    }
    world.judge();
}

#[test]
fn missing_doubled_and_swapped_records_are_refused_or_harmless() {
    let world = World::new(4);
    let records = records("enc-plain-full");
    for index in 1..records.len() - 1 {
        let mut without = records.clone();
        without.remove(index);
        receive(&world, &without);
        let mut twice = records.clone();
        twice.insert(index, records[index].clone());
        assert!(receive(&world, &twice), "record {index} twice");
        let mut swapped = records.clone();
        swapped.swap(index, 1 + (index * 7) % (records.len() - 2));
        receive(&world, &swapped);
    }
    world.judge();
}

/// The records that hold the map of the root directory, and the numbers of two directories in it.
fn root_map(records: &Records) -> usize {
    let is_map = |(header, payload): &(Vec<u8>, Vec<u8>)| {
        header[0] == WRITE && payload.windows(7).any(|part| part == b"secret.") && payload.len() < 4096
    };
    records.iter().position(is_map).unwrap()
}

#[test]
fn a_directory_cannot_contain_itself() {
    let world = World::new(5);
    let records = records("enc-plain-full");
    let index = root_map(&records);
    let directory = number(&records[index].0, 8);
    let payload = &records[index].1;
    for at in (64..payload.len()).step_by(64).filter(|at| payload[at + 14] != 0) {
        let mut forged = records.clone();
        let kind = number(payload, at) >> 60 << 60;
        forged[index].1[at..at + 8].copy_from_slice(&(kind | directory).to_le_bytes());
        refusal(world.receive("tank/copy", &sealed(&forged), false).map(drop));
    }
    // A directory with the map of the root contains itself.
    let inner = payload
        .iter()
        .enumerate()
        .position(|(at, _)| at >= 64 && at % 64 == 0 && payload[at + 14] == b'd' && payload[at + 15] == 0);
    let inner = number(payload, inner.unwrap()) & 0xffff_ffff_ffff;
    let mut forged = records.clone();
    let own = forged.iter().position(|(header, _)| header[0] == WRITE && number(header, 8) == inner).unwrap();
    let map = forged[index].1.clone();
    let len = map.len() as u64;
    forged[own].1 = map;
    forged[own].0[32..40].copy_from_slice(&len.to_le_bytes());
    refusal(world.receive("tank/copy", &sealed(&forged), false).map(drop));
    world.judge();
}

#[test]
fn names_that_cannot_be_are_refused() {
    let world = World::new(6);
    let records = records("enc-plain-full");
    let index = root_map(&records);
    for bad in [&b"a/b"[..], b".", b".."] {
        let mut forged = records.clone();
        let payload = &mut forged[index].1;
        let at = (64..payload.len()).step_by(64).find(|at| payload[at + 14] != 0).unwrap() + 14;
        payload[at..at + 50].fill(0);
        payload[at..at + bad.len()].copy_from_slice(bad);
        refusal(world.receive("tank/copy", &sealed(&forged), false).map(drop));
    }
    assert!(world.fs("tank").lookup(ROOT, b"copy").is_err());
    world.judge();
}

#[test]
fn a_file_without_a_name_keeps_its_content() {
    const TO: usize = 40;
    const FROM: usize = 48;
    let world = World::new(7);
    let whole = records("enc-plain-full");
    let index = root_map(&whole);
    let object = number(&whole[index].0, 8);
    let mut nameless = whole.clone();
    let map = &mut nameless[index].1;
    let at = (64..map.len()).step_by(64).find(|at| map[at + 14..].starts_with(b"secret.txt\0")).unwrap();
    map[at..at + 64].fill(0);
    world.receive_zfs("tank/copy", &sealed(&nameless)).unwrap();
    assert!(world.fs("tank/copy").lookup(ROOT, b"secret.txt").is_err());
    world.judge();
    // An increment that only gives the name back.
    let mut increment: Records = vec![whole[0].clone()];
    let (begin, guid) = (&mut increment[0].0, number(&whole[0].0, TO));
    begin[FROM..FROM + 8].copy_from_slice(&guid.to_le_bytes());
    begin[TO..TO + 8].copy_from_slice(&(guid ^ 1).to_le_bytes());
    let name_end = begin[56..].iter().position(|byte| *byte == 0).unwrap() + 56;
    begin[name_end - 1] = b'2';
    increment.extend(
        whole.iter().filter(|(header, _)| matches!(header[0], OBJECT | WRITE) && number(header, 8) == object).cloned(),
    );
    increment.push(whole.last().unwrap().clone());
    world.receive_zfs("tank/copy", &sealed(&increment)).unwrap();
    compare(&world.snapshot_fs("tank/copy@s2"), "named again", &manifest()["snapshots"]["tank/enc@s1"]);
    world.judge();
}

/// The bytes of a package without its last END.
fn open_ended(package: &[u8]) -> &[u8] {
    &package[..package.len() - HEADER]
}

#[test]
fn a_package_without_a_description_is_received() {
    // As 'zfs send -I' without -p and -R makes it.
    let manifest = manifest();
    let streams = manifest["streams"].as_array().unwrap();
    let entry = streams.iter().find(|entry| entry["file"] == "std-I-p-s1-s3").unwrap();
    let (world, file) = world_of(entry);
    let package = fixture(&file);
    let mut described = records_of(&package);
    described.truncate(2);
    let (head, description) = &mut described[0];
    let behind = 2 * HEADER + description.len();
    head[4..8].fill(0);
    description.clear();
    let bare = [&sealed(&described)[..], &package[behind..]].concat();
    let arrived = world.receive_zfs("tank/copy", &bare).unwrap();
    for snapshot in texts(&entry["snapshots"]) {
        let brought = arrived.snapshots.iter().find(|brought| brought.sent.to_string() == snapshot).unwrap();
        compare(&world.snapshot_fs(&brought.name.to_string()), &snapshot, &manifest["snapshots"][&snapshot]);
    }
    world.judge();
}

#[test]
fn datasets_beside_a_volume_arrive() {
    let world = World::new(9);
    let package = fixture("repl-R-full");
    let with_volume = [open_ended(&package), &fixture("zvol-full"), &package[package.len() - HEADER..]].concat();
    let error = world.receive_zfs("tank/copy", &with_volume).unwrap_err().to_string();
    assert!(error.contains("volume"), "{error}");
    let alone = World::new(10);
    alone.receive_zfs("tank/copy", &package).unwrap();
    assert_eq!(world.names(), alone.names());
    world.judge();
}
