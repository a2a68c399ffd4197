//! Plans a send: from names and flags to a package of snapshots with their bases.
//!
//! The order suits the receiver: a dataset before its descendants, a clone after its origin's dataset, and the
//! snapshots of each dataset from the oldest to the newest.
//!
//! Every snapshot of a package and its base are held until the snapshot is sent: see
//! [`crate::admin::table::long_hold`].

use std::{collections::BTreeSet, io::Write, iter, sync::Arc};

use pool::{
    format::{
        label::{FILE_ATTRIBUTES, PROJECT_QUOTA, ZFS_OBJECTS},
        pointer::BlockPointer,
    },
    units::{Guid, Txg},
};

use crate::{
    admin::{
        delegation::grant,
        table::{
            datasets::Datasets,
            long_hold::{LongHold, Looking},
            names::{self, Names},
        },
    },
    catalogue::{Bookmark, DatasetRow, SnapshotRow, Transaction, Value, dataset_key, keys, kind, snapshot_key},
    error::{Error, Reader, Result},
    lineage::{arrival, dataset, snapshot},
    name::{DatasetName, Name, SnapshotName},
    property::Limit,
    stream::{self, Base, Begin, Census, Counted, Package, Sent, Source, Token, Watched},
    zfs,
};

/// The layout of the items in a stream: see [`crate::fs`].
pub(in crate::admin) const LAYOUT: u32 = 1;
/// The layout with attributes of files, from pools with the feature active.
pub(in crate::admin) const LAYOUT_WITH_ATTRIBUTES: u32 = 2;
/// The layout with accounts and projects.
pub(in crate::admin) const LAYOUT_WITH_ACCOUNTS: u32 = 3;
/// The layout with objects of OpenZFS, and all of the above.
pub(in crate::admin) const LAYOUT_WITH_OBJECTS: u32 = zfs::LAYOUT;

/// A feature that a receiving pool must have enabled.
#[derive(Debug)]
pub(in crate::admin) struct Need {
    /// The feature's name.
    pub(in crate::admin) feature: &'static str,
    /// The part of the stream that needs the feature.
    pub(in crate::admin) what: &'static str,
    /// The remedy for the user.
    pub(in crate::admin) remedy: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        feature: FILE_ATTRIBUTES,
        what: "its files may have attributes, which need the feature file_attributes",
        remedy: "enable it: pool set feature@file_attributes=enabled POOL",
    },
    Need {
        feature: PROJECT_QUOTA,
        what: "it may have accounts and projects, which need the feature project_quota",
        remedy: "enable it: pool set feature@project_quota=enabled POOL",
    },
    Need {
        feature: ZFS_OBJECTS,
        what: "it may have objects of OpenZFS, which need the feature zfs_objects",
        remedy: "enable it: pool set feature@zfs_objects=enabled POOL",
    },
];

/// The features needed for a layout; `None` for an unknown layout.
pub(in crate::admin) fn needs_of(layout: u32) -> Option<&'static [Need]> {
    match layout {
        LAYOUT => Some(&[]),
        LAYOUT_WITH_ATTRIBUTES => Some(&NEEDS[..1]),
        LAYOUT_WITH_ACCOUNTS => Some(&NEEDS[..2]),
        LAYOUT_WITH_OBJECTS => Some(NEEDS),
        _ => None,
    }
}

/// The request of a send.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The snapshot to send.
    pub snapshot: SnapshotName,
    /// The base that the receiver already has; `None` for a full stream.
    pub from: Option<SendFrom>,
    /// Whether to send all descendants too, with all earlier snapshots and all properties (`-R`).
    pub replicate: bool,
    /// Whether to skip descendants without a snapshot of the given name, instead of failing.
    pub skip_missing: bool,
    /// Whether to send properties (`-p`).
    pub properties: bool,
    /// Whether to send received values only, also those that local values override (`-b`).
    pub backup: bool,
    /// Whether to send the holds on the snapshots (`-h`).
    pub holds: bool,
    /// The expected length of the package, in bytes, to tell the receiver.
    pub size: Option<u64>,
    /// With `replicate`: datasets to leave out, with their descendants (`-X`).
    pub exclude: Vec<DatasetName>,
    /// The interrupted receive to continue, which chooses the snapshot, the base and the properties (`-t`).
    pub resume: Option<Token>,
    /// Gets the name of the snapshot being sent.
    pub watched: Watched,
}

impl SendRequest {
    /// The request that continues an interrupted receive.
    pub fn resuming(token: Token) -> SendRequest {
        let (snapshot, properties, backup) = (token.snapshot.clone(), token.properties, token.backup);
        SendRequest { properties, backup, resume: Some(token), ..SendRequest::plain(snapshot) }
    }

    /// The request of a full stream without options.
    pub fn plain(snapshot: SnapshotName) -> SendRequest {
        SendRequest {
            snapshot,
            from: None,
            replicate: false,
            skip_missing: false,
            properties: false,
            backup: false,
            holds: false,
            size: None,
            exclude: Vec::new(),
            resume: None,
            watched: Watched::default(),
        }
    }
}

/// The base of an incremental send.
#[derive(Clone, Debug)]
pub enum SendFrom {
    /// A single step from the snapshot or bookmark (`-i`).
    Base(Name),
    /// One step for each snapshot after the given one (`-I`).
    Each(Name),
}

/// One stream of a package, as shown by a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The snapshot's full name.
    pub snapshot: String,
    /// The base's name without the dataset's; `None` for a full stream.
    pub from: Option<String>,
    /// The approximate length of the stream, in bytes.
    pub bytes: u64,
}

impl Datasets {
    /// The streams that a request would send, without reading data.
    pub fn plan_send(&self, request: &SendRequest) -> Result<Vec<Planned>> {
        let package = self.package(request, None)?;
        let plan = |source: &Source| {
            let Begin { dataset, snapshot, base, .. } = &source.begin;
            let bytes = stream::estimate(source)?;
            Ok(Planned {
                snapshot: format!("{dataset}@{snapshot}"),
                from: base.as_ref().map(|base| base.name.clone()),
                bytes,
            })
        };
        package.sources.iter().map(plan).collect()
    }

    /// Sends a package, with `readers` threads that read ahead, holding the snapshots for the given command. `progress`
    /// is called with the number of bytes written so far.
    pub fn send(
        &self,
        request: &SendRequest,
        reader: Reader,
        out: &mut dyn Write,
        readers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Sent> {
        let package = self.package(request, Some(reader))?;
        Ok(stream::send(package, out, readers, progress)?)
    }

    /// The package of a request; held for a command, if one is given.
    fn package(&self, request: &SendRequest, reader: Option<Reader>) -> Result<Package> {
        let root = request.snapshot.dataset().to_string();
        let reader = reader.map(Arc::new);
        loop {
            let looking = self.long_holds().look();
            let (parts, census) = self.parts(request)?;
            let open = |part: &Part| self.engine().open_frozen(part.id, part.root, part.level);
            let trees: Vec<_> = parts.iter().map(open).collect();
            // Requests are carried out meanwhile. If one has destroyed a snapshot of the package, the plan is repeated.
            if let Some(held) = self.hold_parts(&looking, &parts, reader.as_ref()) {
                let source = |((part, tree), held): ((Part, _), Option<LongHold>)| {
                    let held = held.map(|held| -> Box<dyn stream::Hold> { Box::new(held) });
                    Source { begin: part.begin, tree, until: None, held }
                };
                let mut sources: Vec<Source> = parts.into_iter().zip(trees).zip(held).map(source).collect();
                if let (Some(first), Some(size)) = (sources.first_mut(), request.size) {
                    first.begin.note_package_size(size);
                }
                let watched = request.watched.clone();
                return Ok(Package { root, replicate: request.replicate, census, sources, watched });
            }
        }
    }

    /// The layout of the items in a stream from this pool.
    pub(super) fn layout(&self) -> u32 {
        match self.engine() {
            engine if engine.is_active(ZFS_OBJECTS) => LAYOUT_WITH_OBJECTS,
            engine if engine.is_active(PROJECT_QUOTA) => LAYOUT_WITH_ACCOUNTS,
            engine if engine.is_active(FILE_ATTRIBUTES) => LAYOUT_WITH_ATTRIBUTES,
            _ => LAYOUT,
        }
    }

    pub(super) fn parts(&self, request: &SendRequest) -> Result<(Vec<Part>, Option<Census>)> {
        let names = self.names();
        self.read_judged(|tx| {
            // Read after the catalogue: the features of all snapshots in the catalogue were activated before.
            let packer = Packer { tx, names: &names, request, layout: self.layout() };
            Ok((packer.sources()?, packer.census()?))
        })
    }

    /// Holds the snapshots to send for a reader, each with its base. `None` if a snapshot was destroyed since the look.
    /// A snapshot not held and destroyed later has its tree closed.
    pub(super) fn hold_parts(
        &self,
        looking: &Looking,
        parts: &[Part],
        reader: Option<&Arc<Reader>>,
    ) -> Option<Vec<Option<LongHold>>> {
        let now = self.now();
        // No hold is taken between the check of a request and its effects.
        let _table = reader.map(|_| self.table().lock());
        let hold = |part: &Part| {
            let ids: Vec<u64> = iter::once(part.id).chain(part.base).collect();
            match reader {
                Some(reader) => looking.take(ids, reader, now).map(Some),
                None => looking.stands(&ids).then_some(None),
            }
        };
        parts.iter().map(hold).collect()
    }
}

/// A snapshot to send, from the catalogue.
pub(super) struct Part {
    pub(super) begin: Begin,
    pub(super) id: u64,
    pub(super) root: BlockPointer,
    pub(super) level: u8,
    /// The snapshot that is the base, if the base is a snapshot.
    pub(super) base: Option<u64>,
}

/// A base, and its snapshot's id unless a bookmark.
type Based = (Base, Option<u64>);

struct Packer<'a, 'v> {
    tx: &'a Transaction<'v>,
    names: &'a Names,
    request: &'a SendRequest,
    layout: u32,
}

impl Packer<'_, '_> {
    fn sources(&self) -> Result<Vec<Part>> {
        if let Some(token) = &self.request.resume {
            return Ok(vec![self.rest(token)?]);
        }
        let SendRequest { snapshot, from, replicate, .. } = self.request;
        let to = self.names.snapshot(self.tx, snapshot)?;
        let top = self.names.dataset(self.tx, &snapshot.dataset())?;
        if !replicate {
            return match from {
                None => Ok(vec![self.source(to, None, false)?]),
                Some(SendFrom::Base(from)) => {
                    let (base, clone) = self.base(top, to, from)?;
                    Ok(vec![self.source(to, Some(base), clone)?])
                }
                Some(SendFrom::Each(from)) => {
                    let (base, clone) = self.base(top, to, from)?;
                    self.chain(top, to, Some(base), clone)
                }
            };
        }
        if self.is_excluded(top)? {
            return Err(Error::NotSent {
                problem: format!("'{}' is sent and is also left out", snapshot.dataset()),
                remedy: "name only file systems below with -X",
            });
        }
        let mut sources = Vec::new();
        for id in self.order(top)? {
            sources.extend(self.replica(id, id == top)?);
        }
        Ok(sources)
    }

    /// The rest of a snapshot, for an interrupted receive.
    fn rest(&self, token: &Token) -> Result<Part> {
        let gone = || Error::NotResumed(format!("'{}' used in the initial send no longer exists", token.snapshot));
        let dataset = self.names.find(self.tx, &token.snapshot.dataset())?.ok_or_else(gone)?;
        let to = arrival::snapshot_with(self.tx, dataset, token.guid)?.ok_or_else(gone)?;
        let (base, clone) = match token.base {
            Some(base) => self.base_with(dataset, base)?,
            None => (None, false),
        };
        let mut part = self.source(to, base, clone)?;
        match part.begin.base.as_ref().is_some_and(|base| base.createtxg > part.begin.createtxg) {
            true => Err(Error::NotResumed(format!("the incremental source is not older than '{}'", token.snapshot))),
            false => {
                part.begin.resumed = Some(token.position.key);
                Ok(part)
            }
        }
    }

    /// The snapshot, origin or bookmark of a dataset with the given GUID, as a base; and whether it is the origin.
    fn base_with(&self, id: u64, guid: Guid) -> Result<(Option<Based>, bool)> {
        if let Some(base) = arrival::snapshot_with(self.tx, id, guid)? {
            return Ok((Some((base_of(&self.tx.row(snapshot_key(base))?), Some(base))), false));
        }
        let origin = self.tx.row::<DatasetRow>(dataset_key(id))?.origin;
        if origin != 0 {
            let row: SnapshotRow = self.tx.row(snapshot_key(origin))?;
            if row.guid == guid {
                return Ok((Some((base_of(&row), Some(origin))), true));
            }
        }
        let bookmarks = self.tx.rows::<Bookmark>(keys(id, kind::BOOKMARK))?;
        match bookmarks.into_iter().find(|(_, row)| row.guid == guid) {
            Some((_, row)) => Ok((Some((base_at(&row), None)), false)),
            None => Err(Error::NotResumed(format!("incremental source {:#x} no longer exists", guid.0))),
        }
    }

    /// The datasets to replicate: parents before children, clones after the datasets of their origins.
    fn order(&self, top: u64) -> Result<Vec<u64>> {
        let mut waiting = Vec::new();
        for id in names::subtree(self.tx, top)? {
            let row: DatasetRow = self.tx.row(dataset_key(id))?;
            if !row.hidden && !self.is_excluded(id)? {
                let origin = match row.origin {
                    0 => 0,
                    origin => self.tx.row::<SnapshotRow>(snapshot_key(origin))?.dataset,
                };
                waiting.push((id, row.parent, origin));
            }
        }
        let mut ordered = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let left: BTreeSet<u64> = waiting.iter().map(|(id, ..)| *id).collect();
            let is_ready =
                |place: &(u64, u64, u64)| !left.contains(&place.1) && (place.2 == place.0 || !left.contains(&place.2));
            let (ready, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
            if ready.is_empty() {
                // A dataset below its own clone: sent in full, in the order of names.
                ordered.extend(others.into_iter().map(|(id, ..)| id));
                break;
            }
            ordered.extend(ready.into_iter().map(|(id, ..)| id));
            waiting = others;
        }
        Ok(ordered)
    }

    /// Whether a dataset, or one above it, is to be left out.
    fn is_excluded(&self, id: u64) -> Result<bool> {
        let exclude = &self.request.exclude;
        if exclude.is_empty() {
            return Ok(false);
        }
        let name = self.names.of_dataset(self.tx, id)?;
        Ok(exclude.iter().any(|excluded| name.is_within(excluded)))
    }

    /// The census for an incremental replication. Datasets that are left out are listed too, because the sender has
    /// them: no receiver destroys them.
    fn census(&self) -> Result<Option<Census>> {
        if !self.request.replicate || self.request.from.is_none() {
            return Ok(None);
        }
        let top = self.names.dataset(self.tx, &self.request.snapshot.dataset())?;
        let mut census = Census::default();
        for id in names::subtree(self.tx, top)? {
            if self.tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                continue;
            }
            let rows = snapshot::line(self.tx, id)?.into_iter().map(|of| self.tx.row::<SnapshotRow>(snapshot_key(of)));
            let snapshots = rows.map(|row| row.map(|row| (row.guid, row.name))).collect::<Result<_>>()?;
            census.datasets.push(Counted { dataset: self.names.of_dataset(self.tx, id)?.to_string(), snapshots });
        }
        Ok(Some(census))
    }

    /// The streams of one dataset in a replication.
    fn replica(&self, id: u64, is_top: bool) -> Result<Vec<Part>> {
        let Some(to) = dataset::snapshot_named(self.tx, id, self.request.snapshot.snapshot())? else {
            let name = self.names.of_dataset(self.tx, id)?.snapshot(self.request.snapshot.snapshot())?;
            return if self.request.skip_missing { Ok(Vec::new()) } else { Err(Error::no_snapshot(name)) };
        };
        match &self.request.from {
            Some(SendFrom::Base(from) | SendFrom::Each(from)) if is_top => {
                let (base, clone) = self.base(id, to, from)?;
                self.replica_from(id, to, base, clone)
            }
            Some(SendFrom::Base(from) | SendFrom::Each(from)) => match self.same_below(id, to, from)? {
                Some(base) => self.replica_from(id, to, base, false),
                // The dataset is younger than the base.
                None => self.all_up_to(id, to),
            },
            None => self.all_up_to(id, to),
        }
    }

    fn replica_from(&self, id: u64, to: u64, base: Based, clone: bool) -> Result<Vec<Part>> {
        match self.request.from {
            Some(SendFrom::Each(_)) => self.chain(id, to, Some(base), clone),
            _ => Ok(vec![self.source(to, Some(base), clone)?]),
        }
    }

    /// All snapshots up to `to`: the first in full, or as a clone of the origin. A receiver of this package does not get
    /// an origin that is left out.
    fn all_up_to(&self, id: u64, to: u64) -> Result<Vec<Part>> {
        let row: DatasetRow = self.tx.row(dataset_key(id))?;
        if row.origin == 0 {
            return self.chain(id, to, None, false);
        }
        let origin: SnapshotRow = self.tx.row(snapshot_key(row.origin))?;
        if self.is_excluded(origin.dataset)? {
            return self.chain(id, to, None, false);
        }
        self.chain(id, to, Some((base_of(&origin), Some(row.origin))), true)
    }

    /// A step for each snapshot of a dataset after `base`, up to `to`.
    fn chain(&self, id: u64, to: u64, base: Option<Based>, clone: bool) -> Result<Vec<Part>> {
        let after = base.as_ref().map_or(Txg::ZERO, |(base, _)| base.createtxg);
        let (mut base, mut clone) = (base, clone);
        let mut sources = Vec::new();
        for member in snapshot::line(self.tx, id)? {
            let row: SnapshotRow = self.tx.row(snapshot_key(member))?;
            if row.createtxg <= after {
                continue;
            }
            sources.push(self.source(member, base, clone)?);
            if member == to {
                break;
            }
            (base, clone) = (Some((base_of(&row), Some(member))), false);
        }
        Ok(sources)
    }

    /// The snapshot or bookmark `from` as a base of `to`; and whether the base is the origin of `to`'s dataset.
    fn base(&self, id: u64, to: u64, from: &Name) -> Result<(Based, bool)> {
        let to: SnapshotRow = self.tx.row(snapshot_key(to))?;
        let unrelated = || Error::Unrelated { from: from.to_string(), to: self.request.snapshot.to_string() };
        let (base, clone) = match from {
            Name::Dataset(name) => return Err(Error::no_snapshot(name)),
            Name::Snapshot(name) => {
                let from = self.names.snapshot(self.tx, name)?;
                let row: SnapshotRow = self.tx.row(snapshot_key(from))?;
                let origin = self.tx.row::<DatasetRow>(dataset_key(id))?.origin;
                if row.dataset != id && from != origin {
                    return Err(unrelated());
                }
                ((base_of(&row), Some(from)), row.dataset != id)
            }
            Name::Bookmark(name) => {
                let (dataset, row) = self.names.bookmark(self.tx, name)?;
                if dataset != id {
                    return Err(unrelated());
                }
                ((base_at(&row), None), false)
            }
        };
        if base.0.createtxg >= to.createtxg { Err(unrelated()) } else { Ok((base, clone)) }
    }

    /// The base of the same name in a descendant, if older than `to`.
    fn same_below(&self, id: u64, to: u64, from: &Name) -> Result<Option<Based>> {
        let to: SnapshotRow = self.tx.row(snapshot_key(to))?;
        let Name::Snapshot(from) = from else { return Ok(None) };
        let Some(from) = dataset::snapshot_named(self.tx, id, from.snapshot())? else { return Ok(None) };
        let row: SnapshotRow = self.tx.row(snapshot_key(from))?;
        Ok((row.createtxg < to.createtxg).then(|| (base_of(&row), Some(from))))
    }

    fn source(&self, id: u64, base: Option<Based>, clone: bool) -> Result<Part> {
        let (row, root) = self.tx.row_and_block::<SnapshotRow>(snapshot_key(id))?;
        let root = root.ok_or_else(|| Error::damaged(id, "a snapshot without a tree"))?;
        let SendRequest { replicate, backup, resume, .. } = self.request;
        let wants = self.request.properties || *replicate || *backup && resume.is_none();
        let properties = if wants { Some(self.properties(row.dataset)?) } else { None };
        let (base, base_id) = base.unzip();
        let mut begin = Begin {
            dataset: self.names.of_dataset(self.tx, row.dataset)?.to_string(),
            snapshot: row.name,
            guid: row.guid,
            createtxg: row.createtxg,
            creation: row.creation,
            layout: self.layout,
            base,
            clone,
            properties,
            resumed: None,
        };
        if *backup {
            begin.note_backup();
        }
        self.since(row.dataset, begin.base.as_ref(), base_id.flatten())?
            .into_iter()
            .for_each(|at| begin.note_since(at));
        if self.request.holds {
            snapshot::holds(self.tx, id)?.iter().for_each(|hold| begin.note_hold(&hold.name, hold.time));
        }
        Ok(Part { begin, id, root, level: row.level, base: base_id.flatten() })
    }

    /// The creation time of the base of a dataset's stream: a snapshot or a bookmark.
    fn since(&self, dataset: u64, base: Option<&Base>, snapshot: Option<u64>) -> Result<Option<i64>> {
        if let Some(id) = snapshot {
            return Ok(Some(self.tx.row::<SnapshotRow>(snapshot_key(id))?.creation));
        }
        let Some(base) = base else { return Ok(None) };
        let bookmarks = self.tx.rows::<Bookmark>(keys(dataset, kind::BOOKMARK))?;
        Ok(bookmarks.into_iter().find(|(_, row)| row.guid == base.guid).map(|(_, row)| row.creation))
    }

    /// The properties set on, or received by, a dataset, by name; for a backup, the received values.
    fn properties(&self, id: u64) -> Result<Vec<(String, String)>> {
        let rows = |kind| self.tx.rows::<Value>(keys(id, kind));
        let received = rows(kind::RECEIVED)?.into_iter();
        if self.request.backup {
            return Ok(received.filter_map(|(_, row)| Some((row.name, row.value?))).collect());
        }
        let received = received.chain(rows(kind::PROPERTY)?);
        let mut values: std::collections::BTreeMap<String, Option<String>> =
            received.map(|(_, row)| (row.name, row.value)).collect();
        let row: DatasetRow = self.tx.row(dataset_key(id))?;
        for limit in Limit::ALL.into_iter().filter(|limit| limit.of(&row) > 0) {
            values.insert(limit.row().name.to_owned(), Some(limit.of(&row).to_string()));
        }
        values.retain(|name, _| !grant::is_grant(name));
        Ok(values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

pub(super) fn base_of(row: &SnapshotRow) -> Base {
    Base { guid: row.guid, createtxg: row.createtxg, name: format!("@{}", row.name) }
}

fn base_at(row: &Bookmark) -> Base {
    Base { guid: row.guid, createtxg: row.createtxg, name: format!("#{}", row.name) }
}
