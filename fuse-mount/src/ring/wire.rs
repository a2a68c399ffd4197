//! The bytes of a request, as values.
//!
//! A request is a header, the first argument (a structure of fixed size, or nothing) and a payload: names, each ended
//! by a zero byte, or data. The kernel wrote the bytes, but this module does not rely on the kernel: a field is read at
//! a fixed place of an array that is large enough, a name must end at a zero byte or the request is refused, and a
//! length is checked against the payload.

use dataset::fs::{Errno, SetAttr, SetTime};
use fuser::INodeNo;
use pool::env::Nanos;

use super::entry::{HEADER, Header};
use crate::handler::Requester;

const ARGUMENT: usize = 128;
const NANOS_PER_SEC: i128 = 1_000_000_000;

/// Flags for the attributes that a `setattr` sets.
mod set {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const CTIME: u32 = 1 << 10;
    pub(super) const KILL_SUID_GID: u32 = 1 << 11;
}

/// The fixed part of a request.
#[derive(Clone, Copy)]
pub(super) struct Head<'a>(&'a Header);

impl<'a> Head<'a> {
    pub(super) fn new(header: &'a Header) -> Head<'a> {
        Head(header)
    }

    pub(super) fn opcode(self) -> u32 {
        u32_at(self.0, 4)
    }

    pub(super) fn unique(self) -> u64 {
        u64_at(self.0, 8)
    }

    pub(super) fn node(self) -> INodeNo {
        INodeNo(u64_at(self.0, 16))
    }

    pub(super) fn requester(self) -> Requester {
        Requester { uid: u32_at(self.0, 24), gid: u32_at(self.0, 28), pid: u32_at(self.0, 32) }
    }

    /// The first argument's field at this offset.
    pub(super) fn u32(self, offset: usize) -> u32 {
        u32_at(self.0, ARGUMENT + offset)
    }

    /// The signed field at this offset.
    pub(super) fn i32(self, offset: usize) -> i32 {
        self.u32(offset) as i32
    }

    /// The 64-bit field at this offset.
    pub(super) fn u64(self, offset: usize) -> u64 {
        u64_at(self.0, ARGUMENT + offset)
    }

    /// The position in a file at this offset. `EINVAL` beyond the largest signed 64-bit number.
    pub(super) fn position(self, offset: usize) -> Result<u64, Errno> {
        let position = self.u64(offset);
        if i64::try_from(position).is_ok() { Ok(position) } else { Err(Errno::INVAL) }
    }

    /// The changes of a `setattr`.
    pub(super) fn changes(self) -> SetAttr {
        let valid = self.u32(0);
        let given = |flag: u32| valid & flag != 0;
        let time = |flag, now, seconds, nanos| match (given(flag), given(now)) {
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(self.time(seconds, nanos))),
            (false, _) => None,
        };
        SetAttr {
            mode: given(set::MODE).then(|| self.u32(68)),
            uid: given(set::UID).then(|| self.u32(76)),
            gid: given(set::GID).then(|| self.u32(80)),
            size: given(set::SIZE).then(|| self.u64(16)),
            atime: time(set::ATIME, set::ATIME_NOW, 32, 56),
            mtime: time(set::MTIME, set::MTIME_NOW, 40, 60),
            ctime: given(set::CTIME).then(|| self.time(48, 64)),
            kill_suid: given(set::KILL_SUID_GID),
        }
    }

    /// Seconds plus nanoseconds, saturated to 64 bits of nanoseconds.
    fn time(self, seconds: usize, nanos: usize) -> Nanos {
        let total = i128::from(self.u64(seconds) as i64) * NANOS_PER_SEC + i128::from(self.u32(nanos));
        total.clamp(i128::from(Nanos::MIN), i128::from(Nanos::MAX)) as Nanos
    }
}

/// The payload's first name, and the bytes behind it.
pub(super) fn split_name(payload: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = payload.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
    Ok((&payload[..end], &payload[end + 1..]))
}

/// The payload's first name.
pub(super) fn name(payload: &[u8]) -> Result<&[u8], Errno> {
    split_name(payload).map(|(name, _)| name)
}

/// The payload's two names.
pub(super) fn two_names(payload: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let (first, rest) = split_name(payload)?;
    Ok((first, name(rest)?))
}

/// The first `length` bytes. `EINVAL` if there are fewer.
pub(super) fn data(payload: &[u8], length: u32) -> Result<&[u8], Errno> {
    payload.get(..length as usize).ok_or(Errno::INVAL)
}

fn u32_at(header: &Header, offset: usize) -> u32 {
    const { assert!(HEADER > 2 * ARGUMENT) };
    u32::from_ne_bytes(header[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(header: &Header, offset: usize) -> u64 {
    u64::from_ne_bytes(header[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(fields: &[(usize, &[u8])]) -> Header {
        let mut header = [0; HEADER];
        fields.iter().for_each(|(offset, bytes)| header[*offset..*offset + bytes.len()].copy_from_slice(bytes));
        header
    }

    #[test]
    fn names_end_at_their_zero_bytes() {
        assert_eq!(name(b"file\0"), Ok(b"file".as_slice()));
        assert_eq!(name(b"file"), Err(Errno::INVAL));
        assert_eq!(name(b""), Err(Errno::INVAL));
        assert_eq!(two_names(b"a\0bc\0rest"), Ok((b"a".as_slice(), b"bc".as_slice())));
        assert_eq!(two_names(b"a\0bc"), Err(Errno::INVAL));
        assert_eq!(split_name(b"user.x\0value\0"), Ok((b"user.x".as_slice(), b"value\0".as_slice())));
    }

    #[test]
    fn data_is_no_longer_than_what_came() {
        assert_eq!(data(b"12345", 5), Ok(b"12345".as_slice()));
        assert_eq!(data(b"12345", 0), Ok(b"".as_slice()));
        assert_eq!(data(b"12345", 6), Err(Errno::INVAL));
        assert_eq!(data(b"", u32::MAX), Err(Errno::INVAL));
    }

    #[test]
    fn only_what_is_marked_is_set() {
        let nothing = header(&[(ARGUMENT + 16, &[0xff; 72])]);
        assert_eq!(Head::new(&nothing).changes(), SetAttr::default());
        let valid = set::SIZE | set::MTIME | set::ATIME | set::ATIME_NOW | set::KILL_SUID_GID;
        let some = header(&[
            (ARGUMENT, &valid.to_ne_bytes()),
            (ARGUMENT + 16, &77u64.to_ne_bytes()),
            (ARGUMENT + 40, &(-2i64).to_ne_bytes()),
            (ARGUMENT + 60, &800_000_000u32.to_ne_bytes()),
        ]);
        let expected = SetAttr {
            size: Some(77),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(-1_200_000_000)),
            kill_suid: true,
            ..SetAttr::default()
        };
        assert_eq!(Head::new(&some).changes(), expected);
    }

    #[test]
    fn times_beyond_what_is_kept_are_its_ends() {
        let at = |seconds: i64| {
            let valid = set::MTIME.to_ne_bytes();
            let header = header(&[(ARGUMENT, &valid), (ARGUMENT + 40, &seconds.to_ne_bytes())]);
            Head::new(&header).changes().mtime
        };
        assert_eq!(at(i64::MAX), Some(SetTime::At(Nanos::MAX)));
        assert_eq!(at(i64::MIN), Some(SetTime::At(Nanos::MIN)));
        assert_eq!(at(-1), Some(SetTime::At(-1_000_000_000)));
    }

    #[test]
    fn positions_are_signed_for_the_kernel() {
        let at = |position: u64| Head::new(&header(&[(ARGUMENT + 8, &position.to_ne_bytes())])).position(8);
        assert_eq!(at(5), Ok(5));
        assert_eq!(at(1 << 63), Err(Errno::INVAL));
    }
}
