//! Corrective receives: the blocks of a stream repair the damaged blocks of the same snapshot.
//!
//! A snapshot with the GUID of the stream's snapshot has the same items under the same keys, and its blocks have the
//! stored form in which they came. So each block of the stream is compared with the block under its key in the local
//! tree. Blocks of equal form and checksum are examined as by a scrub, many together and without holding up commits. Of
//! the damaged ones, each is examined once more with the pool held still, and rewritten in place with the stream's
//! bytes: see [`pool::txg::Still::repair_from`], which verifies the bytes against the pointer in the committed tree,
//! and argues each instant at which power may fail.
//!
//! Nothing else of the pool changes: no pointer, no tree, no property. An interrupted corrective receive has repaired
//! some blocks, and is repeated from the beginning. Blocks that several snapshots, clones and the file system share are
//! repaired for all of them.
//!
//! # What is not repaired
//!
//! * Blocks that the stream does not have: an increment has the blocks written since its base, and a tree younger than
//!   the snapshot has blocks of its own.
//! * Blocks with another stored form, in a snapshot that came with other records, compression or checksum.
//! * Nodes of trees. A lost node also hides the places of the blocks below.
//! * Blocks stored in pieces, and blocks without a checksum.

use std::{collections::HashSet, io::Read, sync::Arc};

use pool::{
    error::Error as PoolError,
    format::{
        key::Key,
        pointer::{BlockPointer, Checksum},
    },
    txg::{Head, Place, Plain, Suspect, Verdict},
};

use super::{peek, request::ReceiveRequest};
use crate::{
    admin::table::{datasets::Datasets, long_hold::LongHold},
    catalogue::{SnapshotRow, snapshot_key},
    error::{Error, Reader, Result},
    lineage::arrival,
    name::{Name, SnapshotName},
    scrub::repair,
    stream::{self, Begin, Blocks, Start, StreamBlock},
};

/// The result of a corrective receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// The local snapshots of the streams, in the order of the input.
    pub snapshots: Vec<SnapshotName>,
    /// The streams without a local snapshot.
    pub skipped: u64,
    /// Blocks repaired; in a dry run, damaged blocks for which the stream has the bytes.
    pub blocks: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// The files with these blocks.
    pub files: u64,
    /// Damaged blocks with another stored form than the stream's.
    pub other_form: u64,
    /// Damaged blocks stored in pieces.
    pub in_pieces: u64,
    /// Damaged blocks without a checksum.
    pub unchecked: u64,
    /// Blocks of the streams whose place in the local tree cannot be read.
    pub hidden: u64,
    /// Blocks that could not be written, or read again.
    pub failed: u64,
}

impl Datasets {
    /// Repairs damaged blocks of snapshots with the blocks of an input's streams, with `verifiers` threads that verify
    /// ahead. With `dry_run` nothing is written. `reader` names the command to others who want to destroy the snapshots
    /// meanwhile. `progress` is called with the number of bytes read so far.
    ///
    /// # Errors
    /// If a stream is damaged, is not in Cenote's own format, or no snapshot of the destination has the GUID of a
    /// stream's. What was repaired before stays repaired.
    pub fn correct(
        &self,
        request: &ReceiveRequest,
        dry_run: bool,
        input: &mut dyn Read,
        verifiers: usize,
        reader: Reader,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Corrected> {
        self.engine().writable()?;
        // From here on, the snapshots' trees are those of the committed state.
        self.engine().commit()?;
        let (start, is_foreign) = peek(input)?;
        if is_foreign {
            return Err(Error::NotReceived {
                name: request.target.to_string(),
                problem: "it is a stream of OpenZFS, whose records have not the stored form of this pool's blocks"
                    .into(),
                remedy: "use a stream made by 'fs send'",
            });
        }
        let mut corrector = Corrector::new(self, request, dry_run, reader);
        stream::read_blocks(&mut start.as_slice().chain(input), &mut corrector, verifiers, progress)?;
        corrector.conclude()
    }
}

struct Corrector<'a> {
    datasets: &'a Datasets,
    request: &'a ReceiveRequest,
    dry_run: bool,
    reader: Arc<Reader>,
    current: Option<Current>,
    /// The files with repaired blocks, by tree and inode number.
    files: HashSet<(u64, u64)>,
    /// The streams without a local snapshot: the first one's error.
    missing: Option<Error>,
    corrected: Corrected,
}

/// The local snapshot of the last stream.
struct Current {
    tree: u64,
    head: Arc<Head>,
    _held: LongHold,
}

impl Blocks for Corrector<'_> {
    type Error = Error;

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<bool> {
        self.current = None;
        let wanted = self.request.name(start, begin, false)?;
        match self.open(&wanted, begin) {
            Ok((name, current)) => {
                self.corrected.snapshots.push(name);
                self.current = Some(current);
                Ok(true)
            }
            Err(error @ (Error::NotReceived { .. } | Error::NotFound { .. })) if start.streams > 1 => {
                self.corrected.skipped += 1;
                self.missing.get_or_insert(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, blocks: Vec<StreamBlock>) -> Result<()> {
        let current = self.current.take().expect("the stream is wanted");
        let done = self.examine(&current, &blocks);
        self.current = Some(current);
        done
    }
}

impl<'a> Corrector<'a> {
    fn new(datasets: &'a Datasets, request: &'a ReceiveRequest, dry_run: bool, reader: Reader) -> Corrector<'a> {
        let (reader, corrected) = (Arc::new(reader), Corrected::default());
        Corrector { datasets, request, dry_run, reader, current: None, files: HashSet::new(), missing: None, corrected }
    }

    /// Finds, holds and opens the local snapshot of a stream.
    fn open(&self, wanted: &SnapshotName, begin: &Begin) -> Result<(SnapshotName, Current)> {
        let datasets = self.datasets;
        let names = datasets.names();
        loop {
            let looking = datasets.long_holds().look();
            let (id, name, root, level) = datasets.read(|tx| {
                let dataset = names.dataset(tx, &wanted.dataset())?;
                let found = arrival::snapshot_with(tx, dataset, begin.guid)?;
                let id = found.ok_or_else(|| no_snapshot(wanted, begin))?;
                let (row, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(id))?;
                let root = root.ok_or_else(|| Error::damaged(id, "a snapshot without a tree"))?;
                Ok((id, names.of_snapshot(tx, id)?, root, row.level))
            })?;
            if matches!(self.request.target, Name::Snapshot(_)) && name != *wanted {
                return Err(no_snapshot(wanted, begin));
            }
            let head = datasets.engine().open_frozen(id, root, level);
            let now = datasets.now();
            // No hold is taken between the check of a request and its effects.
            let _table = datasets.table().lock();
            if let Some(_held) = looking.take(vec![id], &self.reader, now) {
                return Ok((name, Current { tree: id, head, _held }));
            }
        }
    }

    /// Repairs the damaged blocks among the local blocks under the keys of a stream's blocks.
    fn examine(&mut self, current: &Current, blocks: &[StreamBlock]) -> Result<()> {
        let mut found: Vec<(BlockPointer, &StreamBlock)> = Vec::new();
        for block in blocks {
            match block_at(&current.head, block.key) {
                Ok(pointer) => found.extend(pointer.map(|pointer| (pointer, block))),
                Err(PoolError::Damaged { .. } | PoolError::Unreadable { .. } | PoolError::Device { .. }) => {
                    self.corrected.hidden += 1
                }
                Err(error) => return Err(error.into()),
            }
        }
        let pointers: Vec<BlockPointer> = found.iter().map(|(pointer, _)| *pointer).collect();
        for index in self.datasets.engine().suspicious(&pointers) {
            let (pointer, block) = found[index];
            self.correct(Suspect { tree: current.tree, place: Place::Item(block.key), pointer }, block)?;
        }
        Ok(())
    }

    fn correct(&mut self, suspect: Suspect, block: &StreamBlock) -> Result<()> {
        let outside = block.is_form_of(&suspect.pointer).then_some(&block.bytes);
        if self.dry_run {
            // A good copy in the pool repairs the bad one.
            let is_lost = self.datasets.engine().hold_still().is_lost(&suspect.pointer);
            match !is_lost || (outside.is_some() && !suspect.pointer.gang) {
                true => self.count(&suspect),
                false => *self.left_over(&suspect.pointer) += 1,
            }
            return Ok(());
        }
        let outcome = repair::repair_from(self.datasets.engine(), &suspect, outside, true)?;
        match outcome.verdict {
            Verdict::Repaired { .. } => self.count(&suspect),
            Verdict::Lost => *self.left_over(&suspect.pointer) += 1,
            Verdict::Gone | Verdict::Whole => {}
            Verdict::Weak(error) | Verdict::Unknown(error) => {
                tracing::warn!("corrective receive: {error}");
                self.corrected.failed += 1;
            }
        }
        self.datasets.note_damage(outcome.damage)
    }

    /// The count of lost blocks with the same reason.
    fn left_over(&mut self, pointer: &BlockPointer) -> &mut u64 {
        match pointer {
            BlockPointer { checksum_kind: Checksum::Off, .. } => &mut self.corrected.unchecked,
            BlockPointer { gang: true, .. } => &mut self.corrected.in_pieces,
            _ => &mut self.corrected.other_form,
        }
    }

    fn count(&mut self, suspect: &Suspect) {
        let Suspect { tree, place, pointer } = suspect;
        self.corrected.blocks += 1;
        self.corrected.bytes += u64::from(pointer.stored);
        if let Place::Item(Key { object, .. }) = place {
            self.files.insert((*tree, *object));
        }
    }

    fn conclude(self) -> Result<Corrected> {
        match self.missing {
            Some(error) if self.corrected.snapshots.is_empty() => Err(error),
            _ => Ok(Corrected { files: self.files.len() as u64, ..self.corrected }),
        }
    }
}

/// The block of the item under a key of a snapshot's tree.
fn block_at(head: &Head, key: Key) -> pool::error::Result<Option<BlockPointer>> {
    let found = head.read(|view| Ok::<_, Plain>(view.get(key)?.and_then(|entry| entry.block()?.pointer())));
    Ok(found?)
}

fn no_snapshot(wanted: &SnapshotName, begin: &Begin) -> Error {
    let Begin { dataset, snapshot, guid, .. } = begin;
    Error::NotReceived {
        name: wanted.to_string(),
        problem: format!(
            "a corrective receive needs the snapshot of the stream, {dataset}@{snapshot} with the GUID {}, and the \
             destination does not have it",
            guid.0
        ),
        remedy: "to find a stream's snapshot: fs list -t snapshot -o name,guid",
    }
}
