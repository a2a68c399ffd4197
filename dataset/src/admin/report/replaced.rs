//! The differences for a cache of a file system, such as a mount's kernel, when a rollback or a receive replaces the
//! tree.
//!
//! The two trees are compared before the replacement and while changes are excluded, so the comparison misses no
//! change. If the differences cannot be determined exactly, for example because there are too many, everything counts
//! as different.

use std::collections::{BTreeMap, BTreeSet};

use pool::error::Error as PoolError;

use crate::{
    admin::table::{datasets::Datasets, opened::Dataset},
    error::{Error, Result},
    fs::{
        Ino,
        directory::Dirent,
        inode::Inode,
        key::{DATASET, DIRENT, INODE},
    },
    lineage::difference::{self, Change, Found, StoredRoot},
};

/// The most objects and names listed individually.
const MOST: usize = 1 << 16;

/// The differences of a file system after its tree was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Any object and name may differ.
    Everything,
    /// Only the listed objects and names differ.
    Only(Differing),
}

/// The differences between two states of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differing {
    /// The objects with different attributes or content, or in only one state. Every inode number means the same object
    /// as before.
    pub objects: BTreeSet<Ino>,
    /// The names, with their directories, that lead elsewhere, or are in only one state.
    pub names: BTreeSet<(Ino, Vec<u8>)>,
}

impl Replaced {
    /// The combined differences, if this replacement was followed by `later`.
    #[must_use]
    pub fn and(self, later: Replaced) -> Replaced {
        let (Replaced::Only(mut all), Replaced::Only(later)) = (self, later) else { return Replaced::Everything };
        all.objects.extend(later.objects);
        all.names.extend(later.names);
        if all.objects.len() + all.names.len() > MOST { Replaced::Everything } else { Replaced::Only(all) }
    }
}

impl Datasets {
    /// The differences of an open dataset if the stored tree `new` replaces its own. The caller excludes changes.
    /// Without a mount the differences do not matter, and are not computed.
    pub(in crate::admin) fn would_differ(
        &self,
        dataset: &Dataset,
        new: impl FnOnce() -> Option<StoredRoot>,
    ) -> Replaced {
        if self.mount_of(dataset.id()).is_none() {
            return Replaced::Everything;
        }
        self.compared(dataset, new).unwrap_or_else(|error| {
            tracing::debug!(id = dataset.id(), "a mount is told that everything differs: {error}");
            Replaced::Everything
        })
    }

    fn compared(&self, dataset: &Dataset, new: impl FnOnce() -> Option<StoredRoot>) -> Result<Replaced> {
        // Stores all changes made so far.
        self.engine().commit()?;
        let pinned = self.engine().pin();
        let (Some(old), Some(new)) = (dataset.head().clean_root(), new()) else { return Ok(Replaced::Everything) };
        let open = |(root, level): StoredRoot| self.engine().open_pinned(dataset.id(), root, level, pinned.clone());
        let mut found = Comparison::default();
        difference::compare(Some(&open(old)), Some(&open(new)), |change| found.add(&change))?;
        Ok(Replaced::Only(found.differing()))
    }
}

/// The inode of a name before and after.
type Ends = (Option<Ino>, Option<Ino>);

#[derive(Default)]
struct Comparison {
    objects: BTreeSet<Ino>,
    names: BTreeMap<(Ino, Vec<u8>), Ends>,
}

impl Comparison {
    /// An error ends the comparison.
    fn add(&mut self, change: &Change) -> Result<()> {
        let object = change.key.object;
        if object == DATASET {
            return Ok(());
        }
        self.objects.insert(object);
        match change.key.kind {
            INODE => check_identity(change)?,
            DIRENT => {
                if let Some((name, ino)) = entry(change, change.old.as_ref())? {
                    self.names.entry((object, name)).or_default().0 = Some(ino);
                }
                if let Some((name, ino)) = entry(change, change.new.as_ref())? {
                    self.names.entry((object, name)).or_default().1 = Some(ino);
                }
            }
            _ => {}
        }
        if self.objects.len() + self.names.len() > MOST { Err(Error::Ended) } else { Ok(()) }
    }

    fn differing(self) -> Differing {
        let names = self.names.into_iter().filter(|(_, (before, after))| before != after).map(|(name, _)| name);
        Differing { objects: self.objects, names: names.collect() }
    }
}

/// Fails if a number means another object than before: names with the number are unchanged, yet must be invalidated.
fn check_identity(change: &Change) -> Result<()> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
    let generation = |found: &Found| Inode::decode(found.body()).map(|inode| inode.generation);
    let damaged = |error| PoolError::damaged(format!("inode at {}", change.key), error);
    let (old, new) = (generation(old).map_err(damaged)?, generation(new).map_err(damaged)?);
    if old == new { Ok(()) } else { Err(Error::Ended) }
}

/// The name and inode of an entry.
fn entry(change: &Change, found: Option<&Found>) -> Result<Option<(Vec<u8>, Ino)>> {
    let decoded = found.map(|found| Dirent::decode(found.body()).map(|entry| (entry.name.to_vec(), entry.ino)));
    Ok(decoded.transpose().map_err(|error| PoolError::damaged(format!("entry at {}", change.key), error))?)
}
