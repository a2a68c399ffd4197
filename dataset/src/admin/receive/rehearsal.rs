//! A dry run: what a package would bring, and whether it fits.
//!
//! The whole package is read and verified; then its streams are judged in one transaction that is thrown away, in which
//! what would be destroyed or renamed before them is. What would have come with an earlier stream of the package counts as
//! there.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use pool::units::Guid;

use super::{
    ArrivedSnapshot, Naming, ReceiveRequest,
    census::{Sender, Tree},
    follow::Follow,
    judge::{Judge, Plan},
};
use crate::{
    admin::{
        datasets::Datasets,
        error::{Error, Result},
        resolve::Names,
    },
    catalogue::Transaction,
    name::{DatasetName, SnapshotName},
    stream::{Begin, Ground, Landing, Start},
};

/// The streams of a package, as they are read.
pub(super) struct Rehearsal<'a> {
    datasets: &'a Arc<Datasets>,
    request: &'a ReceiveRequest,
    start: Start,
    streams: Vec<Judge>,
}

impl Landing for Rehearsal<'_> {
    type Error = Error;

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>> {
        if self.streams.is_empty() {
            self.start = start.clone();
        }
        let name = self.request.name(start, begin)?;
        let alone = start.streams == 1;
        let force = self.request.force;
        let mut judge = Judge::new(self.datasets.names(), name, begin.clone(), force, alone).destroying(force);
        let open = self.datasets.open_target(&judge)?;
        let _quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        self.streams.push(judge);
        Ok(None)
    }

    fn finish(&mut self, _: &Begin, _: u64) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

/// What earlier streams of the package would have brought.
#[derive(Default)]
struct Brought {
    datasets: HashSet<DatasetName>,
    snapshots: HashSet<Guid>,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn new(datasets: &'a Arc<Datasets>, request: &'a ReceiveRequest) -> Rehearsal<'a> {
        Rehearsal { datasets, request, start: Start::default(), streams: Vec::new() }
    }

    /// What would arrive.
    pub(super) fn conclude(self) -> Result<Vec<ArrivedSnapshot>> {
        let names = self.datasets.names();
        let (top, force) = (self.request.top(&self.start)?, self.request.force);
        let tree = match &self.start.census {
            Some(census) => {
                let (sender, names, sent) = (Sender::new(census), names.clone(), self.start.root.parse()?);
                Some(Tree { sender, names, top, sent })
            }
            None => None,
        };
        self.datasets.dry_run(|tx| {
            if let Some(tree) = tree.as_ref().filter(|_| force) {
                tree.reconcile(tx, &BTreeSet::new())?;
            }
            let (mut brought, mut arrived) = (Brought::default(), Vec::new());
            for judge in &self.streams {
                if let Some(tree) = &tree {
                    let place = &judge.name.dataset();
                    Follow { tree, place, begin: &judge.begin, force }.run(tx, &BTreeSet::new())?;
                }
                if self.would_land(tx, &names, judge, &brought)? {
                    arrived.push(snapshot(judge)?);
                }
                brought.datasets.insert(judge.name.dataset());
                brought.snapshots.insert(judge.begin.guid);
            }
            Ok(arrived)
        })
    }

    fn would_land(&self, tx: &Transaction<'_>, names: &Names, judge: &Judge, brought: &Brought) -> Result<bool> {
        let base = judge.begin.base.as_ref().map(|base| base.guid);
        let name = judge.name.dataset();
        let follows = base.is_some_and(|base| brought.snapshots.contains(&base));
        let parent = name.parent();
        let is_below = parent.as_ref().is_some_and(|parent| brought.datasets.contains(parent));
        let makes_parents = self.request.naming != Naming::Exact && base.is_none();
        let lacks_parent = match &parent {
            Some(parent) => names.find(tx, parent)?.is_none(),
            None => false,
        };
        if lacks_parent && (makes_parents || is_below) {
            return Ok(true);
        }
        // The state of now says nothing about what comes after an earlier stream, but whether it is here already.
        match judge.plan(tx) {
            Ok(plan) => Ok(plan != Plan::Skip),
            Err(Error::NotReceived { .. }) if follows => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn snapshot(judge: &Judge) -> Result<ArrivedSnapshot> {
    let sent: SnapshotName = judge.begin.dataset.parse::<DatasetName>()?.snapshot(&judge.begin.snapshot)?;
    let incremental = judge.begin.base.is_some();
    Ok(ArrivedSnapshot { sent, name: judge.name.clone(), incremental, bytes: 0, time: 0 })
}
