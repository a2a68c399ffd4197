//! The one persistent map: everything stored in a pool is a tree.
//!
//! A tree maps [`Key`](crate::format::key::Key)s to a body of some bytes and, optionally, a block. Their meaning is
//! unknown here. The tree is a B+tree whose nodes never change once written: a change copies the path from its leaf to
//! the root.
//!
//! In memory a node belongs to the transaction group that made it and hangs in a [`Cell`]. Changing a node of an older
//! group puts a copy into a new cell; nodes of the open group are edited in place. So freezing a tree is cloning the
//! `Arc` of its root cell: the writer walks the frozen cells while changes go on beside it. Once the node is written,
//! its cell holds the node's address, write-once, and releases the node. Frozen and open tree share the cell, so both
//! see a clean child from then on, and only the bounded cache keeps the node.
//!
//! ```text
//! node     a leaf or an interior node in memory; splitting, merging, coding
//! cell     a child: an address, or a node without one
//! record   the content of a block on its way to the devices
//! view     reading: get, range, the last before a key
//! batch    changing: puts and deletes, applied together
//! walk     visiting the nodes of a stored tree
//! births   the space taken by records, by transaction group
//! cache    decoded nodes and decompressed data, bounded
//! tally    hits and misses of reads
//! ```
//!
//! Reading needs nodes that may not be in memory. Nothing here does I/O: a missing node comes back as a [`Miss`]. The
//! caller reads the node without holding a lock, and starts again.

mod batch;
mod births;
mod cache;
mod cell;
mod node;
mod record;
mod tally;
mod view;
mod walk;

pub use batch::{Batch, Growth, Kill};
pub(crate) use births::Births;
pub use births::Usage;
pub use cache::BlockCache;
pub use cell::{Cell, Slot};
pub use node::{Child, Content, Interior, Item, ItemBlock, Leaf, Node, verify_place};
pub(crate) use record::LogPart;
pub use record::Record;
pub(crate) use tally::Lookup;
pub use tally::Lookups;

pub use crate::block::Policy;
pub use view::{Block, Cursor, Entry, Miss, NodeSource, Root, View};
pub use walk::{Event, Walker};

#[cfg(test)]
mod tests;
