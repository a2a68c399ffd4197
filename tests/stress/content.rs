//! Self-describing files: a seed and a length, and then the bytes that follow from the seed.
//!
//! Such a file is written under a private name and then renamed into place, so no other process sees a part.

use rand::{Rng, RngCore, SeedableRng, rngs::SmallRng};

use crate::Outcome;

/// Seed and length, eight bytes each.
const HEAD: usize = 16;
/// The greatest length in bytes: more than a record of the default size.
const LONGEST: usize = 200_000;

/// The bytes that follow from a seed. Half of the seeds give compressible bytes.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut dice = SmallRng::seed_from_u64(seed);
    if seed.is_multiple_of(2) {
        dice.fill_bytes(&mut bytes);
    } else {
        let mut word = [0; 24];
        dice.fill_bytes(&mut word);
        bytes.iter_mut().zip(word.iter().cycle()).for_each(|(byte, letter)| *byte = *letter);
    }
    bytes
}

/// A whole file.
pub(crate) fn file(dice: &mut impl Rng) -> Vec<u8> {
    let seed = dice.random();
    let length = if dice.random_bool(0.7) { dice.random_range(0..5000) } else { dice.random_range(0..LONGEST) };
    let mut file = Vec::with_capacity(HEAD + length);
    file.extend(u64::to_le_bytes(seed));
    file.extend((length as u64).to_le_bytes());
    file.extend(bytes(seed, length));
    file
}

/// Fails unless a file is whole.
pub(crate) fn verify(file: &[u8]) -> Outcome<()> {
    let (seed, rest) = file.split_first_chunk().ok_or("a file without a head")?;
    let (length, body) = rest.split_first_chunk().ok_or("a file without a head")?;
    let (seed, length) = (u64::from_le_bytes(*seed), u64::from_le_bytes(*length));
    if body.len() as u64 != length {
        return Err(format!("{} bytes follow the head, and {length} should", body.len()));
    }
    let wanted = bytes(seed, body.len());
    match body.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        Some(at) => Err(format!("byte {} of {} is wrong", HEAD + at, file.len())),
        None => Ok(()),
    }
}
