//! Receiving: the target of a stream, whether the stream fits, and the result.
//!
//! A stream fills a hidden dataset ([`arrival`]). After the stream was verified, one request makes the hidden dataset
//! visible, or moves its tree to the target, takes the snapshot and sets the received properties: so all of the changes
//! are visible, or none. The request repeats all checks made at the beginning, because the pool may have changed
//! meanwhile.
//!
//! ```text
//! naming     the names of received datasets
//! judge      whether a stream fits the pool, and the resulting plan
//! census     destroying datasets and snapshots that the sender of a replication no longer has
//! follow     renaming datasets that were renamed at the sender
//! lander     landing streams, with a step at the beginning and at the end of each
//! properties received properties, and the user's replacements
//! rehearsal  a dry run
//! ```

mod census;
mod follow;
mod judge;
mod lander;
mod naming;
mod properties;
mod rehearsal;

use std::{io::Read, sync::Arc};

use pool::env::Nanos;

pub use self::naming::Naming;
use self::{judge::Judge, lander::Lander, rehearsal::Rehearsal};
use super::{datasets::Datasets, error::Result, open::Dataset, property::Assignment, replaced::Replaced};
use crate::{
    lineage::arrival,
    name::{DatasetName, Name, SnapshotName},
    stream::{self, Received},
};

/// The request of a receive.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The target dataset, or the target snapshot if the snapshot's name should differ from the sender's.
    pub target: Name,
    /// The rule for names.
    pub naming: Naming,
    /// Whether to roll the target back to the base of an incremental stream, destroying later snapshots, or to
    /// overwrite a dataset without snapshots; and for an incremental replication, to destroy whatever the sender no
    /// longer has (`-F`).
    pub force: bool,
    /// Properties to set on the topmost dataset of a package, overriding the stream. Descendants inherit these values.
    pub properties: Vec<Assignment>,
    /// Properties of the stream to ignore.
    pub exclude: Vec<String>,
    /// The snapshot that the first stream becomes a clone of.
    pub origin: Option<SnapshotName>,
    /// The user and group that own the root directories of parents created above the target.
    pub owner: (u32, u32),
}

/// The result of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The received snapshots, in order.
    pub snapshots: Vec<ArrivedSnapshot>,
    /// Datasets with a new tree, and the differences from the old tree: mounts drop their cached copies of those. A
    /// dataset with several streams is listed several times.
    pub replaced: Vec<(u64, Replaced)>,
    /// Parents created above the target, the topmost first.
    pub parents: Vec<DatasetName>,
    /// The names of datasets and snapshots destroyed by the receive.
    pub destroyed: Vec<String>,
    /// The size of the input.
    pub received: Received,
}

/// A received snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedSnapshot {
    /// The name at the sender.
    pub sent: SnapshotName,
    /// The name in this pool.
    pub name: SnapshotName,
    /// Whether the stream was incremental.
    pub incremental: bool,
    /// The length of the stream, in bytes.
    pub bytes: u64,
    /// The time that the stream took, in nanoseconds.
    pub time: Nanos,
}

impl Datasets {
    /// Receives all packages of an input up to its end, with `verifiers` threads that verify ahead. `progress` is
    /// called with the number of bytes read so far. A dataset that was only read since its newest snapshot still
    /// accepts an incremental stream. Returns the snapshots received, and whether the whole input was received.
    ///
    /// # Errors
    /// If a stream is damaged, does not fit, exceeds a quota, or needs space reserved for other datasets. Then nothing
    /// of the stream is visible, and no parent was created for it. Earlier streams of the input stay received. So do
    /// the destroys and renames done for a replication: none if the first stream is refused, and everything that the
    /// sender no longer has if a later stream is refused.
    pub fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> (Arrived, Result<()>) {
        self.receive_beside(request, input, verifiers, progress, &mut |_| Ok(()))
    }

    /// As [`Datasets::receive`], in a pool in use: before datasets and snapshots are destroyed, or datasets renamed,
    /// `leaving` is called with their names. When `leaving` returns, none of them may be mounted.
    ///
    /// # Errors
    /// As [`Datasets::receive`], and if `leaving` fails.
    pub fn receive_beside(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
        leaving: &mut dyn FnMut(&[String]) -> Result<()>,
    ) -> (Arrived, Result<()>) {
        let mut lander = Lander::new(self, request, leaving);
        let received = stream::receive(input, &mut lander, verifiers, progress);
        if received.is_err() {
            lander.destroy_parents();
        }
        let mut arrived = lander.take();
        let reloaded = if arrived.replaced.is_empty() { Ok(()) } else { self.reload_options() };
        let result = received.and_then(|received| {
            arrived.received = received;
            reloaded
        });
        (arrived, result)
    }

    /// Reads and verifies all packages of an input, and returns the result of a receive that would succeed: a dry run.
    ///
    /// # Errors
    /// If a stream is damaged or does not fit.
    pub fn plan_receive(
        self: &Arc<Self>,
        request: &ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<ArrivedSnapshot>> {
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        let mut rehearsal = Rehearsal::new(self, request);
        stream::receive(input, &mut rehearsal, verifiers, progress)?;
        rehearsal.conclude()
    }

    /// Destroys hidden datasets left by receives that a crash or a failure interrupted. Called after an import, with no
    /// receive running. Returns the number destroyed.
    pub fn destroy_unfinished(&self) -> Result<usize> {
        let unfinished = self.read(arrival::hidden)?;
        for id in unfinished.clone() {
            self.run(move |tx| arrival::abandon(tx, id))?;
        }
        Ok(unfinished.len())
    }

    /// Opens the target dataset of a stream, if the dataset exists.
    fn open_target(&self, judge: &Judge) -> Result<Option<Arc<Dataset>>> {
        let name = judge.name.dataset();
        match self.read(|tx| judge.names.find(tx, &name))? {
            // A damaged dataset cannot be opened, and so has no mount to exclude.
            Some(_) => Ok(self.open_dataset(&name).ok()),
            None => Ok(None),
        }
    }
}

impl Arrived {
    /// Whether the same input has already brought a snapshot to the dataset, so that no other command has changed the
    /// dataset.
    fn has(&self, name: &SnapshotName) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.name.dataset() == name.dataset())
    }
}
