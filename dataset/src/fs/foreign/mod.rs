//! Building a file system from the objects of another one: what the receiver of OpenZFS's streams needs beside the
//! operations that programs have.
//!
//! A program changes a file; a receiver states what a file is: its number, its times, its names. So these operations
//! ask for no permission, and keep no time but the given one. They serve a hidden tree that nothing else uses, and each
//! leaves the invariants of [`super`] intact but two, until the receiver has finished: an inode may lack a name, and
//! the owner of a name may lack content.
//!
//! ```text
//! items   descriptions and pages of foreign objects, kept beside the files       file   inodes and their content
//! names   entries of directories
//! ```

mod file;
pub(in crate::fs) mod items;
mod names;

pub(crate) use file::Facts;
pub(crate) use items::Item;
pub(crate) use names::Named;
