//! Lands the streams of packages: each begins as a hidden dataset, and ends as a snapshot, or leaves nothing.

use std::{collections::BTreeSet, sync::Arc};

use pool::{
    env::Nanos,
    error::Error as PoolError,
    format::label::{PROJECT_QUOTA, RESUMABLE_RECEIVE},
    txg::Head,
    units::Guid,
};

use super::{
    census::{Departed, Sender, Tree},
    follow::Follow,
    judge::{Judge, Plan, changed},
    partial::Occupied,
    properties::Wanted,
    request::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest},
};
use crate::{
    admin::{
        delegation::{
            self,
            judge::Caller,
            judgement::Judgement,
            powers::{self, Powers},
        },
        lifecycle::{create::CreateRequest, destroy::DestroyRequest, hold::is_tag},
        property::{assign::Assignment, values},
        report::replaced::Replaced,
        table::{
            counts::{self, Added},
            datasets::Datasets,
            history, limits,
        },
        transfer::send::needs_of,
    },
    catalogue::{DatasetRow, Transaction, dataset_key},
    error::{Error, Result},
    fs::{self, Options},
    lineage::{arrival, snapshot},
    name::{DatasetName, Name, SnapshotName},
    property::{Effective, Property, Source, dataset::COPIES},
    stream::{Begin, Census, Ground, Landing, Mark, Position, Start},
};

/// Lands the streams of consecutive packages.
pub(super) struct Lander<'a> {
    datasets: &'a Arc<Datasets>,
    request: ReceiveRequest,
    /// The user for whom the streams are received, if not the pool's owner.
    caller: Option<Caller>,
    current: Option<Current>,
    /// Parents created above the datasets of the package, the topmost first.
    parents: Vec<DatasetName>,
    /// The replicated tree, if the package has a census.
    tree: Option<Arc<Tree>>,
    /// The local name of the package's topmost dataset.
    top: Option<DatasetName>,
    /// Called before datasets are destroyed or renamed, or snapshots destroyed.
    leaving: &'a mut dyn FnMut(&[String]) -> Result<()>,
    /// The result so far.
    pub(super) arrived: Arrived,
}

/// The stream being received.
struct Current {
    hidden: u64,
    snapshot: SnapshotName,
    started: Nanos,
    /// The tree being filled, once open.
    head: Option<Arc<Head>>,
    /// For a receive that can be resumed.
    lasting: Option<Lasting>,
}

/// The parts of a receive that can be resumed.
struct Lasting {
    /// The GUID of the hidden dataset.
    guid: Guid,
    _occupied: Occupied,
}

impl Current {
    /// The tree with a position, and the GUID of its dataset.
    fn marked(&self) -> Option<(Arc<Head>, Guid)> {
        Some((self.head.clone()?, self.lasting.as_ref()?.guid))
    }

    /// Fails if the stream contained accounts without announcing them: older programs would open this pool, and not
    /// update the accounts.
    fn check_accounts(&self) -> Result<()> {
        let Some(head) = self.head.as_ref().filter(|head| !head.engine().is_active(PROJECT_QUOTA)) else {
            return Ok(());
        };
        let name = self.snapshot.to_string();
        match fs::account::are_there(head) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let problem = "it contains quota accounts without announcing them".to_owned();
                Err(Error::NotReceived { name, problem, remedy: "take the snapshot again, and send the new snapshot" })
            }
            Err(errno) => Err(PoolError::damaged(name, errno).into()),
        }
    }
}

impl Landing for Lander<'_> {
    type Error = Error;

    fn package(&mut self) {
        (self.tree, self.top) = (None, None);
    }

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>> {
        let snapshot = self.request.name(start, begin, self.top.is_some())?;
        self.request.watched.set(snapshot.as_str());
        begin.package_size().into_iter().for_each(|bytes| self.request.watched.expect(bytes));
        let counted = start.census.iter().flat_map(Census::names);
        self.datasets.check_names(counted.chain([snapshot.as_str()]))?;
        let engine = self.datasets.engine();
        // After the commit, recent changes are in the catalogue and count as modifications.
        engine.commit()?;
        let (names, guid, owner) = (self.datasets.names(), self.datasets.new_guid(), self.request.owner);
        let force = self.request.force || self.arrived.has(&snapshot);
        let mut judge = Judge::new(names, snapshot.clone(), begin.clone(), force)
            .destroying(self.request.force)
            .cloning(self.origin())
            .acting_for(self.caller.clone());
        let lasts = self.request.lasts(begin);
        judge = judge.lasting(lasts);
        self.top = Some(self.request.top(start)?);
        let parents = self.request.naming != Naming::Exact;
        if parents && let Some(parent) = snapshot.dataset().parent() {
            self.create_parents(parent, owner)?;
        }
        if let Some(census) = &start.census {
            self.be_as_sender(census, start, &judge)?;
        }
        let open = self.datasets.open_target(&judge)?;
        let quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        let begun = match lasts {
            true => self.begin_lasting(judge, guid)?.map(|(hidden, occupied)| (hidden, Some(occupied))),
            false => self.begin_passing(judge, guid)?.map(|hidden| (hidden, None)),
        };
        drop(quiet);
        let Some((hidden, occupied)) = begun else {
            self.arrived.skipped.push(snapshot);
            return Ok(None);
        };
        for need in needs_of(begin.layout).into_iter().flatten() {
            engine.activate(need.feature)?;
        }
        let (root, level, guid) = self.datasets.read(|tx| {
            let (root, level) = arrival::tree(tx, hidden)?;
            Ok((root, level, tx.row::<DatasetRow>(dataset_key(hidden))?.guid))
        })?;
        let lasting = occupied.map(|_occupied| Lasting { guid, _occupied });
        let is_lasting = lasting.is_some();
        self.current = Some(Current { hidden, snapshot, started: self.datasets.now(), head: None, lasting });
        let options = self.options(begin)?;
        let head = engine.open_head(hidden, Some((root, level)));
        self.current.iter_mut().for_each(|current| current.head = Some(head.clone()));
        let mark = is_lasting.then(|| self.mark(&head, guid, begin)).transpose()?;
        Ok(Some(Ground { head, copies: options.policy.copies, options, mark }))
    }

    fn finish(&mut self, begin: &Begin, bytes: u64) -> Result<()> {
        let Some((head, guid)) = self.current.as_ref().and_then(Current::marked) else {
            return self.land(begin, bytes);
        };
        let position = Position::of(&head, guid)?;
        // In the group of the landing or in an earlier one.
        Position::remove(&head)?;
        self.land(begin, bytes).inspect_err(|_| {
            // The user may remove the obstacle and resume. Without the position, all would be received again.
            if let Err(error) = position.put(&head, guid) {
                tracing::debug!("a complete stream that cannot land has lost its position: {error}");
            }
        })
    }

    fn abandon(&mut self) {
        let Some(Current { hidden, snapshot, lasting, head, .. }) = self.current.take() else { return };
        let engine = self.datasets.engine();
        // As in OpenZFS, nothing is kept if nothing was stored. A dataset created below meanwhile keeps its parent.
        let is_empty = |lasting: &Lasting| {
            head.as_ref()
                .is_some_and(|head| Position::of(head, lasting.guid).is_ok_and(|position| position == Position::START))
        };
        let has_children =
            || self.datasets.read(|tx| Ok(tx.row::<DatasetRow>(dataset_key(hidden))?.children > 0)).unwrap_or(false);
        let keeps = lasting.as_ref().is_some_and(|lasting| !is_empty(lasting) || has_children());
        self.arrived.partial = keeps.then(|| snapshot.dataset());
        let done = match keeps {
            true => engine.commit().map(drop).map_err(Error::from).inspect(|()| engine.close_head(hidden)),
            false => self.datasets.run(move |tx| arrival::abandon(tx, hidden)),
        };
        // Until here no other receive continues the hidden dataset.
        drop(lasting);
        // The next import tries again to destroy it; what can be resumed stays as of the last commit.
        if let Err(error) = done {
            tracing::warn!("cannot store or destroy what a broken-off receive has left: {error}");
            engine.close_head(hidden);
        }
    }
}

impl<'a> Lander<'a> {
    pub(super) fn new(
        datasets: &'a Arc<Datasets>,
        request: ReceiveRequest,
        leaving: &'a mut dyn FnMut(&[String]) -> Result<()>,
    ) -> Lander<'a> {
        let (parents, arrived) = (Vec::new(), Arrived::default());
        Lander {
            datasets,
            request,
            caller: Caller::current(),
            current: None,
            parents,
            tree: None,
            top: None,
            leaving,
            arrived,
        }
    }

    /// Creates the missing datasets above a new dataset.
    fn create_parents(&mut self, name: DatasetName, owner: (u32, u32)) -> Result<()> {
        if self.datasets.read(|tx| self.datasets.names().find(tx, &name))?.is_some() {
            return Ok(());
        }
        let request = CreateRequest { name: name.clone(), parents: true, properties: Vec::new(), owner };
        let create = || self.datasets.create(request);
        let created = match self.caller.clone() {
            Some(caller) => Judgement::new(caller, move |moment| moment.to_create(&name, true)).during(create),
            None => create(),
        };
        self.parents.extend(created?);
        Ok(())
    }

    /// Makes the stream visible.
    fn land(&mut self, begin: &Begin, bytes: u64) -> Result<()> {
        let Some(current @ Current { hidden, snapshot, started, .. }) = &self.current else {
            unreachable!("a stream ends after it began")
        };
        current.check_accounts()?;
        let (hidden, name, started) = (*hidden, snapshot.clone(), *started);
        let force = self.request.force || self.arrived.has(&name);
        let names = self.datasets.names();
        let mut judge = Judge::new(names, name.clone(), begin.clone(), force)
            .destroying(self.request.force)
            .cloning(self.origin())
            .acting_for(self.caller.clone())
            .lasting(current.lasting.is_some());
        // Changes of a dataset in use are excluded, so that its content switches at one instant.
        let open = self.datasets.open_target(&judge)?;
        let quiet = open.as_ref().map(|dataset| dataset.head().exclude_changes());
        judge.look(self.datasets)?;
        let (request, caller) = (self.request.clone(), self.caller.clone());
        let topmost = Some(name.dataset()) == self.top;
        let engine = self.datasets.engine().clone();
        let doomed = match self.request.force {
            true => self.datasets.read(|tx| judge.doomed(tx, judge.plan(tx)?))?,
            false => Vec::new(),
        };
        if !doomed.is_empty() {
            (self.leaving)(&doomed)?;
        }
        let head = current.head.clone();
        let landing = || head.and_then(|head| head.clean_root());
        let replaced =
            open.as_ref().map_or(Replaced::Everything, |dataset| self.datasets.would_differ(dataset, landing));
        let (target, left_out, left_out_holds) = self.datasets.run(move |tx| {
            let plan = judge.plan(tx)?;
            let dataset = judge.land(tx, plan, hidden)?;
            if plan.target().is_none() {
                delegation::judge::give_creator(tx, dataset, request.owner.0)?;
            }
            // In syncing context all received data is written.
            let room = engine.available();
            let wanted = Wanted { request: request.clone(), caller: caller.clone(), topmost, room };
            let left_out = wanted.put(tx, &judge, dataset)?;
            if plan.target().is_none() {
                powers::withhold(tx, &judge.names, caller.as_ref(), dataset, Powers::NONE, room)?;
            }
            let left_out_holds = match request.skip_holds {
                true => 0,
                false => take_holds(tx, &judge, dataset, caller.as_ref())?,
            };
            limits::check_landed(tx, &judge.names, dataset, room)?;
            let added = if plan.target().is_none() { Added::Both } else { Added::Snapshots };
            counts::check(tx, &judge.names, &[dataset], None, added)?;
            history::log(tx, &format!("receive {}", judge.name))?;
            Ok((plan.target(), left_out, left_out_holds))
        })?;
        for limit in left_out {
            tracing::warn!(%name, limit, "a limit that came with a stream cannot be kept here and is left out");
        }
        if let Some(dataset) = &open {
            dataset.fs().tree_replaced().map_err(|errno| PoolError::damaged(name.as_str(), errno))?;
        }
        drop(quiet);
        self.current = None;
        self.arrived.replaced.extend(target.map(|target| (target, replaced)));
        self.arrived.destroyed.extend(doomed);
        let sent = begin.dataset.parse::<DatasetName>()?.snapshot(&begin.snapshot)?;
        let (incremental, time) = (begin.base.is_some(), self.datasets.now() - started);
        self.arrived.snapshots.push(ArrivedSnapshot { sent, name, incremental, bytes, time, left_out_holds });
        Ok(())
    }

    /// Creates the hidden dataset of a receive that leaves nothing if it fails; `None` to skip the stream.
    fn begin_passing(&self, judge: Judge, guid: Guid) -> Result<Option<u64>> {
        self.datasets.run(move |tx| match judge.plan(tx)? {
            Plan::Skip => Ok(None),
            plan => arrival::begin(tx, plan.base(), guid).map(Some),
        })
    }

    /// Creates the hidden dataset of a receive that can be resumed, or takes the one that the stream continues.
    fn begin_lasting(&self, judge: Judge, guid: Guid) -> Result<Option<(u64, Occupied)>> {
        let continued = self.datasets.read(|tx| match judge.plan(tx)? {
            Plan::Skip => Ok(None),
            _ => judge.continued(tx).map(Some),
        })?;
        let Some(continued) = continued else { return Ok(None) };
        self.datasets.check_feature(RESUMABLE_RECEIVE)?;
        let name = judge.name.dataset();
        let taken = continued.map(|hidden| self.datasets.occupy(hidden, &name)).transpose()?;
        self.datasets.engine().activate(RESUMABLE_RECEIVE)?;
        let hidden = self.datasets.run(move |tx| {
            let plan = judge.plan(tx)?;
            if plan == Plan::Skip { Ok(None) } else { judge.begin_lasting(tx, plan, guid).map(Some) }
        })?;
        let Some(hidden) = hidden else { return Ok(None) };
        let occupied = match taken {
            Some(occupied) if continued == Some(hidden) => occupied,
            _ => self.datasets.occupy(hidden, &name)?,
        };
        Ok(Some((hidden, occupied)))
    }

    /// Where a receive that can be resumed stands. If the stream does not continue there, the tree is closed again.
    fn mark(&mut self, head: &Head, guid: Guid, begin: &Begin) -> Result<Mark> {
        let position = Position::of(head, guid).map_err(Error::from);
        let checked = position.and_then(|from| {
            let current = self.current.as_ref().expect("the stream has begun");
            let judge = Judge::new(self.datasets.names(), current.snapshot.clone(), begin.clone(), false);
            judge.check_position(from).map(|()| Mark { guid, from })
        });
        checked.inspect_err(|_| {
            self.current = None;
            self.datasets.engine().close_head(head.id());
        })
    }

    /// The origin that the user wants for the first stream.
    fn origin(&self) -> Option<SnapshotName> {
        self.request.origin.clone().filter(|_| self.arrived.snapshots.is_empty())
    }

    /// Follows the sender: before the first stream the destroys, if requested, and before each stream the rename of its
    /// dataset.
    fn be_as_sender(&mut self, census: &Census, start: &Start, judge: &Judge) -> Result<()> {
        let tree = match &self.tree {
            Some(tree) => tree.clone(),
            None => self.reconcile(census, start, judge)?,
        };
        let (top, place, begin) = (tree.top.clone(), judge.name.dataset(), judge.begin.clone());
        let force = self.request.force;
        self.run_apart(&top, move |tx, mounted| {
            Follow { tree: &tree, place: &place, begin: &begin, force }.run(tx, mounted)
        })
    }

    /// Destroys what the sender no longer has, if requested, and if the first stream fits afterwards.
    fn reconcile(&mut self, census: &Census, start: &Start, judge: &Judge) -> Result<Arc<Tree>> {
        let (names, top, sent) = (self.datasets.names(), self.request.top(start)?, start.root.parse()?);
        let tree = Arc::new(Tree { sender: Sender::new(census), names, top, sent });
        self.tree = Some(tree.clone());
        if self.request.force {
            let (mounted, place) = (BTreeSet::new(), judge.name.dataset());
            self.datasets.dry_run(|tx| {
                tree.reconcile(tx, &mounted).map_err(|error| stays(&tree.top, error))?;
                Follow { tree: &tree, place: &place, begin: &judge.begin, force: true }.run(tx, &mounted)?;
                judge.plan(tx)
            })?;
            let all = tree.clone();
            self.run_apart(&tree.top, move |tx, mounted| all.reconcile(tx, mounted))?;
        }
        Ok(tree)
    }

    /// Runs a request after `leaving` has unmounted the datasets that the request destroys or renames, if any. The
    /// request fails if the datasets have changed meanwhile.
    fn run_apart<F>(&mut self, top: &DatasetName, mut request: F) -> Result<()>
    where
        F: FnMut(&mut Transaction<'_>, &BTreeSet<u64>) -> Result<Departed> + Send + 'static,
    {
        let names = self.datasets.names();
        let departing = self.datasets.dry_run(|tx| {
            let departing = request(tx, &BTreeSet::new())?;
            Ok((departing.datasets(&tx.before(), &names)?, departing))
        });
        let (ids, departing) = departing.map_err(|error| stays(top, error))?;
        let doomed = [departing.destroyed, departing.renamed].concat();
        if doomed.is_empty() {
            return Ok(());
        }
        if self.caller.is_some() {
            // The census of a forged package reaches outside the target: a promotion takes snapshots of the origin.
            return Err(Error::NotReceived {
                name: top.to_string(),
                problem: "the package destroys or renames datasets or snapshots as its sender did, and only the owner \
                          of the pool receives such a package"
                    .into(),
                remedy: "ask the owner of the pool to receive it, or send each dataset without -R",
            });
        }
        (self.leaving)(&doomed)?;
        let mounted = self.datasets.mounted();
        let open = self.datasets.open_with_ids(ids.iter().copied().collect());
        // From here on no write is allowed: the written data would be lost silently.
        let _quiet: Vec<_> = open.iter().map(|dataset| dataset.head().exclude_changes()).collect();
        let top = top.to_string();
        let departed = self.datasets.run(move |tx| {
            let departed = request(tx, &mounted)?;
            match departed.datasets(&tx.before(), &names)?.is_subset(&ids) {
                true => Ok(departed),
                false => Err(changed(&top)),
            }
        })?;
        self.arrived.destroyed.extend(departed.destroyed);
        Ok(())
    }

    /// Destroys parents without a received dataset, the lowest first. A parent with children or in use stays.
    pub(super) fn destroy_parents(&mut self) {
        let mut staying = Vec::new();
        while let Some(name) = self.parents.pop() {
            let request = DestroyRequest { name: name.clone(), recursive: false, dependents: false };
            if let Err(error) = self.datasets.destroy_unjudged(request) {
                tracing::debug!(%name, "stays, though it was created for a stream that did not come: {error}");
                staying.insert(0, name);
            }
        }
        self.parents = staying;
    }

    /// Fails if the input was a single stream, and skipped.
    pub(super) fn check_new(&self) -> Result<()> {
        self.arrived.check_new(&self.request)
    }

    /// The result, once the stream has ended.
    pub(super) fn take(self) -> Arrived {
        Arrived { parents: self.parents, ..self.arrived }
    }

    /// What the properties of the dataset say about its files, or those of the nearest existing ancestor, with the
    /// stream's properties except `copies`, and the user's.
    fn options(&self, begin: &Begin) -> Result<Options> {
        let Some(current) = &self.current else { return Ok(Options::default()) };
        let names = self.datasets.names();
        let mut values = self.datasets.read(|tx| {
            let mut at = Some(current.snapshot.dataset());
            while let Some(name) = at {
                if let Some(id) = names.find(tx, &name)? {
                    return values::effective(tx, &names, id);
                }
                at = name.parent();
            }
            Ok(Effective::default())
        })?;
        let left_out = |name: &String| COPIES.is(name) || self.request.exclude.contains(name);
        for (name, value) in begin.properties.iter().flatten().filter(|(name, _)| !left_out(name)) {
            if let Ok(canonical) = Property::of_dataset(name).and_then(|property| property.parse_value(value, true)) {
                values.insert(name, canonical, Source::Received);
            }
        }
        for Assignment { property, value, .. } in &self.request.properties {
            values.insert(property, value, Source::Local);
        }
        Ok(Options::from_properties(&values))
    }
}

/// Places the holds of a snapshot in the stream, if the caller may place holds. Returns the number of holds left out.
fn take_holds(tx: &mut Transaction<'_>, judge: &Judge, dataset: u64, caller: Option<&Caller>) -> Result<u64> {
    let name = Name::Dataset(judge.name.dataset());
    let tags = || judge.begin.holds().filter(|tag| is_tag(tag));
    let may_hold = |caller| delegation::judge::allows(tx, &judge.names, caller, &name, "hold");
    if !caller.map_or(Ok(true), may_hold)? {
        return Ok(tags().count() as u64);
    }
    let Some(id) = arrival::snapshot_with(tx, dataset, judge.begin.guid)? else { return Ok(0) };
    for tag in tags() {
        snapshot::hold(tx, id, tag)?;
    }
    Ok(0)
}

/// The error if an object that the sender no longer has cannot be destroyed.
fn stays(top: &DatasetName, error: Error) -> Error {
    match error {
        error @ (Error::Held { .. } | Error::HasClones { .. }) => Error::NotReceived {
            name: top.to_string(),
            problem: format!("the sender no longer has it, and it cannot be destroyed: {error}"),
            remedy: "release the holds, and destroy or promote the clones",
        },
        other => other,
    }
}
