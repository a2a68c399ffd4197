//! Receiving: where a stream lands, whether it fits, and what it becomes.
//!
//! A stream fills a hidden dataset ([`arrival`]). One request at its end, with the stream verified, makes it a dataset
//! or the new tree of one, takes the snapshot and sets what properties came along: so all of it is visible or nothing.
//! What was checked at the beginning is checked again then, for much may have happened in between.
//!
//! ```text
//! naming     what the datasets in a stream are called here
//! judge      whether a stream fits what is there, and what becomes of it
//! census     destroying here what the sender of a replication does not have any more
//! follow     renaming here what was renamed there
//! lander     landing streams, each at its beginning and at its end
//! properties what came along, and what the user wants instead
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

/// What to receive into.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The dataset, or the snapshot if it is to be called otherwise than it was.
    pub target: Name,
    /// How names are made.
    pub naming: Naming,
    /// Whether to roll a dataset back to an increment's base, with all later snapshots destroyed, or to overwrite one that
    /// has none; and for an increment of a replication, to destroy what the sender does not have any more.
    pub force: bool,
    /// Properties to set on the topmost dataset of a package, whatever comes in the stream. Those below it inherit them.
    pub properties: Vec<Assignment>,
    /// Properties in the stream not to take.
    pub exclude: Vec<String>,
    /// The snapshot that the first stream is to become a clone of.
    pub origin: Option<SnapshotName>,
    /// Who owns the root directories of datasets that are created above the target: user and group.
    pub owner: (u32, u32),
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The snapshots, in order.
    pub snapshots: Vec<ArrivedSnapshot>,
    /// Datasets that have another tree now, and what of each differs: what a mount has cached of that is void. One that
    /// several streams were for stands here several times.
    pub replaced: Vec<(u64, Replaced)>,
    /// Datasets that were created above those in the stream, the topmost first.
    pub parents: Vec<DatasetName>,
    /// The names of datasets and snapshots that were destroyed for it.
    pub destroyed: Vec<String>,
    /// How much the stream held.
    pub received: Received,
}

/// A snapshot that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedSnapshot {
    /// Its name where it was sent.
    pub sent: SnapshotName,
    /// Its name here.
    pub name: SnapshotName,
    /// Whether it came as an increment.
    pub incremental: bool,
    /// How long its stream was, in bytes.
    pub bytes: u64,
    /// How long it took, in nanoseconds.
    pub time: Nanos,
}

impl Datasets {
    /// Receives all packages of an input to its end, with `verifiers` threads that verify ahead. `progress` is told now and then how many bytes
    /// were read. That some files of a dataset were read since its newest snapshot is no reason to refuse an increment.
    /// Says what arrived and whether that is all.
    ///
    /// # Errors
    /// If anything is wrong with the stream, or it does not fit, or is beyond a quota or what the reservations of others
    /// leave: then nothing of it is visible, nor any dataset that was made above it. Of several those before
    /// the one in question stay, and have arrived. So does what was destroyed and renamed for a replication until then:
    /// with the first stream refused that is nothing, and before any later one all that its sender does not have.
    pub fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> (Arrived, Result<()>) {
        self.receive_beside(request, input, verifiers, progress, &mut |_| Ok(()))
    }

    /// The same beside others who use the pool: `leaving` is told the names of datasets and snapshots that are about to
    /// be destroyed, and of datasets that are about to be renamed. Those must not be mounted any more when it returns.
    ///
    /// # Errors
    /// As before, and if `leaving` fails.
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

    /// Reads and verifies all packages of an input, and says what would arrive, if all of it fits: a dry run.
    ///
    /// # Errors
    /// If anything is wrong with one, or it does not fit.
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

    /// Destroys what receives have left that a crash or a failure broke off. To be called after an import, while nothing
    /// is being received. Returns how many there were.
    pub fn destroy_unfinished(&self) -> Result<usize> {
        let unfinished = self.read(arrival::hidden)?;
        for id in unfinished.clone() {
            self.run(move |tx| arrival::abandon(tx, id))?;
        }
        Ok(unfinished.len())
    }

    /// Opens the dataset that a stream is for, if it is there.
    fn open_target(&self, judge: &Judge) -> Result<Option<Arc<Dataset>>> {
        let name = judge.name.dataset();
        match self.read(|tx| judge.names.find(tx, &name))? {
            // A dataset whose tree is damaged cannot be opened; then there is nobody to keep out.
            Some(_) => Ok(self.open_dataset(&name).ok()),
            None => Ok(None),
        }
    }
}

impl Arrived {
    /// Whether this input has brought the dataset here, so that nobody else can have changed it on purpose.
    fn has(&self, name: &SnapshotName) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.name.dataset() == name.dataset())
    }
}
