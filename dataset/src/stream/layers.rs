//! A stream, and the streams that it builds on, as one: a key outside of the ranges of an increment is looked up in the
//! stream below.
//!
//! Keys are divided into cells, each decided by one range of one layer: a layer's range where no layer above has one.
//! The block of an item may lie further below: *unchanged* and *shared* items refer to the item that the layers below
//! have under a key.

use std::{collections::HashMap, ops, sync::Arc};

use parking_lot::Mutex;
use pool::format::key::Key;

use super::{
    archive::{Archive, Error, Loaded, Result, Stored, damaged},
    range::Origin,
};

/// An item, and the item's block.
pub struct Item {
    /// The key of the item.
    pub key: Key,
    /// The body as stored.
    pub body: Vec<u8>,
    /// Whether the stream has a new block for the item.
    pub is_new: bool,
    /// The offset of its range.
    range: u64,
    block: Option<BlockOf>,
}

/// The block of an item.
#[derive(Clone)]
enum BlockOf {
    /// A block with this number in a range of a layer.
    Here { layer: usize, range: Arc<Loaded>, number: u32 },
    /// The block of the item with this key, in the layers from `layer` on.
    Below { layer: usize, key: Key },
}

impl Item {
    /// The offset of the range with the item, in its file.
    pub fn range(&self) -> u64 {
        self.range
    }
}

/// The place of a block.
pub(super) enum Found {
    /// In a range of the layer with this number.
    In { layer: usize, range: Arc<Loaded>, number: u32 },
    /// In the missing base, under this key.
    Base(Key),
}

/// Takes a cell: the number of its layer, the range there, and the cell's keys.
type EachCell<'a> = dyn FnMut(usize, &Arc<Loaded>, ops::Range<Key>) -> Result<bool> + 'a;

/// A stream of an archive, as a layer.
struct Layer<'a> {
    archive: &'a Archive,
    stream: &'a Stored,
    /// The key looked up last, and the first range that ends after the key: lookups ascend mostly.
    recent: Mutex<Option<(Key, Option<Arc<Loaded>>)>>,
}

impl<'a> Layer<'a> {
    fn new(archive: &'a Archive, stream: &'a Stored) -> Layer<'a> {
        Layer { archive, stream, recent: Mutex::default() }
    }

    /// The first range that ends after `key`; `None` after the last.
    fn range_after(&self, key: Key) -> Result<Option<Arc<Loaded>>> {
        let is_same = |(from, found): &&(Key, Option<Arc<Loaded>>)| {
            *from <= key && found.as_ref().is_none_or(|loaded| key < loaded.range.high)
        };
        if let Some((_, found)) = self.recent.lock().as_ref().filter(is_same) {
            return Ok(found.clone());
        }
        let found = self.archive.range_after(self.stream, key)?;
        *self.recent.lock() = Some((key, found.clone()));
        Ok(found)
    }
}

/// A stream, and the streams of its bases.
pub struct Layers<'a> {
    /// The newest first, each the base of the one before.
    layers: Vec<Layer<'a>>,
}

impl<'a> Layers<'a> {
    /// The stream and, as far as `archives` have them, the streams that it builds on.
    pub fn of(top: (&'a Archive, &'a Stored), archives: &'a [Archive]) -> Layers<'a> {
        let mut layers = vec![Layer::new(top.0, top.1)];
        let all = archives.iter().flat_map(|archive| archive.streams().iter().map(move |stream| (archive, stream)));
        // Of several streams of one snapshot the last is taken.
        let all: HashMap<_, _> = all
            .filter(|(_, stream)| stream.begin.resumed.is_none())
            .map(|(archive, stream)| (stream.begin.guid, (archive, stream)))
            .collect();
        while let Some(base) = &layers[layers.len() - 1].stream.begin.base
            && let Some((archive, stream)) = all.get(&base.guid)
            // A chain of bases is as long as there are snapshots, unless the GUIDs are a loop.
            && layers.len() <= all.len()
        {
            layers.push(Layer::new(archive, stream));
        }
        Layers { layers }
    }

    /// The stream on top.
    pub fn top(&self) -> &'a Stored {
        self.layers[0].stream
    }

    /// The base that is missing below the last stream; `None` if all of the snapshot is here.
    pub fn missing(&self) -> Option<String> {
        self.layers.last().and_then(|layer| layer.stream.base())
    }

    /// The item under a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Base`] if the streams do not tell, and damage.
    pub fn get(&self, key: Key) -> Result<Option<Item>> {
        self.get_in(0, key)
    }

    fn get_in(&self, layer: usize, key: Key) -> Result<Option<Item>> {
        for (number, layer) in self.layers.iter().enumerate().skip(layer) {
            if let Some(range) = layer.range_after(key)?.filter(|loaded| loaded.range.low <= key) {
                let found = range.range.items.binary_search_by_key(&key, |item| item.key);
                return Ok(found.ok().map(|index| item(number, &range, index)));
            }
        }
        match self.missing() {
            Some(base) => Err(Error::Base { base }),
            // The ranges of a full stream cover all keys, so only a damaged stream gets here.
            None => Err(Error::Truncated { size: self.layers.last().map_or(0, |layer| layer.archive.size()) }),
        }
    }

    /// Passes the items in a range of keys, in order, until `each` returns false. What only a missing base has is left
    /// out.
    ///
    /// # Errors
    /// Damage, and what `each` fails with.
    pub fn scan(&self, keys: ops::Range<Key>, each: &mut dyn FnMut(Item) -> Result<bool>) -> Result<()> {
        let mut of_cell = |layer: usize, range: &Arc<Loaded>, keys: ops::Range<Key>| {
            for index in indices(range, &keys) {
                if !each(item(layer, range, index))? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        self.cells(0, keys, &mut of_cell).map(drop)
    }

    /// Passes the cells of the layers from `layer` on within a range of keys, in order, until `each` returns false. Keys
    /// that no layer decides, which only a missing base has, are in no cell. Returns false if `each` did.
    pub(super) fn cells(&self, layer: usize, keys: ops::Range<Key>, each: &mut EachCell<'_>) -> Result<bool> {
        let ops::Range { start: mut at, end } = keys;
        while at < end {
            // The cell ends where a layer above its own has the next range.
            let (mut high, mut cell) = (end, None);
            for (number, layer) in self.layers.iter().enumerate().skip(layer) {
                match layer.range_after(at)? {
                    Some(loaded) if loaded.range.low <= at => {
                        high = high.min(loaded.range.high);
                        cell = Some((number, loaded));
                        break;
                    }
                    Some(loaded) => high = high.min(loaded.range.low),
                    None => {}
                }
            }
            if let Some((number, loaded)) = cell
                && !each(number, &loaded, at..high)?
            {
                return Ok(false);
            }
            at = high;
        }
        Ok(true)
    }

    /// The number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is no layer: never.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The streams, the newest first.
    pub fn streams(&self) -> impl Iterator<Item = &'a Stored> {
        self.layers.iter().map(|layer| layer.stream)
    }

    pub(super) fn archive(&self, layer: usize) -> &'a Archive {
        self.layers[layer].archive
    }

    /// The streams below the one on top.
    pub fn below(&self) -> Layers<'a> {
        let below = self.layers[1..].iter().map(|layer| Layer::new(layer.archive, layer.stream));
        Layers { layers: below.collect() }
    }

    /// Passes the ranges of keys that the stream on top replaces.
    ///
    /// # Errors
    /// Damage, and what `each` fails with.
    pub fn ranges(&self, each: &mut dyn FnMut(ops::Range<Key>) -> Result<()>) -> Result<()> {
        let Layer { archive, stream, .. } = self.layers[0];
        let mut at = stream.first;
        while let Some(loaded) = archive.load(at, stream.begin.base.is_some())? {
            each(loaded.range.low..loaded.range.high)?;
            at = loaded.next;
        }
        archive.end(at).map(drop)
    }

    /// The content of the item's block; `None` if the item has no block.
    ///
    /// # Errors
    /// [`Error::Base`] if the block is in a missing base, and damage.
    pub fn content(&self, item: &Item) -> Result<Option<Arc<Vec<u8>>>> {
        match self.found(item)? {
            None => Ok(None),
            Some(Found::In { layer, range, number }) => self.archive(layer).block(&range, number).map(Some),
            Some(Found::Base(_)) => Err(Error::Base { base: self.missing().unwrap_or_default() }),
        }
    }

    /// The place of the item's block; `None` if the item has no block.
    ///
    /// # Errors
    /// Damage.
    pub(super) fn found(&self, item: &Item) -> Result<Option<Found>> {
        let mut block = item.block.clone();
        // Each round looks in a lower layer.
        while let Some(BlockOf::Below { layer, key }) = block {
            let below = match self.get_in(layer, key) {
                Err(Error::Base { .. }) => return Ok(Some(Found::Base(key))),
                below => below?.filter(|below| below.block.is_some()),
            };
            let at = self.layers[layer - 1].stream.offset;
            block = below.ok_or_else(|| damaged(at, format!("its base has no block under {key}")))?.block;
        }
        Ok(block.map(|block| match block {
            BlockOf::Here { layer, range, number } => Found::In { layer, range, number },
            BlockOf::Below { .. } => unreachable!("the loop has gone down"),
        }))
    }
}

/// The numbers of a range's items within some keys.
pub(super) fn indices(range: &Loaded, keys: &ops::Range<Key>) -> ops::Range<usize> {
    let items = &range.range.items;
    items.partition_point(|item| item.key < keys.start)..items.partition_point(|item| item.key < keys.end)
}

/// An item of a layer's range.
pub(super) fn item(layer: usize, range: &Arc<Loaded>, index: usize) -> Item {
    let item = &range.range.items[index];
    let below = |key| Some(BlockOf::Below { layer: layer + 1, key });
    let block = match item.origin {
        Origin::None => None,
        Origin::New(number) => Some(BlockOf::Here { layer, range: range.clone(), number }),
        Origin::Unchanged => below(item.key),
        Origin::Shared(other) => below(range.range.items[other as usize].key),
    };
    let is_new = matches!(item.origin, Origin::New(_));
    Item { key: item.key, body: range.range.body(item).to_vec(), is_new, range: range.offset, block }
}
