//! Reading blocks: any copy that verifies.
//!
//! A bad copy is reported and left as it is. A reader may hold a pointer for longer than the block lives, so it cannot
//! know whether what it finds is damage or already another block: it tells the engine, which has the copy looked at again
//! by who holds the pool still ([`crate::txg::Still`]).

use crate::{
    block::{checksum::verify, compression::decompress, storage::Storage},
    error::{Error, Result},
    format::pointer::BlockPointer,
};

impl Storage {
    /// The content of a block: verified and decompressed.
    pub fn read_block(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        self.read_block_noting(pointer, || {})
    }

    /// The same; calls `bad` for each copy on the way that is not good.
    pub fn read_block_noting(&self, pointer: &BlockPointer, bad: impl FnMut()) -> Result<Vec<u8>> {
        let stored = self.read_any_copy(pointer, bad)?;
        if pointer.stored == pointer.logical {
            return Ok(stored);
        }
        decompress(pointer.compression, &stored, pointer.logical as usize)
            .map_err(|problem| Error::damaged(describe(pointer), problem))
    }

    /// The bytes of a block as they are stored, verified.
    pub fn read_stored(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        self.read_any_copy(pointer, || {})
    }

    fn read_any_copy(&self, pointer: &BlockPointer, mut bad: impl FnMut()) -> Result<Vec<u8>> {
        let mut bytes = vec![0; pointer.stored as usize];
        let mut last = Error::damaged(describe(pointer), "it has no copy");
        for copy in 0..usize::from(pointer.copies) {
            match self.read_copy(pointer, copy, &mut bytes) {
                Ok(()) => return Ok(bytes),
                Err(error) => {
                    tracing::warn!("{error}");
                    self.note_bad_copy(pointer, copy, &error);
                    bad();
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

    pub(super) fn read_copy(&self, pointer: &BlockPointer, copy: usize, bytes: &mut [u8]) -> Result<()> {
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
        let (id, _) = self.space.resolve(pieces[0].address, pieces[0].bytes)?;
        let vdev = self.vdevs.get(id)?;
        Err(Error::damaged(describe(pointer), format!("its checksum does not match on {}", name(&*vdev))))
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
