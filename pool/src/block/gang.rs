//! Blocks that find no room in one piece.
//!
//! When free space is scattered, or a block is larger than a region, it is stored in pieces, and a header names them; when
//! they are too many for one header, headers of headers do. So whatever the sectors that are free, a block as long as all
//! of them can be stored, but for a few in a hundred that the headers take. Those above the first are not counted to the
//! data set.
//!
//! Data that finds no room even so takes what is kept for metadata: it was admitted, so there is room in all, and a
//! commit that has begun must not fail for want of a hole that fits.

use std::sync::Arc;

use crate::{
    block::storage::Storage,
    error::{Error, Result},
    format::{
        gang::{self, Piece},
        pointer::{Address, BlockPointer},
    },
    space::{Class, Extent},
    units::Txg,
};

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
            match self.write_gang_copy(txg, class, stored, &mut taken) {
                Ok(header) => pointer.addresses[copy] = header,
                Err(error) => {
                    taken.iter().try_for_each(|piece| self.space.free(txg, piece.address, piece.bytes))?;
                    for address in &pointer.addresses[..copy] {
                        self.free_gang_copy(txg, &pointer, *address)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(pointer)
    }

    /// Writes one copy, and notes what it has `taken`; returns the address of the topmost header.
    fn write_gang_copy(&self, txg: Txg, class: Class, stored: &[u8], taken: &mut Vec<Piece>) -> Result<Address> {
        let mut pieces = Vec::new();
        let mut rest = stored;
        while !rest.is_empty() {
            let piece = self.allocate_piece(txg, class, rest.len())?;
            taken.push(piece);
            pieces.push(piece);
            let (part, others) = rest.split_at(piece.bytes as usize);
            self.write_run(piece.address, Arc::new(part.to_vec()))?;
            rest = others;
        }
        let mut level = 0;
        loop {
            pieces = self.write_headers(txg, level, &pieces, taken)?;
            if let [top] = pieces.as_slice() {
                return Ok(top.address);
            }
            level += 1;
        }
    }

    /// Writes the headers that name `below`, and returns where they are and what each covers.
    fn write_headers(&self, txg: Txg, level: u8, below: &[Piece], taken: &mut Vec<Piece>) -> Result<Vec<Piece>> {
        let write = |pieces: &[Piece]| {
            let place = self.space.allocate(txg, Class::Metadata, self.sector, 1, &self.vdevs)?;
            let address = place.addresses[0];
            taken.push(Piece { address, bytes: self.sector });
            self.write_run(address, Arc::new(gang::encode(level, pieces, self.sector)))?;
            Ok(Piece { address, bytes: pieces.iter().map(|piece| piece.bytes).sum() })
        };
        below.chunks(gang::max_pieces(self.sector)).map(write).collect()
    }

    /// The largest piece there is, at most `wanted` bytes long.
    fn allocate_piece(&self, txg: Txg, class: Class, wanted: usize) -> Result<Piece> {
        for class in [class, Class::Metadata] {
            // Another thread may take the largest piece before us; then a smaller one is tried.
            let mut bytes = self.space.largest_piece(class).min(wanted as u32);
            while bytes > 0 {
                match self.space.allocate(txg, class, bytes, 1, &self.vdevs) {
                    Ok(place) => return Ok(Piece { address: place.addresses[0], bytes }),
                    Err(Error::OutOfSpace) => bytes = bytes / 2 / self.sector * self.sector,
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::OutOfSpace)
    }

    /// Where the bytes of one copy lie.
    pub(super) fn pieces(&self, pointer: &BlockPointer, copy: usize) -> Result<Vec<Piece>> {
        let address = pointer.addresses[copy];
        if !pointer.gang {
            return Ok(vec![Piece { address, bytes: pointer.stored }]);
        }
        Ok(self.gang(address, pointer.stored)?.pieces)
    }

    /// The pieces of a copy of `stored` bytes, and the headers that name them.
    fn gang(&self, address: Address, stored: u32) -> Result<Gang> {
        let top = Piece { address, bytes: stored };
        let mut gang = Gang { pieces: vec![top], headers: Vec::new() };
        let mut expected = None;
        loop {
            let mut below = Vec::new();
            for covered in std::mem::take(&mut gang.pieces) {
                let header = self.read_header(covered)?;
                if *expected.get_or_insert(header.level) != header.level {
                    return Err(Error::damaged("gang block", "headers of different levels stand side by side"));
                }
                gang.headers.push(Piece { bytes: self.sector, ..covered });
                below.extend(header.pieces);
            }
            gang.pieces = below;
            match expected {
                Some(level) if level > 0 => expected = Some(level - 1),
                _ => return Ok(gang),
            }
        }
    }

    fn read_header(&self, covered: Piece) -> Result<gang::Header> {
        let mut header = vec![0; self.sector as usize];
        let (vdev, offset) = self.space.resolve(covered.address, self.sector)?;
        self.vdevs.get(vdev)?.read(offset, &mut header)?;
        gang::decode(&header, covered.bytes, self.sector).map_err(|error| Error::damaged("gang block", error))
    }

    /// All the space that a block takes.
    pub fn extents(&self, pointer: &BlockPointer) -> Result<Vec<Extent>> {
        let extent = |piece: &Piece| Extent {
            chunk: piece.address.chunk,
            sector: piece.address.sector,
            sectors: piece.bytes.div_ceil(self.sector),
        };
        let mut extents = Vec::with_capacity(pointer.addresses().len());
        for &address in pointer.addresses() {
            if pointer.gang {
                let gang = self.gang(address, pointer.stored)?;
                extents.extend(gang.pieces.iter().chain(&gang.headers).map(extent));
            } else {
                extents.push(extent(&Piece { address, bytes: pointer.stored }));
            }
        }
        Ok(extents)
    }

    pub(super) fn free_gang(&self, txg: Txg, pointer: &BlockPointer) -> Result<()> {
        pointer.addresses().iter().try_for_each(|address| self.free_gang_copy(txg, pointer, *address))
    }

    /// A copy whose headers cannot be read keeps its pieces: space is lost, which the check finds, and nothing worse.
    fn free_gang_copy(&self, txg: Txg, pointer: &BlockPointer, address: Address) -> Result<()> {
        match self.gang(address, pointer.stored) {
            Ok(gang) => {
                let mut parts = gang.pieces.iter().chain(&gang.headers);
                parts.try_for_each(|part| self.space.free(txg, part.address, part.bytes))
            }
            Err(error) => {
                tracing::warn!("the pieces of a freed block are lost: {error}");
                self.space.free(txg, address, self.sector)
            }
        }
    }
}

/// One copy of a block in pieces.
struct Gang {
    /// The pieces, in order.
    pieces: Vec<Piece>,
    /// The headers, one sector each.
    headers: Vec<Piece>,
}
