//! The counters of a dataset: one item, changed with every object made or freed.
//!
//! See `dataset/FORMAT.md`, "Master".

use pool::format::codec::{Malformed, Reader, Writer, malformed};

use super::key::{Ino, ROOT};

const VERSION: u8 = 1;

/// The dataset's counters, and the seed of its name hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Master {
    /// The number of the next new object.
    pub next: Ino,
    /// The number of inodes.
    pub files: u64,
    /// The seed of the name hash: clones and streams inherit the seed with the entries hashed by it.
    pub seed: u64,
}

impl Master {
    /// Encodes the body of an item.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.put_u8(VERSION);
        out.put_u64(self.seed);
        out.put_varint(self.next);
        out.put_varint(self.files);
        out
    }

    /// Decodes the body of an item.
    pub fn decode(body: &[u8]) -> Result<Master, Malformed> {
        const WHAT: &str = "dataset's master item";
        let mut reader = Reader::new(body);
        if reader.u8(WHAT)? != VERSION {
            return malformed("version of the dataset's master item");
        }
        let master = Master { seed: reader.u64(WHAT)?, next: reader.varint(WHAT)?, files: reader.varint(WHAT)? };
        reader.finish(WHAT)?;
        if master.next <= ROOT {
            return malformed("next object number");
        }
        Ok(master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_master_round_trips(next in 2u64.., files: u64, seed: u64) {
            let master = Master { next, files, seed };
            prop_assert_eq!(Master::decode(&master.encode()), Ok(master));
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>) {
            let _ = Master::decode(&body);
        }
    }
}
