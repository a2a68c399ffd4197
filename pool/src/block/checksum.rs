//! A block's checksum, by which a read is verified.
//!
//! The checksum covers the bytes as stored, after compression, and is kept in the pointer to the block, never with the
//! block itself: so a misdirected or lost write is detected as well as a flipped bit.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::format::pointer::Checksum;

/// The checksum of `bytes`, padded with zeros to 32 bytes. [`Checksum::Off`] gives zeros.
pub fn checksum(kind: Checksum, bytes: &[u8]) -> [u8; 32] {
    match kind {
        Checksum::Off => [0; 32],
        Checksum::Blake3 => blake3::hash(bytes).into(),
        Checksum::Xxh3 => {
            let mut padded = [0; 32];
            padded[..16].copy_from_slice(&xxh3_128(bytes).to_le_bytes());
            padded
        }
        Checksum::Sha256 => Sha256::digest(bytes).into(),
    }
}

/// Whether `bytes` have the checksum `expected`. Always true for [`Checksum::Off`]: nothing is known then.
pub fn verify(kind: Checksum, bytes: &[u8], expected: &[u8; 32]) -> bool {
    kind == Checksum::Off || checksum(kind, bytes) == *expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_kinds_are_the_published_functions() {
        let of_abc = |kind| hex(&checksum(kind, b"abc"));
        assert_eq!(of_abc(Checksum::Sha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(of_abc(Checksum::Blake3), "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
        assert_eq!(of_abc(Checksum::Xxh3), format!("{}{}", "50392f89945faf7885613a73b65ab006", "0".repeat(32)));
        assert_eq!(of_abc(Checksum::Off), "0".repeat(64));
    }

    #[test]
    fn one_flipped_bit_is_noticed_unless_checksums_are_off() {
        let good = [0x5a; 4096];
        for kind in [Checksum::Blake3, Checksum::Xxh3, Checksum::Sha256] {
            let expected = checksum(kind, &good);
            assert!(verify(kind, &good, &expected));
            let mut bad = good;
            bad[1234] ^= 8;
            assert!(!verify(kind, &bad, &expected));
        }
        assert!(verify(Checksum::Off, &good, &[1; 32]));
    }
}
