//! The results of requests as the kernel's bytes: the fields of FUSE's structures of the same names, in their order,
//! native-endian, without padding by the compiler. Everything is appended to the payload.

use std::time::Duration;

use dataset::fs::{Attr, Errno, StatFs};
use fuser::{FopenFlags, INodeNo};

use super::entry::Header;
use crate::handler::{Entry, FOREVER, Fitted, Listed};

const NANOS_PER_SEC: i64 = 1_000_000_000;
pub(crate) const OUT_HEADER: u32 = 16;
/// Lengths in bytes of a `fuse_dirent` without its name, and of a `fuse_entry_out`.
const DIRENT: usize = 24;
const ENTRY: usize = 128;
/// The reserved bytes at the end of a `fuse_statx`.
const SPARE: usize = 112;

/// The fields of `struct statx` that stat(2) has too, and the birth time: `STATX_BASIC_STATS`, `STATX_BTIME`.
const BASIC: u32 = 0x7ff;
const BTIME: u32 = 0x800;

/// Overwrites the request's header with the reply's. A failure returns only its number, without a payload.
pub(super) fn finish(header: &mut Header, payload: &mut Vec<u8>, unique: u64, result: Result<(), Errno>) {
    let error = result.map_or_else(|error| -error.raw_os_error(), |()| 0);
    if error != 0 {
        payload.clear();
    }
    let length = OUT_HEADER + u32::try_from(payload.len()).expect("a payload is smaller than 4 GiB");
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
}

/// `fuse_entry_out`: a name's file.
pub(super) fn entry(out: &mut Vec<u8>, entry: &Entry) {
    put_entry(out, entry.node, entry.generation, entry.name_lifetime, entry.attr_lifetime);
    put_attr(out, entry.node, &entry.attr);
}

/// `fuse_entry_out` for an absent name: an entry without a node, which the kernel may cache.
pub(super) fn no_entry(out: &mut Vec<u8>) {
    put_entry(out, INodeNo(0), 0, FOREVER, FOREVER);
    out.resize(out.len() + (ENTRY - 40), 0);
}

/// Appends a `fuse_attr_out`.
pub(super) fn attr(out: &mut Vec<u8>, node: INodeNo, attr: &Attr, lifetime: Duration) {
    put_u64s(out, [lifetime.as_secs()]);
    put_u32s(out, [lifetime.subsec_nanos(), 0]);
    put_attr(out, node, attr);
}

/// Appends a `fuse_statx_out`. A file without a known birth time has none.
pub(super) fn statx(out: &mut Vec<u8>, node: INodeNo, attr: &Attr, lifetime: Duration) {
    let known = if attr.crtime == 0 { BASIC } else { BASIC | BTIME };
    let mode = u16::from(attr.file_type.code()) << 12 | attr.mode;
    put_u64s(out, [lifetime.as_secs()]);
    put_u32s(out, [lifetime.subsec_nanos(), 0, 0, 0, 0, 0]);
    put_u32s(out, [known, attr.block_size, 0, 0, attr.nlink, attr.uid, attr.gid]);
    out.extend_from_slice(&mode.to_ne_bytes());
    out.extend_from_slice(&[0; 2]);
    put_u64s(out, [node.0, attr.size, attr.blocks, 0]);
    for time in [attr.atime, attr.crtime, attr.ctime, attr.mtime] {
        put_u64s(out, [time.div_euclid(NANOS_PER_SEC) as u64]);
        put_u32s(out, [time.rem_euclid(NANOS_PER_SEC) as u32, 0]);
    }
    let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
    put_u32s(out, [major, minor, 0, 0]);
    out.resize(out.len() + SPARE, 0);
}

/// `fuse_open_out`, without a handle.
pub(super) fn open(out: &mut Vec<u8>, flags: FopenFlags) {
    put_u64s(out, [0]);
    put_u32s(out, [flags.bits(), 0]);
}

/// Appends a `fuse_write_out`.
pub(super) fn written(out: &mut Vec<u8>, count: u32) {
    put_u32s(out, [count, 0]);
}

/// Appends a `fuse_lseek_out`.
pub(super) fn offset(out: &mut Vec<u8>, offset: i64) {
    put_u64s(out, [offset as u64]);
}

/// `fuse_getxattr_out`, or a value.
pub(super) fn fitted(out: &mut Vec<u8>, fitted: &Fitted) {
    match fitted {
        Fitted::Size(size) => written(out, *size),
        Fitted::Value(value) => out.extend_from_slice(value),
    }
}

/// `fuse_ioctl_out` and an answer.
pub(super) fn ioctl(out: &mut Vec<u8>, answer: &[u8]) {
    out.resize(out.len() + 16, 0);
    out.extend_from_slice(answer);
}

/// Appends a `fuse_kstatfs`.
pub(super) fn statfs(out: &mut Vec<u8>, stat: &StatFs) {
    put_u64s(out, [stat.blocks, stat.free, stat.available, stat.files, stat.files_free]);
    put_u32s(out, [stat.block_size, stat.name_max, stat.block_size]);
    out.resize(out.len() + 28, 0);
}

/// `fuse_dirent`, if `out` then has at most `room` bytes.
pub(super) fn dirent(out: &mut Vec<u8>, room: usize, listed: &Listed<'_>) -> bool {
    if out.len() + padded(DIRENT + listed.name.len()) > room {
        return false;
    }
    put_dirent(out, listed);
    true
}

/// `fuse_direntplus`, if `out` then has at most `room` bytes.
pub(super) fn dirent_plus(out: &mut Vec<u8>, room: usize, listed: &Listed<'_>, found: &Entry) -> bool {
    if out.len() + ENTRY + padded(DIRENT + listed.name.len()) > room {
        return false;
    }
    entry(out, found);
    put_dirent(out, listed);
    true
}

fn put_dirent(out: &mut Vec<u8>, listed: &Listed<'_>) {
    put_u64s(out, [listed.node.0, listed.cookie]);
    put_u32s(out, [u32::try_from(listed.name.len()).expect("a name is short"), u32::from(listed.file_type.code())]);
    out.extend_from_slice(listed.name);
    let end = padded(out.len());
    out.resize(end, 0);
}

fn put_entry(out: &mut Vec<u8>, node: INodeNo, generation: u64, name_lifetime: Duration, attr_lifetime: Duration) {
    put_u64s(out, [node.0, generation, name_lifetime.as_secs(), attr_lifetime.as_secs()]);
    put_u32s(out, [name_lifetime.subsec_nanos(), attr_lifetime.subsec_nanos()]);
}

fn put_attr(out: &mut Vec<u8>, node: INodeNo, attr: &Attr) {
    let times = [attr.atime, attr.mtime, attr.ctime];
    let mode = u32::from(attr.file_type.code()) << 12 | u32::from(attr.mode);
    put_u64s(out, [node.0, attr.size, attr.blocks]);
    put_u64s(out, times.map(|time| time.div_euclid(NANOS_PER_SEC) as u64));
    put_u32s(out, times.map(|time| time.rem_euclid(NANOS_PER_SEC) as u32));
    put_u32s(out, [mode, attr.nlink, attr.uid, attr.gid, attr.rdev, attr.block_size, 0]);
}

fn put_u32s<const N: usize>(out: &mut Vec<u8>, fields: [u32; N]) {
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_ne_bytes()));
}

fn put_u64s<const N: usize>(out: &mut Vec<u8>, fields: [u64; N]) {
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_ne_bytes()));
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use dataset::fs::FileType;

    use super::*;

    fn some_entry() -> Entry {
        let attr = Attr {
            ino: 7,
            generation: 4,
            file_type: FileType::Regular,
            mode: 0o4755,
            nlink: 1,
            uid: 10,
            gid: 20,
            rdev: 0,
            size: 5,
            blocks: 8,
            block_size: 4096,
            atime: -1_200_000_000,
            mtime: 1_500_000_000,
            ctime: 0,
            crtime: 0,
        };
        Entry {
            node: INodeNo(7),
            attr,
            generation: 3,
            name_lifetime: Duration::from_millis(1500),
            attr_lifetime: Duration::ZERO,
        }
    }

    fn listed(name: &[u8]) -> Listed<'_> {
        Listed { node: INodeNo(7), file_type: FileType::Directory, name, cookie: 9 }
    }

    fn u64s(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks_exact(8).map(|field| u64::from_ne_bytes(field.try_into().unwrap())).collect()
    }

    #[test]
    fn structures_have_the_kernels_lengths() {
        let length = |fill: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            fill(&mut out);
            out.len()
        };
        let stat = StatFs { block_size: 1, blocks: 1, free: 1, available: 1, files: 1, files_free: 1, name_max: 255 };
        let found = some_entry();
        assert_eq!(length(&|out| entry(out, &found)), ENTRY);
        assert_eq!(length(&no_entry), ENTRY);
        assert_eq!(length(&|out| attr(out, found.node, &found.attr, FOREVER)), 104);
        assert_eq!(length(&|out| statx(out, found.node, &found.attr, FOREVER)), 288);
        assert_eq!(length(&|out| statfs(out, &stat)), 80);
        assert_eq!(length(&|out| open(out, FopenFlags::empty())), 16);
        assert_eq!(length(&|out| ioctl(out, b"1234")), 20);
        assert_eq!(length(&|out| written(out, 1)), 8);
    }

    #[test]
    fn times_before_1970_count_forward_from_their_second() {
        let mut out = Vec::new();
        entry(&mut out, &some_entry());
        assert_eq!(u64s(&out[..32]), [7, 3, 1, 0]);
        assert_eq!(u64s(&out[64..88]), [-2i64 as u64, 1, 0]);
        assert_eq!(u32::from_ne_bytes(out[88..92].try_into().unwrap()), 800_000_000);
        assert_eq!(u32::from_ne_bytes(out[100..104].try_into().unwrap()), 0o104_755);
    }

    #[test]
    fn a_birth_time_is_reported_if_known() {
        let fields = |crtime, rdev| {
            let mut out = Vec::new();
            statx(&mut out, INodeNo(7), &Attr { crtime, rdev, ..some_entry().attr }, FOREVER);
            let word = |at: usize| u32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
            (word(32), u64s(&out[112..120])[0], word(120), (word(160), word(164)))
        };
        assert_eq!(fields(0, 0), (BASIC, 0, 0, (0, 0)));
        // A device number as the kernel encodes 259:70000.
        let encoded = 70_000 & 0xff | 259 << 8 | (70_000 & !0xff) << 12;
        assert_eq!(fields(2_500_000_000, encoded), (BASIC | BTIME, 2, 500_000_000, (259, 70_000)));
    }

    #[test]
    fn listings_hold_what_fits_and_no_more() {
        let mut out = Vec::new();
        assert!(dirent(&mut out, 64, &listed(b"12345678")));
        assert!(dirent(&mut out, 64, &listed(b"1")));
        assert_eq!(out.len(), 64);
        assert!(!dirent(&mut out, 95, &listed(b"1")));
        assert!(dirent(&mut out, 96, &listed(b"1")));
        assert!(!dirent_plus(&mut out, 96 + ENTRY + 31, &listed(b"1"), &some_entry()));
        assert!(dirent_plus(&mut out, 96 + ENTRY + 32, &listed(b"1"), &some_entry()));
        assert_eq!(out.len(), 96 + ENTRY + 32);
    }

    #[test]
    fn a_failure_is_a_number_and_nothing_else() {
        let (mut header, mut payload) = ([0; super::super::entry::HEADER], b"something".to_vec());
        finish(&mut header, &mut payload, 77, Err(Errno::NOENT));
        assert!(payload.is_empty());
        assert_eq!(i32::from_ne_bytes(header[4..8].try_into().unwrap()), -2);
        payload.extend_from_slice(b"12");
        finish(&mut header, &mut payload, 77, Ok(()));
        assert_eq!(u64s(&header[..16]), [18, 77]);
    }
}
