//! Blocks with a place, to be written at the end of a sync.
//!
//! The space layer's own blocks of a group mostly get adjacent places. Written together they cost one write per copy
//! instead of one per block, which matters on slow devices: a commit that checkpoints a chunk takes as long as a commit
//! without. The order of the writes does not matter, because no structure refers to the blocks before the group's
//! uberblock, which comes after a flush.

use super::super::{io::Disk, layout::Layout};
use crate::{
    error::{Error, Result},
    format::space::{PhysicalPointer, Place},
    units::MIB,
};

/// The longest write, in bytes, unless a single block is longer.
const MAX_WRITE: usize = MIB as usize;
/// The bytes at which waiting blocks are written at once: checkpoints of many chunks are large.
const MAX_WAITING: usize = 4 * MIB as usize;

/// The waiting blocks.
#[derive(Default)]
pub(super) struct Outbox {
    blocks: Vec<Waiting>,
    bytes: usize,
}

struct Waiting {
    pointer: PhysicalPointer,
    /// Padded with zeros to whole sectors. The rest of an allocation unit is filled where neighbours follow.
    padded: Vec<u8>,
    copies: Copies,
}

/// The outcome of writing a block's copies.
#[derive(Default)]
struct Copies {
    written: u8,
    failed: Option<Error>,
}

/// One copy of a waiting block.
#[derive(Clone, Copy)]
struct Copy {
    place: Place,
    block: usize,
    /// The bytes allocated for the copy.
    len: usize,
}

impl Outbox {
    /// Queues a block, and writes the queue once it is long.
    pub(super) fn put(&mut self, pointer: PhysicalPointer, mut bytes: Vec<u8>, disk: &Disk<'_>) -> Result<()> {
        bytes.resize(disk.layout.padded(pointer.len), 0);
        self.bytes += bytes.len();
        self.blocks.push(Waiting { pointer, padded: bytes, copies: Copies::default() });
        if self.bytes > MAX_WAITING { self.write(disk) } else { Ok(()) }
    }

    /// Drops an unwritten block, so that its place can be used again.
    pub(super) fn take_back(&mut self, pointer: &PhysicalPointer) {
        self.blocks.retain(|block| block.pointer != *pointer);
        self.bytes = self.blocks.iter().map(|block| block.padded.len()).sum();
    }

    /// Writes the waiting blocks. A failed write of one copy only loses redundancy.
    ///
    /// # Errors
    /// That of the device, if no copy of a block could be written.
    pub(super) fn write(&mut self, disk: &Disk<'_>) -> Result<()> {
        let mut blocks = std::mem::take(&mut self.blocks);
        self.bytes = 0;
        let places = |(block, waiting): (usize, &Waiting)| {
            let len = |place: Place| disk.layout.padded_at(&place, waiting.pointer.len);
            waiting.pointer.places().iter().map(|&place| Copy { place, block, len: len(place) }).collect::<Vec<_>>()
        };
        let mut copies: Vec<Copy> = blocks.iter().enumerate().flat_map(places).collect();
        copies.sort_unstable_by_key(|copy| (copy.place.vdev, copy.place.offset));
        let mut rest = copies.as_slice();
        while !rest.is_empty() {
            let (run, after) = rest.split_at(run_length(rest, disk.layout));
            write_run(run, &mut blocks, disk);
            rest = after;
        }
        for Waiting { copies, .. } in blocks {
            match copies.failed {
                Some(error) if copies.written == 0 => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// How many of the first copies are adjacent in a region, up to the longest write. Rows of a RAID-Z begin anew with
/// each region, even with a single data sector.
fn run_length(copies: &[Copy], layout: &Layout) -> usize {
    let Place { vdev, offset } = copies[0].place;
    let is_near = |copy: &Copy| copy.place.offset / layout.region == offset / layout.region;
    let mut len = 0;
    copies
        .iter()
        .take_while(|copy| {
            let fits = is_near(copy)
                && copy.place == Place { vdev, offset: offset + len as u64 }
                && (len == 0 || len < MAX_WRITE);
            len += copy.len;
            fits
        })
        .count()
}

/// Writes adjacent copies with one request; after a failure, one by one.
fn write_run(run: &[Copy], blocks: &mut [Waiting], disk: &Disk<'_>) {
    let Place { vdev, offset } = run[0].place;
    if run.len() > 1 {
        let mut bytes = Vec::with_capacity(run.iter().map(|copy| copy.len).sum());
        for copy in run {
            let end = bytes.len() + copy.len;
            bytes.extend_from_slice(&blocks[copy.block].padded);
            bytes.resize(end, 0);
        }
        if disk.io.write(vdev, offset, &bytes).is_ok() {
            run.iter().for_each(|copy| blocks[copy.block].copies.written += 1);
            return;
        }
    }
    for copy in run {
        let Waiting { padded, copies, .. } = &mut blocks[copy.block];
        match disk.io.write(vdev, copy.place.offset, padded) {
            Ok(()) => copies.written += 1,
            Err(error) => copies.failed = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{
        space::{SpaceIo, VdevShape},
        units::{KIB, VdevId},
        vdev::Check,
    };

    const SECTOR: u32 = 512;

    /// A device that records writes, and refuses any write over its bad sector.
    #[derive(Default)]
    struct Notes {
        bad: Option<u64>,
        writes: Mutex<Vec<(u32, u64, Vec<u8>)>>,
    }

    impl SpaceIo for Notes {
        fn read(&self, _: VdevId, _: u64, _: &mut [u8], _: Check<'_>) -> Result<()> {
            unreachable!("nothing is read")
        }

        fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()> {
            if self.bad.is_some_and(|bad| (offset..offset + bytes.len() as u64).contains(&bad)) {
                return Err(Error::damaged("sector", "it is bad"));
            }
            self.writes.lock().push((vdev.0, offset, bytes.to_vec()));
            Ok(())
        }
    }

    /// A block of `len` bytes with copies at these places.
    fn block(places: &[(u32, u64)], len: u32) -> PhysicalPointer {
        let mut pointer = PhysicalPointer { copies: places.len() as u8, len, ..Default::default() };
        for (place, &(vdev, offset)) in pointer.places.iter_mut().zip(places) {
            *place = Place { vdev: VdevId(vdev), offset };
        }
        pointer
    }

    /// The writes of the blocks, each filled with its number: device, offset and the first byte of every sector.
    fn written(blocks: &[PhysicalPointer], notes: &Notes) -> Result<Vec<(u32, u64, Vec<u8>)>> {
        let layout = Layout::new(SECTOR, 64 * KIB);
        let disk = Disk { layout: &layout, io: notes };
        let mut outbox = Outbox::default();
        for (number, pointer) in (1..).zip(blocks) {
            outbox.put(*pointer, vec![number; pointer.len as usize], &disk)?;
        }
        assert!(notes.writes.lock().is_empty());
        outbox.write(&disk)?;
        let first = |bytes: &[u8]| bytes.chunks(SECTOR as usize).map(|sector| sector[0]).collect();
        Ok(notes.writes.lock().iter().map(|(vdev, offset, bytes)| (*vdev, *offset, first(bytes))).collect())
    }

    #[test]
    fn neighbours_are_one_write_a_copy() {
        let blocks = [
            block(&[(0, 4096), (1, 512)], 1000),
            block(&[(0, 5120), (1, 8192)], 512),
            block(&[(0, 5632), (1, 1536)], 1),
        ];
        let expected = [(0, 4096, vec![1, 1, 2, 3]), (1, 512, vec![1, 1, 3]), (1, 8192, vec![2])];
        assert_eq!(written(&blocks, &Notes::default()).unwrap(), expected);
    }

    #[test]
    fn what_is_written_together_ends_with_its_unit_and_its_region() {
        let shape = VdevShape { vdev: VdevId(0), first_region: 0, size: 128 * KIB, unit: 4, class: None };
        let layout = Layout::new(SECTOR, 64 * KIB).with_vdev(shape);
        let (notes, mut outbox) = (Notes::default(), Outbox::default());
        let disk = Disk { layout: &layout, io: &notes };
        let end = 64 * KIB;
        for (number, offset) in (1..).zip([0, 2048, end - 2048, end]) {
            outbox.put(block(&[(0, offset)], 600), vec![number; 600], &disk).unwrap();
        }
        outbox.write(&disk).unwrap();
        let first = |bytes: &[u8]| bytes.chunks(SECTOR as usize).map(|sector| sector[0]).collect::<Vec<_>>();
        let written: Vec<_> = notes.writes.lock().iter().map(|(_, at, bytes)| (*at, first(bytes))).collect();
        let together = vec![1, 1, 0, 0, 2, 2, 0, 0];
        assert_eq!(written, [(0, together), (end - 2048, vec![3, 3]), (end, vec![4, 4])]);
    }

    #[test]
    fn nothing_is_written_over_the_end_of_a_region() {
        let end = 64 * KIB;
        let blocks = [block(&[(0, end - 512)], 512), block(&[(0, end)], 512)];
        assert_eq!(written(&blocks, &Notes::default()).unwrap(), [(0, end - 512, vec![1]), (0, end, vec![2])]);
    }

    #[test]
    fn a_bad_sector_costs_only_the_copy_that_it_lies_in() {
        let notes = Notes { bad: Some(5120), ..Notes::default() };
        let blocks = [block(&[(0, 4608), (1, 0)], 512), block(&[(0, 5120), (1, 512)], 512)];
        assert_eq!(written(&blocks, &notes).unwrap(), [(0, 4608, vec![1]), (1, 0, vec![1, 2])]);
    }

    #[test]
    fn a_block_without_any_copy_is_an_error() {
        let notes = Notes { bad: Some(5120), ..Notes::default() };
        let error = written(&[block(&[(0, 4608)], 512), block(&[(0, 5120)], 512)], &notes).unwrap_err();
        assert!(error.to_string().contains("it is bad"), "{error}");
    }

    #[test]
    fn what_is_taken_back_is_not_written() {
        let (notes, layout) = (Notes::default(), Layout::new(SECTOR, 64 * KIB));
        let disk = Disk { layout: &layout, io: &notes };
        let mut outbox = Outbox::default();
        let (draft, log) = (block(&[(0, 0)], 1024), block(&[(0, 0)], 512));
        outbox.put(draft, vec![1; 1024], &disk).unwrap();
        outbox.take_back(&draft);
        outbox.put(log, vec![2; 512], &disk).unwrap();
        outbox.write(&disk).unwrap();
        assert_eq!(*notes.writes.lock(), [(0, 0, vec![2; 512])]);
    }

    #[test]
    fn much_is_not_kept_waiting() {
        let (notes, layout) = (Notes::default(), Layout::new(SECTOR, 16 * MIB));
        let disk = Disk { layout: &layout, io: &notes };
        let mut outbox = Outbox::default();
        let len = MIB as u32 / 2;
        for number in 0..9 {
            outbox.put(block(&[(0, number * u64::from(len))], len), vec![1; len as usize], &disk).unwrap();
        }
        let lens = || notes.writes.lock().iter().map(|(_, _, bytes)| bytes.len()).collect::<Vec<_>>();
        assert_eq!(lens(), [MAX_WRITE, MAX_WRITE, MAX_WRITE, MAX_WRITE, len as usize]);
        outbox.write(&disk).unwrap();
        assert_eq!(lens().len(), 5);
    }
}
