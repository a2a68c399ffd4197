//! Deadlists: buckets of the blocks dropped by a line.
//!
//! A bucket is a chain of lists; a list is a sequence of pages of block pointers. Joining two buckets links the last
//! list of the first to the first list of the second. Pages are appended to the last list: the last page may be inline
//! in its row, so that pointers can be added; all other pages are blocks.

use std::collections::BTreeMap;

use pool::{
    error::Error as PoolError,
    format::{key::Key, pointer::BlockPointer},
    txg::Sync,
    units::Txg,
};

use crate::{
    catalogue::{
        Body, Bucket, DatasetRow, Link, PAGE_BLOCKS, SnapshotRow, Space, Transaction, dataset_key, decode_page,
        encode_page, keys, keys_from, kind, snapshot_key,
    },
    error::{Error, Result},
};

/// The most pointers in a page inline in its row.
const INLINE: usize = 150;

/// The bucket of blocks born in `birth`: the txg of the newest snapshot in the line of a dataset taken before `birth`,
/// or [`Txg::ZERO`] if the line has no such snapshot.
pub fn bucket_of(tx: &Transaction<'_>, dataset: u64, birth: Txg) -> Result<Txg> {
    let mut dataset = dataset;
    let mut bound = Txg(u64::MAX);
    loop {
        let line = Key::new(dataset, kind::SNAPSHOT_TXG, 0)..Key::new(dataset, kind::SNAPSHOT_TXG, birth.0);
        if let Some(key) = tx.last_key(line)? {
            return Ok(Txg(key.offset));
        }
        let row: DatasetRow = tx.row(dataset_key(dataset))?;
        if row.origin == 0 || row.origin_txg < birth {
            return Ok(row.origin_txg);
        }
        if row.origin_txg >= bound {
            return Err(Error::damaged(dataset, "an origin that is not older than its clone"));
        }
        bound = row.origin_txg;
        dataset = tx.row::<SnapshotRow>(snapshot_key(row.origin))?.dataset;
    }
}

/// The space of the buckets from `from` on.
pub fn space_from(tx: &Transaction<'_>, deadlist: u64, from: Txg) -> Result<Space> {
    let rows = tx.rows::<Bucket>(keys_from(deadlist, kind::DEADLIST, from.0))?;
    Ok(rows.iter().map(|(_, bucket)| bucket.space).sum())
}

/// Removes the buckets from `from` on from a deadlist, and joins the buckets to one.
pub fn take_from(tx: &mut Transaction<'_>, deadlist: u64, from: Txg) -> Result<Bucket> {
    let mut joined = Bucket::default();
    for (key, bucket) in tx.rows::<Bucket>(keys_from(deadlist, kind::DEADLIST, from.0))? {
        tx.delete(key);
        joined = join(tx, &joined, &bucket);
    }
    Ok(joined)
}

/// Moves all buckets of the deadlist `from` into the deadlist `into`, in the line of `dataset`, and removes `from`.
/// Buckets no longer divided by a snapshot are joined.
pub fn merge(tx: &mut Transaction<'_>, dataset: u64, from: u64, into: u64) -> Result<()> {
    let mut merged: BTreeMap<Txg, Bucket> = BTreeMap::new();
    let mut buckets = tx.rows::<Bucket>(keys(into, kind::DEADLIST))?;
    buckets.extend(tx.rows::<Bucket>(keys(from, kind::DEADLIST))?);
    for (key, bucket) in buckets {
        tx.delete(key);
        // Blocks of the bucket are born after its start, and not after the next snapshot.
        let born = key.offset.checked_add(1).ok_or_else(|| Error::damaged(dataset, "a bucket behind all groups"))?;
        let start = bucket_of(tx, dataset, Txg(born))?;
        let known = merged.remove(&start).unwrap_or_default();
        let joined = join(tx, &known, &bucket);
        merged.insert(start, joined);
    }
    for (start, bucket) in merged {
        tx.put(Key::new(into, kind::DEADLIST, start.0), &bucket, None);
    }
    Ok(())
}

/// Links two buckets to one.
pub fn join(tx: &mut Transaction<'_>, one: &Bucket, two: &Bucket) -> Bucket {
    if one.first == 0 || two.first == 0 {
        return if one.first == 0 { two.clone() } else { one.clone() };
    }
    tx.put(Key::new(one.last, kind::LINK, 0), &Link { next: two.first }, None);
    Bucket {
        first: one.first,
        last: two.last,
        count: one.count.saturating_add(two.count),
        space: one.space + two.space,
    }
}

/// The next list in a chain; 0 after the last.
pub fn next_list(tx: &Transaction<'_>, list: u64) -> Result<u64> {
    Ok(tx.find::<Link>(Key::new(list, kind::LINK, 0))?.map_or(0, |(link, _)| link.next))
}

/// Blocks to add to a bucket, with their pages already written: I/O is done before the transaction.
pub struct Addition {
    /// The txg at which the bucket begins.
    pub start: Txg,
    /// The space of the blocks.
    pub space: Space,
    count: u64,
    /// The row of the inline page that the first of `pages` replaces.
    tail: Option<Key>,
    pages: Vec<Body>,
}

/// Divides dropped blocks into the buckets of a deadlist in the line of `dataset`, and writes their pages.
pub fn prepare(
    sync: &mut Sync<'_>,
    dataset: u64,
    deadlist: u64,
    mut blocks: Vec<BlockPointer>,
) -> Result<Vec<Addition>> {
    blocks.sort_unstable_by_key(BlockPointer::entered);
    let mut additions = Vec::new();
    while let Some(youngest) = blocks.last() {
        let birth = youngest.entered();
        let (start, tail) = look(sync, |tx| {
            let start = bucket_of(tx, dataset, birth)?;
            Ok((start, tail_of(tx, deadlist, start)?))
        })?;
        let born_after = blocks.partition_point(|block| block.entered() <= start);
        let added = blocks.split_off(born_after);
        if added.is_empty() {
            return Err(Error::damaged(dataset, "a bucket that begins after its blocks were born"));
        }
        additions.push(write_pages(sync, start, tail, &added)?);
    }
    Ok(additions)
}

/// The inline last page of a bucket and its pointers, if the bucket has an inline page.
fn tail_of(tx: &Transaction<'_>, deadlist: u64, start: Txg) -> Result<Option<(Key, Vec<BlockPointer>)>> {
    let Some((bucket, _)) = tx.find::<Bucket>(Key::new(deadlist, kind::DEADLIST, start.0))? else { return Ok(None) };
    let Some(key) = tx.last_key(keys(bucket.last, kind::PAGE))? else { return Ok(None) };
    let body = tx.body(key)?.filter(|body| body.block.is_none());
    body.map(|body| Ok((key, page(key, &body.bytes)?))).transpose()
}

fn write_pages(
    sync: &mut Sync<'_>,
    start: Txg,
    tail: Option<(Key, Vec<BlockPointer>)>,
    added: &[BlockPointer],
) -> Result<Addition> {
    let (sector, copies) = (sync.engine().sector(), sync.engine().metadata_copies());
    let (tail, mut all) = tail.map_or((None, Vec::new()), |(key, pointers)| (Some(key), pointers));
    all.extend_from_slice(added);
    let mut pages = Vec::new();
    if all.len() <= INLINE {
        pages.push(Body { bytes: encode_page(&all), block: None });
    } else {
        for pointers in all.chunks(PAGE_BLOCKS) {
            let block = sync.write_block(encode_page(pointers), copies)?;
            pages.push(Body { bytes: encode_page(&[]), block: Some(block) });
        }
    }
    let space = added.iter().map(|block| Space::of(block, sector)).sum();
    Ok(Addition { start, space, count: added.len() as u64, tail, pages })
}

/// Adds prepared blocks to their bucket.
pub fn add(tx: &mut Transaction<'_>, deadlist: u64, addition: &Addition) -> Result<()> {
    let key = Key::new(deadlist, kind::DEADLIST, addition.start.0);
    let mut bucket = match tx.find::<Bucket>(key)? {
        Some((bucket, _)) => bucket,
        None => {
            let list = tx.new_id()?;
            Bucket { first: list, last: list, ..Bucket::default() }
        }
    };
    let mut number = match addition.tail {
        Some(tail) => tail.offset,
        None => tx.last_key(keys(bucket.last, kind::PAGE))?.map_or(0, |last| last.offset.saturating_add(1)),
    };
    for page in &addition.pages {
        tx.put_body(Key::new(bucket.last, kind::PAGE, number), page.clone());
        number = number.saturating_add(1);
    }
    bucket.count = bucket.count.saturating_add(addition.count);
    bucket.space += addition.space;
    tx.put(key, &bucket, None);
    Ok(())
}

/// Decodes the page at `key`.
pub fn page(key: Key, bytes: &[u8]) -> Result<Vec<BlockPointer>> {
    decode_page(bytes).map_err(|error| PoolError::damaged(format!("catalogue at {key}"), error).into())
}

/// Reads the catalogue in syncing context.
pub(super) fn look<T>(sync: &mut Sync<'_>, mut f: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
    let now = sync.engine().env().now();
    sync.catalogue(|view, _| f(&Transaction::new(*view, now)))
}
