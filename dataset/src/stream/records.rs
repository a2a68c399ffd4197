//! The records that describe a stream: its package, its snapshot, its base and its size.
//!
//! For the byte tables see `dataset/STREAM.md`. Decoding trusts nothing; the receiver checks names, and looks for the
//! base.

use std::ops::AddAssign;

use pool::{
    env::Nanos,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    units::{Guid, Txg},
};

use super::{
    census::Census,
    range::{BlockInfo, Range},
};

/// The first record: describes the package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The dataset given to `fs send`: all datasets in the package are this dataset or its descendants.
    pub root: String,
    /// Whether all descendants were sent too (`-R`).
    pub replicate: bool,
    /// The number of streams in the package after this record, from 1; [`Start::UNSTATED`] in a package of OpenZFS.
    pub streams: u64,
    /// The sender's datasets and snapshots, if sent, in records of their own.
    pub census: Option<Census>,
}

/// The base of an incremental stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The GUID of the snapshot, or of the snapshot behind a bookmark.
    pub guid: Guid,
    /// The txg of the base in the sending pool.
    pub createtxg: Txg,
    /// The name of the snapshot or bookmark, with `@` or `#` and without the dataset's.
    pub name: String,
}

/// The head of a stream: describes the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// The dataset's full name in the sending pool.
    pub dataset: String,
    /// The snapshot's name, without the dataset's.
    pub snapshot: String,
    /// The snapshot's GUID, kept by the received snapshot.
    pub guid: Guid,
    /// The txg of the snapshot in the sending pool.
    pub createtxg: Txg,
    /// The creation time of the snapshot.
    pub creation: Nanos,
    /// The version of the layout of the items in the tree: 1 to 3.
    pub layout: u32,
    /// The base of an incremental stream; `None` for a full stream.
    pub base: Option<Base>,
    /// Whether the base is the origin of a clone: the receiver creates a clone.
    pub clone: bool,
    /// The properties set on the dataset, sorted; `None` if not sent.
    pub properties: Option<Vec<(String, String)>>,
    /// Where a resumed stream continues: the receiver has all items with smaller keys. `None` for a complete stream.
    pub resumed: Option<Key>,
}

/// The size of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of ranges of keys.
    pub ranges: u64,
    /// Items in the ranges.
    pub items: u64,
    /// The number of blocks sent.
    pub blocks: u64,
    /// Bytes of the blocks as stored.
    pub stored: u64,
    /// Bytes of the blocks before compression.
    pub logical: u64,
}

const REPLICATE: u8 = 1;
const INCREMENTAL: u8 = 1;
const CLONE: u8 = 2;
const PROPERTIES: u8 = 4;
const RESUMED: u8 = 8;

impl Start {
    /// The number of streams of a package that does not state the number.
    pub const UNSTATED: u64 = u64::MAX;

    /// Whether the package may have one stream only.
    pub fn may_be_single(&self) -> bool {
        self.streams == 1 || self.streams == Start::UNSTATED && !self.replicate
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.replicate { REPLICATE } else { 0 }];
        out.put_prefixed(self.root.as_bytes());
        out.put_varint(self.streams);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Start, Malformed> {
        const WHAT: &str = "start of a package";
        let mut reader = Reader::new(bytes);
        let flags = reader.u8(WHAT)?;
        if flags & !REPLICATE != 0 {
            return malformed("flags of a package");
        }
        let root = name(&mut reader, "name of a package")?;
        let start = Start { root, replicate: flags & REPLICATE != 0, streams: reader.varint(WHAT)?, census: None };
        reader.finish(WHAT)?;
        if start.streams == 0 { malformed("number of streams") } else { Ok(start) }
    }
}

impl Begin {
    pub(super) fn encode(&self) -> Vec<u8> {
        let flag = |set, bit| if set { bit } else { 0 };
        let mut out = vec![
            flag(self.base.is_some(), INCREMENTAL)
                | flag(self.clone, CLONE)
                | flag(self.properties.is_some(), PROPERTIES)
                | flag(self.resumed.is_some(), RESUMED),
        ];
        out.put_u32(self.layout);
        out.put_prefixed(self.dataset.as_bytes());
        out.put_prefixed(self.snapshot.as_bytes());
        out.put_u64(self.guid.0);
        out.put_u64(self.createtxg.0);
        out.put_u64(self.creation.cast_unsigned());
        if let Some(base) = &self.base {
            out.put_u64(base.guid.0);
            out.put_u64(base.createtxg.0);
            out.put_prefixed(base.name.as_bytes());
        }
        if let Some(properties) = &self.properties {
            out.put_varint(properties.len() as u64);
            for (name, value) in properties {
                out.put_prefixed(name.as_bytes());
                out.put_prefixed(value.as_bytes());
            }
        }
        if let Some(key) = self.resumed {
            out.put_u64(key.object);
            out.put_u8(key.kind);
            out.put_u64(key.offset);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Begin, Malformed> {
        const WHAT: &str = "head of a stream";
        let mut reader = Reader::new(bytes);
        let flags = reader.u8(WHAT)?;
        let clone = flags & CLONE != 0;
        if flags & !(INCREMENTAL | CLONE | PROPERTIES | RESUMED) != 0 || clone && flags & INCREMENTAL == 0 {
            return malformed("flags of a stream");
        }
        let layout = reader.u32(WHAT)?;
        let dataset = name(&mut reader, "name of a stream's dataset")?;
        let snapshot = name(&mut reader, "name of a stream's snapshot")?;
        let guid = Guid(reader.u64(WHAT)?);
        let createtxg = Txg(reader.u64(WHAT)?);
        let creation = reader.u64(WHAT)?.cast_signed();
        let base = if flags & INCREMENTAL != 0 { Some(Base::take(&mut reader)?) } else { None };
        let properties = if flags & PROPERTIES != 0 { Some(properties(&mut reader)?) } else { None };
        let resumed = if flags & RESUMED != 0 { Some(key(&mut reader)?) } else { None };
        reader.finish(WHAT)?;
        if base.as_ref().is_some_and(|base| base.createtxg > createtxg || base.createtxg == Txg::ZERO) {
            return malformed("transaction group of a stream's base");
        }
        Ok(Begin { dataset, snapshot, guid, createtxg, creation, layout, base, clone, properties, resumed })
    }

    /// The txg of the base, or zero for a full stream: blocks born up to then are unchanged.
    pub fn born_after(&self) -> Txg {
        self.base.as_ref().map_or(Txg::ZERO, |base| base.createtxg)
    }
}

impl Base {
    fn take(reader: &mut Reader<'_>) -> Result<Base, Malformed> {
        const WHAT: &str = "base of a stream";
        let (guid, createtxg) = (Guid(reader.u64(WHAT)?), Txg(reader.u64(WHAT)?));
        Ok(Base { guid, createtxg, name: name(reader, WHAT)? })
    }
}

/// The position of a resumed stream.
fn key(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    const WHAT: &str = "position of a resumed stream";
    Ok(Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? })
}

fn name(reader: &mut Reader<'_>, what: &'static str) -> Result<String, Malformed> {
    let name = reader.text(what)?;
    if name.is_empty() { malformed(what) } else { Ok(name.to_owned()) }
}

fn properties(reader: &mut Reader<'_>) -> Result<Vec<(String, String)>, Malformed> {
    const WHAT: &str = "properties of a stream";
    let count = reader.varint(WHAT)?;
    // Each property takes at least two bytes, so a false count cannot cause a large allocation.
    if count > reader.remaining() as u64 / 2 {
        return malformed(WHAT);
    }
    (0..count).map(|_| Ok((name(reader, WHAT)?, reader.text(WHAT)?.to_owned()))).collect()
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.ranges += other.ranges;
        self.items += other.items;
        self.blocks += other.blocks;
        self.stored += other.stored;
        self.logical += other.logical;
    }
}

impl Totals {
    /// The size of one range and its blocks.
    pub(super) fn of(range: &Range) -> Totals {
        let sum = |size: fn(&BlockInfo) -> u32| range.blocks.iter().map(|block| u64::from(size(block))).sum();
        Totals {
            ranges: 1,
            items: range.items.len() as u64,
            blocks: range.blocks.len() as u64,
            stored: sum(|block| block.stored),
            logical: sum(|block| block.logical),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for count in [self.ranges, self.items, self.blocks, self.stored, self.logical] {
            out.put_varint(count);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Totals, Malformed> {
        const WHAT: &str = "end of a stream";
        let mut reader = Reader::new(bytes);
        let mut next = || reader.varint(WHAT);
        let totals = Totals { ranges: next()?, items: next()?, blocks: next()?, stored: next()?, logical: next()? };
        reader.finish(WHAT)?;
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_begin() -> impl Strategy<Value = Begin> {
        let base = (any::<u64>(), 1u64..100, "[a-z]{1,9}").prop_map(|(guid, createtxg, name)| Base {
            guid: Guid(guid),
            createtxg: Txg(createtxg),
            name,
        });
        let properties = prop::collection::vec(("[a-z:]{1,9}", ".{0,9}"), 0..4);
        (
            ("[a-z]{1,9}(/[a-z]{1,9}){0,3}", "[a-z]{1,9}"),
            any::<(u64, u64, i64, u32, bool)>(),
            prop::option::of(base),
            prop::option::of(properties),
            any::<Option<(u64, u8, u64)>>(),
        )
            .prop_map(
                |((dataset, snapshot), (guid, txg, creation, layout, clone), base, properties, resumed)| Begin {
                    dataset,
                    snapshot,
                    guid: Guid(guid),
                    createtxg: Txg((txg >> 1) + 100),
                    creation,
                    layout,
                    clone: clone && base.is_some(),
                    base,
                    properties,
                    resumed: resumed.map(|(object, kind, offset)| Key { object, kind, offset }),
                },
            )
    }

    proptest! {
        #[test]
        fn heads_round_trip_and_no_part_of_one_is_one(begin in any_begin()) {
            let bytes = begin.encode();
            prop_assert_eq!(Begin::decode(&bytes), Ok(begin));
            for len in 0..bytes.len() {
                prop_assert!(Begin::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn starts_and_ends_round_trip(root in "[a-z]{1,9}", replicate: bool, counts: [u64; 5]) {
            let start = Start { root, replicate, streams: counts[0].max(1), census: None };
            prop_assert_eq!(Start::decode(&start.encode()), Ok(start));
            let [ranges, items, blocks, stored, logical] = counts;
            let totals = Totals { ranges, items, blocks, stored, logical };
            prop_assert_eq!(Totals::decode(&totals.encode()), Ok(totals));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, flags in 0u8..16) {
            let bytes = [&[flags], &bytes[..]].concat();
            let _ = (Start::decode(&bytes), Begin::decode(&bytes), Totals::decode(&bytes));
        }
    }

    #[test]
    fn a_base_that_is_younger_is_refused() {
        let base = Base { guid: Guid(1), createtxg: Txg(8), name: "a".into() };
        let begin = Begin {
            dataset: "p".into(),
            snapshot: "b".into(),
            createtxg: Txg(7),
            base: Some(base),
            ..Begin::default()
        };
        assert!(Begin::decode(&begin.encode()).is_err());
    }
}
