//! Output of few large writes, without copying the blocks.
//!
//! Heads and checksums of records are collected in one buffer, and blocks stay where the read has put them. When enough
//! has come together, one vectored write takes all pieces.

use std::io::{self, IoSlice, Write};

use pool::block::Stored;

/// A shorter block is copied: cheaper than a piece of its own, in bytes.
const COPIED: usize = 4096;
/// The most blocks in one write: the kernel takes 1,024 pieces.
const MOST: usize = 500;

/// Output, written when `window` bytes have come together.
pub(super) struct Gather<'a> {
    out: &'a mut dyn Write,
    /// In bytes; 0 writes each record at once.
    window: usize,
    small: Vec<u8>,
    /// Blocks, each with the number of small bytes before the block.
    blocks: Vec<(usize, Stored)>,
    /// The bytes not yet written.
    bytes: usize,
}

impl<'a> Gather<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Gather<'a> {
        Gather { out, window: 0, small: Vec::new(), blocks: Vec::new(), bytes: 0 }
    }

    /// From now on writes when `window` bytes have come together.
    pub(super) fn set_window(&mut self, window: usize) {
        self.window = window;
    }

    /// Adds a copy of bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Adds a block, or a copy of a short block.
    pub(super) fn put_block(&mut self, block: Stored) {
        if block.len() < COPIED {
            return self.put(&block);
        }
        self.bytes += block.len();
        self.blocks.push((self.small.len(), block));
    }

    /// Writes if enough has come together.
    pub(super) fn end_record(&mut self) -> io::Result<()> {
        if self.bytes >= self.window || self.blocks.len() >= MOST { self.write() } else { Ok(()) }
    }

    /// Writes all, and flushes the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        let mut pieces = Vec::with_capacity(2 * self.blocks.len() + 1);
        let mut from = 0;
        for (small, block) in &self.blocks {
            pieces.push(IoSlice::new(&self.small[from..*small]));
            pieces.push(IoSlice::new(block));
            from = *small;
        }
        pieces.push(IoSlice::new(&self.small[from..]));
        let written = write_all(self.out, &mut pieces);
        // After an error the output may have a part, so no piece is written again.
        self.small.clear();
        self.blocks.clear();
        self.bytes = 0;
        written
    }
}

fn write_all(out: &mut dyn Write, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match out.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut pieces, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, over the borders of pieces.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        calls: usize,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(4097).collect();
            self.taken.extend(&all);
            Ok(all.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_pieces_are_written_in_order() {
        let (mut slow, mut expected) = (Slow::default(), Vec::new());
        let mut gather = Gather::new(&mut slow);
        gather.set_window(20_000);
        for number in 0..50u8 {
            let block = vec![number; usize::from(number) * 300 + 1];
            gather.put(&[200 + number]);
            gather.put_block(block.clone().into());
            gather.end_record().unwrap();
            expected.push(200 + number);
            expected.extend(block);
        }
        gather.flush().unwrap();
        assert!(slow.taken == expected);
    }

    #[test]
    fn records_are_written_at_once_or_together() {
        let calls = |window| {
            let mut slow = Slow::default();
            let mut gather = Gather::new(&mut slow);
            gather.set_window(window);
            for _ in 0..10 {
                gather.put(b"record");
                gather.end_record().unwrap();
            }
            gather.flush().unwrap();
            slow.taken.len() + 1000 * slow.calls
        };
        assert_eq!([calls(0) / 1000, calls(1000) / 1000], [14, 1]);
        assert_eq!([calls(0) % 1000, calls(1000) % 1000], [60, 60]);
    }

    #[test]
    fn an_output_that_takes_nothing_is_an_error() {
        let mut full: &mut [u8] = &mut [0; 3];
        let mut gather = Gather::new(&mut full);
        gather.put(b"record");
        assert_eq!(gather.end_record().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
