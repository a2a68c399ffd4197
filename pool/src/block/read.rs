//! Reading blocks: any copy that verifies; the bad ones are rewritten from it.

use crate::{
    block::{checksum::verify, compression::decompress, storage::Storage},
    error::{Error, Result},
    format::pointer::BlockPointer,
};

impl Storage {
    /// The content of a block: verified and decompressed.
    pub fn read_block(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        let stored = self.read_stored(pointer)?;
        if pointer.stored == pointer.logical {
            return Ok(stored);
        }
        decompress(pointer.compression, &stored, pointer.logical as usize)
            .map_err(|problem| Error::damaged(describe(pointer), problem))
    }

    /// The bytes of a block as they are stored, verified.
    pub fn read_stored(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        let mut bytes = vec![0; pointer.stored as usize];
        let mut bad = Vec::new();
        let mut last = Error::damaged(describe(pointer), "it has no copy");
        for copy in 0..usize::from(pointer.copies) {
            match self.read_copy(pointer, copy, &mut bytes) {
                Ok(()) => {
                    self.heal(pointer, &bad, &bytes);
                    return Ok(bytes);
                }
                Err(error) => {
                    bad.push(copy);
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Whether one copy of a block verifies.
    pub fn verify_copy(&self, pointer: &BlockPointer, copy: usize) -> Result<()> {
        self.read_copy(pointer, copy, &mut vec![0; pointer.stored as usize])
    }

    fn read_copy(&self, pointer: &BlockPointer, copy: usize, bytes: &mut [u8]) -> Result<()> {
        let pieces = self.pieces(pointer, copy)?;
        let mut rest = &mut *bytes;
        for piece in &pieces {
            let (part, others) = rest.split_at_mut(piece.bytes as usize);
            let (id, offset) = self.space.resolve(piece.address, piece.bytes)?;
            self.vdevs.get(id)?.read(offset, part)?;
            rest = others;
        }
        if verify(pointer.checksum_kind, bytes, &pointer.checksum) {
            return Ok(());
        }
        let (id, offset) = self.space.resolve(pieces[0].address, pieces[0].bytes)?;
        let vdev = self.vdevs.get(id)?;
        vdev.note_checksum_error(offset);
        Err(Error::damaged(describe(pointer), format!("its checksum does not match on {}", name(&*vdev))))
    }

    /// Rewrites bad copies in place: the one case where something that is referred to is overwritten, with the very
    /// bytes that belong there. A failure leaves things as they were, and the read has succeeded anyway.
    fn heal(&self, pointer: &BlockPointer, bad: &[usize], bytes: &[u8]) {
        for &copy in bad {
            match self.pieces(pointer, copy).and_then(|pieces| self.write_pieces(&pieces, bytes)) {
                Ok(()) => tracing::warn!("rewrote a damaged copy of {}", describe(pointer)),
                Err(error) => tracing::warn!("cannot rewrite a damaged copy of {}: {error}", describe(pointer)),
            }
        }
    }
}

fn describe(pointer: &BlockPointer) -> String {
    let address = pointer.addresses[0];
    format!("block at chunk {} sector {}, born in {}", address.chunk, address.sector, pointer.birth)
}

fn name(vdev: &dyn crate::vdev::Vdev) -> String {
    let names: Vec<&str> = vdev.leaves().iter().map(|leaf| leaf.name()).collect();
    names.join(", ")
}
