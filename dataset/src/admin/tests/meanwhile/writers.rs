//! The writers of the table: each makes the steps of a command, and announces each step before making it.

use std::io::{self, Read};

use pool::error::Error as PoolError;

use super::{
    changes::{leave_stream, stream},
    scene::{Scene, XATTR},
};
use crate::{
    error::{Error, Result},
    fs::{
        Attr, Attribute, Caller, Errno, FileSystem, FileType, Handle, Ino, Project, ROOT, SetAttr, SetTime, SetXattr,
    },
};

/// The byte, owner and mode that writers give to files.
pub(super) const WRITTEN: u8 = 7;
pub(super) const OWNER: (u32, u32) = (71, 72);
pub(super) const MODE: u32 = 0o4711;
pub(super) const PROJECT: u32 = 77;
/// The state in the streams, and the name of the snapshot.
pub(super) const BROUGHT: u8 = 8;
pub(super) const SNAPSHOT: &str = "brought";
/// The prefix of the copied directory and files.
pub(super) const COPIED: &str = "copied";

/// The bytes per write.
const PIECE: usize = 64 << 10;
/// The bytes of a stream per read.
const PART: usize = 16 << 10;
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

/// A row of the table.
pub(super) struct Writer {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&Scene),
    pub(super) write: fn(&Scene) -> Result<()>,
    pub(super) given: Given,
}

/// The target of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// The files of a dataset, possibly while reading a snapshot.
    Files { dataset: &'static str, reads_snapshot: bool },
    /// A new dataset, or by force the content of an existing one.
    Stream { by_force: bool },
}

const HERE: Given = Given::Files { dataset: "tank/a", reads_snapshot: false };

/// All writers.
pub(super) const WRITERS: &[Writer] = &[
    Writer { name: "copy into a file", prepare: |_| {}, write: copy_file, given: HERE },
    Writer { name: "copy of a directory", prepare: |_| {}, write: copy_directory, given: HERE },
    Writer {
        name: "copy out of a snapshot into its dataset",
        prepare: |_| {},
        write: |scene| copy_snapshot(scene, "tank/a"),
        given: Given::Files { dataset: "tank/a", reads_snapshot: true },
    },
    Writer {
        name: "copy out of a snapshot into another dataset",
        prepare: |scene| drop(scene.create("tank/t").unwrap()),
        write: |scene| copy_snapshot(scene, "tank/t"),
        given: Given::Files { dataset: "tank/t", reads_snapshot: true },
    },
    Writer { name: "setattr -R", prepare: |_| {}, write: set_attributes, given: HERE },
    Writer { name: "project -r", prepare: |_| {}, write: set_projects, given: HERE },
    Writer {
        name: "receive of a full stream",
        prepare: |scene| leave_stream(scene, "tank/brought", None, (BROUGHT, SNAPSHOT)),
        write: |scene| receive(scene, "tank/new", false),
        given: Given::Stream { by_force: false },
    },
    Writer {
        name: "receive of an increment",
        prepare: |scene| {
            scene.snapshot("tank/a@3").unwrap();
            leave_stream(scene, "tank/brought", Some("tank/a@3"), (BROUGHT, SNAPSHOT));
        },
        write: |scene| receive(scene, "tank/a", false),
        given: Given::Stream { by_force: false },
    },
    Writer {
        name: "receive of an increment by force",
        prepare: |scene| leave_stream(scene, "tank/brought", Some("tank/a@1"), (BROUGHT, SNAPSHOT)),
        write: |scene| receive(scene, "tank/a", true),
        given: Given::Stream { by_force: true },
    },
];

/// Changes the files of a dataset as commands do: bound to the current tree, and successful only if the same tree is
/// still there at the end.
fn bound(scene: &Scene, dataset: &str, change: impl FnOnce(&FileSystem) -> Result<(), Errno>) -> Result<()> {
    let fs = scene.datasets.open_dataset(&dataset.parse().unwrap())?.fs().pinned();
    let epoch = fs.epoch();
    let changed = change(&fs);
    scene.step();
    scene.engine.commit()?;
    if fs.epoch() != epoch {
        return Err(PoolError::Stale.into());
    }
    fs.head().check_open()?;
    changed.map_err(|errno| match errno {
        Errno::STALE => PoolError::Stale.into(),
        other => PoolError::damaged("the files", other).into(),
    })
}

/// As in `fs cp`: an existing file is removed first.
fn copy_file(scene: &Scene) -> Result<()> {
    let len = scene.kind.lengths[0];
    bound(scene, "tank/a", |fs| {
        scene.step();
        fs.lookup(ROOT, b"big")?;
        scene.step();
        fs.unlink(ROOT, b"big")?;
        let file = put_file(scene, fs, (ROOT, "big"), len)?;
        finish(scene, fs, file)
    })
}

fn copy_directory(scene: &Scene) -> Result<()> {
    bound(scene, "tank/a", |fs| {
        scene.step();
        let dir = fs.mkdir(&CALLER, ROOT, COPIED.as_bytes(), 0o700)?.ino;
        for (name, len) in scene.kind.files() {
            let file = put_file(scene, fs, (dir, name), len)?;
            finish(scene, fs, file)?;
            scene.step();
            fs.link(file, dir, format!("{name}, again").as_bytes())?;
        }
        finish(scene, fs, dir)
    })
}

fn put_file(scene: &Scene, fs: &FileSystem, (dir, name): (Ino, &str), len: usize) -> Result<Ino, Errno> {
    scene.step();
    let file = fs.create(&CALLER, dir, name.as_bytes(), 0o600, true)?.ino;
    for at in (0..len).step_by(PIECE) {
        scene.step();
        fs.write(file, at as u64, &vec![WRITTEN; PIECE.min(len - at)], false)?;
    }
    Ok(file)
}

/// Sets the owner, attribute, mode and times of a copy.
fn finish(scene: &Scene, fs: &FileSystem, file: Ino) -> Result<(), Errno> {
    scene.step();
    let owned = SetAttr { uid: Some(OWNER.0), gid: Some(OWNER.1), ..SetAttr::default() };
    fs.setattr(&CALLER, file, &owned)?;
    scene.step();
    fs.setxattr(file, XATTR, &vec![WRITTEN; scene.kind.attribute], SetXattr::Any)?;
    scene.step();
    let times = Some(SetTime::At(1_000_000_000));
    let rest = SetAttr { mode: Some(MODE), atime: times, mtime: times, ..SetAttr::default() };
    fs.setattr(&CALLER, file, &rest).map(drop)
}

/// As in `fs cp -r` within a pool: blocks are shared.
fn copy_snapshot(scene: &Scene, dataset: &str) -> Result<()> {
    let source = scene.datasets.open_snapshot(&"tank/a@2".parse().unwrap())?.fs;
    bound(scene, dataset, |fs| {
        scene.step();
        let dir = fs.mkdir(&CALLER, ROOT, COPIED.as_bytes(), 0o700)?.ino;
        scene.step();
        for (name, from) in entries(&source)? {
            scene.step();
            let file = fs.create(&CALLER, dir, &name, 0o600, true)?.ino;
            let content = source.only([Handle::new(&from, source.epoch()).unreplaced(&from)]);
            let mut at = 0;
            while at < from.size {
                scene.step();
                match fs.copy_range_from(&content, from.ino, at, file, at, (PIECE as u64).min(from.size - at))? {
                    0 => break,
                    count => at += count,
                }
            }
            finish(scene, fs, file)?;
        }
        finish(scene, fs, dir)
    })
}

/// The regular files in the root directory.
fn entries(fs: &FileSystem) -> Result<Vec<(Vec<u8>, Attr)>, Errno> {
    let mut entries = Vec::new();
    fs.readdir_plus(ROOT, 0, &mut |entry, attr| {
        if attr.file_type == FileType::Regular {
            entries.push((entry.name.to_vec(), *attr));
        }
        true
    })?;
    Ok(entries)
}

fn set_attributes(scene: &Scene) -> Result<()> {
    each_file(scene, |fs, file| fs.set_file_attributes(file, |to| to.set(Attribute::NoDump, "on").ok_or(Errno::INVAL)))
}

fn set_projects(scene: &Scene) -> Result<()> {
    each_file(scene, |fs, file| fs.set_project(file, Project { id: PROJECT, inherit: false }))
}

/// Files removed since the listing are skipped.
fn each_file(scene: &Scene, set: impl Fn(&FileSystem, Ino) -> Result<(), Errno>) -> Result<()> {
    bound(scene, "tank/a", |fs| {
        scene.step();
        for (_, attr) in entries(fs)? {
            scene.step();
            match set(fs, attr.ino) {
                Err(Errno::NOENT) => {}
                set => set?,
            }
        }
        Ok(())
    })
}

fn receive(scene: &Scene, target: &str, force: bool) -> Result<()> {
    let bytes = stream(scene, "tank/brought");
    let mut request = super::super::streams::request(target);
    request.force = force;
    let mut input = Input { scene, bytes: &bytes };
    scene.datasets.receive(request, &mut input, 0, &mut |_| {}).1
}

/// A stream that arrives in parts.
struct Input<'a> {
    scene: &'a Scene,
    bytes: &'a [u8],
}

impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.scene.step();
        let part = PART.min(buf.len());
        self.bytes.read(&mut buf[..part])
    }
}

/// Whether a writer failed because its target or source is gone.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Pool(PoolError::Stale))
}
