//! The fuzz targets: one function for each place where bytes from outside become types.
//!
//! A target takes any bytes, passes them to the real parser and returns whether the bytes were accepted. An accepted
//! value must be consistent: writing and reading gives the same value, and computing from the value neither panics nor
//! overflows. A refusal must come without a panic and without more memory than the bytes justify.
//!
//! Most parsers are behind checksums, which no fuzzer can guess. So an input is the part *behind* the checksum, and the
//! target seals the input ([`seal`]), which then enters like the bytes of a device or a stream.
//!
//! Two programs run the targets: `fuzzer` with inputs from libFuzzer, and `cargo test` with the committed corpus. The
//! targets know neither.

mod catalogue;
mod edit;
mod files;
mod intent;
mod item;
mod label;
mod name;
mod node;
mod pointer;
mod property;
mod seal;
mod socket;
mod space;
mod stream;
mod uberblock;
pub(crate) mod world;
mod zfs;

/// A parser, with the checks of accepted values.
pub(crate) struct Target {
    /// The name on command lines, and the folder of its corpus.
    pub(crate) name: &'static str,
    /// Whether the parser accepts these bytes. Panics if a check fails.
    pub(crate) run: fn(&[u8]) -> bool,
}

/// All targets, the innermost formats first.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "label", run: label::run },
    Target { name: "uberblock", run: uberblock::run },
    Target { name: "pointer", run: pointer::run },
    Target { name: "node", run: node::run },
    Target { name: "space", run: space::run },
    Target { name: "intent", run: intent::run },
    Target { name: "item", run: item::run },
    Target { name: "name", run: name::run },
    Target { name: "property", run: property::run },
    Target { name: "stream", run: stream::run },
    Target { name: "socket", run: socket::run },
    Target { name: "files", run: files::run },
    Target { name: "catalogue", run: catalogue::run },
    Target { name: "receive", run: stream::receive },
    Target { name: "zfs", run: zfs::run },
];

/// The target of that name.
pub(crate) fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
