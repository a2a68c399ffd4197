//! Dropping many items in one bounded step.

use std::ops::Range;

use pool::{format::key::Key, tree::Block};

use super::extent::Piece;
use crate::fs::{change::Change, failure::Failure, key::EXTENT};

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Discarded {
    /// The sum of the dropped extents' lengths in bytes.
    pub(in crate::fs) bytes: u64,
    /// Whether the range is empty now.
    pub(in crate::fs) done: bool,
}

/// Deletes the items of `range` and kills their blocks, up to about `budget` items. Stops only between records, so that
/// a block is killed together with its last extent.
pub(in crate::fs) fn discard(
    change: &mut Change<'_>,
    range: Range<Key>,
    record_shift: u8,
    budget: usize,
) -> Result<Discarded, Failure> {
    let (mut count, mut bytes) = (0, 0);
    let mut record = None;
    let mut killed: Vec<Block> = Vec::new();
    let view = change.view;
    for entry in view.range(range) {
        let entry = entry?;
        let key = entry.key();
        let place = (key.kind, if key.kind == EXTENT { key.offset >> record_shift } else { key.offset });
        if record != Some(place) {
            if count >= budget {
                return Ok(Discarded { bytes, done: false });
            }
            record = Some(place);
            killed.clear();
        }
        if key.kind == EXTENT {
            bytes += Piece::decode(&entry)?.len;
        }
        if let Some(block) = entry.block()
            && !killed.iter().any(|other| other.same(&block))
        {
            change.kill(block.clone());
            killed.push(block);
        }
        change.delete(key);
        count += 1;
    }
    Ok(Discarded { bytes, done: true })
}
