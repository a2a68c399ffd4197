//! The fuzzer's starting inputs: real encodings of every structure, in the form that the targets take.
//!
//! The structures of the pool come from its golden files, the rest from a pool in memory. A seed is named by its content:
//! rows and items by their keys. So one more kind of row adds seeds, and neither renames nor changes the others.

use std::{fs, path::Path};

use dataset::{
    admin::{SendFrom, SendRequest},
    catalogue::kind,
    fs::{Account, Amount, Caller, ROOT, key},
    jobs::Kind,
    name::{Name, SnapshotName},
    property::{DATASET, Definition, Kinds, POOL, Source},
};
use pool::{
    block::checksum::verify,
    format::{
        codec::Reader,
        key::Key,
        label::{BODY_AT, Label},
        pointer::Checksum,
        space::log::{LogBlock, decode_changes, encode_changes},
        uberblock::Uberblock,
        vdev_config,
    },
    tree::Miss,
    txg::{Head, Plain},
};
use protocol::{
    Assignment, Call, Chain, DatasetRequest, DeviceRequest, Failure, FileRequest, ListRange, Location, Part, Progress,
    PropertyRecord, Reply, Request, Said, ServiceRequest, StreamRequest, VdevKind, VdevRole, VdevSpec, VdevTreeSpec,
    frame::{self, MAX_CALL},
};

use super::targets::world::{HOME, World, name};

/// A starting input.
pub(super) struct Seed {
    pub(super) target: &'static str,
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// All starting inputs.
pub(super) fn all() -> Vec<Seed> {
    let mut seeds = Seeds(Vec::new());
    structures(&mut seeds);
    items(&mut seeds);
    texts(&mut seeds);
    messages(&mut seeds);
    streams(&mut seeds);
    zfs(&mut seeds);
    seeds.0
}

struct Seeds(Vec<Seed>);

impl Seeds {
    fn add(&mut self, target: &'static str, name: impl Into<String>, parts: &[&[u8]]) {
        self.0.push(Seed { target, name: name.into(), bytes: parts.concat() });
    }
}

/// A golden file of the pool's format: lines of an offset and bytes, all in hexadecimal; the last line is the length.
fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pool/tests/golden").join(format!("{name}.hex"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(|word| usize::from_str_radix(word, 16).unwrap());
        bytes.resize(words.next().unwrap(), 0);
        bytes.extend(words.map(|byte| byte as u8));
    }
    bytes
}

/// The bytes between the head of a label or an uberblock and the trailing zeros.
fn payload(block: &[u8]) -> &[u8] {
    let len = u32::from_le_bytes(*block[12..].first_chunk().unwrap()) as usize;
    &block[16..16 + len]
}

fn structures(seeds: &mut Seeds) {
    let label = golden("label");
    seeds.add("label", "one-device", &[payload(&label)]);
    let vdevs = vdev_config::decode_all(&mut Reader::new(&golden("mirror"))).unwrap();
    let mirror = Label { vdevs, ..Label::decode(&label, BODY_AT).unwrap() };
    seeds.add("label", "mirror", &[payload(&mirror.encode(BODY_AT).unwrap())]);
    let uberblock = golden("uberblock");
    seeds.add("uberblock", "plain", &[payload(&uberblock)]);
    for pointer in ["pointer-plain", "pointer-full", "pointer-shared"] {
        seeds.add("pointer", pointer, &[&[0], &golden(pointer)]);
    }
    let (gang, pieces) = (golden("gang"), 9 * 512 + 100u32);
    seeds.add("pointer", "gang", &[&[9], &pieces.to_le_bytes(), &gang[..gang.len() - 32]]);
    for node in ["leaf", "interior"] {
        seeds.add("node", node, &[&golden(node)]);
    }
    seeds.add("space", "root", &[&[0], &Uberblock::decode(&uberblock).unwrap().space]);
    seeds.add("space", "table-root", &[&[1], &golden("table-root")]);
    for page in ["table-page", "table-page-places"] {
        seeds.add("space", page, &[&[2], &golden(page)]);
    }
    let log = golden("log-block");
    let changes = decode_changes(&LogBlock::decode(&log).unwrap().piece).unwrap();
    seeds.add("space", "log-block", &[&[3], &log]);
    seeds.add("space", "log-changes", &[&[4], &encode_changes(&changes)]);
    for checkpoint in ["checkpoint-spans", "checkpoint-bitmap"] {
        seeds.add("space", checkpoint, &[&[5], &256u16.to_le_bytes(), &golden(checkpoint)]);
    }
    seeds.add("space", "packed-map", &[&[6], &256u16.to_le_bytes(), &golden("packed-map")]);
    seeds.add("space", "places", &[&[7], &256u16.to_le_bytes(), &golden("places")]);
    seeds.add("intent", "frame", &[&golden("frame")[pool::format::intent::FRAME_HEADER..]]);
}

/// The items of trees, alone and as edits of a dataset.
fn items(seeds: &mut Seeds) {
    let world = World::new();
    for (key, body) in entries(world.datasets.engine().catalogue()) {
        edit(seeds, "catalogue", key, &body);
        if let Some(row) = row_number(key.kind) {
            seeds.add("item", format!("row-{row}-{:x}-{:x}", key.object, key.offset), &[&[row], &body]);
        }
    }
    for (key, body) in entries(world.fs(HOME).head()) {
        edit(seeds, "files", key, &body);
        if let Some(item) = item_number(key.kind) {
            seeds.add("item", format!("item-{item}-{:x}-{:x}", key.object, key.offset), &[&[item], &body]);
        }
    }
    accounts(seeds);
}

/// An edit that writes an existing item unchanged. The first item of a tree is also named by its number, so that the
/// fuzzer knows the shorter form.
fn edit(seeds: &mut Seeds, target: &'static str, key: Key, body: &[u8]) {
    let (Ok(object), Ok(len)) = (u8::try_from(key.object), u8::try_from(body.len())) else { return };
    if seeds.0.iter().all(|seed| seed.target != target) {
        seeds.add(target, "first", &[&[0, len], body]);
    }
    let name = format!("{object:x}-{:x}-{:x}", key.kind, key.offset);
    seeds.add(target, name, &[&[0xff, object, key.kind], &key.offset.to_le_bytes(), &[len], body]);
}

/// Accounts, and edits that give a tree accounts: far too much for the superuser, nothing for the others.
fn accounts(seeds: &mut Seeds) {
    let used = Amount { bytes: u64::MAX, objects: 3 };
    let account = Account { used, quota: Amount { bytes: 1 << 40, objects: 0 } }.encode();
    seeds.add("item", "account", &[&[22], &account]);
    let all = [[1].as_slice(), &[0xff; 9], &[1]].concat();
    let edits = [(key::ACCOUNTING, all), (key::USER, account.clone()), (key::GROUP, account)];
    let edits = edits.iter().map(|(kind, body)| [&[0xff, 0, *kind], &[0; 8][..], &[body.len() as u8], body].concat());
    seeds.add("files", "accounts", &[&edits.collect::<Vec<_>>().concat()]);
}

fn entries(head: &Head) -> Vec<(Key, Vec<u8>)> {
    let all = head.read(|view| -> Result<_, Plain> {
        let entries = view.range(Key::MIN..Key::MAX).collect::<Result<Vec<_>, Miss>>()?;
        Ok(entries.iter().map(|entry| (entry.key(), entry.body().to_vec())).collect())
    });
    all.unwrap()
}

/// The target's number for a row.
fn row_number(of: u8) -> Option<u8> {
    Some(match of {
        kind::MASTER => 0,
        kind::DATASET => 1,
        kind::CHILD | kind::SNAPSHOT_NAME | kind::SNAPSHOT_TXG => 2,
        kind::PROPERTY | kind::RECEIVED => 3,
        kind::SNAPSHOT => 4,
        kind::HOLD => 5,
        kind::BOOKMARK => 6,
        kind::DEADLIST => 7,
        kind::LINK => 8,
        kind::HISTORY => 9,
        kind::WORK => 10,
        kind::SCRUB => 11,
        kind::DAMAGE => 12,
        kind::PAGE => 13,
        kind::SHARED => 14,
        kind::SHARING => 15,
        _ => return None,
    })
}

/// The target's number for an item of a file system.
fn item_number(of: u8) -> Option<u8> {
    Some(match of {
        key::INODE => 16,
        key::DIRENT => 17,
        key::XATTR => 18,
        key::EXTENT => 19,
        key::MASTER => 20,
        key::PARENT => 21,
        _ => return None,
    })
}

fn texts(seeds: &mut Seeds) {
    for (name, text) in [
        ("pool", "tank"),
        ("dataset", "tank/home/ann"),
        ("snapshot", "tank/home@monday"),
        ("bookmark", "tank/home#mark"),
        ("snapshots", "tank@a,b%c,%d,e%"),
        ("location", "tank/home:/a b:/c"),
    ] {
        seeds.add("name", name, &[text.as_bytes()]);
    }
    for Definition { name, default, .. } in DATASET.iter().chain(POOL).filter(|property| property.is_settable()) {
        let Some(default) = default else { continue };
        seeds.add("property", *name, &[name.as_bytes(), b"=", default.as_bytes()]);
    }
    for (name, text) in [
        ("user", "backup:by=ann"),
        ("zstd", "compression=zstd-19"),
        ("gzip", "compress=gzip-9"),
        ("path", "mountpoint=/srv/a b"),
        ("size", "1.5TiB"),
        ("bytes", "1023B"),
    ] {
        seeds.add("property", name, &[text.as_bytes()]);
    }
}

fn messages(seeds: &mut Seeds) {
    let assignments = vec![Assignment { name: "compression".into(), value: "lz4".into() }];
    let location = || Location { name: "tank/home@a".parse().unwrap(), path: "/dir/small".into() };
    let snapshot = || "tank/home@a".parse::<SnapshotName>().unwrap();
    let requests: [(&str, Request); 11] = [
        ("ping", ServiceRequest::Ping.into()),
        ("scrub", Request::pause(Kind::Scrub)),
        (
            "set",
            DatasetRequest::Set {
                name: "tank".parse().unwrap(),
                assignments: assignments.clone(),
                no_mount: true,
                dry_run: false,
            }
            .into(),
        ),
        (
            "list",
            DatasetRequest::List {
                root: Some("tank#b".parse().unwrap()),
                depth: Some(3),
                kinds: Kinds::ALL_DATASETS,
                properties: vec!["used".into()],
                range: Some(ListRange { skip: 1, most: 2 }),
            }
            .into(),
        ),
        (
            "destroy",
            DatasetRequest::DestroySnapshots {
                set: "tank@a,b%".parse().unwrap(),
                recursive: true,
                dependents: false,
                defer: false,
                wait: false,
                dry_run: true,
            }
            .into(),
        ),
        (
            "add",
            DeviceRequest::AddVdevs {
                vdevs: vec![VdevTreeSpec {
                    role: VdevRole::Special,
                    kind: VdevKind::Disk,
                    devices: vec![VdevSpec { path: "/disks/1".into(), create: Some(1 << 30) }],
                }],
                spares: vec![VdevSpec { path: "/disks/2".into(), create: None }],
                force: false,
                dry_run: true,
            }
            .into(),
        ),
        ("snapshot", DatasetRequest::Snapshot { names: vec![snapshot()], recursive: true, assignments }.into()),
        ("hold", DatasetRequest::Hold { tag: "keep".into(), names: vec![snapshot()], recursive: false }.into()),
        ("diff", StreamRequest::Diff { from: snapshot(), to: "tank/home".parse().unwrap() }.into()),
        ("read", FileRequest::Read { location: location() }.into()),
        ("copy", FileRequest::CopyOut { sources: vec![location()], to: "/tmp".into(), recursive: true }.into()),
    ];
    for (name, request) in requests {
        let call = Call::new(format!("fs {name}"), request);
        seeds.add("socket", format!("call-{name}"), &[&frame::encode(&call, MAX_CALL).unwrap()]);
    }
    let property = PropertyRecord {
        name: "quota".into(),
        value: "0".into(),
        source: Source::Inherited("tank".into()),
        received: Some("5".into()),
    };
    let record = protocol::DatasetRecord { name: "tank#b".parse().unwrap(), createtxg: 7, properties: vec![property] };
    let replies = [
        ("progress", Reply::Said(Said::Progress(Progress { what: "sending".into(), done: 1, total: None }))),
        ("datasets", Reply::Said(Said::Part(Part::Datasets(vec![Chain::default().shared(record)])))),
        ("failed", Reply::Failed(Failure::new("no such pool").hint("pool list"))),
    ];
    for (name, reply) in replies {
        seeds.add("socket", format!("reply-{name}"), &[&frame::encode(&reply, MAX_CALL).unwrap()]);
    }
}

/// A full stream of the world's snapshot, an increment, and a replication stream.
fn streams(seeds: &mut Seeds) {
    let world = World::new();
    let fs = world.fs(HOME);
    let file = fs.lookup(ROOT, b"file").unwrap().ino;
    fs.write(file, 140_000, b"later", false).unwrap();
    fs.unlink(ROOT, b"link").unwrap();
    fs.mkdir(&Caller::default(), ROOT, b"new", 0o700).unwrap();
    let [old, new] = ["a", "b"].map(|snapshot| name(HOME).snapshot(snapshot).unwrap());
    world.datasets.snapshot(vec![new.clone()], false, Vec::new()).unwrap();
    let base = SendFrom::Base(Name::Snapshot(old.clone()));
    let full = send(&world, &old, None, false);
    let increment = send(&world, &new, Some(base.clone()), false);
    let replication = send(&world, &new, Some(base), true);
    seeds.add("stream", "raw", &[&full]);
    for (number, name, stream) in [(0, "full", full), (1, "increment", increment), (1, "replication", replication)] {
        let records = records(&stream);
        seeds.add("stream", name, &[&records]);
        seeds.add("receive", name, &[&[number], &records]);
    }
}

fn send(world: &World, snapshot: &SnapshotName, from: Option<SendFrom>, replicate: bool) -> Vec<u8> {
    let request = SendRequest { from, replicate, properties: true, ..SendRequest::plain(snapshot.clone()) };
    let mut stream = Vec::new();
    world.datasets.send(&request, dataset::error::Reader::default(), &mut stream, 0, &mut |_| {}).unwrap();
    stream
}

/// A stream's records without checksums, up to the end: the form that the targets take.
fn records(stream: &[u8]) -> Vec<u8> {
    const PREAMBLE: usize = 16;
    const SUM: usize = 32;
    const BLOCK: u8 = 4;
    const FINISH: u8 = 6;
    let (mut out, mut rest) = (Vec::new(), &stream[PREAMBLE..]);
    while rest[0] != FINISH {
        let kind = rest[0];
        let len = u32::from_le_bytes(*rest[4..].first_chunk().unwrap()) as usize;
        let payload = &rest[8..8 + len];
        let payload = match payload.split_first_chunk::<SUM>() {
            Some((sum, data)) if kind == BLOCK => [&[checksum_kind(sum, data)], data].concat(),
            _ => payload.to_vec(),
        };
        out.push(kind);
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        out.extend_from_slice(&payload);
        rest = &rest[8 + len + SUM..];
    }
    out
}

/// The algorithm of a block's checksum.
fn checksum_kind(sum: &[u8; 32], data: &[u8]) -> u8 {
    let kinds = [Checksum::Blake3, Checksum::Xxh3, Checksum::Sha256];
    kinds.into_iter().find(|kind| verify(*kind, data, sum)).map_or(1, |kind| kind as u8)
}

/// Real streams of OpenZFS without their ends, and without the checksums of records.
fn zfs(seeds: &mut Seeds) {
    const HEADER: usize = 312;
    const SUMMED: usize = 280;
    const END: u8 = 5;
    for name in ["enc-plain-full", "gzip-ce-full", "longname-full", "lzjb-ce-full", "zle-ce-full"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/zfs").join(format!("{name}.zst"));
        let stream = zstd::stream::decode_all(fs::File::open(path).unwrap()).unwrap();
        let (mut out, mut rest) = (Vec::new(), &stream[..]);
        while rest[0] != END {
            let number = |at: usize| u32::from_le_bytes(*rest[at..].first_chunk().unwrap()) as usize;
            let payload = match rest[0] {
                0 => number(4),
                1 => number(28).next_multiple_of(8),
                3 if rest[50] != 0 => number(96),
                3 => number(32),
                7 => number(16),
                8 => number(52).next_multiple_of(8),
                _ => 0,
            };
            let summed = if rest[0] == 0 { HEADER } else { SUMMED };
            out.extend_from_slice(&rest[..summed]);
            out.resize(out.len() + HEADER - summed, 0);
            out.extend_from_slice(&rest[HEADER..HEADER + payload]);
            rest = &rest[HEADER + payload..];
        }
        seeds.add("zfs", name, &[&out]);
    }
}
