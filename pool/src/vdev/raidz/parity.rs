//! The parity of a row, and the reconstruction of lost columns.
//!
//! The code is the same as in Linux's RAID-6 and in OpenZFS. Bytes are elements of GF(2^8) with the polynomial `x^8 +
//! x^4 + x^3 + x^2 + 1`, and the parities of data `D0` to `Dm` are, byte by byte,
//!
//! ```text
//! P = D0 + D1 + ... + Dm                      which is exclusive or
//! Q = 2^m D0 + 2^(m-1) D1 + ... + Dm          as a polynomial in 2
//! R = 4^m D0 + 4^(m-1) D1 + ... + Dm          as a polynomial in 4
//! ```
//!
//! The factors are powers of 2, which generates the field, so any square matrix of them can be inverted as long as
//! there are fewer than 256 columns: as many data columns can be lost as there are parities left. With one data column
//! each parity is a copy of it.
//!
//! A crate would save little: compilers vectorize these loops, and a read with a lost column costs as much as its
//! bytes, without a table to set up.

/// The low byte of the field's polynomial.
const POLYNOMIAL: u8 = 0x1d;

/// Bytes of parity compared at a time: a piece stays in the processor's cache.
pub(super) const PIECE: usize = 4096;

/// A column's bit in a set of columns.
pub const fn bit(column: usize) -> u64 {
    1 << column
}

/// Computes the parities, the columns behind the `data` ones. All columns are equally long.
pub fn encode(columns: &mut [&mut [u8]], data: usize) {
    let (known, parities) = columns.split_at_mut(data);
    for (power, parity) in parities.iter_mut().enumerate() {
        parity.fill(0);
        known.iter().for_each(|column| multiply_and_add(power, parity, column));
    }
}

/// True if the parities, the columns behind the `data` ones, match the data. Needs only a buffer of `PIECE` bytes.
pub fn agrees(columns: &[&[u8]], data: usize) -> bool {
    let (known, parities) = columns.split_at(data);
    let mut sum = [0; PIECE];
    parities.iter().enumerate().all(|(power, parity)| {
        (0..parity.len()).step_by(PIECE).all(|from| {
            let piece = from..parity.len().min(from + PIECE);
            let sum = &mut sum[..piece.len()];
            sum.fill(0);
            known.iter().for_each(|column| multiply_and_add(power, sum, &column[piece.clone()]));
            *sum == parity[piece]
        })
    })
}

/// Reconstructs the `lost` columns, given by their [`bit`]s, from the rest: at most as many as there are parities.
///
/// # Panics
/// If more are lost.
pub fn recover(columns: &mut [&mut [u8]], data: usize, lost: u64) {
    let missing: Vec<usize> = (0..data).filter(|at| lost & bit(*at) != 0).collect();
    let present: Vec<usize> = (0..columns.len() - data).filter(|power| lost & bit(data + power) == 0).collect();
    assert!(missing.len() <= present.len(), "more columns are lost than there are parities left");
    if !missing.is_empty() {
        recover_data(columns, data, &missing, &present[..missing.len()]);
    }
    if present.len() < columns.len() - data {
        let (known, parities) = columns.split_at_mut(data);
        for (power, parity) in parities.iter_mut().enumerate().filter(|(power, _)| !present.contains(power)) {
            parity.fill(0);
            known.iter().for_each(|column| multiply_and_add(power, parity, column));
        }
    }
}

/// Each parity is a linear equation in the missing columns: the known columns are subtracted, and the system solved.
fn recover_data(columns: &mut [&mut [u8]], data: usize, missing: &[usize], powers: &[usize]) {
    missing.iter().for_each(|at| columns[*at].fill(0));
    let remainders: Vec<Vec<u8>> = powers
        .iter()
        .map(|power| {
            let mut remainder = vec![0; columns[0].len()];
            columns[..data].iter().for_each(|column| multiply_and_add(*power, &mut remainder, column));
            add(&mut remainder, columns[data + power]);
            remainder
        })
        .collect();
    let factor = |power: usize, at: usize| generator_power(power * (data - 1 - at));
    let matrix = powers.iter().map(|power| missing.iter().map(|at| factor(*power, *at)).collect()).collect();
    for (at, factors) in missing.iter().zip(inverted(matrix)) {
        for (factor, remainder) in factors.into_iter().zip(&remainders) {
            add_multiple(columns[*at], factor, remainder);
        }
    }
}

/// Multiplies by 2 to the `power` and adds: one step of evaluating a polynomial. Repeated for all data columns of a row
/// in order, it yields the parity of this power.
pub fn multiply_and_add(power: usize, sum: &mut [u8], column: &[u8]) {
    match power {
        0 => add(sum, column),
        1 => sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum = double(*sum) ^ byte),
        _ => sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum = double(double(*sum)) ^ byte),
    }
}

fn add(sum: &mut [u8], column: &[u8]) {
    sum.iter_mut().zip(column).for_each(|(sum, byte)| *sum ^= byte);
}

/// Adds a multiple of a column. Doubles and adds bit by bit of the factor, so that the loop body is the same for all
/// bytes.
fn add_multiple(sum: &mut [u8], factor: u8, column: &[u8]) {
    let masks: [u8; 8] = std::array::from_fn(|bit| if factor >> (7 - bit) & 1 == 1 { 0xff } else { 0 });
    for (sum, byte) in sum.iter_mut().zip(column) {
        *sum ^= masks.iter().fold(0, |product, mask| double(product) ^ (byte & mask));
    }
}

const fn double(byte: u8) -> u8 {
    // All ones if the highest bit falls off.
    let carry = (byte as i8 >> 7) as u8;
    byte << 1 ^ carry & POLYNOMIAL
}

fn multiply(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0, |product, bit| double(product) ^ if b >> bit & 1 == 1 { a } else { 0 })
}

fn generator_power(exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| double(power))
}

/// `a` to the power of 254: the field has 255 elements beside zero.
fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |product, _| multiply(product, a))
}

/// The inverse of an invertible matrix, by elimination.
fn inverted(mut matrix: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let size = matrix.len();
    let mut result: Vec<Vec<u8>> = (0..size).map(|at| (0..size).map(|to| u8::from(at == to)).collect()).collect();
    for at in 0..size {
        let pivot = (at..size).find(|row| matrix[*row][at] != 0).expect("the factors are independent");
        matrix.swap(at, pivot);
        result.swap(at, pivot);
        let scale = inverse(matrix[at][at]);
        for row in [&mut matrix[at], &mut result[at]] {
            row.iter_mut().for_each(|element| *element = multiply(*element, scale));
        }
        for row in (0..size).filter(|row| *row != at) {
            let factor = matrix[row][at];
            for rows in [&mut matrix, &mut result] {
                let source = rows[at].clone();
                rows[row].iter_mut().zip(source).for_each(|(element, other)| *element ^= multiply(factor, other));
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::env::noise;

    fn encoded(data: usize, parity: usize, len: usize) -> Vec<Vec<u8>> {
        let mut columns: Vec<Vec<u8>> = (0..data + parity).map(|at| noise(at as u64, len)).collect();
        encode(&mut slices(&mut columns), data);
        columns
    }

    fn slices(columns: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
        columns.iter_mut().map(Vec::as_mut_slice).collect()
    }

    /// The on-disk format depends on these bytes. They follow the formulas above, computed by hand: with D = 1, 2, 3
    /// are P = 1 + 2 + 3 = 0, Q = 4*1 + 2*2 + 3 = 3 and R = 16*1 + 4*2 + 3, and so on.
    #[test]
    fn parity_is_what_it_always_was() {
        let mut columns =
            vec![vec![1, 0x80, 0xff], vec![2, 0x80, 0x0f], vec![3, 0x80, 0xf0], vec![0; 3], vec![0; 3], vec![0; 3]];
        encode(&mut slices(&mut columns), 3);
        let q = |byte: u8| double(double(byte));
        let r = |byte: u8| q(q(byte));
        assert_eq!(columns[3], [0, 0x80, 0xff ^ 0x0f ^ 0xf0]);
        assert_eq!(columns[4], [3, q(0x80) ^ double(0x80) ^ 0x80, q(0xff) ^ double(0x0f) ^ 0xf0]);
        assert_eq!(columns[5], [16 ^ 8 ^ 3, r(0x80) ^ q(0x80) ^ 0x80, r(0xff) ^ q(0x0f) ^ 0xf0]);
        assert_eq!((double(0x80), q(0x80), double(0x0f), q(0xff), r(0xff)), (0x1d, 0x3a, 0x1e, 0xdb, 0x4b));
        let sums = encoded(5, 3, 4096)[5..].iter().map(|parity| xxhash_rust::xxh3::xxh3_64(parity)).collect::<Vec<_>>();
        assert_eq!(sums, GOLDEN);
    }

    /// Hashes of the three parities of five columns of noise.
    const GOLDEN: [u64; 3] = [2_599_472_450_868_979_569, 2_875_805_268_852_276_521, 18_264_933_141_112_053_683];

    #[test]
    fn whatever_is_lost_comes_back_as_long_as_parity_is_left() {
        for parity in 1..=3 {
            for data in (1..=6).chain([29]) {
                let whole = encoded(data, parity, 40);
                let all = 0..whole.len();
                // A column may be chosen twice, for a smaller set.
                let triples = all.clone().flat_map(|a| all.clone().flat_map(move |b| (0..=b).map(move |c| [a, b, c])));
                let sets: BTreeSet<u64> = triples.map(|at| at.into_iter().fold(0, |set, at| set | bit(at))).collect();
                for lost in sets.into_iter().filter(|set| set.count_ones() as usize <= parity) {
                    let mut columns = whole.clone();
                    (0..columns.len()).filter(|at| lost & bit(*at) != 0).for_each(|at| columns[at].fill(0xa5));
                    recover(&mut slices(&mut columns), data, lost);
                    assert!(columns == whole, "{data}+{parity}, lost {lost:b}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "more columns are lost")]
    fn more_than_the_parity_is_not_made_up() {
        recover(&mut slices(&mut encoded(3, 1, 8)), 3, 0b11);
    }

    #[test]
    fn with_one_data_column_parity_is_a_copy() {
        let columns = encoded(1, 3, 100);
        assert!(columns[1..].iter().all(|parity| *parity == columns[0]));
    }

    #[test]
    fn the_field_is_a_field() {
        let powers: BTreeSet<u8> = (0..255).map(generator_power).collect();
        assert_eq!(powers.len(), 255, "2 generates it");
        assert!((1..=255).all(|a| multiply(a, inverse(a)) == 1));
    }
}
