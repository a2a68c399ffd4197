//! Requests from `/dev/fuse`, laid out as in the ring.
//!
//! The fixed part of a request goes to its place in the ring's layout. The rest begins where the payload of a write
//! begins: a write is long and must not be copied. The payloads of other requests are moved into place.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, readv};

use crate::counters::Opcode;
use crate::ring::Header;

/// Lengths in bytes of `fuse_in_header`, and of the argument of a write.
const IN_HEADER: usize = 40;
const WRITE: usize = 40;
/// The offset in bytes of the argument in the ring's header.
const ARGUMENT: usize = 128;
/// Sent when a file is closed; no program waits for the answer.
pub(super) const RELEASE: u32 = Opcode::Release as u32;
/// Kinds of requests that come only through the device.
pub(super) const FORGET: u32 = Opcode::Forget as u32;
pub(super) const NOTIFY_REPLY: u32 = 41;
pub(super) const BATCH_FORGET: u32 = 42;
/// Reads a request; returns its length in bytes. Only a write is in its final place; for the rest [`arrange`] follows.
pub(super) fn read(device: &OwnedFd, header: &mut Header, input: &mut [u8]) -> Result<usize, Errno> {
    header[ARGUMENT..2 * ARGUMENT].fill(0);
    let (fixed, rest) = header.split_at_mut(ARGUMENT);
    loop {
        let mut parts =
            [IoSliceMut::new(&mut fixed[..IN_HEADER]), IoSliceMut::new(&mut rest[..WRITE]), IoSliceMut::new(input)];
        match readv(device, &mut parts) {
            // A cancelled request, or a signal.
            Err(Errno::NOENT | Errno::INTR) => {}
            Ok(length) if length < IN_HEADER => return Err(Errno::BADMSG),
            read => return read,
        }
    }
}

/// Puts the first argument of a request of `length` bytes into the header; returns the payload's range in `input`.
pub(super) fn arrange(header: &mut Header, input: &mut [u8], length: usize) -> Range<usize> {
    let opcode = u32::from_ne_bytes(header[4..8].try_into().expect("four bytes"));
    let behind = length.saturating_sub(IN_HEADER).min(WRITE + input.len());
    let argument = argument_length(opcode).min(behind);
    let (in_header, in_input) = (behind.min(WRITE), behind.saturating_sub(WRITE));
    if argument > WRITE {
        let more = argument - WRITE;
        header[ARGUMENT + WRITE..ARGUMENT + argument].copy_from_slice(&input[..more]);
        return more..in_input;
    }
    let back = in_header - argument;
    if back > 0 {
        let end = (in_input + back).min(input.len());
        input.copy_within(..end - back, back);
        input[..back].copy_from_slice(&header[ARGUMENT + argument..ARGUMENT + in_header]);
        header[ARGUMENT + argument..ARGUMENT + in_header].fill(0);
        return 0..end;
    }
    0..in_input
}

/// The length in bytes of a request's first argument, by FUSE's structures.
fn argument_length(opcode: u32) -> usize {
    if opcode == crate::counters::RENAME2 {
        return 16;
    }
    match opcode {
        BATCH_FORGET => return 8,
        NOTIFY_REPLY => return 40,
        _ => {}
    }
    let Some(opcode) = Opcode::of(opcode) else { return 0 };
    match opcode {
        Opcode::Lookup | Opcode::ReadLink | Opcode::Symlink | Opcode::Unlink | Opcode::RmDir => 0,
        Opcode::StatFs | Opcode::RemoveXattr | Opcode::Destroy => 0,
        Opcode::Forget | Opcode::MkDir | Opcode::Rename | Opcode::Link | Opcode::Open | Opcode::OpenDir => 8,
        Opcode::SetXattr | Opcode::GetXattr | Opcode::ListXattr => 8,
        Opcode::GetAttr | Opcode::MkNod | Opcode::FSync | Opcode::FSyncDir | Opcode::Create => 16,
        Opcode::Release | Opcode::ReleaseDir | Opcode::Flush | Opcode::LSeek | Opcode::Statx => 24,
        Opcode::Ioctl | Opcode::FAllocate => 32,
        Opcode::Read | Opcode::Write | Opcode::ReadDir | Opcode::ReadDirPlus => 40,
        Opcode::CopyFileRange => 56,
        Opcode::SetAttr => 88,
    }
}

/// The nodes of one batch, each with the number of references to drop.
pub(super) fn forgotten(payload: &[u8]) -> Vec<(u64, u64)> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    payload.chunks_exact(16).map(|one| (word(&one[..8]), word(&one[8..]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::HEADER;

    /// Argument and payload of a request after reading and arranging.
    fn arranged(opcode: u32, argument: &[u8], payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let behind = [argument, payload].concat();
        let (mut header, mut input) = ([0; HEADER], vec![0xee; 200]);
        header[4..8].copy_from_slice(&opcode.to_ne_bytes());
        let first = behind.len().min(WRITE);
        header[ARGUMENT..ARGUMENT + first].copy_from_slice(&behind[..first]);
        input[..behind.len() - first].copy_from_slice(&behind[first..]);
        let range = arrange(&mut header, &mut input, IN_HEADER + behind.len());
        (header[ARGUMENT..2 * ARGUMENT].to_vec(), input[range].to_vec())
    }

    #[test]
    fn the_parts_of_a_request_come_to_their_places() {
        for opcode in (0..64).chain([4096]) {
            let length = argument_length(opcode);
            for more in [0, 1, 39, 40, 41, 90] {
                let argument: Vec<u8> = (1..=length as u8).collect();
                let payload: Vec<u8> = (0..more).map(|byte| 100 + byte).collect();
                let (found, rest) = arranged(opcode, &argument, &payload);
                assert_eq!((&found[..length], rest), (&argument[..], payload), "{opcode}");
                assert!(found[length..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn a_request_that_is_too_short_is_not_read_beyond() {
        for opcode in 0..64 {
            for length in 0..argument_length(opcode) {
                let (found, rest) = arranged(opcode, &vec![7; length], b"");
                assert_eq!((rest.len(), &found[length..]), (0, &vec![0; ARGUMENT - length][..]));
            }
        }
    }
}
