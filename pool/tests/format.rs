//! The on-disk format is frozen: code, `pool/FORMAT.md` and golden bytes must agree.
//!
//! * `structures`: a fixed value of each structure codes to the bytes in `golden/*.hex`, and the bytes decode to the
//!   value.
//! * `document`: constants, byte tables and annotated dumps of `pool/FORMAT.md` match the code.
//! * `image`: a small pool, written once and kept, opens, has its original contents, and checks clean.
//! * `raidz`: the same for a pool on a RAID-Z of five devices, with any two of them missing.
//! * `expanded`: the same for a RAID-Z with rows of two widths.
//!
//! A failure here means that an existing pool can no longer be read, or that a new pool cannot be read by the last
//! version. New structures need a feature and golden bytes of their own: CONTRIBUTING.md, "Changing the format".

#[path = "format/document.rs"]
mod document;
#[path = "format/expanded.rs"]
mod expanded;
#[path = "format/golden.rs"]
mod golden;
#[path = "format/image.rs"]
mod image;
#[path = "format/pages.rs"]
mod pages;
#[path = "format/raidz.rs"]
mod raidz;
#[path = "format/structures.rs"]
mod structures;
