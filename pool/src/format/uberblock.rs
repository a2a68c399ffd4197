//! The uberblock: the root of a committed state. Writing it is the commit.
//!
//! It has a fixed size of 4 KiB and stands in a ring of 32 slots in each label of each device; the transaction group's
//! number picks the slot ([`slot`]), so that a commit never overwrites the 31 before it.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic `CENOTEUB` |
//! | 8..12 | version of this structure |
//! | 12..16 | length of the payload |
//! | 16.. | payload, then zeros |
//! | 4064..4096 | BLAKE3 of bytes 0..4064 |
//!
//! Each writable import of a pool draws a random [`Epoch`] and starts above every transaction group it saw. So two
//! states never share a number unless two hosts wrote the same pool without seeing each other. `parent` and `forked_at`
//! name the state that an epoch started from. This tells an uberblock's ancestors from the uberblocks left behind by a
//! rewind.
//!
//! The meaning of the space bytes and the counters is unknown here.

use std::fmt;

use crate::{
    env::Nanos,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        intent::LogHead,
        pointer::BlockPointer,
    },
    units::{Guid, Txg},
};

/// The size of an uberblock, in bytes.
pub const UBERBLOCK_SIZE: usize = 4096;
/// How many uberblocks each label keeps.
pub const RING_SLOTS: u64 = 32;
/// The longest description of the pool's space, in bytes.
pub const MAX_SPACE: usize = 2048;
/// The most counters of an uberblock.
pub const MAX_COUNTERS: usize = 64;

const MAGIC: [u8; 8] = *b"CENOTEUB";
const VERSION: u32 = 1;
const HEADER: usize = 16;
const CHECKSUM_AT: usize = UBERBLOCK_SIZE - 32;

/// The random number of one writable import of a pool. Zero comes before the first import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The parent of the epoch that created the pool.
    pub const NONE: Epoch = Epoch(0);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One committed state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uberblock {
    /// The GUID of the pool.
    pub pool: Guid,
    /// The transaction group of the state.
    pub txg: Txg,
    /// The import that wrote the uberblock.
    pub epoch: Epoch,
    /// The import that wrote the state opened by `epoch`.
    pub parent: Epoch,
    /// The transaction group of the state opened by `epoch`.
    pub forked_at: Txg,
    /// The time of writing.
    pub written: Nanos,
    /// The root of the catalogue's tree.
    pub catalogue: BlockPointer,
    /// Where the description of the pool's space is; at most [`MAX_SPACE`] bytes.
    pub space: Vec<u8>,
    /// The place of the intent log, if any, and of the first frame beyond this state.
    pub log: Option<LogHead>,
    /// Counters of the layers above, by kind, ascending; at most [`MAX_COUNTERS`].
    pub counters: Vec<(u8, u64)>,
}

/// The slot of a transaction group's uberblock in the ring.
pub fn slot(txg: Txg) -> u64 {
    txg.0 % RING_SLOTS
}

impl Uberblock {
    /// The counter of this kind, zero if absent.
    pub fn counter(&self, kind: u8) -> u64 {
        counter(&self.counters, kind)
    }

    /// The block as written.
    ///
    /// # Panics
    /// If the space bytes or the counters exceed their bounds, or the counters are not ascending.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.space.len() <= MAX_SPACE, "{} bytes of space description", self.space.len());
        assert!(self.counters.len() <= MAX_COUNTERS, "{} counters", self.counters.len());
        assert!(self.counters.is_sorted_by(|a, b| a.0 < b.0), "counters out of order: {:?}", self.counters);
        let payload = self.encode_payload();
        let mut block = Vec::with_capacity(UBERBLOCK_SIZE);
        block.put_bytes(&MAGIC);
        block.put_u32(VERSION);
        block.put_u32(payload.len() as u32);
        block.put_bytes(&payload);
        assert!(block.len() <= CHECKSUM_AT, "an uberblock of {} bytes", block.len());
        block.resize(CHECKSUM_AT, 0);
        let checksum = blake3::hash(&block);
        block.put_bytes(checksum.as_bytes());
        block
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(UBERBLOCK_SIZE);
        out.put_u64(self.pool.0);
        out.put_u64(self.txg.0);
        out.put_u64(self.epoch.0);
        out.put_u64(self.parent.0);
        out.put_u64(self.forked_at.0);
        out.put_u64(self.written.cast_unsigned());
        self.catalogue.encode(&mut out);
        out.put_prefixed(&self.space);
        out.put_u8(self.log.is_some().into());
        if let Some(log) = &self.log {
            log.encode(&mut out);
        }
        out.put_varint(self.counters.len() as u64);
        for (kind, value) in &self.counters {
            out.put_u8(*kind);
            out.put_varint(*value);
        }
        out
    }

    /// Verifies and decodes a block of [`UBERBLOCK_SIZE`] bytes.
    pub fn decode(block: &[u8]) -> Result<Uberblock, Malformed> {
        if block.len() != UBERBLOCK_SIZE {
            return malformed("size of an uberblock");
        }
        let (body, checksum) = block.split_at(CHECKSUM_AT);
        if !body.starts_with(&MAGIC) {
            return malformed("magic of an uberblock");
        }
        if blake3::hash(body).as_bytes() != checksum {
            return malformed("checksum of an uberblock");
        }
        let mut header = Reader::new(&body[MAGIC.len()..HEADER]);
        if header.u32("version of an uberblock")? != VERSION {
            return malformed("version of an uberblock");
        }
        let len = header.u32("length of an uberblock")? as usize;
        let mut rest = Reader::new(&body[HEADER..]);
        let mut payload = Reader::new(rest.bytes(len, "length of an uberblock")?);
        let uberblock = Uberblock::decode_payload(&mut payload)?;
        payload.finish("end of an uberblock")?;
        Ok(uberblock)
    }

    fn decode_payload(reader: &mut Reader<'_>) -> Result<Uberblock, Malformed> {
        const WHAT: &str = "uberblock";
        let pool = Guid(reader.u64(WHAT)?);
        let txg = Txg(reader.u64(WHAT)?);
        let epoch = Epoch(reader.u64(WHAT)?);
        let parent = Epoch(reader.u64(WHAT)?);
        let forked_at = Txg(reader.u64(WHAT)?);
        let written = reader.u64(WHAT)?.cast_signed();
        if txg >= Txg::LIMIT {
            return malformed("transaction group of an uberblock");
        }
        if epoch == Epoch::NONE || epoch == parent || forked_at >= txg {
            return malformed("ancestry of an uberblock");
        }
        let catalogue = BlockPointer::decode(reader)?;
        let space = reader.prefixed(WHAT)?.to_vec();
        if space.len() > MAX_SPACE {
            return malformed("space description of an uberblock");
        }
        let log = match reader.u8(WHAT)? {
            0 => None,
            1 => Some(LogHead::decode(reader)?),
            _ => return malformed("intent log of an uberblock"),
        };
        let counters = decode_counters(reader)?;
        Ok(Uberblock { pool, txg, epoch, parent, forked_at, written, catalogue, space, log, counters })
    }
}

/// The counter of this kind, zero if absent.
pub(crate) fn counter(counters: &[(u8, u64)], kind: u8) -> u64 {
    counters.iter().find(|(at, _)| *at == kind).map_or(0, |(_, value)| *value)
}

fn decode_counters(reader: &mut Reader<'_>) -> Result<Vec<(u8, u64)>, Malformed> {
    const WHAT: &str = "counters of an uberblock";
    let count = reader.varint(WHAT)? as usize;
    if count > MAX_COUNTERS {
        return malformed(WHAT);
    }
    let counters = (0..count).map(|_| Ok((reader.u8(WHAT)?, reader.varint(WHAT)?))).collect::<Result<Vec<_>, _>>()?;
    if counters.is_sorted_by(|a, b| a.0 < b.0) { Ok(counters) } else { malformed(WHAT) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        format::pointer::{Address, Checksum, Compression},
        units::ChunkId,
    };
    use proptest::prelude::*;

    /// An uberblock of a pool, for tests here and of labels.
    pub(crate) fn sample(txg: u64, epoch: u64, parent: u64, forked_at: u64) -> Uberblock {
        let address = |n| Address { chunk: ChunkId(n), sector: n * 100 };
        let catalogue = BlockPointer {
            addresses: [address(1), address(2), address(3)],
            copies: 3,
            logical: 16384,
            stored: 4096,
            gang: false,
            compression: Compression::Lz4,
            checksum_kind: Checksum::Blake3,
            checksum: [9; 32],
            birth: Txg(txg),
            logical_birth: Txg(txg),
            shared: None,
        };
        Uberblock {
            pool: Guid(77),
            txg: Txg(txg),
            epoch: Epoch(epoch),
            parent: Epoch(parent),
            forked_at: Txg(forked_at),
            written: 1_767_225_600_000_000_000,
            catalogue,
            space: vec![1, 2, 3],
            log: Some(LogHead { area: address(4), sectors: 128, position: 5, sequence: 6 }),
            counters: vec![(0, 5), (3, u64::MAX)],
        }
    }

    /// `block` with another payload and a matching checksum.
    fn resealed(mut block: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        change(&mut block);
        block.truncate(CHECKSUM_AT);
        let checksum = blake3::hash(&block);
        block.put_bytes(checksum.as_bytes());
        block
    }

    #[test]
    fn every_flipped_byte_and_every_truncation_is_noticed() {
        let block = sample(100, 2, 1, 50).encode();
        for at in 0..block.len() {
            let mut bad = block.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(Uberblock::decode(&bad).is_err(), "byte {at}");
            assert!(Uberblock::decode(&block[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let block = resealed(sample(100, 2, 1, 50).encode(), |block| block[8] = 2);
        assert_eq!(Uberblock::decode(&block), malformed("version of an uberblock"));
    }

    #[test]
    fn the_largest_uberblock_fits() {
        let mut largest = sample(Txg::LIMIT.0 - 1, 2, 1, 50);
        largest.space = vec![7; MAX_SPACE];
        largest.counters = (0..MAX_COUNTERS as u8).map(|kind| (kind, u64::MAX)).collect();
        assert_eq!(Uberblock::decode(&largest.encode()), Ok(largest));
    }

    #[test]
    fn a_transaction_group_that_no_pool_reaches_is_refused() {
        for txg in [Txg::LIMIT.0, u64::MAX] {
            let block = sample(txg, 2, 1, 50).encode();
            assert_eq!(Uberblock::decode(&block), malformed("transaction group of an uberblock"));
        }
    }

    #[test]
    fn a_counter_that_was_never_set_is_zero() {
        let uberblock = sample(100, 2, 1, 50);
        assert_eq!((uberblock.counter(3), uberblock.counter(4)), (u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn round_trips(
            txg in 1..Txg::LIMIT.0, epoch in 2u64.., written: i64, space in prop::collection::vec(any::<u8>(), 0..=MAX_SPACE),
            counters in prop::collection::btree_map(any::<u8>(), any::<u64>(), 0..=MAX_COUNTERS),
        ) {
            let counters = counters.into_iter().collect();
            let uberblock = Uberblock { written, space, counters, ..sample(txg, epoch, 1, txg - 1) };
            let block = uberblock.encode();
            prop_assert_eq!(block.len(), UBERBLOCK_SIZE);
            prop_assert_eq!(Uberblock::decode(&block), Ok(uberblock));
        }

        #[test]
        fn garbage_under_a_good_checksum_never_panics(
            garbage in prop::collection::vec(any::<u8>(), 1..200), at in 12usize..400,
        ) {
            let block = resealed(sample(100, 2, 1, 50).encode(), |block| {
                block[at..at + garbage.len()].copy_from_slice(&garbage);
            });
            if let Ok(uberblock) = Uberblock::decode(&block) {
                prop_assert_eq!(Uberblock::decode(&uberblock.encode()), Ok(uberblock));
            }
        }
    }
}
