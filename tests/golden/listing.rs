//! Everything visible in a pool, as text: one line for each dataset, snapshot, bookmark, hold, property, file,
//! attribute and extent of a file, so that a difference explains itself.

use std::{fmt::Write, time::Duration};

use dataset::{
    admin::{Event, Listed},
    fs::{Account, Amount, Attr, Attribute, Errno, FileAttributes, FileSystem, FileType, Ino, Project, ROOT, Whence},
    jobs::ScrubStatus,
    name::Name,
    property::{DATASET, OwnerKind, Property, Source},
};

use crate::world::{POOL, World};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The computed properties that must not change while nothing is written.
const COMPUTED: [&str; 9] =
    ["guid", "createtxg", "creation", "origin", "used", "referenced", "logicalreferenced", "logicalused", "written"];

/// Properties, holds, bookmarks and files of all datasets.
pub(crate) fn of_pool(world: &World) -> String {
    let mut text = String::new();
    let comment = world.datasets.pool_property("comment").unwrap().unwrap_or_default();
    writeln!(text, "pool: comment={comment:?}").unwrap();
    if let Some(scrub) = world.datasets.scrub().status().unwrap() {
        let ScrubStatus { state, start, end, limit, total, examined, .. } = scrub;
        writeln!(text, "scrub: {state:?} from {start} to {end} below {limit}, {examined} of {total}").unwrap();
    }
    for Event { time, txg, command, user, host } in world.datasets.history().unwrap() {
        writeln!(text, "history: {time} {txg} {user}@{host}: {command}").unwrap();
    }
    for listed in &world.list().unwrap() {
        properties(&mut text, listed);
        holds(&mut text, world, listed);
        files_of(&mut text, world, listed);
    }
    text
}

/// The received part: files, snapshots, and the properties in the streams. Nothing of the pool's root dataset.
pub(crate) fn of_received(world: &World) -> String {
    let mut text = String::new();
    for listed in world.list().unwrap().iter().filter(|listed| listed.name.to_string() != POOL) {
        writeln!(text, "\n{} {}", listed.type_name(), listed.name).unwrap();
        for (name, valued) in listed.user_properties() {
            writeln!(text, "  {name}={:?} ({:?})", valued.value, valued.source).unwrap();
        }
        files_of(&mut text, world, listed);
    }
    text
}

fn properties(text: &mut String, listed: &Listed) {
    writeln!(text, "\n{} {}", listed.type_name(), listed.name).unwrap();
    for name in COMPUTED {
        if let Some(valued) = listed.value(&Property::of_dataset(name).unwrap()) {
            writeln!(text, "  {name}={}", valued.value).unwrap();
        }
    }
    let native = DATASET.iter().map(Property::Native);
    let native = native.filter_map(|property| Some((property.name().to_owned(), listed.value(&property)?)));
    let user = listed.user_properties().map(|(name, valued)| (name.to_owned(), valued.clone()));
    let set = native.chain(user).filter(|(_, valued)| matches!(valued.source, Source::Local | Source::Received));
    for (name, valued) in set {
        writeln!(text, "  {name}={:?} ({:?})", valued.value, valued.source).unwrap();
    }
}

fn holds(text: &mut String, world: &World, listed: &Listed) {
    let Name::Snapshot(name) = &listed.name else { return };
    for hold in world.datasets.holds(std::slice::from_ref(name), false).unwrap() {
        writeln!(text, "  hold {} since {}", hold.tag, hold.time).unwrap();
    }
}

fn files_of(text: &mut String, world: &World, listed: &Listed) {
    match &listed.name {
        Name::Dataset(name) => files(text, world.datasets.open_dataset(name).unwrap().fs()),
        Name::Snapshot(name) => files(text, &world.datasets.open_snapshot(name).unwrap().fs),
        Name::Bookmark(_) => {}
    }
}

/// The quotas of users, groups and projects, with their usage.
fn quotas(text: &mut String, fs: &FileSystem) {
    for kind in OwnerKind::ALL {
        let accounts = fs.accounts(kind).unwrap().into_iter();
        for (id, Account { used, quota }) in accounts.filter(|(_, account)| account.quota != Amount::default()) {
            let (of, uses) =
                (kind.name(), format!("{} of {}, {} of {}", used.bytes, quota.bytes, used.objects, quota.objects));
            writeln!(text, "  {of} {id} uses {uses}").unwrap();
        }
    }
}

/// All files, by their paths. Reading sets access times. The simulated clock steps with each look, so the files are read
/// from a full second on, however often others looked before.
fn files(text: &mut String, fs: &FileSystem) {
    quotas(text, fs);
    let head = fs.head();
    let engine = head.engine();
    let env = engine.env();
    env.sleep(Duration::from_nanos(SECOND - env.now().rem_euclid(SECOND as i64) as u64));
    let mut todo = vec![("/".to_owned(), ROOT)];
    while let Some((path, ino)) = todo.pop() {
        file(text, fs, &path, ino).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        if fs.getattr(ino).unwrap().file_type == FileType::Directory {
            let mut entries = Vec::new();
            fs.readdir(ino, 0, &mut |entry| {
                entries.push((format!("{path}{}/", brief(entry.name)), entry.ino, entry.name.to_vec()));
                true
            })
            .unwrap();
            entries.retain(|(_, _, name)| name != b"." && name != b"..");
            // The list is used as a stack, so in reverse order.
            entries.sort_by(|left, right| right.2.cmp(&left.2));
            for (path, entry, name) in &entries {
                assert_eq!(fs.lookup(ino, name).map(|found| found.ino), Ok(*entry), "{path} is found by its name");
            }
            todo.extend(entries.into_iter().map(|(path, ino, _)| (path, ino)));
        }
    }
}

fn file(text: &mut String, fs: &FileSystem, path: &str, ino: Ino) -> Result<(), Errno> {
    let attr = fs.getattr(ino)?;
    let Attr { ino, generation, mode, nlink, uid, gid, rdev, size, blocks, block_size, .. } = attr;
    writeln!(
        text,
        "  {path} {:?} {ino}.{generation} {mode:o} {nlink} {uid}:{gid} {rdev:x} {size} {blocks} {block_size} {} {} {} {}",
        attr.file_type, attr.atime, attr.mtime, attr.ctime, attr.crtime
    )
    .unwrap();
    let project = fs.project(ino)?;
    if project != Project::default() {
        writeln!(text, "    project {}, handed down: {}", project.id, project.inherit).unwrap();
    }
    let attributes = fs.file_attributes(ino)?;
    if attributes != FileAttributes::default() {
        let shown = Attribute::ALL.map(|attribute| format!("{}={}", attribute.name(), attributes.get(attribute)));
        writeln!(text, "    {}", shown.join(" ")).unwrap();
    }
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        writeln!(text, "    {} = {}", name.escape_ascii(), brief(&value)).unwrap();
    }
    match attr.file_type {
        FileType::Symlink => writeln!(text, "    -> {}", fs.readlink(ino)?.escape_ascii()).unwrap(),
        FileType::Regular => {
            let mut content = Vec::new();
            while content.len() < attr.size as usize {
                let at = content.len();
                fs.read(ino, at as u64, attr.size as usize - at, &mut content)?;
                assert!(content.len() > at, "{path} is shorter than it says");
            }
            writeln!(text, "    {} data {:?}", brief(&content), ranges(fs, ino, attr.size)?).unwrap();
        }
        _ => {}
    }
    Ok(())
}

/// The data ranges of a file: from, to.
fn ranges(fs: &FileSystem, ino: Ino, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        match fs.seek(ino, at, Whence::Data) {
            Ok(from) => {
                at = fs.seek(ino, from, Whence::Hole)?;
                ranges.push((from, at));
            }
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(ranges)
}

/// The bytes themselves if few, else their length and checksum.
fn brief(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=40 => bytes.escape_ascii().to_string(),
        len => format!("[{len} bytes, BLAKE3 {}]", &blake3::hash(bytes).to_hex()[..32]),
    }
}
