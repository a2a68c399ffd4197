//! Streams that OpenZFS 2.4 and zfs-fuse 0.7 have made.

mod records;

use std::path::Path;

/// The bytes of a stream in the folder of fixtures.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/zfs");
    let packed = std::fs::read(folder.join(format!("{name}.zst"))).unwrap();
    zstd::stream::decode_all(&packed[..]).unwrap()
}

/// The names of all streams in the folder.
pub(super) const FIXTURES: &[&str] = &[
    "clone-incr",
    "dirx-full-s1",
    "dirx-incr-s1-s3",
    "enc-plain-full",
    "enc-raw-full",
    "gzip-ce-full",
    "longname-full",
    "lzjb-ce-full",
    "manyfiles-full",
    "redacted-full",
    "repl-R-full",
    "repl-R-i",
    "resumed-tail",
    "std-I-p-s1-s3",
    "std-Lce-full-s1",
    "std-Lce-incr-s1-s3",
    "std-full-s1",
    "std-incr-s1-s2",
    "std-incr-s2-s3",
    "zfsfuse-full-s1",
    "zfsfuse-incr-s1-s2",
    "zle-ce-full",
    "zstd1M-Lce-full-s1",
    "zstd1M-Lce-incr-s1-s3",
    "zvol-full",
];
