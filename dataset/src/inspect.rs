//! Describes the rows of the catalogue and the items of a dataset's tree, for `pool debug`.
//!
//! Below lies `pool::inspect`, which walks trees and continues after damage; this module adds the meaning of the items.

use std::io;

use pool::{
    format::{key::Key, pointer::BlockPointer},
    inspect::{Item, Sink, block_text, tree},
    txg::Engine,
};

use crate::{
    admin::{Datasets, Target},
    catalogue::{
        Bookmark, Bucket, DatasetRow, History, Hold, Link, Master, Named, Row, SharedRow, SharingRow, SnapshotRow,
        Transaction, Value, Work, dataset_key, decode_page, kind, snapshot_key,
    },
    error::{Error, Result},
    fs::{
        Account,
        account::ledger::decode_below,
        directory::Dirent,
        file::extent::Extent,
        inode::Inode,
        key::{self, Ino},
        link, master,
        xattr::Xattr,
    },
    name::Name,
};

/// A tree's root and its level.
pub type TreeRoot = (BlockPointer, u8);

/// The root of the tree of a dataset or a snapshot, from the catalogue.
pub fn root_of(datasets: &Datasets, name: &Name) -> Result<TreeRoot> {
    let target = datasets.resolve(name)?;
    let read = |tx: &Transaction<'_>| -> Result<(Option<BlockPointer>, u8)> {
        Ok(match target {
            Target::Dataset(id) => {
                let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
                (root, row.level)
            }
            Target::Snapshot(id) => {
                let (row, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(id))?;
                (root, row.level)
            }
            Target::Bookmark(..) => (None, 0),
        })
    };
    let (root, level) = datasets.read(read)?;
    root.map(|root| (root, level)).ok_or_else(|| Error::no_tree(name.to_string()))
}

/// Prints the catalogue: nodes and rows.
pub fn catalogue(engine: &Engine, sink: Sink<'_>) -> io::Result<()> {
    match engine.catalogue().clean_root() {
        Some(root) => tree(engine, root, Key::MIN..Key::MAX, true, &row_item, sink),
        None => sink(Item::new(0, "no catalogue")),
    }
}

/// Prints the tree of a dataset: nodes and items.
pub fn dataset(engine: &Engine, root: TreeRoot, sink: Sink<'_>) -> io::Result<()> {
    tree(engine, root, Key::MIN..Key::MAX, true, &fs_item, sink)
}

/// Prints the items of one object of a dataset's tree: inode, names, attributes, entries and extents.
pub fn object(engine: &Engine, root: TreeRoot, ino: Ino, sink: Sink<'_>) -> io::Result<()> {
    let keys = Key::new(ino, 0, 0)..Key::new(ino, u8::MAX, u64::MAX);
    tree(engine, root, keys, false, &fs_item, sink)
}

/// Describes a row of the catalogue.
fn row_item(key: Key, body: &[u8], block: Option<&BlockPointer>) -> Option<Item> {
    let text = match key.kind {
        kind::MASTER => row::<Master>(body),
        kind::DATASET => row::<DatasetRow>(body),
        kind::CHILD | kind::SNAPSHOT_NAME | kind::SNAPSHOT_TXG => row::<Named>(body),
        kind::PROPERTY | kind::RECEIVED => row::<Value>(body),
        kind::SNAPSHOT => row::<SnapshotRow>(body),
        kind::CLONE => Ok(String::new()),
        kind::HOLD => row::<Hold>(body),
        kind::BOOKMARK => row::<Bookmark>(body),
        kind::DEADLIST => row::<Bucket>(body),
        kind::LINK => row::<Link>(body),
        kind::PAGE => decode_page(body).map(|blocks| format!("{} blocks", blocks.len())).map_err(|e| e.to_string()),
        kind::WORK => row::<Work>(body),
        kind::SHARED => row::<SharedRow>(body),
        kind::SHARING => row::<SharingRow>(body),
        kind::HISTORY => row::<History>(body),
        _ => Err("unknown kind of row".to_owned()),
    };
    Some(with_block(with_text(kind_name(key.kind), key, text), block))
}

fn row<R: Row + std::fmt::Debug>(body: &[u8]) -> std::result::Result<String, String> {
    R::decode(body).map(|row| format!("{row:?}")).map_err(|error| error.to_string())
}

fn kind_name(of: u8) -> &'static str {
    match of {
        kind::MASTER => "master",
        kind::DATASET => "dataset",
        kind::CHILD => "child",
        kind::PROPERTY => "property",
        kind::RECEIVED => "received property",
        kind::SNAPSHOT => "snapshot",
        kind::SNAPSHOT_NAME => "snapshot's name",
        kind::SNAPSHOT_TXG => "snapshot's place",
        kind::CLONE => "clone",
        kind::HOLD => "hold",
        kind::BOOKMARK => "bookmark",
        kind::DEADLIST => "bucket of a deadlist",
        kind::LINK => "link of lists",
        kind::PAGE => "page of a list",
        kind::WORK => "work",
        kind::SHARED => "shared block",
        kind::SHARING => "sharing",
        kind::HISTORY => "history",
        kind::RECEIVING => "receive",
        _ => "row",
    }
}

/// Describes an item of a dataset's tree.
fn fs_item(key: Key, body: &[u8], block: Option<&BlockPointer>) -> Option<Item> {
    let (what, text) = match key.kind {
        key::MASTER => ("master", debug(master::Master::decode(body))),
        key::INODE => ("inode", debug(Inode::decode(body))),
        key::PARENT => ("further name", debug(link::decode(body))),
        key::XATTR => ("attribute", Xattr::decode(body).map(|found| escaped(found.name)).map_err(|e| e.to_string())),
        key::DIRENT => ("entry", Dirent::decode(body).map(entry_text).map_err(|e| e.to_string())),
        key::EXTENT => ("extent", Extent::decode(body).map(extent_text).map_err(|e| e.to_string())),
        key::ORPHAN => ("orphan", Ok(String::new())),
        key::TRUNCATE => ("truncation", Ok(String::new())),
        key::DIRECT => ("note of direct files", Ok(String::new())),
        key::POSITION => ("position of a receive", Ok(String::new())),
        key::ACCOUNTING => ("note of accounts", debug(decode_below(body))),
        key::USER | key::GROUP | key::PROJECT => ("account", debug(Account::decode(body))),
        _ => ("item", Err("unknown kind of item".to_owned())),
    };
    Some(with_block(with_text(what, key, text), block))
}

fn debug<T: std::fmt::Debug, E: ToString>(decoded: std::result::Result<T, E>) -> std::result::Result<String, String> {
    decoded.map(|value| format!("{value:?}")).map_err(|error| error.to_string())
}

fn entry_text(entry: Dirent<'_>) -> String {
    format!("{} -> {} {:?}", escaped(entry.name), entry.ino, entry.file_type)
}

fn extent_text(extent: Extent<'_>) -> String {
    match extent {
        Extent::Inline(bytes) => format!("{} bytes inline", bytes.len()),
        Extent::Part { len, start } => format!("{len} bytes from {start} of its block"),
    }
}

/// A name without control characters.
fn escaped(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn with_text(what: &str, key: Key, text: std::result::Result<String, String>) -> Item {
    match text {
        Ok(text) if text.is_empty() => Item::new(0, what).with("key", key),
        Ok(text) => Item::new(0, what).with("key", key).with("says", text),
        Err(problem) => Item::damaged(0, what, problem).with("key", key),
    }
}

fn with_block(item: Item, block: Option<&BlockPointer>) -> Item {
    match block {
        Some(block) => item.with("block", block_text(block)),
        None => item,
    }
}
