//! Merging: a stream and the streams that it builds on become one stream, without a pool.
//!
//! The layers' cells are passed in key order, and each becomes a range of the new stream. A block that a layer has is
//! copied as stored, verified by its checksum. With the full stream at the bottom, every block is in a layer, and the
//! result is a full stream. Otherwise the result is an increment since the lowest base, and a block of that base is
//! *unchanged* if it has kept its key, or *shared* with an unchanged item of the same range.
//!
//! A third case exists only in increments: the first cuts a block of the base in two parts, and the second replaces the
//! part that had kept its key. No record of this format says "the base's block that stood under that key", so
//! [`Error::Unmergeable`] refuses such increments; together with the stream of their base they can be merged.
//!
//! Memory is bounded by the ranges and the block in hand, and by the index of each file.

use std::{collections::HashMap, io::Write, ops, sync::Arc};

use pool::format::{key::Key, pointer::MAX_BLOCK};

use super::{
    append::finish,
    archive::{Error, Loaded, Result, damaged},
    frame::{FrameWriter, Kind, MAX_PAYLOAD, VERSION},
    index::Index,
    layers::{Found, Layers, indices, item},
    range::{Origin, Range, near},
    records::{Base, Begin, Start, Totals},
    send::Sent,
};

/// Writes `layers` as one stream to `out`. `progress` is called with the number of bytes written so far.
///
/// # Errors
/// Damage, [`Error::Unmergeable`], and errors of `out`; then `out` has an incomplete stream, refused by every receiver.
pub fn merge(layers: &Layers<'_>, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<Sent> {
    let mut merging = Merging {
        layers,
        frames: FrameWriter::new(out, VERSION)?,
        index: Index::default(),
        totals: Totals::default(),
        progress,
    };
    let begin = begin(layers);
    let start = Start { root: begin.dataset.clone(), replicate: false, streams: 1, census: None };
    merging.frames.put(Kind::Start, &start.encode())?;
    merging.index.begin(merging.frames.offset(), merging.frames.chain());
    let head = begin.encode();
    if head.len() > MAX_PAYLOAD {
        return Err(damaged(layers.top().offset, "its names and properties are too long"));
    }
    merging.frames.put(Kind::Begin, &head)?;
    layers.cells(0, Key::MIN..Key::MAX, &mut |layer, range, keys| {
        merging.cell(layer, range, keys)?;
        Ok(true)
    })?;
    merging.finish()
}

/// The head of the merged stream: the snapshot of the newest, since the base of the oldest. The streams may come from
/// several pools, so their txgs need not ascend. A clone does not get the properties of its origin's dataset.
fn begin(layers: &Layers<'_>) -> Begin {
    let newest = layers.top().begin.clone();
    let oldest = layers.streams().last().expect("there is a layer");
    let base = oldest.begin.base.clone();
    let base = base.map(|base| Base { createtxg: base.createtxg.min(newest.createtxg), ..base });
    let clone = layers.streams().position(|stream| stream.begin.clone);
    let own = layers.streams().take(clone.map_or(usize::MAX, |clone| clone + 1));
    let properties = own.map(|stream| &stream.begin).find(|begin| begin.own_properties().is_some());
    let layout = layers.streams().map(|stream| stream.begin.layout).max().unwrap_or(newest.layout);
    let clone = clone.is_some() && base.is_some();
    let mut begin = Begin { clone, base, layout, ..newest.with_properties_of(properties) };
    oldest.begin.since().into_iter().for_each(|since| begin.note_since(since));
    begin
}

/// A block to copy: the layer, its range there, and its number in the range.
type Copied = (usize, Arc<Loaded>, u32);

struct Merging<'a, 'b> {
    layers: &'a Layers<'b>,
    frames: FrameWriter<'a>,
    index: Index,
    totals: Totals,
    progress: &'a mut dyn FnMut(u64),
}

impl Merging<'_, '_> {
    /// Writes a cell as a range, or as two if the record became too long.
    fn cell(&mut self, layer: usize, loaded: &Arc<Loaded>, keys: ops::Range<Key>) -> Result<()> {
        let (range, blocks) = self.range(layer, loaded, &keys)?;
        let payload = range.encode();
        if payload.len() > MAX_PAYLOAD {
            let middle = range.items.get(range.items.len() / 2).map(|item| item.key).filter(|key| *key > keys.start);
            let middle = middle.ok_or_else(|| damaged(loaded.offset, "its range is too long"))?;
            self.cell(layer, loaded, keys.start..middle)?;
            return self.cell(layer, loaded, middle..keys.end);
        }
        self.totals += Totals::of(&range);
        self.index.range(self.frames.offset(), range.low, self.frames.chain());
        self.frames.put(Kind::Range, &payload)?;
        for (layer, loaded, number) in blocks {
            let (checksum, data) = self.layers.archive(layer).stored_block(&loaded, number)?;
            if !loaded.range.blocks[number as usize].is_intact(&data, &checksum) {
                return Err(damaged(loaded.blocks[number as usize], "the checksum of its data does not match"));
            }
            self.frames.put_block(&checksum, data)?;
            (self.progress)(self.frames.offset());
        }
        Ok(())
    }

    /// The range of a cell, and the blocks that follow.
    fn range(&self, layer: usize, loaded: &Arc<Loaded>, keys: &ops::Range<Key>) -> Result<(Range, Vec<Copied>)> {
        let mut places = Vec::new();
        for index in indices(loaded, keys) {
            places.push((index, self.layers.found(&item(layer, loaded, index))?));
        }
        let mut kept = HashMap::new();
        for (number, (index, found)) in places.iter().enumerate() {
            let key = loaded.range.items[*index].key;
            if matches!(found, Some(Found::Base(base)) if *base == key) {
                kept.insert(key, number as u32);
            }
        }
        let (mut range, mut blocks) = (Range::new(keys.start, keys.end), Vec::<Copied>::new());
        let mut new: HashMap<(usize, u64), (u32, Key)> = HashMap::new();
        for (index, found) in places {
            let (item, key) = (&loaded.range.items[index], loaded.range.items[index].key);
            let origin = match found {
                None => Origin::None,
                Some(Found::Base(base)) if base == key => Origin::Unchanged,
                Some(Found::Base(base)) => match kept.get(&base) {
                    Some(number) if near(base, key, MAX_BLOCK) => Origin::Shared(*number),
                    _ => return Err(Error::Unmergeable { base: self.layers.missing().unwrap_or_default() }),
                },
                Some(Found::In { layer, range: from, number }) => {
                    let info = from.range.blocks[number as usize];
                    let place = (layer, from.blocks[number as usize]);
                    match new.get(&place).filter(|(_, first)| near(*first, key, info.logical)) {
                        Some((number, _)) => Origin::New(*number),
                        None => {
                            new.insert(place, (blocks.len() as u32, key));
                            range.blocks.push(info);
                            blocks.push((layer, from, number));
                            Origin::New(blocks.len() as u32 - 1)
                        }
                    }
                }
            };
            range.push(key, loaded.range.body(item), origin);
        }
        Ok((range, blocks))
    }

    fn finish(mut self) -> Result<Sent> {
        self.frames.put(Kind::End, &self.totals.encode())?;
        let bytes = finish(&mut self.frames, &self.index)?;
        (self.progress)(bytes);
        Ok(Sent { bytes, totals: self.totals })
    }
}
