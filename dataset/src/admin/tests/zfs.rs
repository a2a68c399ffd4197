//! Receiving streams that OpenZFS 2.4 and zfs-fuse 0.7 have made: the files are compared with what was mounted there.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    streams::request,
    world::{World, refusal},
};
use crate::{
    admin::{Arrived, Assignment, Naming, SendRequest},
    error::{Error, Reader, Result},
    fs::{FileSystem, FileType, ROOT, check, key::Ino},
    name::SnapshotName,
    property::dataset::TYPE,
    zfs::{send::Receiver, tests::fixture},
};

pub(super) fn manifest() -> Value {
    serde_json::from_slice(&fixture("manifest.json")).unwrap()
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

impl World {
    pub(super) fn receive_zfs(&self, target: &str, stream: &[u8]) -> Result<Arrived> {
        let mut request = request(target);
        let assignment = Assignment { property: "acltype".into(), value: "posix".into() };
        request.properties.push(assignment);
        let (arrived, received) = self.datasets.receive(request, &mut &stream[..], 0, &mut |_| {});
        received.map(|()| arrived)
    }

    pub(super) fn snapshot_fs(&self, snapshot: &str) -> std::sync::Arc<FileSystem> {
        self.datasets.open_snapshot(&snapshot.parse::<SnapshotName>().unwrap()).unwrap().fs.clone()
    }
}

/// Every path of a file system with what the manifest says of it.
fn described(fs: &FileSystem) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![(String::new(), ROOT)];
    while let Some((path, ino)) = waiting.pop() {
        let shown = if path.is_empty() { "/".to_owned() } else { path.clone() };
        all.insert(shown, facts(fs, ino));
        if fs.getattr(ino).unwrap().file_type != FileType::Directory {
            continue;
        }
        fs.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                waiting.push((format!("{path}/{}", lossless(entry.name)), entry.ino));
            }
            true
        })
        .unwrap();
    }
    all
}

/// Bytes that are no UTF-8 as escapes.
fn lossless(name: &[u8]) -> String {
    name.utf8_chunks()
        .map(|chunk| {
            let escaped: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("{}{escaped}", chunk.valid())
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn facts(fs: &FileSystem, ino: Ino) -> BTreeMap<String, String> {
    let attr = fs.getattr(ino).unwrap();
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
    put("mode", format!("{:07o}", u32::from(attr.mode) | attr.file_type.mode_bits()));
    put("uid", attr.uid.to_string());
    put("gid", attr.gid.to_string());
    let (seconds, nanos) = (attr.mtime.div_euclid(1_000_000_000), attr.mtime.rem_euclid(1_000_000_000));
    put("mtime", format!("{seconds}.{nanos:09}"));
    if attr.file_type != FileType::Directory {
        put("nlink", attr.nlink.to_string());
    }
    match attr.file_type {
        FileType::Regular => {
            let mut content = Vec::new();
            fs.read(ino, 0, attr.size as usize, &mut content).unwrap();
            put("size", attr.size.to_string());
            put("sha256", hex(&Sha256::digest(&content)));
        }
        FileType::Symlink => drop(put("target", lossless(&fs.readlink(ino).unwrap()))),
        FileType::BlockDevice | FileType::CharDevice => {
            let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
            put("rdev", format!("{major},{minor}"));
        }
        _ => {}
    }
    let names = fs.listxattr(ino).unwrap();
    let mut values: Vec<_> =
        names.iter().map(|name| format!("{}={}", lossless(name), hex(&fs.getxattr(ino, name).unwrap()))).collect();
    values.sort();
    put("xattrs", values.join(" "));
    facts
}

/// What the manifest says of a path, in the same form; only these facts are compared.
fn expected(entry: &Value) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (name, value) in entry.as_object().unwrap() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(numbers) => numbers.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
            Value::Object(values) => {
                let one = |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap());
                let mut values: Vec<_> = values.iter().map(one).collect();
                values.sort();
                values.join(" ")
            }
            _ => continue,
        };
        facts.insert(name.clone(), text);
    }
    let is_whole = facts.contains_key("uid");
    if is_whole {
        facts.entry("xattrs".to_owned()).or_default();
    }
    facts
}

pub(super) fn compare(fs: &FileSystem, snapshot: &str, entries: &Value) {
    assert_eq!(check::check(fs.head()).unwrap(), [], "{snapshot}");
    let (found, listed) = (described(fs), entries.as_object().unwrap());
    let names: Vec<_> = found.keys().collect();
    assert_eq!(
        names,
        {
            let mut listed: Vec<_> = listed.keys().collect();
            listed.sort();
            listed
        },
        "{snapshot}"
    );
    for (path, entry) in listed {
        for (fact, value) in expected(entry) {
            let found = &found[path][&fact];
            // zfs-fuse shows whole seconds.
            let is_same = *found == value || fact == "mtime" && found.split('.').next() == Some(&value);
            assert!(is_same, "{snapshot}: {path}: {fact} is {found} instead of {value}");
        }
    }
}

/// Receives a stream and its bases under `tank/copy`.
pub(super) fn world_of(entry: &Value) -> (World, String) {
    let world = World::new(7);
    for base in texts(&entry["base"]) {
        world.receive_zfs("tank/copy", &fixture(&base)).unwrap_or_else(|error| panic!("{base}: {error}"));
    }
    let file = entry["file"].as_str().unwrap().to_owned();
    (world, file)
}

const REFUSED: [(&str, &str); 4] = [
    ("enc-raw-full", "raw and encrypted"),
    ("redacted-full", "redacted"),
    ("zvol-full", "volume"),
    ("resumed-tail", "interrupted"),
];

fn receives_as_listed(wanted: impl Fn(&str) -> bool) {
    let manifest = manifest();
    for entry in manifest["streams"].as_array().unwrap() {
        if !wanted(entry["file"].as_str().unwrap()) {
            continue;
        }
        let (world, file) = world_of(entry);
        let target = if file == "clone-incr" { "tank/copy/other" } else { "tank/copy" };
        let received = world.receive_zfs(target, &fixture(&file));
        if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == file) {
            let error = received.unwrap_err().to_string();
            assert!(error.contains(reason), "{file}: {error}");
            world.judge();
            continue;
        }
        let arrived = received.unwrap_or_else(|error| panic!("{file}: {error}"));
        // The increment of the whole package brings what is here already.
        assert_eq!(arrived.snapshots.is_empty(), file == "repl-R-i", "{file}");
        for snapshot in texts(&entry["snapshots"]) {
            let brought = arrived.snapshots.iter().find(|brought| brought.sent.to_string() == snapshot);
            let name = brought.unwrap_or_else(|| panic!("{file} brings no {snapshot}")).name.to_string();
            compare(&world.snapshot_fs(&name), &format!("{file} {snapshot}"), &manifest["snapshots"][&snapshot]);
        }
        world.judge();
    }
}

#[test]
fn deduplicated_and_unknown_streams_are_refused_by_name() {
    let stream = fixture("std-full-s1");
    for (bit, reason) in [(0, "it is deduplicated"), (1, "it is deduplicated"), (18, "unknown feature with the bit 18")]
    {
        let world = World::new(7);
        let mut changed = stream.clone();
        // The features stand behind the two bits of the kind, in a little-endian number at 16.
        let features = u64::from_le_bytes(changed[16..24].try_into().unwrap()) | 1 << (bit + 2);
        changed[16..24].copy_from_slice(&features.to_le_bytes());
        let error = world.receive_zfs("tank/copy", &changed).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(world.datasets.get(&"tank/copy".parse().unwrap(), TYPE.name).is_err(), "nothing is received");
        world.judge();
    }
}

#[test]
fn small_file_systems_and_hierarchies_arrive_as_sent() {
    receives_as_listed(|file| !["std", "dirx", "zstd", "zfsfuse", "many"].iter().any(|name| file.starts_with(name)));
}

#[test]
fn all_kinds_of_files_arrive_as_sent() {
    receives_as_listed(|file| file.starts_with("std"));
}

#[test]
fn attributes_large_blocks_and_old_formats_arrive_as_sent() {
    receives_as_listed(|file| ["dirx", "zstd", "zfsfuse", "many"].iter().any(|name| file.starts_with(name)));
}

#[test]
fn a_received_file_system_is_sent_on_and_takes_increments_there() {
    let (one, two) = (World::new(1), World::new(2));
    one.receive_zfs("tank/copy", &fixture("std-full-s1")).unwrap();
    let mut native = Vec::new();
    let send = SendRequest::plain("tank/copy@s1".parse().unwrap());
    one.datasets.send(&send, Default::default(), &mut native, 0, &mut |_| {}).unwrap();
    two.receive_zfs("tank/copy", &native).unwrap();
    two.receive_zfs("tank/copy", &fixture("std-incr-s1-s2")).unwrap();
    let manifest = manifest();
    compare(&two.snapshot_fs("tank/copy@s2"), "s2", &manifest["snapshots"]["tank/std@s2"]);
    two.judge();
}

#[test]
fn an_increment_of_a_hierarchy_brings_what_is_missing() {
    let world = World::new(5);
    world.receive_zfs("tank/copy", &fixture("repl-R-full")).unwrap();
    world.destroy("tank/copy/clone", true, false).unwrap();
    world.destroy("tank/copy@r2,r3", true, false).unwrap();
    let arrived = world.receive_with("tank/copy", &fixture("repl-R-i"), |request| request.force = true).unwrap();
    let manifest = manifest();
    let sent: Vec<String> = arrived.snapshots.iter().map(|brought| brought.sent.to_string()).collect();
    assert_eq!(sent.len(), 7, "{sent:?}");
    for brought in &arrived.snapshots {
        let listed = &manifest["snapshots"][brought.sent.to_string()];
        if !listed.is_null() {
            compare(&world.snapshot_fs(brought.name.as_str()), brought.name.as_str(), listed);
        }
    }
    world.judge();
}

#[test]
fn a_package_of_one_snapshot_takes_the_name_of_the_target() {
    let world = World::new(11);
    world.create("tank/home").unwrap();
    world.snapshot("tank/home@a").unwrap();
    let package = |replicate: bool| {
        let send = SendRequest { properties: true, replicate, ..SendRequest::plain("tank/home@a".parse().unwrap()) };
        let mut package = Vec::new();
        let (to, reader) = (Receiver::OpenZfs, Reader::default());
        world.datasets.send_zfs(&send, to, reader, &mut package, &mut |_| {}).unwrap();
        package
    };
    world.receive_zfs("tank/copy@mine", &package(false)).unwrap();
    assert!(world.names().contains(&"tank/copy@mine".to_owned()));
    let refused = world.receive_zfs("tank/other@mine", &package(true)).unwrap_err().to_string();
    assert!(refused.contains("package of several"), "{refused}");
    world.receive_zfs("tank/std", &fixture("std-full-s1")).unwrap();
    let refused = world.receive_zfs("tank/std@mine", &fixture("std-I-p-s1-s3")).unwrap_err().to_string();
    assert!(refused.contains("package of several"), "{refused}");
    assert!(world.names().contains(&"tank/std@mine".to_owned()), "the first snapshot has the name");
    world.judge();
}

#[test]
fn a_name_of_a_snapshot_contradicts_names_from_the_stream() {
    let world = World::new(12);
    for (naming, file) in [(Naming::WithoutPool, "std-full-s1"), (Naming::LastPart, "std-I-p-s1-s3")] {
        let refused = world.receive_with("tank/std@mine", &fixture(file), |request| request.naming = naming);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("'tank/std@mine' names a snapshot"), "{refused}");
    }
}

#[test]
fn changed_files_need_force() {
    let world = World::new(3);
    world.receive_zfs("tank/copy", &fixture("std-full-s1")).unwrap();
    world.write("tank/copy", "mine", b"written here");
    let refused = world.receive_zfs("tank/copy", &fixture("std-incr-s1-s2")).unwrap_err();
    assert!(matches!(refused, Error::NotReceived { .. }), "{refused}");
    world.receive("tank/copy", &fixture("std-incr-s1-s2"), true).unwrap();
    assert_eq!(world.fs("tank/copy").lookup(ROOT, b"mine").unwrap_err(), rustix::io::Errno::NOENT);
    world.judge();
}

#[test]
fn a_cut_or_damaged_stream_leaves_nothing() {
    let world = World::new(4);
    let stream = fixture("longname-full");
    let mut ends: Vec<usize> = (0..stream.len()).step_by(911).skip(1).collect();
    ends.extend([stream.len() - 1, stream.len() - 312]);
    for end in ends {
        refusal(world.receive("tank/copy", &stream[..end], false).map(drop));
        let mut damaged = stream.clone();
        damaged[end] ^= 1;
        refusal(world.receive("tank/copy", &damaged, false).map(drop));
    }
    assert!(world.datasets.open_dataset(&super::world::name("tank/copy")).is_err());
    world.receive("tank/copy", &stream, false).unwrap();
    world.judge();
}
