//! What to send: from names and flags to a package of snapshots with their bases.
//!
//! The order is that in which a receiver can take them: a dataset before those below it, a clone after the dataset of
//! its origin, and the snapshots of each from the oldest to the newest.
//!
//! Every snapshot of a package is held until it was sent, and so is its base: see [`super::long_hold`].

use std::{collections::BTreeSet, io::Write, iter, sync::Arc};

use pool::{
    format::{
        label::{FILE_ATTRIBUTES, PROJECT_QUOTA},
        pointer::BlockPointer,
    },
    units::Txg,
};

use super::{
    datasets::Datasets,
    error::{Error, Result},
    long_hold::{LongHold, Looking, Reader},
    resolve::{self, Names},
};
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Transaction, Value, dataset_key, keys, kind, snapshot_key},
    lineage::{dataset, snapshot},
    name::{Name, SnapshotName},
    stream::{self, Base, Begin, Census, Counted, Package, Sent, Source},
};

/// The layout of the items in a file system's tree that streams carry: see [`crate::fs`].
pub(super) const LAYOUT: u32 = 1;
/// The same with files that may have attributes: of pools in which that feature is active.
pub(super) const LAYOUT_WITH_ATTRIBUTES: u32 = 2;
/// The same with accounts and projects.
pub(super) const LAYOUT_WITH_ACCOUNTS: u32 = 3;

/// A feature that a pool has to have enabled to receive a stream.
#[derive(Debug)]
pub(super) struct Need {
    /// Which.
    pub(super) feature: &'static str,
    /// What comes in the stream.
    pub(super) what: &'static str,
    /// What helps.
    pub(super) remedy: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        feature: FILE_ATTRIBUTES,
        what: "its files may have attributes",
        remedy: "enable it: pool set feature@file_attributes=enabled POOL",
    },
    Need {
        feature: PROJECT_QUOTA,
        what: "it may have accounts and projects",
        remedy: "enable it: pool set feature@project_quota=enabled POOL",
    },
];

/// What a layout needs; `None` if it is not known.
pub(super) fn needs_of(layout: u32) -> Option<&'static [Need]> {
    match layout {
        LAYOUT => Some(&[]),
        LAYOUT_WITH_ATTRIBUTES => Some(&NEEDS[..1]),
        LAYOUT_WITH_ACCOUNTS => Some(NEEDS),
        _ => None,
    }
}

/// What to send.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// What the receiver has already; `None` for a full stream.
    pub from: Option<SendFrom>,
    /// Whether to send everything below too, with all older snapshots and all properties.
    pub replicate: bool,
    /// Whether datasets below that have no snapshot of the name are left out, and are no error.
    pub skip_missing: bool,
    /// Whether to send properties.
    pub properties: bool,
}

/// The base of an increment.
#[derive(Clone, Debug)]
pub enum SendFrom {
    /// One step from this snapshot or bookmark.
    Base(Name),
    /// One step for each snapshot after this one.
    Each(Name),
}

/// One stream of a package, as a dry run shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The snapshot's full name.
    pub snapshot: String,
    /// The base's name without the dataset's; `None` for a full stream.
    pub from: Option<String>,
    /// About how long the stream will be, in bytes.
    pub bytes: u64,
}

impl Datasets {
    /// What a request would send, without reading data.
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

    /// Sends, with `readers` threads that read ahead, for a command that holds what it sends meanwhile. `progress` is told
    /// now and then how many bytes were written.
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

    /// What a request sends, held for a command if one is named.
    fn package(&self, request: &SendRequest, reader: Option<Reader>) -> Result<Package> {
        let root = request.snapshot.dataset().to_string();
        let reader = reader.map(Arc::new);
        loop {
            let looking = self.long_holds().look();
            let (parts, census) = self.parts(request)?;
            let open = |part: &Part| self.engine().open_frozen(part.id, part.root, part.level);
            let trees: Vec<_> = parts.iter().map(open).collect();
            // Requests are carried out meanwhile. If one has destroyed what was seen, there is less.
            if let Some(held) = self.hold_parts(&looking, &parts, reader.as_ref()) {
                let source = |((part, tree), held): ((Part, _), _)| Source { begin: part.begin, tree, held };
                let sources = parts.into_iter().zip(trees).zip(held).map(source).collect();
                return Ok(Package { root, replicate: request.replicate, census, sources });
            }
        }
    }

    fn parts(&self, request: &SendRequest) -> Result<(Vec<Part>, Option<Census>)> {
        let names = self.names();
        self.read(|tx| {
            // Asked after the catalogue was seen: what the snapshots in it hold was made active before.
            let layout = match self.engine() {
                engine if engine.is_active(PROJECT_QUOTA) => LAYOUT_WITH_ACCOUNTS,
                engine if engine.is_active(FILE_ATTRIBUTES) => LAYOUT_WITH_ATTRIBUTES,
                _ => LAYOUT,
            };
            let packer = Packer { tx, names: &names, request, layout };
            Ok((packer.sources()?, packer.census()?))
        })
    }

    /// Holds the snapshots to be sent for a reader, each with its base until it was sent. `None` if one has gone since it was
    /// looked for; if one goes from now on that is not held, its tree is closed.
    fn hold_parts(
        &self,
        looking: &Looking,
        parts: &[Part],
        reader: Option<&Arc<Reader>>,
    ) -> Option<Vec<Option<LongHold>>> {
        let now = self.now();
        // Between the judgement of a request and its effects nothing is held.
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

/// A snapshot to be sent, as the catalogue has it.
struct Part {
    begin: Begin,
    id: u64,
    root: BlockPointer,
    level: u8,
    /// The snapshot that is its base, if that is one.
    base: Option<u64>,
}

/// A base, and the snapshot that it is, if it is one.
type Based = (Base, Option<u64>);

struct Packer<'a, 'v> {
    tx: &'a Transaction<'v>,
    names: &'a Names,
    request: &'a SendRequest,
    layout: u32,
}

impl Packer<'_, '_> {
    fn sources(&self) -> Result<Vec<Part>> {
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
        let mut sources = Vec::new();
        for id in self.order(top)? {
            sources.extend(self.replica(id, id == top)?);
        }
        Ok(sources)
    }

    /// The datasets to replicate: those above before those below, clones after the datasets of their origins.
    fn order(&self, top: u64) -> Result<Vec<u64>> {
        let mut waiting = Vec::new();
        for id in resolve::subtree(self.tx, top)? {
            let row: DatasetRow = self.tx.row(dataset_key(id))?;
            if !row.hidden {
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
                // A dataset below one of its own clones: it is sent full, in the order of the names.
                ordered.extend(others.into_iter().map(|(id, ..)| id));
                break;
            }
            ordered.extend(ready.into_iter().map(|(id, ..)| id));
            waiting = others;
        }
        Ok(ordered)
    }

    /// What there is altogether, for who receives an increment of a replication.
    fn census(&self) -> Result<Option<Census>> {
        if !self.request.replicate || self.request.from.is_none() {
            return Ok(None);
        }
        let top = self.names.dataset(self.tx, &self.request.snapshot.dataset())?;
        let mut census = Census::default();
        for id in resolve::subtree(self.tx, top)? {
            if self.tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                continue;
            }
            let rows = snapshot::line(self.tx, id)?.into_iter().map(|of| self.tx.row::<SnapshotRow>(snapshot_key(of)));
            let snapshots = rows.map(|row| row.map(|row| (row.guid, row.name))).collect::<Result<_>>()?;
            census.datasets.push(Counted { dataset: self.names.of_dataset(self.tx, id)?.to_string(), snapshots });
        }
        Ok(Some(census))
    }

    /// All that is sent of one dataset in a replication.
    fn replica(&self, id: u64, is_top: bool) -> Result<Vec<Part>> {
        let Some(to) = dataset::snapshot_named(self.tx, id, self.request.snapshot.snapshot())? else {
            let name = self.names.of_dataset(self.tx, id)?.snapshot(self.request.snapshot.snapshot())?;
            return if self.request.skip_missing { Ok(Vec::new()) } else { Err(Error::not_found("snapshot", name)) };
        };
        match &self.request.from {
            Some(SendFrom::Base(from) | SendFrom::Each(from)) if is_top => {
                let (base, clone) = self.base(id, to, from)?;
                self.replica_from(id, to, base, clone)
            }
            Some(SendFrom::Base(from) | SendFrom::Each(from)) => match self.same_below(id, to, from)? {
                Some(base) => self.replica_from(id, to, base, false),
                // It is younger than the base.
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

    /// All snapshots up to `to`: the first one full, or as a clone of the origin.
    fn all_up_to(&self, id: u64, to: u64) -> Result<Vec<Part>> {
        let row: DatasetRow = self.tx.row(dataset_key(id))?;
        if row.origin == 0 {
            return self.chain(id, to, None, false);
        }
        let origin: SnapshotRow = self.tx.row(snapshot_key(row.origin))?;
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

    /// The snapshot or bookmark that `from` names, as a base of `to`; and whether it is the origin that `to`'s dataset
    /// was cloned from.
    fn base(&self, id: u64, to: u64, from: &Name) -> Result<(Based, bool)> {
        let to: SnapshotRow = self.tx.row(snapshot_key(to))?;
        let unrelated = || Error::Unrelated { from: from.to_string(), to: self.request.snapshot.to_string() };
        let (base, clone) = match from {
            Name::Dataset(name) => return Err(Error::not_found("snapshot", name)),
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
                let base = Base { guid: row.guid, createtxg: row.createtxg, name: format!("#{}", row.name) };
                ((base, None), false)
            }
        };
        if base.0.createtxg >= to.createtxg { Err(unrelated()) } else { Ok((base, clone)) }
    }

    /// The base of the same name in a dataset below, if it has one that is older than `to`.
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
        let wants = self.request.properties || self.request.replicate;
        let properties = if wants { Some(self.properties(row.dataset)?) } else { None };
        let (base, base_id) = base.unzip();
        let begin = Begin {
            dataset: self.names.of_dataset(self.tx, row.dataset)?.to_string(),
            snapshot: row.name,
            guid: row.guid,
            createtxg: row.createtxg,
            creation: row.creation,
            layout: self.layout,
            base,
            clone,
            properties,
        };
        Ok(Part { begin, id, root, level: row.level, base: base_id.flatten() })
    }

    /// The properties that were set on a dataset, or that it received, by name.
    fn properties(&self, id: u64) -> Result<Vec<(String, String)>> {
        let rows = |kind| self.tx.rows::<Value>(keys(id, kind));
        let received = rows(kind::RECEIVED)?.into_iter().chain(rows(kind::PROPERTY)?);
        let mut values: std::collections::BTreeMap<String, Option<String>> =
            received.map(|(_, row)| (row.name, row.value)).collect();
        let row: DatasetRow = self.tx.row(dataset_key(id))?;
        let limits = [
            ("quota", row.quota),
            ("refquota", row.refquota),
            ("reservation", row.reservation),
            ("refreservation", row.refreservation),
        ];
        for (name, limit) in limits.into_iter().filter(|(_, limit)| *limit > 0) {
            values.insert(name.to_owned(), Some(limit.to_string()));
        }
        Ok(values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

fn base_of(row: &SnapshotRow) -> Base {
    Base { guid: row.guid, createtxg: row.createtxg, name: format!("@{}", row.name) }
}
