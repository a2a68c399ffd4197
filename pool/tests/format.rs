//! The format on disk, held fast: code, `pool/FORMAT.md` and bytes written once must agree.
//!
//! * `structures`: a fixed value of each structure codes to the bytes in `golden/*.hex`, and these decode to the value.
//! * `document`: constants, byte tables and annotated dumps of `pool/FORMAT.md` are those of the code.
//! * `image`: a small pool, written once and kept, opens, holds what was put in, and checks clean.
//!
//! A test fails here when the format has changed. If that was meant, give the structure a new version, have the new
//! bytes written by `CENOTE_BLESS=1 cargo test -p pool --test format`, change `pool/FORMAT.md` in the same commit, and
//! run the tests again.

#[path = "format/document.rs"]
mod document;
#[path = "format/golden.rs"]
mod golden;
#[path = "format/image.rs"]
mod image;
#[path = "format/structures.rs"]
mod structures;
