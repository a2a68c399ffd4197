//! Lists datasets, snapshots and bookmarks.
//!
//! A walk proceeds in steps with a bounded number of entries, so a long list neither fills the memory nor blocks the
//! catalogue for long ([`Datasets::begin_list`]). Between steps the walk keeps ids; datasets destroyed or moved
//! meanwhile are omitted. Each entry is consistent, and a walk in a single step is consistent as a whole
//! ([`Datasets::list`]).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use pool::format::key::Key;

use crate::{
    admin::{
        property::values,
        table::{
            counts::{self, Counts},
            datasets::{Datasets, Mount},
            limits,
            names::{Names, Target},
        },
    },
    catalogue::{
        Bookmark, DatasetRow, Named, ROOT, SnapshotRow, Space, Transaction, dataset_key, keys, keys_from, kind,
        snapshot_key,
    },
    error::{Error, Result},
    lineage::{
        arrival, dataset,
        since::{Member, Since},
        snapshot,
    },
    name::{DatasetName, Name, SnapshotName},
    property::{Effective, Kinds},
};

/// The approximate number of entries per step, mostly a megabyte.
const STEP: usize = 128;
/// The number of datasets cached with their inheritable properties, about 10 KB each.
const PLACES: usize = 64;

/// The request of a list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The starting points; empty for the pool's root dataset.
    pub roots: Vec<Name>,
    /// The number of levels below the roots; `None` for all. Snapshots and children of a root are one level below the
    /// root.
    pub depth: Option<usize>,
    /// The kinds to list.
    pub kinds: Kinds,
}

/// Only the named objects, of any kind.
impl Default for ListRequest {
    fn default() -> ListRequest {
        ListRequest { roots: Vec::new(), depth: Some(0), kinds: Kinds::ALL_DATASETS }
    }
}

/// A dataset, snapshot or bookmark, with everything needed to compute its properties. See [`Listed::value`].
#[derive(Clone, Debug)]
pub struct Listed {
    /// The full name, from the pool on.
    pub name: Name,
    /// A set with exactly one kind.
    pub kind: Kinds,
    /// The id; of a bookmark the dataset's id.
    pub id: u64,
    pub(in crate::admin) facts: Facts,
    pub(in crate::admin) effective: Effective,
    /// The received properties, by name.
    pub(in crate::admin) received: BTreeMap<String, String>,
    /// For each snapshot in the request, the bytes written since.
    pub(in crate::admin) written_since: BTreeMap<String, u64>,
}

/// The catalogue's facts about an entry.
#[derive(Clone, Debug)]
pub(in crate::admin) enum Facts {
    Dataset {
        row: Box<DatasetRow>,
        available: u64,
        origin: Option<String>,
        mount: Option<Mount>,
        token: Option<String>,
        /// What lies below, if a limit of numbers applies.
        counts: Option<Counts>,
    },
    Snapshot {
        row: Box<SnapshotRow>,
        unique: Space,
        written: Space,
        clones: Vec<String>,
    },
    Bookmark(Bookmark),
}

/// A walk in progress.
#[derive(Clone, Debug)]
pub struct Listing {
    depth: Option<usize>,
    kinds: Kinds,
    since: Arc<[String]>,
    room: u64,
    written: Since,
    /// Number of entries still to leave out, and of entries to list after those.
    skip: u64,
    most: u64,
    /// Number of entries so far, with those left out.
    total: u64,
    /// The remaining work; the next item is last.
    todo: Vec<Todo>,
}

impl Listing {
    /// Lists only `most` entries after the first `skip`. The others are counted, and cost little.
    pub fn restrict(&mut self, skip: u64, most: u64) {
        (self.skip, self.most) = (skip, most);
    }

    /// The number of entries so far, listed or left out.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Counts `count` entries in a row, and returns how many of them are left out before one is listed.
    fn pass(&mut self, count: u64) -> u64 {
        let left_out = if self.most == 0 { count } else { count.min(self.skip) };
        self.skip -= self.skip.min(left_out);
        self.total += left_out;
        left_out
    }

    /// Counts an entry, and says whether to list the entry.
    fn admits(&mut self) -> bool {
        if self.pass(1) == 1 {
            return false;
        }
        self.most -= 1;
        self.total += 1;
        true
    }
}

/// A remaining part of a walk.
#[derive(Clone, Debug)]
enum Todo {
    /// The object of a name.
    Root(Name),
    /// The snapshots of a dataset from a txg on.
    Snapshots { dataset: u64, from: u64 },
    /// The bookmarks at the given offsets, from index `at` on.
    Bookmarks { dataset: u64, offsets: Arc<[u64]>, at: usize },
    /// The children of a dataset, from index `at` on.
    Children { of: u64, ids: Arc<[u64]>, at: usize, depth: usize },
}

impl Datasets {
    /// Lists each dataset, followed by its snapshots in the order of creation, its bookmarks, and its children by name.
    pub fn list(&self, request: &ListRequest) -> Result<Vec<Listed>> {
        self.list_since(request, &[])
    }

    /// As [`Datasets::list`], with the bytes written since each snapshot in `since`, for `written@SNAPSHOT`.
    pub fn list_since(&self, request: &ListRequest, since: &[String]) -> Result<Vec<Listed>> {
        let mut listing = self.begin_list(request, since);
        self.list_some(&mut listing, usize::MAX)
    }

    /// Begins a walk with the result of [`Datasets::list_since`].
    pub fn begin_list(&self, request: &ListRequest, since: &[String]) -> Listing {
        let roots = match request.roots.as_slice() {
            [] => vec![Name::Dataset(self.pool_name())],
            roots => roots.to_vec(),
        };
        Listing {
            depth: request.depth,
            kinds: request.kinds,
            since: since.into(),
            room: self.engine().available_soon(),
            written: Since::default(),
            skip: 0,
            most: u64::MAX,
            total: 0,
            todo: roots.into_iter().rev().map(Todo::Root).collect(),
        }
    }

    /// The next entries; `None` at the end.
    pub fn list_step(&self, listing: &mut Listing) -> Result<Option<Vec<Listed>>> {
        if listing.todo.is_empty() {
            return Ok(None);
        }
        self.list_some(listing, STEP).map(Some)
    }

    fn list_some(&self, listing: &mut Listing, most: usize) -> Result<Vec<Listed>> {
        let names = self.names();
        let (next, found) = self.read(|tx| {
            let (next, found, places) = (listing.clone(), Vec::new(), BTreeMap::new());
            let mut walk = Walk { tx, names: &names, datasets: self, listing: next, found, places };
            for _ in 0..most {
                let Some(todo) = walk.listing.todo.pop() else { break };
                walk.visit(todo)?;
            }
            walk.listing.written.forget_all_but_last();
            Ok((walk.listing, walk.found))
        })?;
        *listing = next;
        Ok(found.into_iter().map(|listed| self.with_token(listed)).collect())
    }

    /// Adds the token of an interrupted receive. Its position is in a tree, so it is read outside of the catalogue. A
    /// token that cannot be read must not keep the list, and every mount of the pool, from being made.
    fn with_token(&self, mut listed: Listed) -> Listed {
        if let Facts::Dataset { token: token @ Some(_), .. } = &mut listed.facts {
            *token = self.resume_token(listed.id).map_or_else(
                |error| {
                    tracing::warn!("the receive_resume_token of {} cannot be read: {error}", listed.name);
                    None
                },
                |token| token.map(|token| token.to_string()),
            );
        }
        listed
    }
}

struct Walk<'a, 'v> {
    tx: &'a Transaction<'v>,
    names: &'a Names,
    datasets: &'a Datasets,
    listing: Listing,
    found: Vec<Listed>,
    /// The cached datasets.
    places: BTreeMap<u64, Rc<Place>>,
}

/// The name and inheritable properties of a dataset.
struct Place {
    name: DatasetName,
    effective: Effective,
    /// The values for snapshots, made at the first snapshot.
    of_snapshots: OnceCell<Effective>,
}

impl Walk<'_, '_> {
    fn wants(&self, kind: Kinds) -> bool {
        self.listing.kinds.intersects(kind)
    }

    /// Whether nothing below a level is listed.
    fn is_last(&self, depth: usize) -> bool {
        self.listing.depth.is_some_and(|most| depth >= most)
    }

    fn visit(&mut self, todo: Todo) -> Result<()> {
        match todo {
            Todo::Root(name) => self.root(&name),
            Todo::Snapshots { dataset, from } => self.next_snapshot(dataset, from),
            Todo::Bookmarks { dataset, offsets, at } => self.next_bookmark(dataset, offsets, at),
            Todo::Children { of, ids, at, depth } => self.next_child(of, ids, at, depth),
        }
    }

    fn root(&mut self, name: &Name) -> Result<()> {
        match self.names.target(self.tx, name)? {
            Target::Dataset(id) => self.dataset(id, 0),
            Target::Snapshot(id) => {
                let row: SnapshotRow = self.tx.row(snapshot_key(id))?;
                self.snapshot(id, row)
            }
            Target::Bookmark(dataset, row) => {
                self.bookmark(dataset, name.clone(), row);
                Ok(())
            }
        }
    }

    fn place(&mut self, id: u64) -> Result<Rc<Place>> {
        if let Some(place) = self.places.get(&id) {
            return Ok(place.clone());
        }
        // Fails on a circle of parents, so all later code climbs a bounded number of levels.
        let name = self.names.of_dataset(self.tx, id)?;
        let effective = match id {
            ROOT => values::effective(self.tx, self.names, id)?,
            _ => {
                let above = self.place(self.tx.row::<DatasetRow>(dataset_key(id))?.parent)?;
                let mut below = values::inherited(&above.effective, &name);
                values::own(self.tx, id, &mut below)?;
                below
            }
        };
        if self.places.len() >= PLACES {
            self.places.clear();
        }
        let place = Rc::new(Place { name, effective, of_snapshots: OnceCell::new() });
        self.places.insert(id, place.clone());
        Ok(place)
    }

    fn dataset(&mut self, id: u64, depth: usize) -> Result<()> {
        if self.wants(Kinds::FILESYSTEM) && self.listing.admits() {
            let row: DatasetRow = self.tx.row(dataset_key(id))?;
            let place = self.place(id)?;
            self.push_dataset(id, &place.name, &row, &place.effective)?;
        }
        if self.is_last(depth) {
            return Ok(());
        }
        // Of the children on the last level only the file systems themselves can be listed.
        if self.wants(Kinds::FILESYSTEM) || !self.is_last(depth + 1) {
            let todo = Todo::Children { of: id, ids: self.children(id)?, at: 0, depth: depth + 1 };
            self.listing.todo.push(todo);
        }
        if self.wants(Kinds::BOOKMARK) {
            let mut rows = self.tx.rows::<Bookmark>(keys(id, kind::BOOKMARK))?;
            rows.sort_by_key(|(_, row)| row.createtxg);
            let offsets = rows.into_iter().map(|(key, _)| key.offset).collect();
            self.listing.todo.push(Todo::Bookmarks { dataset: id, offsets, at: 0 });
        }
        if self.wants(Kinds::SNAPSHOT) {
            self.listing.todo.push(Todo::Snapshots { dataset: id, from: 0 });
        }
        Ok(())
    }

    /// The children of a dataset, by name. A dataset listed twice counts once: damaged rows could lead in a circle, or
    /// to one dataset on many paths.
    fn children(&self, id: u64) -> Result<Arc<[u64]>> {
        let (mut ids, mut known) = (Vec::new(), BTreeSet::new());
        for (name, child) in dataset::children(self.tx, id)? {
            let row: DatasetRow = self.tx.row(dataset_key(child))?;
            if row.parent != id || row.name != name || !known.insert(child) {
                return Err(Error::damaged(child, "a dataset that stands below two others, or below itself"));
            }
            if row.is_listed() {
                ids.push(child);
            }
        }
        Ok(ids.into())
    }

    fn next_child(&mut self, of: u64, ids: Arc<[u64]>, at: usize, depth: usize) -> Result<()> {
        let passed = match self.is_last(depth) {
            true => self.listing.pass((ids.len() - at) as u64) as usize,
            false => 0,
        };
        let at = at + passed;
        let Some(id) = ids.get(at).copied() else { return Ok(()) };
        self.listing.todo.push(Todo::Children { of, ids, at: at + 1, depth });
        let row = self.tx.find::<DatasetRow>(dataset_key(id))?;
        if row.is_some_and(|(row, _)| row.parent == of) {
            return self.dataset(id, depth);
        }
        Ok(())
    }

    fn next_snapshot(&mut self, dataset: u64, from: u64) -> Result<()> {
        let Some(key) = self.tx.first_key(keys_from(dataset, kind::SNAPSHOT_TXG, from))? else { return Ok(()) };
        if let Some(from) = key.offset.checked_add(1) {
            self.listing.todo.push(Todo::Snapshots { dataset, from });
        }
        let id = self.tx.row::<Named>(key)?.id;
        let row: SnapshotRow = self.tx.row(snapshot_key(id))?;
        self.snapshot(id, row)
    }

    fn next_bookmark(&mut self, dataset: u64, offsets: Arc<[u64]>, at: usize) -> Result<()> {
        let Some(offset) = offsets.get(at).copied() else { return Ok(()) };
        self.listing.todo.push(Todo::Bookmarks { dataset, offsets, at: at + 1 });
        let found = self.tx.find::<Bookmark>(Key::new(dataset, kind::BOOKMARK, offset))?;
        if let Some((row, _)) = found {
            let name = self.place(dataset)?.name.bookmark(&row.name)?;
            self.bookmark(dataset, Name::Bookmark(name), row);
        }
        Ok(())
    }

    fn push_dataset(&mut self, id: u64, name: &DatasetName, row: &DatasetRow, effective: &Effective) -> Result<()> {
        let origin = match row.origin {
            0 => None,
            origin => Some(self.names.of_snapshot(self.tx, origin)?.to_string()),
        };
        let available = limits::available_to_head(self.tx, id, self.listing.room)?;
        let mount = self.datasets.mount_of(id);
        let mut effective = effective.clone();
        if let Some(mount) = &mount {
            values::overlay(&mut effective, mount);
        }
        let token = arrival::receiving(self.tx, id)?.map(|_| String::new());
        let counts = counts::below(self.tx, id)?;
        let facts = Facts::Dataset { row: Box::new(row.clone()), available, origin, mount, token, counts };
        let (name, kind) = (Name::Dataset(name.clone()), Kinds::FILESYSTEM);
        let (received, written_since) = (values::received(self.tx, id)?, self.written_since(&name, row.into())?);
        self.found.push(Listed { name, kind, id, facts, effective, received, written_since });
        Ok(())
    }

    fn snapshot(&mut self, id: u64, row: SnapshotRow) -> Result<()> {
        if !self.listing.admits() {
            return Ok(());
        }
        let place = self.place(row.dataset)?;
        let name = Name::Snapshot(place.name.snapshot(&row.name).map_err(|error| Error::damaged(id, error))?);
        let before = match row.previous {
            0 => Space::ZERO,
            previous => self.tx.row::<SnapshotRow>(snapshot_key(previous))?.referenced,
        };
        let unique = snapshot::unique(self.tx, &row)?;
        let clones = match row.clones {
            0 => Vec::new(),
            _ => self.names.of_datasets(self.tx, &snapshot::clones(self.tx, id)?)?,
        };
        let above = place.of_snapshots.get_or_init(|| values::for_snapshots(&place.name, &place.effective));
        let effective = values::of_snapshot(self.tx, id, above.clone())?;
        let written = row.referenced - (before - row.dead);
        let (received, written_since) = (values::received(self.tx, id)?, self.written_since(&name, (&row).into())?);
        let facts = Facts::Snapshot { row: Box::new(row), unique, written, clones };
        self.found.push(Listed { name, kind: Kinds::SNAPSHOT, id, facts, effective, received, written_since });
        Ok(())
    }

    /// The bytes written since each requested snapshot that is earlier in the line.
    fn written_since(&mut self, of: &Name, member: Member) -> Result<BTreeMap<String, u64>> {
        let mut written = BTreeMap::new();
        let since = self.listing.since.clone();
        for since in since.iter() {
            let Some(name) = snapshot_name(&of.dataset(), since) else { continue };
            let base = match self.names.snapshot(self.tx, &name) {
                Err(Error::NotFound { .. }) => continue,
                found => found?,
            };
            if let Some(space) = self.listing.written.written(self.tx, member, base)? {
                written.insert(since.clone(), space.allocated);
            }
        }
        Ok(written)
    }

    fn bookmark(&mut self, id: u64, name: Name, row: Bookmark) {
        if !self.listing.admits() {
            return;
        }
        let facts = Facts::Bookmark(row);
        let (effective, received, written_since) = (Effective::default(), BTreeMap::new(), BTreeMap::new());
        self.found.push(Listed { name, kind: Kinds::BOOKMARK, id, facts, effective, received, written_since });
    }
}

/// The snapshot of `written@TEXT`: a short name of the dataset's own snapshot, or a full name.
fn snapshot_name(of: &DatasetName, text: &str) -> Option<SnapshotName> {
    match text.contains('@') {
        true => text.parse().ok(),
        false => of.snapshot(text).ok(),
    }
}
