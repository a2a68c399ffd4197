//! How many references a block has, and which of its drops frees it.
//!
//! A block may be referred to from several places that know nothing of each other: records of files, in one dataset or
//! in several, that were copied without copying their bytes. Each place holds a *reference*. Everything else in this
//! module's parent is about references: one enters a tree ([`BlockPointer::entered`]), is kept by snapshots, inherited by
//! clones, dropped, put on deadlists and freed, once, exactly as a block with a single reference is. Only what freeing
//! means is decided here: of a block with `more` references beside one it takes one away, and the last one frees it.
//!
//! The counts are rows of the catalogue under the addresses of the blocks. A block with one reference has no row, whoever
//! holds it, so the one who wrote a block and the one who copied it are equals, and a pool without shared blocks pays one
//! look-up for each batch of frees. Frees are taken in the order of their addresses and compared with the rows in one
//! pass, so stretches without shared blocks cost one look-up each.
//!
//! # Why nothing is freed too early or too late
//!
//! Counts change in syncing context only, in the group in which the trees change that hold the references.
//!
//! * *All references of a group are taken before any is given up*, whichever trees they are of. Whoever takes one has
//!   seen the block in a tree while that group was open ([`Head::read_open`](pool::txg::Head::read_open)), so no earlier
//!   group has given up the last one; and if this group gives up what was seen, the count goes up first.
//! * *Taking and giving up are never merged.* What is taken and dropped in one group counts up and down, so nobody has to
//!   know whether a reference that is dropped was ever committed.
//! * *A crash* leaves the rows and the trees of one and the same commit. The intent log holds pointers, and putting it
//!   back takes the references anew, from the rows of the commit that it follows; see `fs::replay`.
//!
//! A row that contradicts a pointer is damage, and loses the block's space at worst: what is in doubt is not freed.

use pool::{
    format::{key::Key, pointer::BlockPointer},
    txg::Sync,
};

use super::written::transact;
use crate::{
    admin::{Error, Result},
    catalogue::{POOL, SHARING, SharedRow, SharingRow, Transaction, kind, shared_key},
};

/// So many blocks are looked up in one step: a step begins again when a node of the catalogue is not in memory.
const STEP: usize = 1024;

/// Takes a further reference to each of these blocks, as often as it is named.
pub fn take(sync: &mut Sync<'_>, mut blocks: Vec<BlockPointer>) -> Result<()> {
    let sector = sync.engine().sector();
    blocks.sort_unstable_by_key(|block| block.addresses[0]);
    for step in blocks.chunks(STEP) {
        transact(sync, |tx| {
            let mut sharing = sharing(tx)?;
            step.iter().try_for_each(|block| take_one(tx, &mut sharing, block, sector))?;
            tx.put(SHARING, &sharing, None);
            Ok(())
        })?;
    }
    Ok(())
}

/// Counts a further reference, in the block's row and in the totals.
fn take_one(tx: &mut Transaction<'_>, sharing: &mut SharingRow, block: &BlockPointer, sector: u32) -> Result<()> {
    let key = shared_key(block.addresses[0]);
    let row = match tx.find::<SharedRow>(key)? {
        Some((row, _)) => {
            if row.birth != block.birth {
                contradicts(block, &row);
            }
            SharedRow { more: row.more.saturating_add(1), ..row }
        }
        None => {
            let row = SharedRow::of(block, sector);
            sharing.blocks = sharing.blocks.saturating_add(1);
            sharing.used += row.space;
            row
        }
    };
    sharing.saved += row.space;
    tx.put(key, &row, None);
    Ok(())
}

/// Gives up a reference to each of these blocks, as often as it is named, and frees those that have none left.
pub fn give_up(sync: &mut Sync<'_>, mut blocks: Vec<BlockPointer>) -> Result<()> {
    let shared = sync.catalogue(|view, _| Ok::<_, Error>(sharing(&Transaction::new(*view, 0))?.blocks))?;
    if shared == 0 {
        return Ok(blocks.iter().try_for_each(|block| sync.free(block))?);
    }
    blocks.sort_unstable_by_key(|block| block.addresses[0]);
    for step in blocks.chunks(STEP) {
        let (free, _) = transact(sync, |tx| give_up_some(tx, step))?;
        free.iter().try_for_each(|block| sync.free(block))?;
    }
    Ok(())
}

/// Counts what can be counted down, of blocks in the order of their addresses; the others are free.
fn give_up_some(tx: &mut Transaction<'_>, blocks: &[BlockPointer]) -> Result<Vec<BlockPointer>> {
    let before = sharing(tx)?;
    let (mut free, mut sharing) = (Vec::new(), before.clone());
    let mut ahead = Ahead::Unknown;
    for block in blocks {
        let key = shared_key(block.addresses[0]);
        if ahead.is_before(key) {
            let rest = key..Key::new(POOL, kind::SHARED + 1, 0);
            ahead = tx.first_key(rest)?.map_or(Ahead::Nothing, Ahead::Row);
        }
        if ahead == Ahead::Row(key) {
            give_up_one(tx, &mut sharing, key, block)?;
            // The row may be gone.
            ahead = Ahead::Unknown;
        } else {
            free.push(*block);
        }
    }
    if sharing != before {
        tx.put(SHARING, &sharing, None);
    }
    Ok(free)
}

/// What is known of the rows from the last block on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Unknown,
    /// The next row.
    Row(Key),
    /// There is none.
    Nothing,
}

impl Ahead {
    fn is_before(self, key: Key) -> bool {
        match self {
            Ahead::Unknown => true,
            Ahead::Row(row) => row < key,
            Ahead::Nothing => false,
        }
    }
}

/// Counts a reference down, in the block's row and in the totals.
fn give_up_one(tx: &mut Transaction<'_>, sharing: &mut SharingRow, key: Key, block: &BlockPointer) -> Result<()> {
    let row: SharedRow = tx.row(key)?;
    if row.birth != block.birth {
        contradicts(block, &row);
        return Ok(());
    }
    sharing.saved -= row.space;
    if row.more > 1 {
        tx.put(key, &SharedRow { more: row.more - 1, ..row }, None);
    } else {
        tx.delete(key);
        sharing.blocks = sharing.blocks.saturating_sub(1);
        sharing.used -= row.space;
    }
    Ok(())
}

/// What all shared blocks come to.
pub fn sharing(tx: &Transaction<'_>) -> Result<SharingRow> {
    Ok(tx.find::<SharingRow>(SHARING)?.map(|(row, _)| row).unwrap_or_default())
}

fn contradicts(block: &BlockPointer, row: &SharedRow) {
    let (place, birth) = (block.addresses[0], block.birth);
    tracing::error!("space is lost: the references to {place:?} count for a block born in {}, not {birth}", row.birth);
}
