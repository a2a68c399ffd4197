//! The format on disk, held fast: code, `pool/FORMAT.md` and bytes written once must agree.
//!
//! * `structures`: a fixed value of each structure codes to the bytes in `golden/*.hex`, and these decode to the value.
//! * `document`: constants, byte tables and annotated dumps of `pool/FORMAT.md` are those of the code.
//! * `image`: a small pool, written once and kept, opens, holds what was put in, and checks clean.
//! * `raidz`: so does one on five devices of a RAID-Z, whichever two of them are gone.
//! * `expanded`: so does one on a RAID-Z that has rows of two widths.
//!
//! The format is frozen, so a test that fails here has found a pool that can no longer be read, or will not be by the last
//! version. What is new comes as a feature with golden bytes of its own: CONTRIBUTING.md, "Changing the format".

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
