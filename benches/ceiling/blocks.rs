//! A file's bytes in memory: blocks as long as the data written into them, and no blocks for holes.

use std::{collections::BTreeMap, ops::Range};

/// The bytes of a whole block.
const BLOCK: u64 = 128 << 10;

/// The blocks of a file by number. The rest behind a block's end is zero.
#[derive(Default)]
pub(crate) struct Blocks(BTreeMap<u64, Vec<u8>>);

impl Blocks {
    /// The number of bytes kept.
    pub(crate) fn kept(&self) -> u64 {
        self.0.values().map(|block| block.len() as u64).sum()
    }

    /// Appends a range of the file to `out`.
    pub(crate) fn read(&self, range: Range<u64>, out: &mut Vec<u8>) {
        for (number, part) in parts(range) {
            let end = out.len() + part.len();
            if let Some(block) = self.0.get(&number) {
                out.extend_from_slice(&block[part.start.min(block.len())..part.end.min(block.len())]);
            }
            out.resize(end, 0);
        }
    }

    /// Writes at `offset`, and returns how many more bytes are kept than before.
    pub(crate) fn write(&mut self, offset: u64, mut data: &[u8]) -> u64 {
        let mut more = 0;
        for (number, part) in parts(offset..offset + data.len() as u64) {
            let (now, later) = data.split_at(part.len());
            more += write_block(self.0.entry(number).or_default(), part.start, now);
            data = later;
        }
        more
    }

    /// Drops everything behind `size`, and returns the number of bytes dropped.
    pub(crate) fn truncate(&mut self, size: u64) -> u64 {
        let (last, end) = (size / BLOCK, (size % BLOCK) as usize);
        let mut dropped = Blocks(self.0.split_off(&last));
        let kept_before = dropped.kept();
        if let Some(mut block) = dropped.0.remove(&last) {
            block.truncate(end);
            self.0.insert(last, block);
        }
        kept_before - self.0.get(&last).map_or(0, |block| block.len() as u64)
    }
}

/// Writes into one block, and returns its growth in bytes.
fn write_block(block: &mut Vec<u8>, start: usize, data: &[u8]) -> u64 {
    let before = block.len();
    if before < start {
        block.resize(start, 0);
    }
    let (over, behind) = data.split_at(data.len().min(block.len() - start));
    block[start..start + over.len()].copy_from_slice(over);
    block.extend_from_slice(behind);
    (block.len() - before) as u64
}

/// The blocks of a range, each with the part inside the range.
fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let numbers = range.start / BLOCK..range.end.div_ceil(BLOCK);
    numbers.map(move |number| {
        let first = number * BLOCK;
        let within = |at: u64| at.clamp(first, first + BLOCK) - first;
        (number, within(range.start) as usize..within(range.end) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(blocks: &Blocks, range: Range<u64>) -> Vec<u8> {
        let mut out = vec![9];
        blocks.read(range, &mut out);
        out.split_off(1)
    }

    #[test]
    fn what_was_written_is_read_and_everything_else_is_zero() {
        let mut blocks = Blocks::default();
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8 + 1).collect();
        let offset = 3 * BLOCK - 1000;
        assert_eq!(blocks.write(offset, &data), BLOCK - 1000 + 300_000);
        assert_eq!(read(&blocks, offset..offset + 300_000), data);
        assert_eq!(read(&blocks, offset - 2..offset + 1), [0, 0, data[0]]);
        assert_eq!(read(&blocks, offset + 299_999..offset + 300_002), [data[299_999], 0, 0]);
        assert_eq!(blocks.write(offset + 5, &[7; 3]), 0);
        assert_eq!(read(&blocks, offset + 4..offset + 9), [data[4], 7, 7, 7, data[8]]);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut blocks = Blocks::default();
        let kept = blocks.write(0, &vec![5; 2 * BLOCK as usize + 10]);
        assert_eq!((kept, blocks.kept()), (2 * BLOCK + 10, 2 * BLOCK + 10));
        assert_eq!(blocks.truncate(BLOCK + 4), BLOCK + 6);
        assert_eq!(blocks.kept(), BLOCK + 4);
        blocks.write(2 * BLOCK, &[6]);
        assert_eq!(read(&blocks, BLOCK + 3..BLOCK + 6), [5, 0, 0]);
        assert_eq!(blocks.truncate(0), BLOCK + 5);
        assert_eq!(blocks.kept(), 0);
    }

    #[test]
    fn far_out_costs_no_more() {
        let mut blocks = Blocks::default();
        let far = i64::MAX as u64 - 10;
        blocks.write(far, b"end");
        assert_eq!(read(&blocks, far..far + 4), b"end\0");
        assert!(blocks.kept() <= BLOCK);
        assert_eq!(blocks.truncate(far), 3);
    }
}
