//! The requests of each operation: never more than the table in `benches/README.md` says, row for row.
//!
//! Each operation is done twice, on different files, and the second is counted: so the path is already known, and the
//! directory has just been changed if the operation changes it. Forgets and releases are not counted: no program waits
//! for them, and their time is the kernel's choice. A kernel may send fewer requests than the table says.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::SystemTime,
};

use dataset::fs::{Caller, FileSystem, ROOT};
use fuse_mount::{Counters, Opcode};

use crate::{names, support::Mounted};

const SAID: &str = include_str!("../../../benches/README.md");
const HEADING: &str = "| operation | requests |\n| --- | --- |\n";

/// The number of requests, by name.
type Requests = BTreeMap<&'static str, u64>;

/// An operation in the root of a mount, on files with this number at the end of their names.
type Operation = fn(&Path, usize);

/// In an order in which each operation finds the files it needs.
const OPERATIONS: [(&str, Operation); 28] = [
    ("create a file", |root, n| drop(File::create(root.join(format!("new{n}"))).unwrap())),
    ("create a file, write 512 bytes", |root, n| fill(root, &format!("small{n}"), 512)),
    ("create a file, write 1 MiB", |root, n| fill(root, &format!("big{n}"), 1 << 20)),
    ("`stat` of a file just written", |root, n| stat(root, &format!("big{n}"))),
    ("`stat` of a file that the kernel does not know", |root, n| stat(root, &format!("seen{n}"))),
    ("`stat` of one that it knows", |root, n| stat(root, &format!("seen{n}"))),
    ("`statx` of its birth time", |root, n| born(root, &format!("seen{n}"))),
    ("`statx` of a birth time that it knows", |root, n| born(root, &format!("seen{n}"))),
    ("`stat` of a name that is known to be absent", |root, _| assert!(!root.join("absent").exists())),
    ("open, read 4 KiB that the kernel does not have, close", |root, n| read(root, &format!("read{n}"))),
    ("open, read 4 KiB that it has, close", |root, n| read(root, &format!("read{n}"))),
    ("open, read 8 MiB that the kernel does not have, close", |root, n| read(root, &format!("large{n}"))),
    ("open, write 4 KiB, close", |root, n| write(root, &format!("written{n}"))),
    ("the same with a file that was written before", |root, n| write(root, &format!("written{n}"))),
    ("truncate a file at opening, write 512 bytes", |root, n| fill(root, &format!("small{n}"), 512)),
    ("write 4 KiB, `fsync`", |root, n| sync(root, &format!("written{n}"))),
    ("list 20 files that the kernel does not know, `stat` each", |root, n| list(&root.join(format!("many{n}")))),
    ("the same once more", |root, n| list(&root.join(format!("many{n}")))),
    ("copy 8 MiB with `copy_file_range`", |root, n| copy(root, &format!("large{n}"), &format!("copy{n}"))),
    ("rename a file", |root, n| rename(root, &format!("new{n}"), &format!("renamed{n}"))),
    ("remove a file", |root, n| fs::remove_file(root.join(format!("renamed{n}"))).unwrap()),
    ("make a hard link", |root, n| fs::hard_link(root.join("big0"), root.join(format!("link{n}"))).unwrap()),
    ("make a symbolic link", |root, n| symlink("big0", root.join(format!("symlink{n}"))).unwrap()),
    ("follow a symbolic link that was followed before", |root, _| stat(root, "symlink0")),
    ("make a directory", |root, n| fs::create_dir(root.join(format!("dir{n}"))).unwrap()),
    ("remove a directory", |root, n| fs::remove_dir(root.join(format!("dir{n}"))).unwrap()),
    ("`chmod`, then `utimensat`", |root, n| set(root, &format!("seen{n}"))),
    ("`statfs`", |root, _| assert!(rustix::fs::statfs(root).is_ok())),
];

#[test]
fn no_operation_causes_more_requests_than_documented() {
    let Some(mounted) = Mounted::prepared(prepare, |_| {}) else { return };
    let seen = OPERATIONS.map(|(_, operation)| count(&mounted, operation));
    let said: Vec<_> = SAID.split_once(HEADING).unwrap().1.lines().map_while(row).collect();
    let is_as_said = |((seen, (name, _)), (said_name, said)): ((&Requests, &(&str, _)), &(&str, Requests))| {
        name == said_name && seen.iter().all(|(request, count)| said.get(request) >= Some(count))
    };
    let rows = seen.iter().zip(&OPERATIONS).map(|(seen, (name, _))| format!("| {name} | {} |\n", text(seen)));
    let table: String = rows.collect();
    assert!(said.len() == seen.len() && seen.iter().zip(&OPERATIONS).zip(&said).all(is_as_said), "\n{HEADING}{table}");
}

/// The requests of an operation when it is done for the second time.
fn count(mounted: &Mounted, operation: Operation) -> Requests {
    operation(mounted.path(), 0);
    let before = so_far(mounted.mount.counters());
    operation(mounted.path(), 1);
    let after = so_far(mounted.mount.counters());
    let new = after.iter().map(|(request, count)| (*request, count - before.get(request).unwrap_or(&0)));
    new.filter(|(_, count)| *count > 0).collect()
}

fn so_far(counters: &Counters) -> Requests {
    let seen = counters.seen().into_iter().filter(|(opcode, _)| !matches!(opcode, Opcode::Forget | Opcode::Release));
    seen.map(|(opcode, count)| (opcode.name(), count)).collect()
}

/// Requests as written in the table: `getattr, 2 lookup`, or `none`.
fn text(requests: &Requests) -> String {
    let words = requests.iter().map(|(request, count)| match count {
        1 => (*request).to_owned(),
        _ => format!("{count} {request}"),
    });
    if requests.is_empty() { "none".to_owned() } else { words.collect::<Vec<_>>().join(", ") }
}

/// A row of the table; `None` behind its end.
fn row(line: &'static str) -> Option<(&'static str, Requests)> {
    let (name, requests) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
    let words = requests.split(", ").filter(|word| *word != "none");
    let requests = words.map(|word| match word.split_once(' ') {
        Some((count, request)) => (request, count.parse().unwrap_or(0)),
        None => (word, 1),
    });
    Some((name, requests.collect()))
}

/// Makes two of each file that an operation expects, unknown to the kernel.
fn prepare(files: &FileSystem) {
    let make = |dir, name: &str, len| {
        let ino = files.create(&Caller::default(), dir, name.as_bytes(), 0o644, true).unwrap().ino;
        files.write(ino, 0, &vec![7; len], false).unwrap();
    };
    for n in 0..2 {
        ["seen", "read", "written"].iter().for_each(|name| make(ROOT, &format!("{name}{n}"), 4096));
        make(ROOT, &format!("large{n}"), 8 << 20);
        let many = files.mkdir(&Caller::default(), ROOT, format!("many{n}").as_bytes(), 0o755).unwrap().ino;
        (0..20).for_each(|file| make(many, &format!("file{file}"), 512));
    }
}

fn fill(root: &Path, name: &str, len: usize) {
    fs::write(root.join(name), vec![1; len]).unwrap();
}

fn stat(root: &Path, name: &str) {
    rustix::fs::stat(root.join(name)).unwrap();
}

/// Asks for the birth time too, as `fs::metadata` always does.
fn born(root: &Path, name: &str) {
    fs::metadata(root.join(name)).unwrap();
}

/// Reads to the end without asking for the size.
fn read(root: &Path, name: &str) {
    let (mut file, mut buffer) = (File::open(root.join(name)).unwrap(), vec![0; 1 << 20]);
    while file.read(&mut buffer).unwrap() > 0 {}
}

fn write(root: &Path, name: &str) {
    OpenOptions::new().write(true).open(root.join(name)).unwrap().write_all(&[1; 4096]).unwrap();
}

fn sync(root: &Path, name: &str) {
    let mut file = OpenOptions::new().write(true).open(root.join(name)).unwrap();
    file.write_all(&[2; 4096]).unwrap();
    file.sync_all().unwrap();
}

fn list(dir: &Path) {
    names(dir).iter().for_each(|name| stat(dir, name));
}

fn copy(root: &Path, from: &str, to: &str) {
    let (from, to) = (File::open(root.join(from)).unwrap(), File::create(root.join(to)).unwrap());
    while rustix::fs::copy_file_range(&from, None, &to, None, 8 << 20).unwrap() > 0 {}
}

fn rename(root: &Path, from: &str, to: &str) {
    fs::rename(root.join(from), root.join(to)).unwrap();
}

fn set(root: &Path, name: &str) {
    fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    File::open(root.join(name)).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
}
