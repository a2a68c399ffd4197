//! Streams of OpenZFS: what `zfs send` writes, and `zfs receive` reads.
//!
//! Such a stream is a list of changes to objects: descriptions, blocks, holes. Directories and the tables of attributes
//! are objects as well. So the objects themselves are kept in the receiving tree, and the files that they mean are
//! derived from them at the end of each stream. An increment then finds the objects that it changes.
//!
//! ```text
//! receive      streams and packages, up to the end of the input
//! build        files, names and attributes, derived from objects   apply   records become objects and content
//! objects      the objects, kept beside the files
//! attributes   what an object says of its file                     zap     maps: directories, and tables
//! xattrs       extended attributes, derived from objects
//! package      what a package says of its datasets                 property, nvlist
//! reader       records with verified checksums                     record  headers;  fletcher, compression, fields
//! dump         records as text
//! send         the other way: snapshots as streams for ZFS
//! ```

mod apply;
mod attributes;
mod build;
mod compression;
mod dump;
mod fields;
mod fletcher;
mod nvlist;
mod objects;
mod package;
mod property;
mod reader;
mod receive;
mod record;
pub mod send;
mod xattrs;
mod zap;

pub use dump::dump;
pub use receive::{LAYOUT, START, is_stream, receive};

#[cfg(test)]
pub(crate) mod tests;
