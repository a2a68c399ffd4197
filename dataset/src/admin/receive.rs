//! Receiving: where a stream lands, whether it fits, and what it becomes.
//!
//! A stream fills a hidden data set ([`arrival`]). One request at its end, with the stream verified, makes it a data set
//! or the new tree of one, takes the snapshot and sets what properties came along: so all of it is visible or nothing.
//! What was checked at the beginning is checked again then, for much may have happened in between.

use std::{io::Read, sync::Arc};

use pool::{env::Nanos, error::Error as PoolError, format::pointer::BlockPointer, units::Guid};

use super::{
    datasets::Datasets,
    destroy::DestroyRequest,
    error::{Error, Result},
    limits,
    open::Dataset,
    property::{self, Assignment},
    resolve::{self, Names},
    send::LAYOUT,
};
use crate::{
    catalogue::{DatasetRow, ROOT, SnapshotRow, Transaction, Value, dataset_key, kind, snapshot_key},
    lineage::{arrival, branch},
    name::{DatasetName, Name, SnapshotName},
    property::Property,
    stream::{self, Begin, Ground, Landing, Received, Start, Totals},
};

/// How the data sets in a stream are named here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The one that was sent is called as the target; those below it keep their names below that.
    #[default]
    Exact,
    /// The names without the pool's, below the target.
    WithoutPool,
    /// From the last part of the name of the one that was sent on, below the target.
    LastPart,
}

/// What to receive into.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The data set, or the snapshot if it is to be called otherwise than it was.
    pub target: Name,
    /// How names are made.
    pub naming: Naming,
    /// Whether to roll a data set back that was changed since its newest snapshot, or to overwrite one that has none.
    pub force: bool,
    /// Properties to set, whatever comes in the stream.
    pub properties: Vec<Assignment>,
    /// Properties in the stream not to take.
    pub exclude: Vec<String>,
    /// Who owns the root directories of data sets that are created above the target: user and group.
    pub owner: (u32, u32),
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The snapshots, in order.
    pub snapshots: Vec<ArrivedSnapshot>,
    /// Data sets that have another tree now: what a mount of one has cached is void.
    pub replaced: Vec<u64>,
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
    /// How much the stream held.
    pub totals: Totals,
    /// How long it took, in nanoseconds.
    pub time: Nanos,
}

impl Datasets {
    /// Receives a stream, with `verifiers` threads that verify ahead. `progress` is told now and then how many bytes
    /// were read. That some files of a data set were read since its newest snapshot is no reason to refuse an increment.
    /// Says what arrived and whether that is all.
    ///
    /// # Errors
    /// If anything is wrong with the stream, or it does not fit, or is beyond a quota or what the reservations of others
    /// leave: then nothing of it is visible, nor any data set that was made above it. Of several in a package those before
    /// the one in question stay, and have arrived.
    pub fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> (Arrived, Result<()>) {
        let arrived = Arrived::default();
        let mut lander = Lander { datasets: self, request, current: None, parents: Vec::new(), arrived };
        let received = stream::receive(input, &mut lander, verifiers, progress);
        if received.is_err() {
            lander.destroy_parents();
        }
        let Lander { mut arrived, .. } = lander;
        let reloaded = if arrived.replaced.is_empty() { Ok(()) } else { self.reload_options() };
        let result = received.and_then(|received| {
            arrived.received = received;
            reloaded
        });
        (arrived, result)
    }

    /// Reads the head of a stream and says what its first snapshot would be called, if it fits: a dry run.
    pub fn plan_receive(&self, request: &ReceiveRequest, input: &mut dyn Read) -> Result<SnapshotName> {
        let (start, begin) = stream::identify(input)?;
        let name = request.name(&start, &begin)?;
        let (names, force) = (self.names(), request.force);
        let mut judge = Judge { names, name: name.clone(), begin, force, alone: start.streams == 1, only_read: None };
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        let open = self.open_target(&judge)?;
        let _quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self)?;
        self.read(|tx| judge.plan(tx))?;
        Ok(name)
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
}

/// Lands the streams of one package.
struct Lander<'a> {
    datasets: &'a Arc<Datasets>,
    request: ReceiveRequest,
    current: Option<Current>,
    /// What was created above the data sets in the package, the topmost first.
    parents: Vec<DatasetName>,
    arrived: Arrived,
}

/// The stream that is landing.
struct Current {
    hidden: u64,
    snapshot: SnapshotName,
    started: Nanos,
}

/// What becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// A new data set; of a clone's stream the clone of this snapshot.
    Create { origin: Option<u64> },
    /// The next state of a data set, after this snapshot.
    Continue { target: u64, base: u64 },
    /// The first state of a data set that has none that counts.
    Overwrite { target: u64 },
    /// It is here already.
    Skip,
}

impl Plan {
    /// The snapshot that the hidden data set begins as.
    fn base(self) -> Option<u64> {
        match self {
            Plan::Create { origin } => origin,
            Plan::Continue { base, .. } => Some(base),
            Plan::Overwrite { .. } | Plan::Skip => None,
        }
    }

    /// The data set that gets another tree.
    fn target(self) -> Option<u64> {
        match self {
            Plan::Continue { target, .. } | Plan::Overwrite { target } => Some(target),
            Plan::Create { .. } | Plan::Skip => None,
        }
    }
}

impl Landing for Lander<'_> {
    type Error = Error;

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>> {
        let snapshot = self.request.name(start, begin)?;
        let engine = self.datasets.engine();
        // What was changed lately is in the catalogue then, and is seen as a change.
        engine.commit()?;
        let (names, guid, owner) = (self.datasets.names(), self.datasets.new_guid(), self.request.owner);
        let force = self.request.force || self.arrived.has(&snapshot);
        let (name, alone) = (snapshot.clone(), start.streams == 1);
        let mut judge = Judge { names, name, begin: begin.clone(), force, alone, only_read: None };
        let parents = self.request.naming != Naming::Exact;
        if parents && let Some(parent) = snapshot.dataset().parent() {
            let request = super::CreateRequest { name: parent, parents, properties: Vec::new(), owner };
            self.parents.extend(self.datasets.create(request)?);
        }
        let open = self.datasets.open_target(&judge)?;
        let quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        let hidden = self.datasets.run(move |tx| match judge.plan(tx)? {
            Plan::Skip => Ok(None),
            plan => arrival::begin(tx, plan.base(), guid).map(Some),
        })?;
        drop(quiet);
        let Some(hidden) = hidden else { return Ok(None) };
        self.current = Some(Current { hidden, snapshot, started: self.datasets.now() });
        let (root, level) = self.datasets.read(|tx| arrival::tree(tx, hidden))?;
        let copies = self.copies()?;
        Ok(Some(Ground { head: engine.open_head(hidden, Some((root, level))), copies }))
    }

    fn finish(&mut self, begin: &Begin, totals: &Totals) -> Result<()> {
        let Some(Current { hidden, snapshot, started }) = &self.current else {
            unreachable!("a stream ends after it began")
        };
        let (hidden, name, started) = (*hidden, snapshot.clone(), *started);
        let force = self.request.force || self.arrived.has(&name);
        let names = self.datasets.names();
        let mut judge = Judge { names, name: name.clone(), begin: begin.clone(), force, alone: true, only_read: None };
        // A data set that is in use is held still, so that what it shows changes at one instant.
        let open = self.datasets.open_target(&judge)?;
        let quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        let (own, exclude) = (self.request.properties.clone(), self.request.exclude.clone());
        let engine = self.datasets.engine().clone();
        let target = self.datasets.run(move |tx| {
            let plan = judge.plan(tx)?;
            let dataset = judge.land(tx, plan, hidden)?;
            // In the syncing context, all that was received is written.
            let room = engine.available();
            take_properties(tx, &judge, dataset, &exclude, room)?;
            property::assign_all(tx, &judge.names, dataset, &own, true, room)?;
            limits::check_landed(tx, &judge.names, dataset, room)?;
            Ok(plan.target())
        })?;
        if let Some(dataset) = &open {
            dataset.fs().tree_replaced().map_err(|errno| PoolError::damaged(name.as_str(), errno))?;
        }
        drop(quiet);
        self.current = None;
        self.arrived.replaced.extend(target);
        let sent = begin.dataset.parse::<DatasetName>()?.snapshot(&begin.snapshot)?;
        let (incremental, time) = (begin.base.is_some(), self.datasets.now() - started);
        self.arrived.snapshots.push(ArrivedSnapshot { sent, name, incremental, totals: *totals, time });
        Ok(())
    }

    fn abandon(&mut self) {
        let Some(Current { hidden, .. }) = self.current.take() else { return };
        // The next import tries again.
        if let Err(error) = self.datasets.run(move |tx| arrival::abandon(tx, hidden)) {
            tracing::warn!("cannot destroy what a broken-off receive has left: {error}");
            self.datasets.engine().close_head(hidden);
        }
    }
}

impl Datasets {
    fn open_target(&self, judge: &Judge) -> Result<Option<Arc<Dataset>>> {
        let name = judge.name.dataset();
        match self.read(|tx| judge.names.find(tx, &name))? {
            // A data set whose tree is damaged cannot be opened; then there is nobody to keep out.
            Some(_) => Ok(self.open_dataset(&name).ok()),
            None => Ok(None),
        }
    }
}

impl Lander<'_> {
    /// Destroys what was created above data sets that did not come, the lowest first. One that something has come below,
    /// or that somebody uses, stays.
    fn destroy_parents(&mut self) {
        while let Some(name) = self.parents.pop() {
            let request = DestroyRequest { name: name.clone(), recursive: false, dependents: false };
            if let Err(error) = self.datasets.destroy(request, false) {
                tracing::debug!(%name, "stays, though it was created for a stream that did not come: {error}");
            }
        }
    }

    /// How many copies the blocks of the stream get: what the data set says, or the nearest one above it.
    fn copies(&self) -> Result<u8> {
        let Some(current) = &self.current else { return Ok(1) };
        let names = self.datasets.names();
        let set =
            self.request.properties.iter().rev().find(|own| own.property == "copies").map(|own| own.value.clone());
        let value = match set {
            Some(value) => Some(value),
            None => self.datasets.read(|tx| {
                let mut at = Some(current.snapshot.dataset());
                while let Some(name) = at {
                    if let Some(id) = names.find(tx, &name)? {
                        return Ok(property::effective(tx, &names, id)?.remove("copies").map(|valued| valued.value));
                    }
                    at = name.parent();
                }
                Ok(None)
            })?,
        };
        Ok(value.and_then(|value| value.parse().ok()).unwrap_or(1).clamp(1, 3))
    }
}

impl Arrived {
    /// Whether this package has brought the data set here, so that nobody else can have changed it on purpose.
    fn has(&self, name: &SnapshotName) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.name.dataset() == name.dataset())
    }
}

impl ReceiveRequest {
    /// What the snapshot of a stream is to be called here.
    fn name(&self, start: &Start, begin: &Begin) -> Result<SnapshotName> {
        let (sent, root): (DatasetName, DatasetName) = (begin.dataset.parse()?, start.root.parse()?);
        let sent_snapshot = sent.snapshot(&begin.snapshot)?;
        let below = sent.as_str().strip_prefix(root.as_str()).unwrap_or_default();
        let outside = !sent.is_within(&root);
        let target = self.target.dataset();
        let rest = match self.naming {
            Naming::Exact => below.to_owned(),
            Naming::WithoutPool => sent.as_str()[sent.pool().len()..].to_owned(),
            Naming::LastPart => format!("/{}{below}", root.leaf()),
        };
        if outside || matches!(self.target, Name::Bookmark(_)) {
            return Err(Error::NotReceived {
                name: sent_snapshot.to_string(),
                problem: "the stream names a data set that is not below the one it was made from".into(),
                remedy: "receive a stream that 'fs send' has made into a data set",
            });
        }
        let snapshot = match &self.target {
            Name::Snapshot(target) if start.streams == 1 && self.naming == Naming::Exact => {
                target.snapshot().to_owned()
            }
            _ => begin.snapshot.clone(),
        };
        let dataset: DatasetName = format!("{target}{rest}").parse()?;
        Ok(dataset.snapshot(&snapshot)?)
    }
}

/// Decides whether a stream fits what is there, at its beginning and at its end.
struct Judge {
    names: Names,
    name: SnapshotName,
    begin: Begin,
    force: bool,
    /// Whether it is the only stream. Of several those that are here already are passed over.
    alone: bool,
    /// The root of the data set, if it was only read since its newest snapshot.
    only_read: Option<BlockPointer>,
}

impl Judge {
    /// Looks whether the data set was only read since its newest snapshot, if that matters. It must be kept still.
    fn look(&mut self, datasets: &Datasets) -> Result<()> {
        if self.begin.base.is_some() && !self.force {
            self.only_read = datasets.only_read(&self.name.dataset())?;
        }
        Ok(())
    }

    fn is_modified(&self, tx: &Transaction<'_>, target: u64) -> Result<bool> {
        let (_, root) = tx.row_and_block::<DatasetRow>(dataset_key(target))?;
        Ok(arrival::is_modified(tx, target)? && (root.is_none() || root != self.only_read))
    }

    fn plan(&self, tx: &Transaction<'_>) -> Result<Plan> {
        if self.begin.layout != LAYOUT {
            let problem =
                format!("its files are laid out by version {}, and this is version {LAYOUT}", self.begin.layout);
            return self.refuse(problem, "use a newer program");
        }
        let found = self.names.find(tx, &self.name.dataset())?;
        if let Some(target) = found
            && arrival::snapshot_with(tx, target, self.begin.guid)?.is_some()
        {
            return match self.alone {
                true => self.refuse("this very snapshot is here already".into(), "nothing is to be done"),
                false => Ok(Plan::Skip),
            };
        }
        match (found, &self.begin.base) {
            (Some(target), Some(base)) => self.plan_next(tx, target, base.guid),
            (Some(target), None) => self.plan_overwrite(tx, target),
            (None, Some(base)) if self.begin.clone => {
                let origin = origin(tx, base.guid)?;
                match origin {
                    Some(_) => self.plan_create(tx, origin),
                    None => self.refuse(
                        format!("it is a clone of {}, which is not in this pool", base.name),
                        "receive the origin first, or a full stream",
                    ),
                }
            }
            (None, Some(base)) => self.refuse(
                format!("it is an increment from {}, and there is no such data set", base.name),
                "receive a full stream first",
            ),
            (None, None) => self.plan_create(tx, None),
        }
    }

    fn plan_create(&self, tx: &Transaction<'_>, origin: Option<u64>) -> Result<Plan> {
        self.names.parent(tx, &self.name.dataset(), "received")?;
        Ok(Plan::Create { origin })
    }

    fn plan_next(&self, tx: &Transaction<'_>, target: u64, base: Guid) -> Result<Plan> {
        let row: DatasetRow = tx.row(dataset_key(target))?;
        let newest = match row.newest {
            0 => None,
            newest => Some(tx.row::<SnapshotRow>(snapshot_key(newest))?).filter(|newest| newest.dataset == target),
        };
        match newest {
            Some(newest) if newest.guid == base => {}
            Some(newest) => {
                let problem = format!("it is an increment, and not from the newest snapshot here, @{}", newest.name);
                return self.refuse(problem, "roll back to the increment's base, or receive the increments in between");
            }
            None => {
                return self
                    .refuse("it is an increment, and there is no snapshot here".into(), "receive a full stream");
            }
        }
        if !self.force && self.is_modified(tx, target)? {
            let problem = "the data set was modified since its newest snapshot".into();
            return self.refuse(problem, "roll it back to that, or use -F to do so on receiving");
        }
        self.vacant(tx, target)?;
        Ok(Plan::Continue { target, base: row.newest })
    }

    fn plan_overwrite(&self, tx: &Transaction<'_>, target: u64) -> Result<Plan> {
        let row: DatasetRow = tx.row(dataset_key(target))?;
        if !self.force {
            return self.refuse("the data set exists".into(), "use -F to overwrite it, or another name");
        }
        if row.newest != 0 {
            return self
                .refuse("the data set has snapshots".into(), "destroy them to overwrite it, or use another name");
        }
        Ok(Plan::Overwrite { target })
    }

    fn vacant(&self, tx: &Transaction<'_>, target: u64) -> Result<()> {
        match crate::lineage::dataset::snapshot_named(tx, target, self.name.snapshot())? {
            Some(_) => Err(Error::exists("snapshot", &self.name)),
            None => Ok(()),
        }
    }

    /// Makes the hidden data set what the plan says, and takes the snapshot. Returns the data set's id.
    fn land(&self, tx: &mut Transaction<'_>, plan: Plan, hidden: u64) -> Result<u64> {
        let row = tx.find::<DatasetRow>(dataset_key(hidden))?.map(|(row, _)| row);
        let fits = row.is_some_and(|row| row.hidden && row.origin == plan.base().unwrap_or(0));
        if plan == Plan::Skip || !fits {
            return self.refuse("things have changed here while it was received".into(), "send and receive it again");
        }
        let dataset = match plan {
            Plan::Create { .. } => {
                let name = self.name.dataset();
                arrival::show(tx, hidden, self.names.parent(tx, &name, "received")?, name.leaf())?;
                hidden
            }
            Plan::Continue { target, .. } => {
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

/// The snapshot with this guid, wherever in the pool it is.
fn origin(tx: &Transaction<'_>, guid: Guid) -> Result<Option<u64>> {
    for dataset in resolve::subtree(tx, ROOT)? {
        if let Some(found) = arrival::snapshot_with(tx, dataset, guid)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Keeps the properties that came with a stream, as received. One that this program does not know, or a limit that
/// cannot be kept here, is left out: the data are worth more.
fn take_properties(tx: &mut Transaction<'_>, judge: &Judge, dataset: u64, exclude: &[String], room: u64) -> Result<()> {
    for (name, value) in judge.begin.properties.iter().flatten() {
        let Ok(property) = Property::of_dataset(name) else { continue };
        let Ok(canonical) = property.parse_value(value, true) else { continue };
        if exclude.iter().any(|excluded| excluded == name) {
            continue;
        }
        if property::is_limit(property.name()) {
            let own = Assignment { property: name.clone(), value: canonical };
            match property::assign_all(tx, &judge.names, dataset, &[own], true, room) {
                Err(Error::Limit { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        } else {
            let row = Value { name: property.name().to_owned(), value: Some(canonical) };
            tx.put_named(dataset, kind::RECEIVED, &row)?;
        }
    }
    Ok(())
}
