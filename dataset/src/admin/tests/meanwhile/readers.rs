//! The readers of the table.

use std::collections::BTreeMap;

use super::{
    World,
    scene::{Scene, XATTR},
};
use crate::{
    admin::{DifferenceKind, SendFrom, SendRequest},
    error::{self, Error, Result},
    fs::{FileSystem, Ino, ROOT},
    stream,
};

/// The bytes read, by their source.
pub(super) type Read = BTreeMap<String, Vec<u8>>;

/// The bytes per read.
const PIECE: usize = 64 << 10;

/// A row of the table.
pub(super) struct Reader {
    pub(super) name: &'static str,
    pub(super) read: fn(&Scene) -> Result<Read>,
    /// Whether the reader holds a whole snapshot.
    pub(super) holds: bool,
    /// Whether the reader reads changing data: any state is right.
    pub(super) is_live: bool,
    /// Whether the pool is short of space during the read.
    pub(super) runs_short: bool,
}

const PLAIN: Reader = Reader { name: "", read: cat_snapshot, holds: false, is_live: false, runs_short: false };

/// All readers.
pub(super) const READERS: &[Reader] = &[
    Reader { name: "cat of a snapshot", ..PLAIN },
    Reader { name: "cat of a file", read: cat, is_live: true, ..PLAIN },
    Reader { name: "copy of a snapshot", read: copy_snapshot, ..PLAIN },
    Reader { name: "send", read: send, holds: true, ..PLAIN },
    Reader { name: "diff of snapshots", read: diff_snapshots, ..PLAIN },
    Reader { name: "diff to the dataset", read: diff, is_live: true, ..PLAIN },
    Reader { name: "diff to the dataset, short of room", read: diff, is_live: true, runs_short: true, ..PLAIN },
];

fn cat_snapshot(world: &Scene) -> Result<Read> {
    let open = world.datasets.open_snapshot(&"tank/a@2".parse().unwrap())?;
    Ok(BTreeMap::from([("big".to_owned(), content(&open.fs, b"big")?)]))
}

fn cat(world: &Scene) -> Result<Read> {
    // The file is open, and remains readable if its name goes.
    let fs = world.fs("tank/a");
    Ok(BTreeMap::from([("big".to_owned(), content(&fs, b"big")?)]))
}

fn copy_snapshot(world: &Scene) -> Result<Read> {
    let open = world.datasets.open_snapshot(&"tank/a@2".parse().unwrap())?;
    let mut names = Vec::new();
    let listed = open.fs.readdir(ROOT, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    });
    listed.map_err(gone)?;
    let mut read = Read::new();
    for file in names.into_iter().filter(|file| !file.starts_with(b".")) {
        let name = String::from_utf8(file.clone()).unwrap();
        let ino = open.fs.lookup(ROOT, &file).map_err(gone)?.ino;
        for attribute in open.fs.listxattr(ino).map_err(gone)? {
            assert_eq!(attribute, XATTR);
            read.insert(format!("{name}, attribute"), open.fs.getxattr(ino, &attribute).map_err(gone)?);
        }
        read.insert(name, content(&open.fs, &file)?);
    }
    Ok(read)
}

fn content(fs: &FileSystem, file: &[u8]) -> Result<Vec<u8>> {
    let ino: Ino = fs.lookup(ROOT, file).map_err(gone)?.ino;
    let mut content = Vec::new();
    loop {
        let at = content.len();
        fs.read(ino, at as u64, PIECE, &mut content).map_err(gone)?;
        if content.len() < at + PIECE {
            return Ok(content);
        }
    }
}

/// A missing file or dataset is an acceptable result; any other error is not.
fn gone(errno: crate::fs::Errno) -> Error {
    use crate::fs::Errno;
    assert!([Errno::NOENT, Errno::STALE].contains(&errno), "{errno}");
    pool::error::Error::Stale.into()
}

fn send(world: &Scene) -> Result<Read> {
    let request = SendRequest {
        from: Some(SendFrom::Base("tank/a@1".parse().unwrap())),
        ..SendRequest::plain("tank/a@2".parse().unwrap())
    };
    let mut out = Vec::new();
    let reader = error::Reader { command: "fs send".into(), ..error::Reader::default() };
    world.datasets.send(&request, reader, &mut out, 0, &mut |_| {})?;
    stream::verify(&mut &out[..], 0, &mut |_| {}).unwrap();
    // The stream contains the dataset's name, possibly changed by now.
    Ok(Read::from([("length".into(), vec![(out.len() % 251) as u8]), ("stream".into(), blocks(&out))]))
}

/// The long runs of one byte: the files' content.
fn blocks(stream: &[u8]) -> Vec<u8> {
    let is_run = |window: &&[u8]| window.iter().all(|byte| *byte == window[0]) && window[0] != 0;
    stream.chunks(64).filter(is_run).map(|window| window[0]).collect()
}

fn diff_snapshots(world: &Scene) -> Result<Read> {
    compared(world, "tank/a@2")
}

fn diff(world: &Scene) -> Result<Read> {
    compared(world, "tank/a")
}

fn compared(world: &World, to: &str) -> Result<Read> {
    let mut read = Read::new();
    world.datasets.diff(&"tank/a@1".parse().unwrap(), &to.parse().unwrap(), |found| {
        let sign = |kind: DifferenceKind| kind.sign();
        let mut path = String::from_utf8(found.path).unwrap();
        path.push(sign(found.kind));
        read.insert(path, Vec::new());
        Ok(())
    })?;
    Ok(read)
}
