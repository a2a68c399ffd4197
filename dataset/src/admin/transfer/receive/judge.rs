//! Decides whether a stream fits the pool, and plans the result.
//!
//! A judge reads the catalogue and changes nothing. It decides at the beginning of a stream, so that an unfitting
//! stream is refused early, and again at the end, in the transaction that lands the stream: the second decision counts.

use std::{collections::HashSet, sync::Arc};

use pool::{format::pointer::BlockPointer, units::Guid};

use crate::{
    admin::{
        delegation::{judge::Caller, judgement, powers},
        lifecycle::destroy,
        table::{
            datasets::Datasets,
            feature,
            names::{self, Names},
            opened::Dataset,
        },
        transfer::send::{LAYOUT_WITH_OBJECTS, Need, needs_of},
    },
    catalogue::{DatasetRow, ReceivingRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    lineage::{arrival, branch, dataset, snapshot},
    name::SnapshotName,
    stream::{Begin, Position},
};

/// The result of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// A new dataset; for the stream of a clone, a clone of the given snapshot.
    Create { origin: Option<u64> },
    /// The next state of a dataset, after the given snapshot.
    Continue { target: u64, base: u64 },
    /// The first state of a dataset whose current content may be overwritten.
    Overwrite { target: u64 },
    /// The snapshot exists already.
    Skip,
}

impl Plan {
    /// The snapshot that the hidden dataset is cloned from.
    pub(super) fn base(self) -> Option<u64> {
        match self {
            Plan::Create { origin } => origin,
            Plan::Continue { base, .. } => Some(base),
            Plan::Overwrite { .. } | Plan::Skip => None,
        }
    }

    /// The dataset that gets another tree.
    pub(super) fn target(self) -> Option<u64> {
        match self {
            Plan::Continue { target, .. } | Plan::Overwrite { target } => Some(target),
            Plan::Create { .. } | Plan::Skip => None,
        }
    }
}

/// Decides whether a stream fits, at its beginning and at its end.
pub(super) struct Judge {
    pub(super) names: Names,
    pub(super) name: SnapshotName,
    pub(super) begin: Begin,
    /// Whether changes since the newest snapshot may be lost.
    force: bool,
    /// Whether snapshots later than the base may be destroyed.
    destroys: bool,
    /// The snapshot that the user wants as the origin of a new dataset.
    origin: Option<SnapshotName>,
    /// The user for whom the stream is received, if not the pool's owner.
    caller: Option<Caller>,
    /// Whether a failed receive keeps its partial state, and this receive continues an interrupted one.
    lasting: bool,
    /// The root of the dataset, if only access times have changed since its newest snapshot.
    only_read: Option<BlockPointer>,
}

impl Judge {
    pub(super) fn new(names: Names, name: SnapshotName, begin: Begin, force: bool) -> Judge {
        let (destroys, lasting) = (false, false);
        Judge { names, name, begin, force, destroys, origin: None, caller: None, lasting, only_read: None }
    }

    /// The same judge, for a receive that can be resumed.
    pub(super) fn lasting(self, lasting: bool) -> Judge {
        Judge { lasting, ..self }
    }

    /// The same judge, with another choice for snapshots later than the base.
    pub(super) fn destroying(self, destroys: bool) -> Judge {
        Judge { destroys, ..self }
    }

    /// The same judge, for a user other than the pool's owner.
    pub(super) fn acting_for(self, caller: Option<Caller>) -> Judge {
        Judge { caller, ..self }
    }

    /// The same judge, for a clone of `origin`.
    pub(super) fn cloning(self, origin: Option<SnapshotName>) -> Judge {
        Judge { origin, ..self }
    }

    /// If relevant, checks whether only access times of the dataset have changed since its newest snapshot. The caller
    /// excludes changes.
    pub(super) fn look(&mut self, datasets: &Datasets) -> Result<()> {
        if self.begin.base.is_some() && !self.force {
            self.only_read = datasets.only_read(&self.name.dataset())?;
        }
        Ok(())
    }

    fn is_modified(&self, tx: &Transaction<'_>, target: u64) -> Result<bool> {
        let (_, root) = tx.row_and_block::<DatasetRow>(dataset_key(target))?;
        Ok(arrival::is_modified(tx, target)? && (root.is_none() || root != self.only_read))
    }

    /// The plan of the stream, if the stream fits and the caller has the permissions for the plan.
    pub(super) fn plan(&self, tx: &Transaction<'_>) -> Result<Plan> {
        let plan = self.fitting(tx)?;
        self.permit(tx, plan)?;
        Ok(plan)
    }

    /// Fails if the caller lacks a permission on the dataset that changes, or on the parent of a new dataset. The pool
    /// may have changed since the request was judged.
    fn permit(&self, tx: &Transaction<'_>, plan: Plan) -> Result<()> {
        let Some(caller) = &self.caller else { return Ok(()) };
        let changed = match plan {
            Plan::Skip => return Ok(()),
            Plan::Create { .. } => self.name.dataset().parent().unwrap_or_else(|| self.name.dataset()),
            Plan::Continue { .. } | Plan::Overwrite { .. } => self.name.dataset(),
        };
        let destroys = self.destroys || matches!(plan, Plan::Overwrite { .. });
        judgement::check(tx, &self.names, caller, &judgement::Need::to_receive(&changed, destroys))?;
        let given = plan.target().map_or(Ok(Vec::new()), |target| powers::given(tx, &self.names, caller, target))?;
        if given.is_empty() {
            return Ok(());
        }
        self.refuse(
            format!("its set-uid programs or device nodes would count, which needs permissions: {}", given.join(",")),
            "the owner can set setuid=off and devices=off on the dataset, or give the permissions: fs allow",
        )
    }

    fn fitting(&self, tx: &Transaction<'_>) -> Result<Plan> {
        let Some(needs) = needs_of(self.begin.layout) else {
            let (layout, newest) = (self.begin.layout, LAYOUT_WITH_OBJECTS);
            let problem =
                format!("its file layout version is {layout}, and this program supports versions up to {newest}");
            return self.refuse(problem, "use a newer version of Cenote");
        };
        for Need { feature, what, remedy } in needs {
            if !feature::is_enabled(tx, feature)? {
                return self.refuse(format!("{what}, and this pool's feature {feature} is disabled"), remedy);
            }
        }
        let found = self.names.find(tx, &self.name.dataset())?;
        if let Some(target) = found
            && arrival::snapshot_with(tx, target, self.begin.guid)?.is_some()
        {
            return Ok(Plan::Skip);
        }
        let partial = self.partial(tx, found)?;
        // An interrupted receive that creates the dataset continues with the origin that it has begun with.
        if let Some(hidden) = partial.filter(|hidden| found == Some(*hidden)) {
            let origin = tx.row::<DatasetRow>(dataset_key(hidden))?.origin;
            return self.plan_create(tx, (origin != 0).then_some(origin));
        }
        if let Some(origin) = &self.origin {
            return self.plan_clone(tx, found, origin);
        }
        match (found, &self.begin.base) {
            (Some(target), Some(base)) => self.plan_next(tx, target, base.guid),
            (Some(target), None) => self.plan_overwrite(tx, target),
            (None, Some(base)) if self.begin.clone => match self.nearest(tx, base.guid)? {
                Some(origin) => self.plan_create(tx, Some(origin)),
                None => self.refuse(
                    format!("it is a clone of {}, which is not in this pool", base.name),
                    "receive the origin first, or a full stream",
                ),
            },
            (None, Some(base)) => self.refuse(
                format!("it is an increment from {}, and the destination does not exist", base.name),
                "receive a full stream first, or receive it as a clone of its base: -o origin=SNAPSHOT",
            ),
            (None, None) => self.plan_create(tx, None),
        }
    }

    /// The hidden dataset of the interrupted receive that the stream continues. Fails if an interrupted receive
    /// prevents the stream, or if a resumed stream finds none.
    fn partial(&self, tx: &Transaction<'_>, target: Option<u64>) -> Result<Option<u64>> {
        let partial = target.map(|target| arrival::receiving(tx, target)).transpose()?.flatten();
        let base = self.begin.base.as_ref().map(|base| base.guid);
        match partial {
            Some((hidden, row)) if self.lasting && (row.guid, row.base) == (self.begin.guid, base) => Ok(Some(hidden)),
            Some((_, row)) => Err(Error::Partial { name: self.name.dataset().to_string(), of: row.snapshot }),
            None if self.begin.resumed.is_some() => self.refuse(
                "the stream continues an interrupted receive, and the destination has no partial state".into(),
                "receive the whole snapshot: fs send without -t",
            ),
            None => Ok(None),
        }
    }

    /// The hidden dataset of the interrupted receive that the stream continues, if any.
    pub(super) fn continued(&self, tx: &Transaction<'_>) -> Result<Option<u64>> {
        self.partial(tx, self.names.find(tx, &self.name.dataset())?)
    }

    /// The hidden dataset for a plan of a receive that can be resumed: the one that the stream continues, or a new one.
    pub(super) fn begin_lasting(&self, tx: &mut Transaction<'_>, plan: Plan, guid: Guid) -> Result<u64> {
        if let Some(hidden) = self.continued(tx)? {
            let row: DatasetRow = tx.row(dataset_key(hidden))?;
            return if row.origin == plan.base().unwrap_or(0) { Ok(hidden) } else { Err(changed(self.name.as_str())) };
        }
        let Begin { dataset, snapshot, base, .. } = &self.begin;
        let row = ReceivingRow {
            target: plan.target().unwrap_or(0),
            snapshot: format!("{dataset}@{snapshot}"),
            guid: self.begin.guid,
            base: base.as_ref().map(|base| base.guid),
            properties: self.begin.own_properties().is_some(),
        };
        let name = self.name.dataset();
        let place = match plan.target() {
            Some(_) => None,
            None => Some((self.names.parent(tx, &name, "received")?, name.leaf())),
        };
        let hidden = arrival::begin_lasting(tx, plan.base(), place, &row, guid)?;
        if self.begin.is_backup() {
            arrival::note_backup(tx, hidden)?;
        }
        Ok(hidden)
    }

    /// Fails if a resumed stream starts after the position of the interrupted receive.
    pub(super) fn check_position(&self, position: Position) -> Result<()> {
        match self.begin.resumed {
            Some(start) if start > position.key => self.refuse(
                format!("the stream starts at the key {start}, and the partial state ends at {}", position.key),
                "send with the present token: fs get receive_resume_token",
            ),
            _ => Ok(()),
        }
    }

    /// Plans a new dataset as a clone of `origin`: the base of an incremental stream, or any snapshot for a full
    /// stream, which contains the whole tree.
    fn plan_clone(&self, tx: &Transaction<'_>, found: Option<u64>, origin: &SnapshotName) -> Result<Plan> {
        if found.is_some() {
            let problem = "the dataset exists, and -o origin= creates a new one".into();
            return self.refuse(problem, "leave -o origin= out, or use another name");
        }
        let Ok(id) = self.names.snapshot(tx, origin) else {
            let problem = format!("the origin '{origin}' does not exist");
            return self.refuse(problem, "find its name: fs list -t snapshot -o name,guid");
        };
        let guid = tx.row::<SnapshotRow>(snapshot_key(id))?.guid;
        match &self.begin.base {
            Some(base) if base.guid != guid => self.refuse(
                format!(
                    "it is an increment from {}, with the GUID {}, and '{origin}' is another snapshot, with the GUID {}",
                    base.name, base.guid.0, guid.0
                ),
                "find the snapshot with the GUID: fs list -t snapshot -o name,guid",
            ),
            _ => self.plan_create(tx, Some(id)),
        }
    }

    /// The nearest snapshot with the given GUID: within the parent's descendants, else within the grandparent's, and so
    /// on. So a clone finds its origin in the same replication, not in another copy.
    fn nearest(&self, tx: &Transaction<'_>, guid: Guid) -> Result<Option<u64>> {
        let mut seen = HashSet::new();
        let mut above = self.name.dataset().parent();
        while let Some(name) = above {
            above = name.parent();
            let Some(top) = self.names.find(tx, &name)? else { continue };
            for dataset in names::subtree(tx, top)? {
                if !seen.insert(dataset) {
                    continue;
                }
                if let Some(found) = arrival::snapshot_with(tx, dataset, guid)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn plan_create(&self, tx: &Transaction<'_>, origin: Option<u64>) -> Result<Plan> {
        self.names.parent(tx, &self.name.dataset(), "received")?;
        // The clone shows the origin's files.
        if let (Some(origin), Some(caller)) = (origin, &self.caller) {
            let origin = self.names.of_snapshot(tx, origin)?;
            judgement::check(tx, &self.names, caller, &judgement::Need::all(&origin, &["clone"]))?;
        }
        Ok(Plan::Create { origin })
    }

    fn plan_next(&self, tx: &Transaction<'_>, target: u64, base: Guid) -> Result<Plan> {
        let Some(newest) = snapshot::line(tx, target)?.pop() else {
            let problem = "it is an increment, and the destination has no snapshot".into();
            return self.refuse(problem, "receive a full stream");
        };
        let Some(base) = arrival::snapshot_with(tx, target, base)? else {
            let newest: SnapshotRow = tx.row(snapshot_key(newest))?;
            let problem = format!(
                "it is an increment from a snapshot missing at the destination; the newest snapshot is @{}",
                newest.name
            );
            return self.refuse(problem, "receive the increments in between, or a full stream under another name");
        };
        let later = later(tx, target, base)?;
        if !self.destroys && base != newest {
            let newest: SnapshotRow = tx.row(snapshot_key(newest))?;
            let problem = format!("it is an increment, but not from the newest snapshot @{}", newest.name);
            return self.refuse(problem, "use -F to destroy the snapshots after the base of the increment");
        }
        if !self.force && self.is_modified(tx, target)? {
            let problem = "the dataset was modified since its newest snapshot".into();
            return self.refuse(problem, "roll the dataset back, or use -F to roll it back while receiving");
        }
        for id in &later {
            match destroy::check_free(tx, &self.names, *id) {
                Err(error @ (Error::Held { .. } | Error::HasClones { .. })) => {
                    let problem = format!("a snapshot after the base of the increment cannot be destroyed: {error}");
                    return self.refuse(problem, "release the holds, and destroy or promote the clones");
                }
                other => other?,
            }
        }
        self.vacant(tx, target, &later)?;
        Ok(Plan::Continue { target, base })
    }

    /// The names of the snapshots that a plan destroys.
    pub(super) fn doomed(&self, tx: &Transaction<'_>, plan: Plan) -> Result<Vec<String>> {
        let Plan::Continue { target, base } = plan else { return Ok(Vec::new()) };
        let names = later(tx, target, base)?.into_iter().map(|id| Ok(self.names.of_snapshot(tx, id)?.to_string()));
        names.collect()
    }

    fn plan_overwrite(&self, tx: &Transaction<'_>, target: u64) -> Result<Plan> {
        let row: DatasetRow = tx.row(dataset_key(target))?;
        if !self.force {
            return self.refuse("the dataset exists".into(), "use -F to overwrite the dataset, or use another name");
        }
        if row.newest != 0 {
            return self.refuse(
                "the dataset has snapshots".into(),
                "destroy the snapshots to overwrite the dataset, or use another name",
            );
        }
        Ok(Plan::Overwrite { target })
    }

    fn vacant(&self, tx: &Transaction<'_>, target: u64, doomed: &[u64]) -> Result<()> {
        match dataset::snapshot_named(tx, target, self.name.snapshot())? {
            Some(id) if !doomed.contains(&id) => Err(Error::snapshot_exists(&self.name)),
            _ => Ok(()),
        }
    }

    /// Turns the hidden dataset into the planned result, and takes the snapshot. Returns the dataset's id.
    pub(super) fn land(&self, tx: &mut Transaction<'_>, plan: Plan, hidden: u64) -> Result<u64> {
        let row = tx.find::<DatasetRow>(dataset_key(hidden))?.map(|(row, _)| row);
        let fits = row.is_some_and(|row| row.hidden && row.origin == plan.base().unwrap_or(0));
        if plan == Plan::Skip || !fits {
            return Err(changed(self.name.as_str()));
        }
        let dataset = match plan {
            Plan::Create { .. } => {
                let name = self.name.dataset();
                arrival::show(tx, hidden, self.names.parent(tx, &name, "received")?, name.leaf())?;
                hidden
            }
            Plan::Continue { target, base } => {
                for id in later(tx, target, base)?.into_iter().rev() {
                    snapshot::destroy(tx, id)?;
                }
                if arrival::is_modified(tx, target)? {
                    branch::roll_back(tx, target)?;
                }
                arrival::replace(tx, target, hidden)?;
                target
            }
            Plan::Overwrite { target } => {
                arrival::overwrite(tx, target, hidden)?;
                target
            }
            Plan::Skip => unreachable!("it was refused"),
        };
        let Begin { guid, creation, .. } = self.begin;
        arrival::take_snapshot(tx, dataset, self.name.snapshot(), guid, creation)?;
        Ok(dataset)
    }

    fn refuse<T>(&self, problem: String, remedy: &'static str) -> Result<T> {
        Err(Error::NotReceived { name: self.name.to_string(), problem, remedy })
    }
}

/// The snapshots of a dataset after its snapshot `base`, oldest first.
fn later(tx: &Transaction<'_>, dataset: u64, base: u64) -> Result<Vec<u64>> {
    let line = snapshot::line(tx, dataset)?;
    Ok(line.into_iter().skip_while(|id| *id != base).skip(1).collect())
}

impl Datasets {
    /// Opens the target dataset of a stream, if the dataset exists.
    pub(super) fn open_target(&self, judge: &Judge) -> Result<Option<Arc<Dataset>>> {
        let name = judge.name.dataset();
        match self.read(|tx| judge.names.find(tx, &name))? {
            // A damaged dataset cannot be opened, and so has no mount to exclude.
            Some(_) => Ok(self.open_dataset(&name).ok()),
            None => Ok(None),
        }
    }
}

/// The error for a request whose effects have changed since the stream was checked.
pub(super) fn changed(name: &str) -> Error {
    Error::NotReceived {
        name: name.to_owned(),
        problem: "the destination changed during the receive".into(),
        remedy: "send and receive it again",
    }
}
