//! Blocks that find no room in one piece.
//!
//! When free space is scattered, or a block is larger than a region, it is stored in pieces, and a header names them.
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
            let mut pieces = Vec::new();
            match self.write_gang_copy(txg, class, stored, &mut pieces) {
                Ok(header) => pointer.addresses[copy] = header,
                Err(error) => {
                    pieces.iter().try_for_each(|piece| self.space.free(txg, piece.address, piece.bytes))?;
                    for address in &pointer.addresses[..copy] {
                        self.free_gang_copy(txg, &pointer, *address)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(pointer)
    }

    fn write_gang_copy(&self, txg: Txg, class: Class, stored: &[u8], pieces: &mut Vec<Piece>) -> Result<Address> {
        let header = self.space.allocate(txg, Class::Metadata, self.sector, 1, &self.vdevs)?.addresses[0];
        pieces.push(Piece { address: header, bytes: self.sector });
        let mut rest = stored;
        while !rest.is_empty() {
            let piece = self.allocate_piece(txg, class, rest.len())?;
            pieces.push(piece);
            let (part, others) = rest.split_at(piece.bytes as usize);
            self.write_run(piece.address, Arc::new(part.to_vec()))?;
            rest = others;
            // The first is the header itself.
            if pieces.len() - 1 > gang::max_pieces(self.sector) {
                return Err(Error::OutOfSpace);
            }
        }
        self.write_run(header, Arc::new(gang::encode(&pieces[1..], self.sector)))?;
        Ok(header)
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
        let mut header = vec![0; self.sector as usize];
        let (vdev, offset) = self.space.resolve(address, self.sector)?;
        self.vdevs.get(vdev)?.read(offset, &mut header)?;
        gang::decode(&header, pointer.stored, self.sector).map_err(|error| Error::damaged("gang block", error))
    }

    /// All the space that a block takes.
    pub fn extents(&self, pointer: &BlockPointer) -> Result<Vec<Extent>> {
        let extent = |piece: &Piece| Extent {
            chunk: piece.address.chunk,
            sector: piece.address.sector,
            sectors: piece.bytes.div_ceil(self.sector),
        };
        let mut extents = Vec::with_capacity(pointer.addresses().len());
        for (copy, address) in pointer.addresses().iter().enumerate() {
            extents.extend(self.pieces(pointer, copy)?.iter().map(extent));
            if pointer.gang {
                extents.push(extent(&Piece { address: *address, bytes: self.sector }));
            }
        }
        Ok(extents)
    }

    pub(super) fn free_gang(&self, txg: Txg, pointer: &BlockPointer) -> Result<()> {
        pointer.addresses().iter().try_for_each(|address| self.free_gang_copy(txg, pointer, *address))
    }

    /// A copy whose header cannot be read keeps its pieces: space is lost, which the check finds, and nothing worse.
    fn free_gang_copy(&self, txg: Txg, pointer: &BlockPointer, address: Address) -> Result<()> {
        let own = BlockPointer { addresses: [address; 3], copies: 1, ..*pointer };
        match self.pieces(&own, 0) {
            Ok(pieces) => pieces.iter().try_for_each(|piece| self.space.free(txg, piece.address, piece.bytes))?,
            Err(error) => tracing::warn!("the pieces of a freed block are lost: {error}"),
        }
        self.space.free(txg, address, self.sector)
    }
}
