//! Writing blocks: compress, checksum, allocate, and write many of them in one run.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use crate::{
    block::{
        checksum::checksum,
        compression::{CompressionChoice, Compressor, compress},
        storage::Storage,
    },
    device::merged,
    error::{Error, Result},
    format::pointer::{Address, BlockPointer, Checksum, Compression},
    space::{Class, Placement, Purpose},
    units::Txg,
};

thread_local! {
    /// Compression contexts are large and slow to make; each worker keeps its own.
    static COMPRESSOR: RefCell<Compressor> = RefCell::new(Compressor::new());
}

/// Shorter blocks of a run are copied together for their write, in bytes.
const APART: usize = 16 << 10;

/// How a block is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The compression to try.
    pub compression: CompressionChoice,
    /// The checksum to make.
    pub checksum: Checksum,
    /// How many copies to write, 1 to 3.
    pub copies: u8,
    /// The largest stored size, in bytes, of a record that goes to a special vdev.
    pub small_blocks: u32,
    /// Where a record is to lie if there is room.
    pub placement: Placement,
}

/// A block to be written.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The content, or the stored form with `as_stored`.
    pub bytes: Arc<Vec<u8>>,
    /// The form to store it in.
    pub policy: Policy,
    /// For bytes in stored form from a stream: their pointer, without addresses and births. The bytes are written
    /// unchanged.
    pub as_stored: Option<BlockPointer>,
}

impl Payload {
    /// Content, to be compressed and checksummed as `policy` says.
    pub fn new(bytes: Arc<Vec<u8>>, policy: Policy) -> Payload {
        Payload { bytes, policy, as_stored: None }
    }
}

/// A block in stored form: its pointer without the addresses.
struct Prepared {
    pointer: BlockPointer,
    stored: Arc<Vec<u8>>,
}

/// Compresses and checksums. A block is stored uncompressed unless that saves `least` bytes, the allocation unit.
fn prepare(payload: &Payload, txg: Txg, least: u32) -> Prepared {
    let Payload { bytes, policy, as_stored } = payload;
    if let Some(pointer) = as_stored {
        let pointer = BlockPointer { gang: false, birth: txg, logical_birth: txg, ..*pointer };
        return Prepared { pointer, stored: bytes.clone() };
    }
    let compressed = COMPRESSOR.with_borrow_mut(|scratch| compress(policy.compression, bytes, least, scratch));
    let (compression, stored) = match compressed {
        Some((compression, stored)) => (compression, Arc::new(stored)),
        None => (Compression::Off, bytes.clone()),
    };
    let pointer = BlockPointer {
        copies: policy.copies,
        logical: bytes.len() as u32,
        stored: stored.len() as u32,
        compression,
        checksum_kind: policy.checksum,
        checksum: checksum(policy.checksum, &stored),
        birth: txg,
        logical_birth: txg,
        ..BlockPointer::default()
    };
    Prepared { pointer, stored }
}

/// The purpose of a block of so many stored bytes.
fn purpose(class: Class, policy: &Policy, stored: u32) -> Purpose {
    match class {
        Class::Metadata => Purpose::Metadata,
        Class::Data if stored <= policy.small_blocks => Purpose::SmallData,
        Class::Data if policy.placement == Placement::ANYWHERE => Purpose::Data,
        Class::Data => Purpose::Placed(policy.placement),
    }
}

impl Storage {
    /// Writes blocks of one number of copies, side by side where there is room, and in pieces otherwise. Blocks of
    /// different purposes are written separately. The pointers are in the order of the payloads.
    pub fn write_blocks(&self, txg: Txg, class: Class, payloads: &[Payload]) -> Result<Vec<BlockPointer>> {
        let least = self.sector * self.space.unit();
        let mut groups: BTreeMap<Purpose, (Vec<usize>, Vec<Prepared>)> = BTreeMap::new();
        for (at, payload) in payloads.iter().enumerate() {
            let block = prepare(payload, txg, least);
            let group = groups.entry(purpose(class, &payload.policy, block.pointer.stored)).or_default();
            group.0.push(at);
            group.1.push(block);
        }
        let mut pointers = vec![BlockPointer::default(); payloads.len()];
        for (purpose, (places, blocks)) in groups {
            let written = self.write_prepared(txg, purpose, blocks)?;
            places.into_iter().zip(written).for_each(|(at, pointer)| pointers[at] = pointer);
        }
        Ok(pointers)
    }

    /// Writes blocks of one number of copies and one purpose.
    fn write_prepared(&self, txg: Txg, purpose: Purpose, mut blocks: Vec<Prepared>) -> Result<Vec<BlockPointer>> {
        let Some(copies) = blocks.first().map(|block| block.pointer.copies) else { return Ok(Vec::new()) };
        let sizes: Vec<u32> = blocks.iter().map(|block| block.pointer.stored).collect();
        let places = match self.space.allocate_run(txg, purpose, &sizes, copies, &self.vdevs) {
            Err(Error::OutOfSpace) => {
                return blocks.iter().map(|block| self.write_single(txg, purpose, block)).collect();
            }
            places => places?,
        };
        for (block, place) in blocks.iter_mut().zip(&places) {
            block.pointer.addresses = place.addresses;
        }
        for copy in 0..usize::from(copies) {
            self.write_copy(&blocks, copy)?;
        }
        Ok(blocks.into_iter().map(|block| block.pointer).collect())
    }

    fn write_single(&self, txg: Txg, purpose: Purpose, block: &Prepared) -> Result<BlockPointer> {
        let (mut pointer, stored) = (block.pointer, &block.stored);
        match self.space.allocate(txg, purpose, pointer.stored, pointer.copies, &self.vdevs) {
            Err(Error::OutOfSpace) => return self.write_gang(txg, purpose.class(), pointer, stored),
            place => pointer.addresses = place?.addresses,
        }
        for address in pointer.addresses() {
            self.write_run(*address, stored.clone())?;
        }
        Ok(pointer)
    }

    /// Writes one copy of each block, with one device write for each run of neighbours.
    fn write_copy(&self, blocks: &[Prepared], copy: usize) -> Result<()> {
        let mut rest = blocks;
        while let Some(first) = rest.first() {
            let run = 1 + rest.windows(2).take_while(|pair| self.adjacent(&pair[0], &pair[1], copy)).count();
            let (run, others) = rest.split_at(run);
            rest = others;
            let start = first.pointer.addresses[copy];
            match run {
                [only] => self.write_run(start, only.stored.clone())?,
                run => self.write_together(start, run)?,
            }
        }
        Ok(())
    }

    fn adjacent(&self, one: &Prepared, next: &Prepared, copy: usize) -> bool {
        let (start, end) = (one.pointer.addresses[copy], next.pointer.addresses[copy]);
        let taken = self.space.extent(start, one.pointer.stored);
        start.chunk == end.chunk && start.sector + taken.sectors == end.sector
    }

    /// Writes the blocks one after the other, each but the last padded to whole allocation units. Large blocks that need
    /// no padding are not copied.
    fn write_together(&self, start: Address, run: &[Prepared]) -> Result<()> {
        let unit = (self.space.unit_at(start) * self.sector) as usize;
        let is_whole = |block: &Prepared| block.stored.len() >= APART && block.stored.len().is_multiple_of(unit);
        if run[..run.len() - 1].iter().all(is_whole) {
            let parts: Vec<_> = run.iter().map(|block| block.stored.clone()).collect();
            let len: usize = parts.iter().map(|part| part.len()).sum();
            let (vdev, offset) = self.space.resolve(start, len as u32)?;
            let vdev = self.vdevs.get(vdev)?;
            return merged(run.len() > 1, || vdev.write_parts(offset, &parts));
        }
        let total: usize = run.iter().map(|block| block.stored.len().next_multiple_of(unit)).sum();
        let mut bytes = Vec::with_capacity(total);
        for block in run {
            bytes.resize(bytes.len().next_multiple_of(unit), 0);
            bytes.extend_from_slice(&block.stored);
        }
        merged(run.len() > 1, || self.write_run(start, Arc::new(bytes)))
    }

    pub(super) fn write_run(&self, start: Address, bytes: Arc<Vec<u8>>) -> Result<()> {
        let (vdev, offset) = self.space.resolve(start, bytes.len() as u32)?;
        self.vdevs.get(vdev)?.write_shared(offset, bytes)
    }

    /// The space of a block on the devices, in bytes: with all copies, each rounded up to whole allocation units. For a
    /// gang block, an estimate.
    pub fn taken(&self, pointer: &BlockPointer) -> u64 {
        let of_one = |address: &Address| {
            let header = if pointer.gang { self.space.unit_at(*address) } else { 0 };
            u64::from(self.space.extent(*address, pointer.stored).sectors + header)
        };
        pointer.addresses().iter().map(of_one).sum::<u64>() * u64::from(self.sector)
    }

    /// Gives a block's space back, at the end of `txg`.
    pub fn free(&self, txg: Txg, pointer: &BlockPointer) -> Result<()> {
        if pointer.gang {
            return self.free_gang(txg, pointer);
        }
        pointer.addresses().iter().try_for_each(|address| self.space.free(txg, *address, pointer.stored))
    }
}
