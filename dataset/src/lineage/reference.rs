//! Counts the references to a block, and frees the block with the last.
//!
//! Files may share a block after a copy without copied bytes: the block is then referred to from several records, of
//! files in one dataset or in several. Each place holds a *reference*. Everything else in the parent module is about
//! references: a reference enters a tree ([`BlockPointer::entered`]), is kept by snapshots, inherited by clones,
//! dropped, put on deadlists and freed once, exactly like a block with a single reference. Only the effect of freeing
//! is decided here: for a block with `more` references beyond the first, freeing subtracts one, and freeing the last
//! reference frees the block.
//!
//! The counts are catalogue rows under the blocks' addresses. A block with a single reference has no row, whichever
//! dataset holds the reference. So the writer of a block and a copier are equals, and a pool without shared blocks pays
//! one lookup per batch of frees. Frees are sorted by address and merged with the rows in one pass, so each stretch
//! without shared blocks costs one lookup.
//!
//! # Why nothing is freed too early or too late
//!
//! Counts change in syncing context only, in the txg in which the trees with the references change.
//!
//! * *All references of a txg are taken before any is given up*, in all trees. A thread that takes a reference has seen
//!   the block in a tree while the txg was open ([`Head::read_open`](pool::txg::Head::read_open)), so no earlier txg
//!   has given up the last reference. If the same txg gives up the reference that was seen, the count is incremented
//!   first.
//! * *Taking and giving up are never merged.* A reference taken and dropped in one txg counts up and down, so no code
//!   needs to know whether a dropped reference was ever committed.
//! * *A crash* leaves rows and trees of the same commit. The intent log contains pointers, and its replay takes the
//!   references anew, starting from the rows of that commit; see `fs::replay`.
//!
//! A row that contradicts a pointer is damage, and at worst leaks the space of the block: in doubt nothing is freed.

use pool::{
    format::{key::Key, pointer::BlockPointer},
    txg::Sync,
};

use super::written::transact;
use crate::{
    catalogue::{POOL, SHARING, SharedRow, SharingRow, Transaction, kind, shared_key},
    error::{Error, Result},
};

/// The number of blocks looked up per step: a step restarts if a node of the catalogue is not in memory.
const STEP: usize = 1024;

/// Takes one more reference to each block for each occurrence in `blocks`.
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

/// Counts one more reference, in the block's row and in the totals.
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

/// Gives up one reference to each block for each occurrence in `blocks`, and frees blocks without any further
/// reference.
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

/// Decrements the counts of shared blocks, and returns all other blocks, which are free. `blocks` is sorted by address.
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
            // The row may have been deleted.
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

/// The known rows from the last block's address on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Unknown,
    /// The key of the next row.
    Row(Key),
    /// No further row follows.
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

/// Counts one reference less, in the block's row and in the totals.
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

/// The totals of all shared blocks in the pool.
pub fn sharing(tx: &Transaction<'_>) -> Result<SharingRow> {
    Ok(tx.find::<SharingRow>(SHARING)?.map(|(row, _)| row).unwrap_or_default())
}

fn contradicts(block: &BlockPointer, row: &SharedRow) {
    let (place, birth) = (block.addresses[0], block.birth);
    tracing::error!("space is lost: the references to {place:?} count for a block born in {}, not {birth}", row.birth);
}
