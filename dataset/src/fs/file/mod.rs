//! The content of files.
//!
//! The content of a small file is in the tree itself. Larger content is divided into aligned *records* of one size per
//! file. The range of a record holds *extents*, which map bytes of the file to bytes of a block. A fresh record is one
//! extent on one block. A small overwrite adds a block with the new bytes and trims the extents around it, so nothing
//! has to be read. A record with too many pieces is read and rewritten.
//!
//! All extents on one block lie within one record of one file, or belong to different references to the block, each
//! within one record of one file: copying between files may take a further reference instead of copying bytes. So when
//! an extent is removed, its neighbours show whether the reference has lost its last extent; if so, the engine is told
//! to give up the reference.
//!
//! ```text
//! locks     a lock for each file                content  a change that first reads the blocks it needs
//! extent    an extent and its coding        record    the extents of one record: cutting, joining, storing the difference
//! read      reading                         write     writing: in place, a piece, or the record anew
//! truncate  changing the length             discard   dropping items in bounded batches
//! allocate  fallocate: punching, zeroing    seek      SEEK_DATA and SEEK_HOLE       copy   copy_file_range
//! share     copying by taking references to blocks
//! ```
//!
//! A file's content is read under its lock, shared, and changed under the lock, exclusive. An operation over several
//! updates of the tree is consistent at each: new data is readable or absent; and a file gets its shorter length before
//! the data beyond is dropped, with a marker until the drop is done.

mod allocate;
mod content;
mod copy;
pub(super) mod discard;
pub mod extent;
pub(super) mod locks;
mod read;
mod record;
mod seek;
mod share;
mod truncate;
mod write;

pub use allocate::FallocateFlags;
pub use seek::Whence;
