//! Destroying datasets and snapshots.
//!
//! First all datasets and snapshots that a request destroys are collected and checked. Then they are destroyed so that
//! nothing depends on a destroyed object: children before parents, clones before their origins.

use std::collections::{BTreeSet, HashMap};

use crate::{
    admin::table::{
        datasets::Datasets,
        history,
        names::{self, Names},
    },
    catalogue::{DatasetRow, ROOT, ReceivingRow, SnapshotRow, Transaction, dataset_key, receiving_key, snapshot_key},
    error::{Error, Result},
    lineage::{arrival, dataset, snapshot},
    name::{DatasetName, SnapshotSet, SnapshotSpan},
};

/// The remedy for a request to destroy the pool's root dataset.
const NOT_THE_ROOT: &str = "to destroy all file systems: fs destroy -r; to destroy the pool: pool destroy";

/// A dataset to destroy.
#[derive(Clone, Debug)]
pub struct DestroyRequest {
    /// The dataset to destroy.
    pub name: DatasetName,
    /// Whether to destroy all descendants and all snapshots too (`-r`).
    pub recursive: bool,
    /// As `recursive`, and also all clones of the snapshots, anywhere in the pool (`-R`).
    pub dependents: bool,
}

/// Snapshots to destroy.
#[derive(Clone, Debug)]
pub struct DestroySnapshotsRequest {
    /// One or several snapshots of one dataset.
    pub set: SnapshotSet,
    /// Whether to destroy snapshots with the same names in descendants too (`-r`).
    pub recursive: bool,
    /// Whether to destroy the clones too (`-R`).
    pub dependents: bool,
    /// Whether to mark snapshots with holds or clones for deferred destruction (`-d`).
    pub defer: bool,
}

/// The result of a request, or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// The names of the destroyed datasets and snapshots, in the order of destruction.
    pub names: Vec<String>,
    /// The ids of the destroyed datasets.
    pub datasets: Vec<u64>,
    /// Snapshots marked for deferred destruction.
    pub deferred: Vec<String>,
    /// The freed space, in bytes.
    pub reclaimed: u64,
}

impl Datasets {
    /// Destroys a dataset. With `dry_run` nothing changes, and the result describes the destruction.
    pub fn destroy(&self, request: DestroyRequest, dry_run: bool) -> Result<Destroyed> {
        self.run_or_not(dry_run, self.destruction(request, self.disturbed(dry_run)))
    }

    /// As [`Datasets::destroy`], also for a user without the permission: for what the user's own request has created.
    pub(in crate::admin) fn destroy_unjudged(&self, request: DestroyRequest) -> Result<Destroyed> {
        self.run_or_not(false, Self::destruction_by_owner(self.names(), request, self.mounted()))
    }

    /// The names that a request would destroy, from the current catalogue: without a commit, and without the space
    /// freed. Fails if the user may not destroy one of them.
    pub fn doomed(&self, request: DestroyRequest) -> Result<Vec<String>> {
        Ok(self.dry_run(self.destruction(request, BTreeSet::new()))?.names)
    }

    fn destruction(
        &self,
        request: DestroyRequest,
        mounted: BTreeSet<u64>,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Destroyed> + Send + use<> {
        let judgement = self.judgement();
        let mut destroy = Self::destruction_by_owner(self.names(), request, mounted);
        move |tx| {
            let done = destroy(tx)?;
            judgement.destroys(&tx.before(), &done.names)?;
            Ok(done)
        }
    }

    fn destruction_by_owner(
        names: Names,
        request: DestroyRequest,
        mounted: BTreeSet<u64>,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Destroyed> + Send + use<> {
        move |tx| {
            let id = names.dataset(tx, &request.name)?;
            if request.name.is_pool() {
                if !request.recursive && !request.dependents {
                    return Err(Error::IsRoot {
                        name: request.name.to_string(),
                        action: "destroyed",
                        remedy: Some(NOT_THE_ROOT),
                    });
                }
                return measured(tx, |tx, done| destroy_below_root(tx, &names, request.dependents, &mounted, done));
            }
            check_alone(tx, &names, id, &request)?;
            measured(tx, |tx, done| destroy_datasets(tx, &names, &[id], request.dependents, &mounted, done))
        }
    }

    /// Destroys snapshots. With `dry_run` nothing changes, and the result describes the destruction.
    pub fn destroy_snapshots(&self, request: DestroySnapshotsRequest, dry_run: bool) -> Result<Destroyed> {
        self.run_or_not(dry_run, self.destruction_of_snapshots(request, self.disturbed(dry_run)))
    }

    /// The names that a request would destroy: see [`Datasets::doomed`].
    pub fn doomed_with_snapshots(&self, request: DestroySnapshotsRequest) -> Result<Vec<String>> {
        Ok(self.dry_run(self.destruction_of_snapshots(request, BTreeSet::new()))?.names)
    }

    fn destruction_of_snapshots(
        &self,
        request: DestroySnapshotsRequest,
        mounted: BTreeSet<u64>,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Destroyed> + Send + use<> {
        let (names, judgement) = (self.names(), self.judgement());
        move |tx| {
            let doomed = choose(tx, &names, &request)?;
            let done = measured(tx, |tx, done| {
                for id in &doomed {
                    destroy_snapshot(tx, &names, *id, &request, &mounted, done)?;
                }
                Ok(())
            })?;
            let all = [done.names.as_slice(), &done.deferred].concat();
            judgement.destroys(&tx.before(), &all)?;
            Ok(done)
        }
    }

    /// The mounts that prevent the destruction of a dataset: none for a dry run.
    fn disturbed(&self, dry_run: bool) -> BTreeSet<u64> {
        if dry_run { BTreeSet::new() } else { self.mounted() }
    }

    fn run_or_not<F>(&self, dry_run: bool, mut request: F) -> Result<Destroyed>
    where
        F: FnMut(&mut Transaction<'_>) -> Result<Destroyed> + Send + 'static,
    {
        if !dry_run {
            let doomed = self.dry_run(&mut request)?.datasets;
            let open = self.open_with_ids(doomed);
            // From here on no write is allowed: the written data would be lost silently.
            let _quiet: Vec<_> = open.iter().map(|dataset| dataset.head().exclude_changes()).collect();
            return self.run(request);
        }
        // Recent writes count too.
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        self.dry_run(request)
    }

    /// The ids of the mounted datasets, and of those that a receive fills.
    pub(in crate::admin) fn mounted(&self) -> BTreeSet<u64> {
        self.mounts.lock().keys().chain(self.occupied.lock().iter()).copied().collect()
    }

    /// The ids of the datasets that a receive fills.
    pub(in crate::admin) fn occupied(&self) -> BTreeSet<u64> {
        self.occupied.lock().clone()
    }
}

/// Runs `destroy` and computes the freed space.
fn measured(
    tx: &mut Transaction<'_>,
    mut destroy: impl FnMut(&mut Transaction<'_>, &mut Destroyed) -> Result<()>,
) -> Result<Destroyed> {
    let before = tx.master()?.physical.allocated;
    let mut done = Destroyed::default();
    destroy(tx, &mut done)?;
    done.reclaimed = before.saturating_sub(tx.master()?.physical.allocated);
    // The object named in the request is destroyed last, so the reversed list begins with it.
    let names: Vec<&String> = done.names.iter().rev().collect();
    history::log_each(tx, "destroy", &names)?;
    history::log_each(tx, "destroy later", &done.deferred)?;
    Ok(done)
}

/// Without a flag, only a dataset without descendants and snapshots is destroyed.
fn check_alone(tx: &Transaction<'_>, names: &Names, id: u64, request: &DestroyRequest) -> Result<()> {
    if request.recursive || request.dependents {
        return Ok(());
    }
    let row: DatasetRow = tx.row(dataset_key(id))?;
    let name = request.name.to_string();
    if row.children > 0 {
        let below: Vec<u64> = dataset::children(tx, id)?.into_iter().map(|(_, child)| child).collect();
        return Err(Error::HasChildren { name, children: names.of_datasets(tx, &below)? });
    }
    if row.snapshots > 0 {
        let rows = snapshot::line(tx, id)?;
        let snapshots = rows.iter().map(|id| Ok(names.of_snapshot(tx, *id)?.to_string())).collect::<Result<_>>()?;
        return Err(Error::HasSnapshots { name, snapshots });
    }
    Ok(())
}

/// Destroys datasets with all descendants, and with `dependents` also their clones.
pub(in crate::admin) fn destroy_datasets(
    tx: &mut Transaction<'_>,
    names: &Names,
    tops: &[u64],
    dependents: bool,
    mounted: &BTreeSet<u64>,
    done: &mut Destroyed,
) -> Result<()> {
    let doomed = gather(tx, names, tops, dependents)?;
    let mut full_names = HashMap::new();
    for id in &doomed {
        let name = names.text_of(tx, *id)?;
        if *id == ROOT {
            return Err(Error::IsRoot { name, action: "destroyed", remedy: Some(NOT_THE_ROOT) });
        }
        let is_filled = mounted.contains(id) || !tx.contains(receiving_key(*id))?;
        if is_filled && tx.row::<DatasetRow>(dataset_key(*id))?.hidden {
            return Err(Error::Busy { name, holder: "a stream is being received into it".into() });
        }
        if mounted.contains(id) {
            return Err(Error::Busy { name, holder: "it is mounted".into() });
        }
        full_names.insert(*id, name);
    }
    for id in order(tx, &doomed)? {
        destroy_dataset(tx, id, &full_names[&id], done)?;
    }
    Ok(())
}

/// Destroys all datasets of a pool except the root dataset, and all snapshots of the root dataset.
fn destroy_below_root(
    tx: &mut Transaction<'_>,
    names: &Names,
    dependents: bool,
    mounted: &BTreeSet<u64>,
    done: &mut Destroyed,
) -> Result<()> {
    for of in snapshot::line(tx, ROOT)? {
        check_held(tx, names, of)?;
    }
    let below: Vec<u64> = dataset::children(tx, ROOT)?.into_iter().map(|(_, child)| child).collect();
    destroy_datasets(tx, names, &below, dependents, mounted, done)?;
    destroy_snapshots_of(tx, ROOT, &names.text_of(tx, ROOT)?, done)
}

/// Destroys all snapshots of a dataset; none has holds or clones any more.
fn destroy_snapshots_of(tx: &mut Transaction<'_>, id: u64, name: &str, done: &mut Destroyed) -> Result<()> {
    while let Some(oldest) = dataset::oldest_snapshot(tx, id)? {
        done.names.push(format!("{name}@{}", tx.row::<SnapshotRow>(snapshot_key(oldest))?.name));
        snapshot::destroy(tx, oldest)?;
    }
    Ok(())
}

/// Destroys a dataset and its snapshots. All descendants and clones are destroyed too, before or later.
fn destroy_dataset(tx: &mut Transaction<'_>, id: u64, name: &str, done: &mut Destroyed) -> Result<()> {
    // A child may have to be destroyed after its ancestor, which is a clone of the child. The child is moved below the
    // root dataset for the time being, under a name that no user can type.
    for (_, child) in dataset::children(tx, id)? {
        dataset::move_to(tx, child, ROOT, &format!("%{child}"))?;
    }
    destroy_snapshots_of(tx, id, name, done)?;
    let is_listed = tx.row::<DatasetRow>(dataset_key(id))?.is_listed();
    dataset::destroy(tx, id)?;
    done.names.extend(is_listed.then(|| name.to_owned()));
    done.datasets.push(id);
    Ok(())
}

/// All datasets to destroy, each after its parent, or the reason for a refusal.
fn gather(tx: &Transaction<'_>, names: &Names, tops: &[u64], dependents: bool) -> Result<Vec<u64>> {
    let (mut doomed, mut known) = (Vec::new(), BTreeSet::new());
    let mut outside: Vec<(u64, Vec<u64>)> = Vec::new();
    let mut todo: Vec<u64> = tops.to_vec();
    while let Some(top) = todo.pop() {
        for id in names::subtree(tx, top)? {
            if !known.insert(id) {
                continue;
            }
            doomed.push(id);
            // What an interrupted receive has stored for the dataset goes too.
            todo.extend(arrival::receiving(tx, id)?.map(|(hidden, _)| hidden));
            for of in snapshot::line(tx, id)? {
                check_held(tx, names, of)?;
                let clones = snapshot::clones(tx, of)?;
                if dependents {
                    todo.extend(clones);
                } else if !clones.is_empty() {
                    outside.push((of, clones));
                }
            }
        }
    }
    for (of, clones) in outside {
        let clones: Vec<u64> = clones.into_iter().filter(|clone| !known.contains(clone)).collect();
        if !clones.is_empty() {
            return Err(has_clones(tx, names, of, &clones)?);
        }
    }
    Ok(doomed)
}

/// Fails if a snapshot has holds or clones.
pub(in crate::admin) fn check_free(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<()> {
    check_held(tx, names, id)?;
    match snapshot::clones(tx, id)?.as_slice() {
        [] => Ok(()),
        clones => Err(has_clones(tx, names, id, clones)?),
    }
}

fn check_held(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<()> {
    if tx.row::<SnapshotRow>(snapshot_key(id))?.holds == 0 {
        return Ok(());
    }
    let tags = snapshot::holds(tx, id)?.into_iter().map(|hold| hold.name).collect();
    Err(Error::Held { snapshot: names.of_snapshot(tx, id)?.to_string(), tags })
}

fn has_clones(tx: &Transaction<'_>, names: &Names, of: u64, clones: &[u64]) -> Result<Error> {
    let snapshot = names.of_snapshot(tx, of)?.to_string();
    for clone in clones {
        if let Some((row, _)) = tx.find::<ReceivingRow>(receiving_key(*clone))? {
            return Ok(Error::Partial { name: names.text_of(tx, row.target)?, of: row.snapshot });
        }
    }
    Ok(Error::HasClones { snapshot, clones: names.of_datasets(tx, clones)? })
}

/// Sorts clones before the datasets of their origins, and otherwise children before parents. The two rules can
/// contradict each other: a dataset may have been moved below its clone.
fn order(tx: &Transaction<'_>, doomed: &[u64]) -> Result<Vec<u64>> {
    enum Visit {
        Enter(u64),
        Leave(u64),
    }
    let mut ordered = Vec::with_capacity(doomed.len());
    let mut entered = BTreeSet::new();
    let mut todo: Vec<Visit> = doomed.iter().copied().map(Visit::Enter).collect();
    while let Some(visit) = todo.pop() {
        match visit {
            Visit::Leave(id) => ordered.push(id),
            Visit::Enter(id) if !entered.insert(id) => {}
            Visit::Enter(id) => {
                todo.push(Visit::Leave(id));
                for of in snapshot::line(tx, id)? {
                    todo.extend(snapshot::clones(tx, of)?.into_iter().map(Visit::Enter));
                }
            }
        }
    }
    Ok(ordered)
}

/// The ids of the snapshots that a request names.
fn choose(tx: &Transaction<'_>, names: &Names, request: &DestroySnapshotsRequest) -> Result<Vec<u64>> {
    let top = names.dataset(tx, &request.set.dataset)?;
    let datasets = if request.recursive { names::subtree(tx, top)? } else { vec![top] };
    let mut chosen = Vec::new();
    for id in datasets {
        let line = snapshot::line(tx, id)?;
        let line: Vec<(u64, String)> = line
            .into_iter()
            .map(|of| Ok((of, tx.row::<SnapshotRow>(snapshot_key(of))?.name)))
            .collect::<Result<_>>()?;
        let mut of_line: Vec<usize> = request.set.spans.iter().flat_map(|span| within(&line, span)).collect();
        of_line.sort_unstable();
        of_line.dedup();
        chosen.extend(of_line.into_iter().map(|index| line[index].0));
    }
    if chosen.is_empty() {
        return Err(Error::no_snapshot(&request.set));
    }
    Ok(chosen)
}

/// The range of positions in a line that a span covers; empty if a named snapshot does not exist.
fn within(line: &[(u64, String)], span: &SnapshotSpan) -> std::ops::Range<usize> {
    let find = |name: &str| line.iter().position(|(_, known)| known == name);
    let range = match span {
        SnapshotSpan::One(name) => find(name).map(|index| index..index + 1),
        SnapshotSpan::Range { first, last } => {
            let first = first.as_deref().map_or(Some(0), find);
            let last = last.as_deref().map_or(line.len().checked_sub(1), find);
            first.zip(last).filter(|(first, last)| first <= last).map(|(first, last)| first..last + 1)
        }
    };
    range.unwrap_or(0..0)
}

fn destroy_snapshot(
    tx: &mut Transaction<'_>,
    names: &Names,
    id: u64,
    request: &DestroySnapshotsRequest,
    mounted: &BTreeSet<u64>,
    done: &mut Destroyed,
) -> Result<()> {
    let row: SnapshotRow = tx.row(snapshot_key(id))?;
    if request.defer && (row.holds > 0 || !snapshot::clones(tx, id)?.is_empty()) {
        let name = names.of_snapshot(tx, id)?.to_string();
        tx.set(snapshot_key(id), &SnapshotRow { deferred: true, ..row })?;
        done.deferred.push(name);
        return Ok(());
    }
    destroy_now(tx, names, id, request.dependents, mounted, done)
}

/// Destroys a snapshot without holds, and with `dependents` its clones.
pub(in crate::admin) fn destroy_now(
    tx: &mut Transaction<'_>,
    names: &Names,
    id: u64,
    dependents: bool,
    mounted: &BTreeSet<u64>,
    done: &mut Destroyed,
) -> Result<()> {
    let name = names.of_snapshot(tx, id)?.to_string();
    check_held(tx, names, id)?;
    let clones = snapshot::clones(tx, id)?;
    if !clones.is_empty() && !dependents {
        return Err(has_clones(tx, names, id, &clones)?);
    }
    if !clones.is_empty() {
        destroy_datasets(tx, names, &clones, true, mounted, done)?;
    }
    // The snapshot may have been destroyed with its last clone.
    if tx.contains(snapshot_key(id))? {
        snapshot::destroy(tx, id)?;
    }
    done.names.push(name);
    Ok(())
}
