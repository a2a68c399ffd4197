//! Inspection (`pool debug`): the structures on a pool's devices, item by item.
//!
//! Each function emits [`Item`]s in the order found, and reads on past damage: an unreadable structure becomes an item
//! with the problem. Nothing is written, and unverified bytes are not believed. A structure can be shown if the path to
//! it is readable.
//!
//! ```text
//! labels   labels and rings of uberblocks of one device
//! space    the chunk table and the space log of one state
//! tree     the nodes and items of a tree
//! ```

mod labels;
mod space;
mod tree;

use std::{io, sync::Arc};

pub use self::{
    labels::{labels, uberblocks},
    space::{log, space},
    tree::{Describe, tree},
};
use crate::{
    admin::{OpenOptions, open_unread},
    device::Device,
    env::SystemEnv,
    error::Result,
    format::{pointer::BlockPointer, space::PhysicalPointer},
    txg::{Engine, Settings},
    units::Txg,
};

/// One structure, or a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The nesting depth, from 0.
    pub depth: usize,
    /// The kind of structure.
    pub what: String,
    /// The fields, by name.
    pub fields: Vec<(&'static str, String)>,
}

impl Item {
    /// Something without fields yet.
    pub fn new(depth: usize, what: impl Into<String>) -> Item {
        Item { depth, what: what.into(), fields: Vec::new() }
    }

    /// An item for damage.
    pub fn damaged(depth: usize, what: &str, problem: impl ToString) -> Item {
        Item::new(depth, format!("damaged {what}")).with("problem", problem)
    }

    /// The item with one more field.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Item {
        self.fields.push((name, value.to_string()));
        self
    }
}

/// Where items go; an error ends the walk.
pub type Sink<'a> = &'a mut dyn FnMut(Item) -> io::Result<()>;

/// Opens a pool for inspection, at its newest state or at `txg`. Trees may be damaged; the space layer must be
/// readable, to resolve addresses.
pub fn open(devices: Vec<Arc<dyn Device>>, txg: Option<Txg>) -> Result<Arc<Engine>> {
    let settings = Settings { workers: 0, ..Settings::default() };
    let options = OpenOptions { read_only: true, force: true, state: txg, settings, ..OpenOptions::default() };
    open_unread(devices, &options, Arc::new(SystemEnv)).map(|unread| unread.engine)
}

/// A block pointer in one line.
pub fn block_text(pointer: &BlockPointer) -> String {
    let places: Vec<String> =
        pointer.addresses().iter().map(|address| format!("{}:{}", address.chunk, address.sector)).collect();
    let gang = if pointer.gang { ", gang" } else { "" };
    let shared = pointer.shared.map(|shared| format!(", shared since {}", shared.since)).unwrap_or_default();
    format!(
        "{} {}/{} bytes, {:?}, {:?}{gang}, born {} logically {}{shared}",
        places.join(" "),
        pointer.stored,
        pointer.logical,
        pointer.compression,
        pointer.checksum_kind,
        pointer.birth,
        pointer.logical_birth
    )
}

/// A physical pointer in one line.
fn physical_text(pointer: &PhysicalPointer) -> String {
    let places: Vec<String> =
        pointer.places().iter().map(|place| format!("{}:{:#x}", place.vdev, place.offset)).collect();
    format!("{} {} bytes", places.join(" "), pointer.len)
}
