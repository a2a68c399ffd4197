//! Requests about snapshots, clones, holds, bookmarks and differences.

use dataset::{
    admin::{DestroySnapshotsRequest, Difference, DifferenceKind, ListRequest, Replaced, RollbackRequest},
    name::{BookmarkName, DatasetName, Name, SnapshotName, SnapshotSet, SnapshotSpan},
    property::Kinds,
};
use protocol::{Assignment, Change, ChangeRecord, Failure, HoldRecord, PathBytes};

use super::{
    files,
    job::Job,
    open_pool::{OpenPool, given_to_datasets, owner},
    parts::Parts,
    refusal::{OrAdvised, OrRefused, to_roll_back},
};

const NANOS: i64 = 1_000_000_000;

impl OpenPool {
    pub(super) fn snapshot(
        &self,
        names: Vec<SnapshotName>,
        recursive: bool,
        assignments: &[Assignment],
    ) -> Result<(), Failure> {
        let first = names.first().map(SnapshotName::to_string).unwrap_or_default();
        self.datasets
            .snapshot(names, recursive, given_to_datasets(assignments))
            .or_refused("create snapshot", first)?;
        self.snapshots_changed(&[]);
        Ok(())
    }

    fn snapshots_changed(&self, gone: &[String]) {
        if let Some(mounts) = &self.mounts {
            mounts.snapshots_changed(gone);
        }
    }

    pub(super) fn rollback(
        &self,
        to: &SnapshotName,
        destroy_newer: bool,
        destroy_clones: bool,
        force: bool,
    ) -> Result<(), Failure> {
        let id = self.id_of(&to.dataset())?;
        let newer = self.newer(to)?;
        let mut mounted = Vec::new();
        if (destroy_newer || destroy_clones) && !newer.is_empty() {
            let doomed = self.would_go(to, newer, destroy_clones)?;
            mounted = self.unmount_named(&doomed, force)?;
        }
        let request = RollbackRequest { snapshot: to.clone(), later: destroy_newer, dependents: destroy_clones };
        let back = || self.datasets.rollback(request).or_advised("rollback to", to, to_roll_back);
        let done = match &self.mounts {
            Some(mounts) => mounts.around_change(id, back, |done| match done {
                Ok(done) => done.replaced.clone(),
                // A failed rollback may have replaced any files.
                Err(_) => Replaced::Everything,
            }),
            None => back(),
        };
        let done = done.inspect_err(|_| self.mount_back(&mounted))?;
        self.background.free();
        self.snapshots_changed(&done.destroyed);
        Ok(())
    }

    /// The snapshots of the dataset taken after `than`, oldest first.
    fn newer(&self, than: &SnapshotName) -> Result<Vec<SnapshotName>, Failure> {
        let dataset = Name::Dataset(than.dataset());
        let request = ListRequest { roots: vec![dataset], depth: Some(1), kinds: Kinds::SNAPSHOT };
        let listed = self.datasets.list(&request).or_refused("rollback to", than)?;
        let own = listed.into_iter().filter_map(|listed| match listed.name {
            Name::Snapshot(name) if name.dataset() == than.dataset() => Some(name),
            _ => None,
        });
        Ok(own.skip_while(|name| name != than).skip(1).collect())
    }

    /// Names of everything that is destroyed together with the newer snapshots of a rollback.
    fn would_go(&self, to: &SnapshotName, newer: Vec<SnapshotName>, clones: bool) -> Result<Vec<String>, Failure> {
        let spans = newer.iter().map(|name| SnapshotSpan::One(name.snapshot().to_owned())).collect();
        let request = DestroySnapshotsRequest {
            set: SnapshotSet { dataset: to.dataset(), spans },
            recursive: false,
            dependents: clones,
            defer: false,
        };
        self.datasets.doomed_with_snapshots(request).or_advised("rollback to", to, to_roll_back)
    }

    pub(super) fn clone_snapshot(
        &self,
        from: &SnapshotName,
        to: &DatasetName,
        parents: bool,
        assignments: &[Assignment],
        no_mount: bool,
    ) -> Result<(), Failure> {
        let properties = given_to_datasets(assignments);
        let mut created = if parents { self.missing_above(to) } else { Vec::new() };
        created.push(to.clone());
        self.datasets.clone_snapshot(from, to, parents, properties, owner()).or_refused("create", to)?;
        if no_mount { Ok(()) } else { self.mount_new(&created) }
    }

    pub(super) fn promote(&self, name: &DatasetName) -> Result<(), Failure> {
        self.datasets.promote(name).or_refused("promote", name)?;
        self.snapshots_changed(&[]);
        Ok(())
    }

    pub(super) fn hold(&self, tag: &str, names: &[SnapshotName], recursive: bool) -> Result<(), Failure> {
        self.datasets.hold(tag, names, recursive).or_refused("hold snapshot", first(names))
    }

    pub(super) fn holds(&self, names: &[SnapshotName], recursive: bool) -> Result<Vec<HoldRecord>, Failure> {
        let holds = self.datasets.holds(names, recursive).or_refused("open", first(names))?;
        let record = |hold: dataset::admin::HoldInfo| HoldRecord {
            snapshot: hold.snapshot,
            tag: hold.tag,
            time: hold.time.div_euclid(NANOS),
        };
        Ok(holds.into_iter().map(record).collect())
    }

    pub(super) fn release(&self, tag: &str, names: &[SnapshotName], recursive: bool) -> Result<(), Failure> {
        self.datasets.release(tag, names, recursive).or_refused("release hold from snapshot", first(names))?;
        // Releasing the last hold may have destroyed a snapshot.
        self.snapshots_changed(&[]);
        self.background.free();
        Ok(())
    }

    pub(super) fn bookmark(&self, from: &Name, to: &BookmarkName) -> Result<(), Failure> {
        self.datasets.bookmark(from, to).or_refused("create bookmark", to)
    }

    /// Sends the differences. Sorted by path within each batch of [`SORTED_BYTES`], so a moderate number is sorted
    /// completely.
    pub(super) fn diff(&self, from: &SnapshotName, to: &Name, job: &mut Job<'_>) -> Result<(), Failure> {
        let mut changes = Changes::default();
        let mut given = Ok(());
        let walked = self.datasets.diff(from, to, |difference| {
            given = job.check().and_then(|()| changes.push(change_record(difference), job));
            match given {
                Ok(()) => Ok(()),
                Err(_) => Err(pool::error::Error::Request("interrupted".into()).into()),
            }
        });
        given?;
        walked.or_refused("diff", from)?;
        changes.give(job)?;
        changes.parts.finish(job)
    }
}

/// Size, in bytes, of the differences that are sorted together.
const SORTED_BYTES: usize = 16 << 20;

/// A batch of differences to be sorted.
#[derive(Default)]
struct Changes {
    batch: Vec<ChangeRecord>,
    bytes: usize,
    parts: Parts<ChangeRecord>,
}

impl Changes {
    fn push(&mut self, record: ChangeRecord, job: &mut Job<'_>) -> Result<(), Failure> {
        let renamed = if let Change::Renamed(path) = &record.change { path.0.len() } else { 0 };
        self.bytes += record.path.0.len() + renamed + size_of::<ChangeRecord>();
        self.batch.push(record);
        if self.bytes >= SORTED_BYTES { self.give(job) } else { Ok(()) }
    }

    fn give(&mut self, job: &mut Job<'_>) -> Result<(), Failure> {
        self.bytes = 0;
        self.batch.sort_by(|a, b| a.path.cmp(&b.path));
        self.batch.drain(..).try_for_each(|record| self.parts.push(record, job))
    }
}

fn first(names: &[SnapshotName]) -> &str {
    names.first().map_or("", SnapshotName::as_str)
}

fn change_record(difference: Difference) -> ChangeRecord {
    let Difference { kind, file_type, path, new_path, links, time } = difference;
    let change = match kind {
        DifferenceKind::Added => Change::Added,
        DifferenceKind::Removed => Change::Removed,
        DifferenceKind::Modified => Change::Modified { links },
        DifferenceKind::Renamed => Change::Renamed(PathBytes(new_path.unwrap_or_default())),
    };
    ChangeRecord {
        change,
        kind: files::kind(file_type),
        path: PathBytes(path),
        time: (time.div_euclid(NANOS), time.rem_euclid(NANOS) as u32),
    }
}
