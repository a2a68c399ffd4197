//! Gang blocks: blocks stored in several pieces.
//!
//! When free space is scattered, or a block is larger than a region, it is stored in pieces, and a header names them.
//! If there are too many pieces for one header, headers of headers name them. So whichever sectors are free, they can
//! store a block as long as all of them, but for a few percent for headers. Headers above the first are not charged to
//! the dataset.
//!
//! Data without room even so uses the reserve for metadata: the data was admitted, so there is room in all, and a
//! commit that has begun must not fail for want of a hole that fits.
//!
//! A gang copy is never rewritten in place from another copy of the block, because the place of its pieces is known
//! only from its own header. A part with several sources (the members of a mirror) is rewritten piece by piece, each
//! from a good source: the header is bound to the block, and has a sum of each piece.
//!
//! Headers of old versions have no sums. If a mirror's members differ in several pieces, all combinations are tried, up
//! to [`TRIALS`].

use std::{cell::RefCell, sync::Arc};

use crate::{
    block::{
        checksum::verify,
        read::{describe, mismatch},
        repair::{Bad, Copying, Examined},
        storage::Storage,
    },
    error::{Error, Result},
    format::{
        gang::{self, Piece},
        pointer::{Address, BlockPointer, Checksum},
    },
    space::{Class, Extent, Seen},
    units::Txg,
    vdev::{self, Check, Found},
};

/// The most combinations of pieces from several sources that are tried.
const TRIALS: usize = 1024;

impl Storage {
    /// Writes a block in pieces.
    pub(super) fn write_gang(
        &self,
        txg: Txg,
        class: Class,
        mut pointer: BlockPointer,
        stored: &[u8],
    ) -> Result<BlockPointer> {
        pointer.gang = true;
        for copy in 0..usize::from(pointer.copies) {
            let mut taken = Vec::new();
            match self.write_gang_copy(txg, class, &pointer.checksum, stored, &mut taken) {
                Ok(header) => pointer.addresses[copy] = header,
                Err(error) => {
                    taken.iter().try_for_each(|piece| self.space.free(txg, piece.address, piece.bytes))?;
                    (0..copy).try_for_each(|copy| self.free_gang_copy(txg, &pointer, copy))?;
                    return Err(error);
                }
            }
        }
        Ok(pointer)
    }

    /// Writes one copy, and appends its allocations to `taken`; returns the address of the topmost header.
    fn write_gang_copy(
        &self,
        txg: Txg,
        class: Class,
        block: &[u8; 32],
        stored: &[u8],
        taken: &mut Vec<Piece>,
    ) -> Result<Address> {
        let mut pieces = Vec::new();
        let mut rest = stored;
        while !rest.is_empty() {
            let piece = self.allocate_piece(txg, class, rest.len())?;
            taken.push(piece);
            let (part, others) = rest.split_at(piece.bytes as usize);
            pieces.push(Piece { sum: Some(gang::sum(part)), ..piece });
            self.write_run(piece.address, Arc::new(part.to_vec()))?;
            rest = others;
        }
        let mut level = 0;
        loop {
            pieces = self.write_headers(txg, level, block, &pieces, taken)?;
            if let [top] = pieces.as_slice() {
                return Ok(top.address);
            }
            level += 1;
        }
    }

    /// Writes the headers of `below`, and returns their addresses and the bytes covered by each.
    fn write_headers(
        &self,
        txg: Txg,
        level: u8,
        block: &[u8; 32],
        below: &[Piece],
        taken: &mut Vec<Piece>,
    ) -> Result<Vec<Piece>> {
        let write = |pieces: &[Piece]| {
            let place = self.space.allocate(txg, Class::Metadata, self.sector, 1, &self.vdevs)?;
            let address = place.addresses[0];
            taken.push(Piece { address, bytes: self.sector, sum: None });
            self.write_run(address, Arc::new(gang::encode(level, block, pieces, self.sector)))?;
            Ok(Piece { address, bytes: pieces.iter().map(|piece| piece.bytes).sum(), sum: None })
        };
        below.chunks(gang::max_pieces(level, self.sector)).map(write).collect()
    }

    /// The largest piece there is, at most `wanted` bytes long.
    fn allocate_piece(&self, txg: Txg, class: Class, wanted: usize) -> Result<Piece> {
        for class in [class, Class::Metadata] {
            // Another thread may take the largest piece first; then a smaller one is tried.
            let mut bytes = self.space.largest_piece(class).min(wanted as u32);
            while bytes > 0 {
                match self.space.allocate(txg, class, bytes, 1, &self.vdevs) {
                    Ok(place) => return Ok(Piece { address: place.addresses[0], bytes, sum: None }),
                    Err(Error::OutOfSpace) => bytes = bytes / 2 / self.sector * self.sector,
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::OutOfSpace)
    }

    /// Reads one copy; never [`Found::Bad`]. Bytes that may belong to another block by now are not counted: see
    /// [`Storage::read_stored`].
    pub(super) fn read_gang_copy(
        &self,
        pointer: &BlockPointer,
        copy: usize,
        bytes: &mut [u8],
        seen: Seen,
    ) -> Result<Found> {
        let mut found = Found::Good;
        let is_gone = || !self.space.stands(seen);
        let gang = self.gang(pointer, copy, &mut |at, is_good| {
            let mut bytes = vec![0; at.bytes as usize];
            let is_good = &|bytes: &[u8]| is_good(bytes) || is_gone();
            // Whatever a header says, the block's checksum is asked in the end.
            found = worse(found, self.read_part(at, &mut bytes, is_good, pointer.checksum_kind != Checksum::Off)?);
            Ok(bytes)
        })?;
        let mut rest = &mut *bytes;
        for piece in &gang.pieces {
            let (part, others) = rest.split_at_mut(piece.bytes as usize);
            let is_good = |bytes: &[u8]| is_piece(piece, bytes) || is_gone();
            found = worse(found, self.read_part(piece, part, &is_good, piece.sum.is_some())?);
            rest = others;
        }
        let is_good = |bytes: &[u8]| verify(pointer.checksum_kind, bytes, &pointer.checksum) || is_gone();
        if found != Found::Bad && is_good(bytes) {
            return Ok(found);
        }
        if let Some(whole) = self.without_sums(&gang, &is_good)? {
            bytes.copy_from_slice(&whole);
            return Ok(Found::Elsewhere);
        }
        let (id, _) = self.space.resolve(gang.pieces[0].address, gang.pieces[0].bytes)?;
        Err(mismatch(pointer, &*self.vdevs.get(id)?))
    }

    /// Reads a header or a piece. With `sure`, `is_good` cannot accept wrong bytes: see [`vdev::Vdev::read_surely`].
    fn read_part(&self, part: &Piece, bytes: &mut [u8], is_good: Check<'_>, sure: bool) -> Result<Found> {
        let (id, offset) = self.space.resolve(part.address, part.bytes)?;
        let vdev = self.vdevs.get(id)?;
        if sure { vdev.read_surely(offset, bytes, is_good) } else { vdev.read_checked(offset, bytes, is_good) }
    }

    /// Examines one copy: every source of every header and piece.
    pub(super) fn examine_gang_copy(&self, pointer: &BlockPointer, copy: usize) -> Result<Examined> {
        let mut examined = Examined::default();
        let gang = self.gang(pointer, copy, &mut |at, is_good| {
            // A header has no checksum of its own that could verify it before others are rewritten from it.
            let header = self.examine_part((pointer, copy), (at, false), is_good, &mut examined.bad)?;
            header.ok_or_else(|| Error::damaged("gang block", "no source of a header is good"))
        });
        let gang = match gang {
            Ok(gang) => gang,
            Err(_) if !examined.bad.is_empty() => return Ok(examined),
            Err(error) => return Err(error),
        };
        let mut whole = Vec::with_capacity(pointer.stored as usize);
        for piece in &gang.pieces {
            let is_good = |bytes: &[u8]| is_piece(piece, bytes);
            let part = (piece, piece.sum.is_some());
            let part = self.examine_part((pointer, copy), part, &is_good, &mut examined.bad)?;
            whole.extend(part.unwrap_or_default());
        }
        let is_good = |bytes: &[u8]| verify(pointer.checksum_kind, bytes, &pointer.checksum);
        match whole.len() == pointer.stored as usize && is_good(&whole) {
            true => examined.good = Some(whole),
            false if examined.bad.is_empty() => {
                if let Some(whole) = self.without_sums(&gang, &is_good)? {
                    let mut rest = &whole[..];
                    for piece in &gang.pieces {
                        let (own, others) = rest.split_at(piece.bytes as usize);
                        let is_good = |bytes: &[u8]| bytes == own;
                        self.examine_part((pointer, copy), (piece, true), &is_good, &mut examined.bad)?;
                        rest = others;
                    }
                    examined.good = Some(whole);
                    return Ok(examined);
                }
                let problem = "its pieces are good, and together they are not what was written";
                examined.bad.push(Bad::nowhere(copy, Error::damaged(describe(pointer), problem)));
            }
            false => {}
        }
        Ok(examined)
    }

    /// The bytes of a header or a piece of a copy, if a source is good. With `sure`, `is_good` cannot accept wrong
    /// bytes: see [`vdev::Vdev::examine_surely`].
    fn examine_part(
        &self,
        (pointer, copy): (&BlockPointer, usize),
        (part, sure): (&Piece, bool),
        is_good: Check<'_>,
        all: &mut Vec<Bad>,
    ) -> Result<Option<Vec<u8>>> {
        let (id, offset) = self.space.resolve(part.address, part.bytes)?;
        let vdev = self.vdevs.get(id)?;
        let len = part.bytes as usize;
        let vdev::Examined { good, bad } =
            if sure { vdev.examine_surely(offset, len, is_good) } else { vdev.examine(offset, len, is_good) };
        let own = good.clone().filter(|_| !bad.is_empty()).map(Arc::new);
        all.extend(bad.into_iter().map(|(source, refused)| {
            let mismatch = || mismatch(pointer, &*vdev);
            Bad { part: own.clone(), ..Bad::at(copy, (id, source, offset), refused, mismatch) }
        }));
        Ok(good)
    }

    /// Writes the headers and the pieces of one copy, whose verified content is `bytes`, to the places where they are
    /// missing.
    pub(super) fn copy_gang_copy(&self, pointer: &BlockPointer, copy: usize, bytes: &[u8], to: Copying) -> Result<()> {
        let fill = |part: &Piece, bytes: &[u8]| self.copy_part(part.address, &Arc::new(bytes.to_vec()), to);
        let mut headers = Vec::new();
        let gang = self.gang(pointer, copy, &mut |at, is_good| {
            let header = self.read_header(at, is_good)?;
            headers.push((*at, header.clone()));
            Ok(header)
        })?;
        // Written only now, when all headers have verified as such.
        headers.iter().try_for_each(|(at, header)| fill(at, header))?;
        let mut rest = bytes;
        for piece in &gang.pieces {
            let (part, others) = rest.split_at(piece.bytes as usize);
            fill(piece, part)?;
            rest = others;
        }
        Ok(())
    }

    /// The bytes of pieces without sums: combinations of their sources are tried until the whole verifies. `None` if
    /// none does, or there are too many to try.
    fn without_sums(&self, gang: &Gang, is_good: Check<'_>) -> Result<Option<Vec<u8>>> {
        if gang.pieces.iter().all(|piece| piece.sum.is_some()) {
            return Ok(None);
        }
        let candidates: Vec<Vec<Vec<u8>>> =
            gang.pieces.iter().map(|piece| self.candidates(piece)).collect::<Result<_>>()?;
        let mut trials = 1usize;
        for found in &candidates {
            trials = trials.saturating_mul(found.len());
        }
        let attempt = |mut number: usize| {
            let mut whole = Vec::new();
            for found in &candidates {
                whole.extend_from_slice(&found[number % found.len()]);
                number /= found.len();
            }
            whole
        };
        Ok((0..trials.min(TRIALS)).map(attempt).find(|whole| is_good(whole)))
    }

    /// The contents of a piece in its sources, each content once.
    fn candidates(&self, piece: &Piece) -> Result<Vec<Vec<u8>>> {
        let (id, offset) = self.space.resolve(piece.address, piece.bytes)?;
        let found = RefCell::new(Vec::<Vec<u8>>::new());
        self.vdevs.get(id)?.examine(offset, piece.bytes as usize, &|bytes| {
            let mut found = found.borrow_mut();
            if !found.iter().any(|known| known == bytes) {
                found.push(bytes.to_vec());
            }
            false
        });
        Ok(found.into_inner())
    }

    fn read_header(&self, at: &Piece, is_good: Check<'_>) -> Result<Vec<u8>> {
        let mut header = vec![0; at.bytes as usize];
        // Frees go by the header's content, and the block's checksum is not consulted.
        self.read_part(at, &mut header, is_good, false)?;
        Ok(header)
    }

    /// The pieces of a copy, and its headers, which `read` reads.
    fn gang(
        &self,
        pointer: &BlockPointer,
        copy: usize,
        read: &mut dyn FnMut(&Piece, Check<'_>) -> Result<Vec<u8>>,
    ) -> Result<Gang> {
        let top = Piece { address: pointer.addresses[copy], bytes: pointer.stored, sum: None };
        let mut gang = Gang { pieces: vec![top], headers: Vec::new() };
        // A pointer to be freed may have no checksum.
        let block = (pointer.checksum_kind != Checksum::Off).then_some(&pointer.checksum);
        let mut expected = None;
        loop {
            let mut below = Vec::new();
            for covered in std::mem::take(&mut gang.pieces) {
                let at = Piece { bytes: self.sector, ..covered };
                let decode = |header: &[u8]| gang::decode(header, block, covered.bytes, self.sector);
                let bytes = read(&at, &|header| decode(header).is_ok())?;
                let header = decode(&bytes).map_err(|error| Error::damaged("gang block", error))?;
                if *expected.get_or_insert(header.level) != header.level {
                    return Err(Error::damaged("gang block", "headers of different levels stand side by side"));
                }
                gang.headers.push(at);
                below.extend(header.pieces);
            }
            gang.pieces = below;
            match expected {
                Some(level) if level > 0 => expected = Some(level - 1),
                _ => return Ok(gang),
            }
        }
    }

    /// All extents allocated for a block.
    pub fn extents(&self, pointer: &BlockPointer) -> Result<Vec<Extent>> {
        let extent = |piece: &Piece| self.space.extent(piece.address, piece.bytes);
        let mut extents = Vec::with_capacity(pointer.addresses().len());
        for (copy, &address) in pointer.addresses().iter().enumerate() {
            if pointer.gang {
                let gang = self.gang(pointer, copy, &mut |at, is_good| self.read_header(at, is_good))?;
                extents.extend(gang.pieces.iter().chain(&gang.headers).map(extent));
            } else {
                extents.push(extent(&Piece { address, bytes: pointer.stored, sum: None }));
            }
        }
        Ok(extents)
    }

    pub(super) fn free_gang(&self, txg: Txg, pointer: &BlockPointer) -> Result<()> {
        (0..usize::from(pointer.copies)).try_for_each(|copy| self.free_gang_copy(txg, pointer, copy))
    }

    /// A copy whose headers cannot be read keeps its pieces: space is lost, which the check finds, and nothing worse.
    fn free_gang_copy(&self, txg: Txg, pointer: &BlockPointer, copy: usize) -> Result<()> {
        match self.gang(pointer, copy, &mut |at, is_good| self.read_header(at, is_good)) {
            Ok(gang) => {
                let mut parts = gang.pieces.iter().chain(&gang.headers);
                parts.try_for_each(|part| self.space.free(txg, part.address, part.bytes))
            }
            Err(error) => {
                tracing::warn!("the pieces of a freed block are lost: {error}");
                self.space.free(txg, pointer.addresses[copy], self.sector)
            }
        }
    }
}

/// One copy of a gang block.
struct Gang {
    /// The pieces, in order.
    pieces: Vec<Piece>,
    /// The headers, one sector each.
    headers: Vec<Piece>,
}

/// Whether bytes match a piece, as far as its header tells.
fn is_piece(piece: &Piece, bytes: &[u8]) -> bool {
    piece.sum.is_none_or(|sum| sum == gang::sum(bytes))
}

/// The result for a copy from the results of two parts.
fn worse(one: Found, other: Found) -> Found {
    match (one, other) {
        (Found::Bad, _) | (_, Found::Bad) => Found::Bad,
        (Found::Elsewhere, _) | (_, Found::Elsewhere) => Found::Elsewhere,
        _ => Found::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{self, CreateOptions, NewVdev, Pool},
        block::checksum::checksum,
        device::{Device, FaultDevice, MemoryDevice},
        env::SeededEnv,
        format::{codec::Writer, label::DATA_START, pointer::Compression},
        txg::Settings,
        units::MIB,
    };

    const LEN: usize = 40_000;

    fn disk(name: &str) -> Arc<FaultDevice> {
        Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 64 * MIB))))
    }

    fn mirror(disks: &[Arc<FaultDevice>]) -> Pool {
        let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let settings = Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 };
        let options = CreateOptions { settings, ..CreateOptions::new("tank") };
        admin::create_of(&[NewVdev::Mirror(devices)], &options, Arc::new(SeededEnv::new(1))).unwrap()
    }

    fn content() -> Vec<u8> {
        (0..LEN as u32).map(|n| ((n * n) >> 7) as u8).collect()
    }

    fn pointer(copies: u8) -> BlockPointer {
        BlockPointer {
            copies,
            logical: LEN as u32,
            stored: LEN as u32,
            compression: Compression::Off,
            checksum_kind: Checksum::Blake3,
            checksum: checksum(Checksum::Blake3, &content()),
            ..BlockPointer::default()
        }
    }

    /// A gang of so many copies, and where its headers and pieces lie on the devices.
    fn written(pool: &Pool, copies: u8) -> (BlockPointer, Vec<Gang>) {
        let storage = pool.engine().storage();
        let written = pool.engine().with_open_txg(|txg| {
            let pointer = BlockPointer { birth: txg, logical_birth: txg, ..pointer(copies) };
            storage.write_gang(txg, Class::Data, pointer, &content()).unwrap()
        });
        let read = |copy| storage.gang(&written, copy, &mut |at, is_good| storage.read_header(at, is_good)).unwrap();
        (written, (0..usize::from(copies)).map(read).collect())
    }

    fn place(pool: &Pool, part: &Piece) -> u64 {
        DATA_START + pool.engine().storage().space.resolve(part.address, part.bytes).unwrap().1
    }

    fn held(disk: &FaultDevice, at: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        disk.read_at(at, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_copy_without_header_does_not_stop_a_resilver_of_the_other() {
        let (disks, new) = ([disk("a"), disk("b")], disk("new"));
        let pool = mirror(&disks);
        let (pointer, gangs) = written(&pool, 2);
        let header = place(&pool, &gangs[0].headers[0]);
        disks.iter().for_each(|disk| disk.write_at(header, &[0xee; 100]).unwrap());
        pool.attach("a", new.clone(), false).unwrap();
        let storage = pool.engine().storage();
        assert_eq!(storage.copy(&pointer, Copying::Members).unwrap(), LEN as u64);
        assert_eq!(held(&new, header, 100), [0; 100], "what is no header is not copied as one");
        let parts = || gangs[1].headers.iter().chain(&gangs[1].pieces);
        assert!(parts().all(|part| {
            let at = place(&pool, part);
            held(&new, at, part.bytes) == held(&disks[0], at, part.bytes)
        }));
        // Without any header there is nothing to fill.
        let header = place(&pool, &gangs[1].headers[0]);
        disks.iter().for_each(|disk| disk.write_at(header, &[0xee; 100]).unwrap());
        assert!(storage.copy(&pointer, Copying::Members).is_err());
    }

    #[test]
    fn whoever_frees_a_block_need_not_know_its_checksum() {
        let pool = mirror(&[disk("a"), disk("b")]);
        let (pointer, _) = written(&pool, 2);
        let storage = pool.engine().storage();
        let bare = BlockPointer { checksum_kind: Checksum::Off, checksum: [0; 32], ..pointer };
        let extents = |pointer| format!("{:?}", storage.extents(pointer).unwrap());
        assert_eq!(extents(&bare), extents(&pointer));
        pool.engine().with_open_txg(|txg| storage.free(txg, &bare).unwrap());
    }

    #[test]
    fn pieces_without_sums_that_rot_on_different_devices_are_found() {
        let disks = [disk("a"), disk("b")];
        let pool = mirror(&disks);
        let storage = pool.engine().storage();
        let stored = content();
        let parts: Vec<&[u8]> = stored.chunks(8192).collect();
        let pieces = pool.engine().with_open_txg(|txg| {
            let write = |part: &&[u8]| {
                let bytes = part.len() as u32;
                let address = storage.space.allocate(txg, Class::Data, bytes, 1, &storage.vdevs).unwrap().addresses[0];
                storage.write_run(address, Arc::new(part.to_vec())).unwrap();
                Piece { address, bytes, sum: None }
            };
            parts.iter().map(write).collect::<Vec<_>>()
        });
        // As version 1 wrote it.
        let sector = storage.sector as usize;
        let mut header = Vec::new();
        header.put_bytes(b"CGng");
        header.put_u8(1);
        header.put_varint(pieces.len() as u64);
        for piece in &pieces {
            header.put_varint(piece.address.chunk.0.into());
            header.put_varint(piece.address.sector.into());
            header.put_varint(piece.bytes.into());
        }
        header.resize(sector - 32, 0);
        let sum = blake3::hash(&header);
        header.put_bytes(sum.as_bytes());
        let at = pool.engine().with_open_txg(|txg| {
            let place = storage.space.allocate(txg, Class::Metadata, sector as u32, 1, &storage.vdevs).unwrap();
            storage.write_run(place.addresses[0], Arc::new(header.clone())).unwrap();
            place.addresses[0]
        });
        let mut pointer = BlockPointer { gang: true, ..pointer(1) };
        pointer.addresses[0] = at;
        for (n, piece) in pieces.iter().enumerate() {
            disks[n % 2].write_at(place(&pool, piece) + 5, &[0xee; 9]).unwrap();
        }
        (0..4).for_each(|_| assert!(storage.read_stored(&pointer, Seen::HELD, || {}).unwrap() == stored));
        let examined = storage.examine(&pointer);
        assert!(examined.good.as_ref().is_some_and(|good| *good == stored));
        assert_eq!(examined.bad.len(), pieces.len());
        storage.rewrite(&pointer, &examined.bad[0], &Arc::new(stored.clone())).unwrap();
        assert_eq!(storage.examine(&pointer).bad.len(), pieces.len() - 1);
        disks.iter().for_each(|disk| disk.write_at(place(&pool, &pieces[0]) + 5, &[0xdd; 9]).unwrap());
        assert!(storage.read_stored(&pointer, Seen::HELD, || {}).is_err());
    }
}
