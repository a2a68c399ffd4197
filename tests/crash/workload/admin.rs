//! What administrators do: datasets, snapshots, clones, streams, properties, devices, export and import.
//!
//! A command that has returned promises that its own effect and everything before survive.

use std::sync::Arc;

use super::{Life, Operated, Promise, Stream};
use crate::{
    model::{Dataset, Snapshot},
    world::{DEVICE_SIZE, Outcome, POOL, World, name},
};
use dataset::{
    admin::{
        Assignment, CreateRequest, DestroyRequest, DestroySnapshotsRequest, ReceiveRequest, RollbackRequest, SendFrom,
        SendRequest,
    },
    error::Reader,
    fs::SetQuota,
    name::{Name, SnapshotName},
    property::OwnerKind,
};

/// The most datasets, snapshots of each dataset, and devices.
const DATASETS: usize = 6;
const SNAPSHOTS: usize = 3;
const DEVICES: usize = 2;
/// The most streams kept for a later receive.
const STREAMS: usize = 4;

fn snapshot_name(text: &str) -> SnapshotName {
    text.parse().expect("the simulation uses valid names")
}

fn target(text: &str) -> Name {
    text.parse().expect("the simulation uses valid names")
}

/// A receive that rolls back and overwrites.
fn forced(into: &str) -> ReceiveRequest {
    ReceiveRequest { force: true, ..ReceiveRequest::plain(target(into)) }
}

impl Life {
    pub(super) fn administer(&mut self, actor: usize) -> Outcome<Option<(String, Promise)>> {
        let operation = match self.below(52) {
            0..3 => self.create_dataset()?,
            3..13 => self.snapshot()?,
            13..16 => self.clone_snapshot()?,
            16..18 => self.roll_back()?,
            18..20 => self.promote()?,
            20 => self.destroy_dataset()?,
            21..24 => self.destroy_snapshot()?,
            // Sending only reads.
            24..28 => return Ok(self.send()?.map(|what| (what, Promise::Nothing))),
            28..34 => self.receive()?,
            34..37 => self.set_properties()?,
            37 => self.rename_dataset()?,
            38 => self.add_device()?,
            39 => self.reopen()?,
            40 => self.work_in_the_background()?,
            41..46 => return Ok(Some((self.let_a_device_fail(), Promise::Nothing))),
            46 => self.give_up()?,
            _ => return self.move_actor(actor),
        };
        Ok(operation.map(|what| (what, Promise::Everything)))
    }

    fn names(&self) -> Vec<String> {
        self.model.datasets.keys().cloned().collect()
    }

    /// The datasets for which `wanted` is true.
    fn names_where(&self, wanted: impl Fn(&str, &Dataset) -> bool) -> Vec<String> {
        self.model.datasets.iter().filter(|(name, found)| wanted(name, found)).map(|(name, _)| name.clone()).collect()
    }

    fn dataset(&mut self, name: &str) -> &mut Dataset {
        self.model.datasets.get_mut(name).expect("it was chosen from those that are there")
    }

    /// A name for a new dataset below a random one, if there is room.
    fn new_name(&mut self) -> Option<String> {
        let names = self.names();
        let parent = self.pick(&names)?;
        let is_deep = parent.matches('/').count() > 2;
        (names.len() < DATASETS && !is_deep).then(|| format!("{parent}/d{}", self.next()))
    }

    /// All snapshots: the dataset, and the index in its list.
    fn snapshots(&self) -> Vec<(String, usize)> {
        let of = |(name, dataset): (&String, &Dataset)| {
            let name = name.clone();
            (0..dataset.snapshots.len()).map(move |at| (name.clone(), at))
        };
        self.model.datasets.iter().flat_map(of).collect()
    }

    fn full_name(&self, (dataset, at): &(String, usize)) -> String {
        format!("{dataset}@{}", self.model.datasets[dataset].snapshots[*at].name)
    }

    /// Closes the actors' open files in a dataset, whose tree is about to be replaced.
    fn close_files(&mut self, dataset: &str) {
        let fs = self.world.fs(dataset);
        for actor in self.actors.iter_mut().filter(|actor| actor.dataset == dataset) {
            actor.open.drain(..).for_each(|ino| _ = fs.release(ino, 1));
        }
        fs.free_unused();
    }

    fn move_actor(&mut self, actor: usize) -> Outcome<Option<(String, Promise)>> {
        let names = self.names();
        let to = self.pick(&names).unwrap_or(POOL.into());
        let (_, fs) = self.dataset_of(actor);
        self.actors[actor].open.drain(..).for_each(|ino| _ = fs.release(ino, 1));
        fs.free_unused();
        self.actors[actor].dataset.clone_from(&to);
        Ok(Some((format!("actor {actor} goes to {to}"), Promise::Nothing)))
    }

    fn create_dataset(&mut self) -> Operated {
        let Some(new) = self.new_name() else { return Ok(None) };
        let request = CreateRequest { name: name(&new), parents: false, properties: Vec::new(), owner: (3, 4) };
        self.expect("create a dataset", self.world.datasets.create(request))?;
        let fs = self.world.try_fs(&new)?;
        // Half of the datasets have user accounting, whose sums the check verifies.
        if self.below(2) == 0 {
            self.expect("set a quota", fs.set_quota(OwnerKind::User, 0, SetQuota::default()))?;
        }
        let tree = crate::observe::files(&fs, &new)?;
        self.model.datasets.insert(new.clone(), Dataset { tree: Arc::new(tree), ..Dataset::default() });
        Ok(Some(format!("create {new}")))
    }

    fn snapshot(&mut self) -> Operated {
        let names = self.names_where(|_, dataset| dataset.snapshots.len() < SNAPSHOTS);
        let (Some(first), Some(second)) = (self.pick(&names), self.pick(&names)) else { return Ok(None) };
        let mut of = vec![first, second];
        of.dedup();
        self.snapshot_of(of).map(Some)
    }

    /// One snapshot of each of these datasets, all in one txg.
    pub(super) fn snapshot_of(&mut self, of: Vec<String>) -> Outcome<String> {
        let snapshot = format!("s{}", self.next());
        let wanted = of.iter().map(|dataset| snapshot_name(&format!("{dataset}@{snapshot}"))).collect();
        self.expect("snapshot", self.world.datasets.snapshot(wanted, false, Vec::new()))?;
        for dataset in &of {
            let full = target(&format!("{dataset}@{snapshot}"));
            let guid = self.expect("get guid", self.world.datasets.get(&full, "guid"))?;
            let guid = guid.and_then(|guid| guid.value.parse().ok()).ok_or("a snapshot without a guid")?;
            let dataset = self.dataset(dataset);
            dataset.snapshots.push(Snapshot { name: snapshot.clone(), guid, tree: dataset.tree.clone() });
        }
        Ok(format!("snapshot {of:?} as @{snapshot}"))
    }

    fn clone_snapshot(&mut self) -> Operated {
        let snapshots = self.snapshots();
        let (Some(origin), Some(new)) = (self.pick(&snapshots), self.new_name()) else { return Ok(None) };
        let full = self.full_name(&origin);
        let datasets = &self.world.datasets;
        let cloned = datasets.clone_snapshot(&snapshot_name(&full), &name(&new), false, Vec::new(), (0, 0));
        self.expect("clone", cloned)?;
        let tree = self.model.datasets[&origin.0].snapshots[origin.1].tree.clone();
        self.model.datasets.insert(new.clone(), Dataset { tree, origin: Some(full.clone()), ..Dataset::default() });
        Ok(Some(format!("clone {full} as {new}")))
    }

    /// Rolls back to a snapshot whose later snapshots have no clones.
    fn roll_back(&mut self) -> Operated {
        let mut snapshots = self.snapshots();
        snapshots.retain(|(dataset, at)| {
            let later = at + 1..self.model.datasets[dataset].snapshots.len();
            later.into_iter().all(|at| self.model.clones(&self.full_name(&(dataset.clone(), at))).count() == 0)
        });
        let Some((dataset, at)) = self.pick(&snapshots) else { return Ok(None) };
        let full = self.full_name(&(dataset.clone(), at));
        let request = RollbackRequest { snapshot: snapshot_name(&full), later: true, dependents: false };
        self.expect("rollback", self.world.datasets.rollback(request))?;
        self.close_files(&dataset);
        let rolled = self.dataset(&dataset);
        rolled.snapshots.truncate(at + 1);
        rolled.tree = rolled.snapshots[at].tree.clone();
        Ok(Some(format!("roll back to {full}")))
    }

    fn promote(&mut self) -> Operated {
        let clones = self.names_where(|_, dataset| dataset.origin.is_some());
        let Some(clone) = self.pick(&clones) else { return Ok(None) };
        let origin = self.model.datasets[&clone].origin.clone().ok_or("a clone has an origin")?;
        let (before, snapshot) = origin.split_once('@').ok_or("an origin is a snapshot")?;
        let at = self.model.datasets[before].snapshots.iter().position(|found| found.name == snapshot);
        let at = at.ok_or("an origin is there")?;
        let mut moved = self.model.datasets[before].snapshots[..=at].to_vec();
        let taken = |moved: &Snapshot| self.model.datasets[&clone].snapshots.iter().any(|own| own.name == moved.name);
        if moved.iter().any(taken) {
            return Ok(None);
        }
        self.expect("promote", self.world.datasets.promote(&name(&clone)))?;
        for Snapshot { name, .. } in &moved {
            self.model.move_origin(&format!("{before}@{name}"), &format!("{clone}@{name}"));
        }
        let parent = self.dataset(before);
        parent.snapshots.drain(..=at);
        let above = parent.origin.replace(format!("{clone}@{snapshot}"));
        let promoted = self.dataset(&clone);
        promoted.origin = above;
        moved.append(&mut promoted.snapshots);
        promoted.snapshots = moved;
        Ok(Some(format!("promote {clone}, a clone of {origin}")))
    }

    fn destroy_dataset(&mut self) -> Operated {
        let names = self.names_where(|name, dataset| {
            let has_children = self.model.datasets.keys().any(|other| other.starts_with(&format!("{name}/")));
            let is_origin = |snapshot: &Snapshot| self.model.clones(&format!("{name}@{}", snapshot.name)).count() > 0;
            name != POOL && !has_children && !dataset.snapshots.iter().any(is_origin)
        });
        let Some(gone) = self.pick(&names) else { return Ok(None) };
        self.close_files(&gone);
        let request = DestroyRequest { name: name(&gone), recursive: true, dependents: false };
        self.expect("destroy", self.world.datasets.destroy(request, false))?;
        self.model.datasets.remove(&gone);
        for actor in self.actors.iter_mut().filter(|actor| actor.dataset == gone) {
            actor.dataset = POOL.into();
        }
        Ok(Some(format!("destroy {gone}")))
    }

    fn destroy_snapshot(&mut self) -> Operated {
        let mut snapshots = self.snapshots();
        snapshots.retain(|snapshot| self.model.clones(&self.full_name(snapshot)).count() == 0);
        let Some(gone) = self.pick(&snapshots) else { return Ok(None) };
        let full = self.full_name(&gone);
        let set = self.expect("parse", full.parse())?;
        let request = DestroySnapshotsRequest { set, recursive: false, dependents: false, defer: false };
        self.expect("destroy a snapshot", self.world.datasets.destroy_snapshots(request, false))?;
        self.dataset(&gone.0).snapshots.remove(gone.1);
        Ok(Some(format!("destroy {full}")))
    }

    /// A full stream, or an increment from an older snapshot of the same dataset.
    fn send(&mut self) -> Operated {
        let snapshots = self.snapshots();
        let Some((dataset, at)) = self.pick(&snapshots) else { return Ok(None) };
        let base = (at > 0 && !self.one_in(3)).then(|| self.below(at));
        let full = self.full_name(&(dataset.clone(), at));
        let base_name = base.map(|base| self.full_name(&(dataset.clone(), base)));
        let request = SendRequest {
            from: base_name.as_deref().map(|base| SendFrom::Base(target(base))),
            ..SendRequest::plain(snapshot_name(&full))
        };
        let mut bytes = Vec::new();
        self.expect("send", self.world.datasets.send(&request, Reader::default(), &mut bytes, 0, &mut |_| {}))?;
        let line = &self.model.datasets[&dataset].snapshots;
        let (snapshot, base) = (line[at].clone(), base.map(|base| line[base].guid));
        if self.streams.len() == STREAMS {
            self.streams.remove(0);
        }
        self.streams.push(Stream { bytes, snapshot, base });
        Ok(Some(format!("send {full} from {base_name:?}")))
    }

    fn receive(&mut self) -> Operated {
        if self.streams.is_empty() {
            return Ok(None);
        }
        let at = self.below(self.streams.len());
        let (base, sent) = (self.streams[at].base, self.streams[at].snapshot.clone());
        let lacks = |dataset: &Dataset| {
            dataset.snapshots.iter().all(|known| known.name != sent.name && known.guid != sent.guid)
        };
        let fits = self.names_where(|_, dataset| match base {
            Some(base) => dataset.snapshots.last().is_some_and(|newest| newest.guid == base) && lacks(dataset),
            None => dataset.snapshots.is_empty() && dataset.origin.is_none(),
        });
        let into = match base {
            None if !self.one_in(3) => self.new_name(),
            _ => self.pick(&fits),
        };
        let Some(into) = into else { return Ok(None) };
        let is_new = !self.model.datasets.contains_key(&into);
        let is_resumable = self.one_in(3);
        if is_resumable && !self.interrupt(at, &into)? {
            return Ok(Some(format!("discard what was received into {into}, new: {is_new}")));
        }
        let request = ReceiveRequest { resumable: is_resumable, ..forced(&into) };
        let (_, received) = self.world.datasets.receive(request, &mut &self.streams[at].bytes[..], 0, &mut |_| {});
        self.expect(&format!("receive into {into}"), received)?;
        if is_new {
            self.model.datasets.insert(into.clone(), Dataset::default());
        } else {
            self.close_files(&into);
        }
        let dataset = self.dataset(&into);
        dataset.tree = sent.tree.clone();
        dataset.snapshots.push(sent);
        let kind = if base.is_some() { "an increment" } else { "a full stream" };
        Ok(Some(format!("receive {kind} into {into}, new: {is_new}, interrupted before: {is_resumable}")))
    }

    /// Receives parts of a stream into a dataset, each longer than the one before. Returns false if what was stored is
    /// discarded in the end, so that nothing has changed; otherwise the whole stream comes next.
    fn interrupt(&mut self, at: usize, into: &str) -> Outcome<bool> {
        let len = self.streams[at].bytes.len();
        let mut cut = 0;
        let mut is_partial = false;
        for _ in 0..=self.below(2) {
            cut += self.below(len - cut);
            let request = ReceiveRequest { resumable: true, ..forced(into) };
            let (arrived, received) =
                self.world.datasets.receive(request, &mut &self.streams[at].bytes[..cut], 0, &mut |_| {});
            if received.is_ok() {
                return Err(format!("{cut} of {len} bytes were received into {into} as a whole"));
            }
            is_partial = arrived.partial.is_some();
        }
        if !self.one_in(3) {
            return Ok(true);
        }
        if is_partial {
            self.expect("discard a partial state", self.world.datasets.discard_partial(&name(into)))?;
        }
        Ok(false)
    }

    fn set_properties(&mut self) -> Operated {
        if self.one_in(5) {
            let comment = format!("comment {}", self.next());
            self.expect("set the comment", self.world.datasets.set_pool_property("comment", &comment))?;
            self.model.comment.clone_from(&comment);
            return Ok(Some(format!("the comment is '{comment}'")));
        }
        let names = self.names();
        let Some(of) = self.pick(&names) else { return Ok(None) };
        let known: Vec<String> = self.model.datasets[&of].properties.keys().cloned().collect();
        if let Some(property) = self.pick(&known).filter(|_| self.below(3) == 0) {
            let inherited = self.world.datasets.inherit(&[target(&of)], &property, false, false);
            self.expect("inherit", inherited)?;
            self.dataset(&of).properties.remove(&property);
            return Ok(Some(format!("{of} inherits {property}")));
        }
        let note = format!("note {}", self.next());
        let (property, values) = match self.below(6) {
            0 => ("compression", vec!["off", "lz4", "zstd-3"]),
            1 | 2 => ("copies", vec!["1", "2", "3"]),
            3 => ("recordsize", vec!["4096", "16384", "131072"]),
            4 => ("checksum", vec!["xxh3", "sha256", "blake3"]),
            _ => ("sim:note", vec![note.as_str()]),
        };
        let value = self.pick(&values).unwrap_or_default();
        self.set(&of, property, value)?;
        Ok(Some(format!("{of} has {property}={value}")))
    }

    pub(super) fn set(&mut self, of: &str, property: &str, value: &str) -> Outcome<()> {
        let assignment = Assignment { property: property.into(), value: value.into() };
        self.expect("set", self.world.datasets.set(&[target(of)], &[assignment]))?;
        self.dataset(of).properties.insert(property.into(), value.into());
        Ok(())
    }

    fn rename_dataset(&mut self) -> Operated {
        let names = self.names_where(|name, _| name != POOL);
        let (Some(from), parents) = (self.pick(&names), self.names()) else { return Ok(None) };
        let below = format!("{from}/");
        let Some(parent) = self.pick(&parents).filter(|name| *name != from && !name.starts_with(&below)) else {
            return Ok(None);
        };
        let to = format!("{parent}/d{}", self.next());
        self.expect("rename", self.world.datasets.rename(&name(&from), &name(&to), false, (0, 0)))?;
        let renamed = |name: &str| match name.strip_prefix(&from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '@']) => format!("{to}{rest}"),
            _ => name.to_owned(),
        };
        let datasets = std::mem::take(&mut self.model.datasets);
        self.model.datasets = datasets.into_iter().map(|(name, dataset)| (renamed(&name), dataset)).collect();
        for origin in self.model.datasets.values_mut().filter_map(|dataset| dataset.origin.as_mut()) {
            *origin = renamed(origin);
        }
        self.actors.iter_mut().for_each(|actor| actor.dataset = renamed(&actor.dataset));
        Ok(Some(format!("rename {from} to {to}")))
    }

    fn add_device(&mut self) -> Operated {
        if self.devices.len() == DEVICES {
            return Ok(None);
        }
        // A device that fails while it is added is refused.
        self.operator.heal(false);
        let new = self.new_device(DEVICE_SIZE);
        self.expect("pool add", self.world.pool.add(vec![new]))?;
        Ok(Some("add a device".into()))
    }

    /// Exports the pool, or only drops it after a commit, and opens it again.
    fn reopen(&mut self) -> Operated {
        // Export and import do not wait for a failing device.
        self.operator.heal(false);
        self.expect("close", self.world.datasets.close_all())?;
        if self.one_in(2) {
            self.expect("export", self.world.pool.export())?;
        }
        self.actors.iter_mut().for_each(|actor| actor.open.clear());
        self.open_anew()?;
        Ok(Some("close and open the pool".into()))
    }

    /// Opens the pool on the devices.
    pub(super) fn open_anew(&mut self) -> Outcome<()> {
        for device in &self.devices {
            // Opening a device sees its present size.
            device.resize(self.expect("measure", device.measure())?);
        }
        let devices = self.layout.members(self.devices.clone());
        self.trimming = None;
        self.world = self.expect("import", World::open(devices, self.env.clone()))?;
        self.world.clean_up()?;
        self.operator.attend(&self.world.pool);
        self.feed_caches()
    }

    fn work_in_the_background(&mut self) -> Operated {
        self.world.datasets.reap_files();
        self.expect("background work", self.world.datasets.background_step())?;
        self.expect("commit", self.world.engine().commit_anyway())?;
        Ok(Some("a step in the background".into()))
    }
}
