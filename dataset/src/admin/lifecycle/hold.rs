//! User holds: tags that keep snapshots from being destroyed.

use pool::env::Nanos;

use crate::{
    admin::table::{
        datasets::Datasets,
        history,
        names::{self, Names},
    },
    catalogue::Transaction,
    error::{Error, Result},
    lineage::{dataset, snapshot},
    name::SnapshotName,
};

/// The longest tag, in bytes.
const MAX_TAG: usize = 255;

/// A hold on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldInfo {
    /// The held snapshot.
    pub snapshot: SnapshotName,
    /// The tag, 1 to 255 bytes.
    pub tag: String,
    /// When the hold was placed, in nanoseconds since 1970.
    pub time: Nanos,
}

impl Datasets {
    /// Places holds; with `recursive` also on existing snapshots with the same name in descendants.
    pub fn hold(&self, tag: &str, snapshots: &[SnapshotName], recursive: bool) -> Result<()> {
        if !is_tag(tag) {
            let problem = format!("a hold's tag has 1 to {MAX_TAG} bytes, and no control character");
            return Err(pool::error::Error::Request(problem).into());
        }
        let (names, tag, snapshots) = (self.names(), tag.to_owned(), snapshots.to_vec());
        self.run(move |tx| {
            for (id, name) in each(tx, &names, &snapshots, recursive)? {
                if !snapshot::hold(tx, id, &tag)? {
                    return Err(Error::hold_exists(format!("{tag} on {name}")));
                }
            }
            history::log_each(tx, &format!("hold {tag} on"), &snapshots)
        })
    }

    /// Releases holds. A snapshot marked for deferred destruction is destroyed with its last hold.
    pub fn release(&self, tag: &str, snapshots: &[SnapshotName], recursive: bool) -> Result<()> {
        let (names, tag, snapshots) = (self.names(), tag.to_owned(), snapshots.to_vec());
        self.run(move |tx| {
            let mut released = false;
            for (id, _) in each(tx, &names, &snapshots, recursive)? {
                released |= snapshot::release(tx, id, &tag)?;
            }
            if !released {
                return Err(Error::no_hold(&tag));
            }
            history::log_each(tx, &format!("release {tag} of"), &snapshots)
        })
    }

    /// The holds on snapshots; with `recursive` also in descendants, on snapshots with the same name.
    pub fn holds(&self, snapshots: &[SnapshotName], recursive: bool) -> Result<Vec<HoldInfo>> {
        let names = self.names();
        self.read_judged(|tx| {
            let mut found = Vec::new();
            for (id, name) in each(tx, &names, snapshots, recursive)? {
                let holds = snapshot::holds(tx, id)?.into_iter();
                found.extend(holds.map(|hold| HoldInfo { snapshot: name.clone(), tag: hold.name, time: hold.time }));
            }
            Ok(found)
        })
    }
}

/// Whether a text can be a hold's tag. Terminals obey control characters, and users without the pool choose tags.
pub(in crate::admin) fn is_tag(tag: &str) -> bool {
    (1..=MAX_TAG).contains(&tag.len()) && !tag.contains(char::is_control)
}

/// The ids and names of snapshots, and with `recursive` of snapshots with the same name in descendants; then the
/// topmost dataset need not have the snapshot.
pub(in crate::admin) fn each(
    tx: &Transaction<'_>,
    names: &Names,
    snapshots: &[SnapshotName],
    recursive: bool,
) -> Result<Vec<(u64, SnapshotName)>> {
    let mut found = Vec::new();
    for name in snapshots {
        if !recursive {
            found.push((names.snapshot(tx, name)?, name.clone()));
            continue;
        }
        let before = found.len();
        for dataset in names::subtree(tx, names.dataset(tx, &name.dataset())?)? {
            if let Some(id) = dataset::snapshot_named(tx, dataset, name.snapshot())? {
                found.push((id, names.of_snapshot(tx, id)?));
            }
        }
        if found.len() == before {
            return Err(Error::no_snapshot(name));
        }
    }
    Ok(found)
}
