//! A dry run: the result of receiving packages, and whether each stream fits.
//!
//! The whole input is read and verified. Then the streams are judged in one transaction, which is discarded, with all
//! destroys and renames made. Snapshots of earlier streams count as received.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use pool::units::Guid;

use super::{
    census::{Sender, Tree},
    follow::Follow,
    judge::{Judge, Plan},
    request::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest},
};
use crate::{
    admin::{
        delegation::judge::Caller,
        table::{datasets::Datasets, names::Names},
    },
    catalogue::Transaction,
    error::{Error, Result},
    name::{DatasetName, SnapshotName},
    stream::{Begin, Ground, Landing, Start},
};

/// The streams of the packages read so far.
pub(super) struct Rehearsal<'a> {
    datasets: &'a Arc<Datasets>,
    request: &'a ReceiveRequest,
    packages: Vec<Package>,
}

/// The streams of one package.
#[derive(Default)]
struct Package {
    start: Start,
    streams: Vec<Judge>,
}

impl Landing for Rehearsal<'_> {
    type Error = Error;

    fn package(&mut self) {
        self.packages.push(Package::default());
    }

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>> {
        let is_first = self.packages.iter().all(|package| package.streams.is_empty());
        let origin = self.request.origin.clone().filter(|_| is_first);
        let is_later = self.packages.last().is_some_and(|package| !package.streams.is_empty());
        let name = self.request.name(start, begin, is_later)?;
        let force = self.request.force;
        let mut judge = Judge::new(self.datasets.names(), name, begin.clone(), force).destroying(force).cloning(origin);
        judge = judge.lasting(self.request.lasts(begin)).acting_for(Caller::current());
        let open = self.datasets.open_target(&judge)?;
        let _quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        let package = self.packages.last_mut().expect("a stream begins in a package");
        if package.streams.is_empty() {
            package.start = start.clone();
        }
        package.streams.push(judge);
        Ok(None)
    }

    fn finish(&mut self, _: &Begin, _: u64) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

/// The datasets and snapshots that earlier streams would bring.
#[derive(Default)]
struct Brought {
    datasets: HashSet<DatasetName>,
    snapshots: HashSet<Guid>,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn new(datasets: &'a Arc<Datasets>, request: &'a ReceiveRequest) -> Rehearsal<'a> {
        Rehearsal { datasets, request, packages: Vec::new() }
    }

    /// The result of a receive: snapshots received and skipped.
    pub(super) fn conclude(self) -> Result<Arrived> {
        let names = self.datasets.names();
        let trees: Vec<_> = self.packages.iter().map(|package| self.tree(package, &names)).collect::<Result<_>>()?;
        let force = self.request.force;
        self.datasets.dry_run(|tx| {
            let (mut brought, mut arrived) = (Brought::default(), Arrived::default());
            for (package, tree) in self.packages.iter().zip(&trees) {
                if let Some(tree) = tree.as_ref().filter(|_| force) {
                    tree.reconcile(tx, &BTreeSet::new())?;
                }
                for judge in &package.streams {
                    if let Some(tree) = tree {
                        let place = &judge.name.dataset();
                        Follow { tree, place, begin: &judge.begin, force }.run(tx, &BTreeSet::new())?;
                    }
                    if self.would_land(tx, &names, judge, &brought)? {
                        arrived.snapshots.push(snapshot(judge)?);
                    } else {
                        arrived.skipped.push(judge.name.clone());
                    }
                    brought.datasets.insert(judge.name.dataset());
                    brought.snapshots.insert(judge.begin.guid);
                }
            }
            arrived.check_new(self.request)?;
            Ok(arrived)
        })
    }

    /// The replicated tree, if the package has a census.
    fn tree(&self, package: &Package, names: &Names) -> Result<Option<Tree>> {
        let Some(census) = &package.start.census else { return Ok(None) };
        let (top, sent) = (self.request.top(&package.start)?, package.start.root.parse()?);
        Ok(Some(Tree { sender: Sender::new(census), names: names.clone(), top, sent }))
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
        // For a stream that follows another, the current state decides only whether the snapshot exists already.
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
    Ok(ArrivedSnapshot { sent, name: judge.name.clone(), incremental, bytes: 0, time: 0, left_out_holds: 0 })
}
