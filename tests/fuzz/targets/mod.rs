//! What is fuzzed: one function for each place where bytes from outside become types.
//!
//! A target takes any bytes, hands them to the real parser and says whether they were accepted. What was accepted must
//! hold together: written again it is read as the same value, and what is computed from it neither panics nor overflows.
//! Whatever a target refuses it must refuse without a panic and without more memory than the bytes justify.
//!
//! Checksums stand before most parsers, and no fuzzer finds those. So an input is what stands *behind* the checksum, and
//! the target seals it ([`seal`]) before it goes through the same door as the bytes of a device or a stream.
//!
//! Two programs run these functions: `fuzzer` with inputs that libFuzzer makes up, and `cargo test` with the committed
//! corpus. Nothing here knows of either.

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

/// A parser, and what must hold of what it accepts.
pub(crate) struct Target {
    /// What it is called on command lines, and the folder of its corpus.
    pub(crate) name: &'static str,
    /// Whether the parser accepts these bytes. Panics if something does not hold.
    pub(crate) run: fn(&[u8]) -> bool,
}

/// All of them, the innermost formats first.
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
];

/// The target of that name.
pub(crate) fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
