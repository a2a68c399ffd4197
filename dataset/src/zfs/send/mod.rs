//! Sending in the format of ZFS: what `zfs receive` reads.
//!
//! A ZFS stream lists objects: an OBJECT record describes a file by its block size and its znode, WRITE records have
//! its blocks. Directories are objects too, maps from names to objects (ZAP). So is the master node, which names the
//! root directory. The file systems written here have version 4 of the ZPL: every ZFS reads it, zfs-fuse included, and
//! a znode needs no tables of attributes and no spill blocks. Extended attributes are files of a hidden directory.
//!
//! Objects keep their numbers: an inode's object is its number plus a constant. So the increment between two snapshots
//! follows from the difference of their trees ([`crate::lineage::difference`]), and the same snapshots give the same
//! bytes. A full stream is the difference to the empty tree.
//!
//! ```text
//! package   the description at the head of several streams: names, snapshots, properties
//! stream    one stream: the changed objects, in the order of their numbers
//! file, directory, attributes   the records of one object: content, names, extended attributes
//! tree      reads the sent snapshot                  numbers   objects' numbers and types
//! znode     what an object says of its file          zap       maps from names to numbers
//! frame     records and their running checksum
//! ```

mod attributes;
mod directory;
mod file;
mod frame;
mod numbers;
mod package;
mod stream;
mod tree;
mod zap;
mod znode;

#[cfg(test)]
mod tests;

use std::{collections::HashSet, io::Write, sync::Arc};

use pool::txg::Head;

use crate::{
    error::{Error, Result},
    stream::{Begin, Hold, Sent},
};

pub use package::{Described, Package};

/// What a ZFS file system does not have, and what streams in its format leave out. `docs/src/openzfs.md` has the list
/// for users.
pub const LEFT_OUT: &[&str] = &[
    "the attributes direct and noatime of a file, and its own compression and record size",
    "projects, and quotas of users, groups and projects",
    "shared blocks: copies by reflink become blocks of their own",
    "compression and checksums: the receiving dataset's properties decide",
    "holds and bookmarks",
    "files that were deleted while open",
];

/// The most extended attributes of a file. A file with more is refused.
pub const XATTRS_MAX: u64 = numbers::XATTRS_MAX;

/// Which ZFS will receive the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiver {
    /// OpenZFS, on Linux.
    #[default]
    OpenZfs,
    /// zfs-fuse, which codes device numbers differently.
    ZfsFuse,
}

/// A snapshot to send.
#[derive(Debug)]
pub struct Source {
    /// The snapshot's names and GUIDs.
    pub begin: Begin,
    /// The snapshot's tree.
    pub tree: Arc<Head>,
    /// The base's tree; `None` for a full stream.
    pub base: Option<Arc<Head>>,
    /// The holds that keep the snapshot and its base until sent.
    pub held: Option<Box<dyn Hold>>,
}

/// Writes snapshots to `out`, and releases the holds of each once sent. Without a package there is one snapshot.
/// `progress` is called with the number of bytes written so far.
///
/// # Errors
/// If a block cannot be read, `out` cannot be written, or ZFS has no form for a file; before the first byte, if the
/// receiver has a base under other numbers.
pub fn send(
    package: Option<&Package>,
    sources: Vec<Source>,
    receiver: Receiver,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Sent> {
    assert!(package.is_some() || sources.len() == 1);
    check_bases(&sources)?;
    let mut frames = frame::Frames::new(out, progress);
    if let Some(package) = package {
        let name = format!("{}@{}", package.root, package.to);
        frames.begin_package(&name, &package.encode(receiver))?;
    }
    for source in sources {
        stream::send(&source, receiver, &mut frames)?;
    }
    if package.is_some() {
        frames.end_package()?;
    }
    Ok(Sent { bytes: frames.flush()?, ..Sent::default() })
}

/// Fails if the base of an increment came in a ZFS stream: the receiver may have the base from the same sender, with
/// other numbers of objects. A base sent earlier in the package has the numbers of this module.
fn check_bases(sources: &[Source]) -> Result<()> {
    let mut sent = HashSet::new();
    for Source { begin, base, .. } in sources {
        let is_sent = begin.base.as_ref().is_some_and(|base| sent.contains(&base.guid));
        if !is_sent && tree::Tree::new(base.clone()).is_of_zfs()? {
            return Err(Error::NotSent {
                problem: "the base came in a ZFS stream, where objects have other numbers".to_owned(),
                remedy: "send in full, to a new dataset",
            });
        }
        sent.insert(begin.guid);
    }
    Ok(())
}
