//! Inodes without a name: kept while in use, then freed.
//!
//! Uses of an inode are counted in memory: the mount reports the kernel's references. An inode that loses its last name
//! while in use becomes an orphan, and is freed after the last release. An inode too large to be freed in one step also
//! becomes an orphan; a background thread frees the inode in bounded steps. Orphan items survive a crash: after
//! opening, the background thread frees the orphans in the tree.
//!
//! Many orphans are gathered and freed in one change. If files are removed by the thousand, the removing and the
//! freeing thread would otherwise pass the tree's lock back and forth for each file, and mostly wait.

use std::{mem, sync::atomic::Ordering::Relaxed, time::Duration};

use rustix::io::Errno;

use super::{
    account::ledger::Charge,
    change::{Change, load_inode},
    failure::Failure,
    file::discard::discard,
    file_system::FileSystem,
    key::{self, DATASET, INODE, Ino, ORPHAN, TRUNCATE},
    remove::Fate,
};
use pool::{format::key::Key, tree::View, txg::Due};

/// An inode with at most this number of items is freed together with its last name.
const SMALL: usize = 64;
/// The number of items of a larger inode freed per step.
pub(super) const STEP: usize = 512;
/// The number of orphans freed in one change.
const TOGETHER: usize = 32;
/// The number of steps made before an operation refused by a quota is retried.
const CHARGED_STEPS: usize = 64;
/// The kernel is expected to forget a removed file within this time. If not, a program has the file open, possibly for
/// days.
const FORGOTTEN_WITHIN: Duration = Duration::from_millis(500);

/// The result of freeing an account's orphans.
pub(super) enum Reaped {
    /// Some items were freed.
    Some,
    /// Nothing was freed: all orphans are in use.
    InUse,
    /// Nothing was freed: the account has no orphans.
    Nothing,
}

impl FileSystem {
    /// Adds a use of the inode.
    pub fn retain(&self, ino: Ino) {
        self.retained.shard(ino).entry(ino).or_default().count += 1;
    }

    /// Removes `count` uses of the inode. True if an orphan was released: the caller calls [`FileSystem::free_unused`],
    /// best a moment later when more orphans may have been released. Otherwise the background thread frees the orphan.
    pub fn release(&self, ino: Ino, count: u64) -> bool {
        let orphan = {
            let mut shard = self.retained.shard(ino);
            let Some(used) = shard.get_mut(&ino) else { return false };
            used.count = used.count.saturating_sub(count);
            if used.count > 0 {
                return false;
            }
            let orphan = used.orphan;
            shard.remove(&ino);
            orphan
        };
        if orphan {
            self.retained.unused.lock().push(ino);
            *self.retained.released.lock() += 1;
            self.retained.release.notify_all();
        }
        orphan
    }

    /// Frees the released orphans; of a large orphan a part, and the background thread frees the rest.
    pub fn free_unused(&self) {
        let unused = mem::take(&mut *self.retained.unused.lock());
        for together in unused.chunks(TOGETHER) {
            if !self.free_orphans(together) {
                self.retained.pending.store(true, Relaxed);
            }
        }
    }

    /// Forgets the released orphans after the tree was replaced: in the new tree the numbers may belong to other files.
    /// The background thread looks for orphans in the new tree.
    pub(super) fn forget_unused(&self) {
        self.retained.unused.lock().clear();
        self.retained.pending.store(true, Relaxed);
    }

    /// The number of orphans released so far.
    pub(super) fn released(&self) -> u64 {
        *self.retained.released.lock()
    }

    /// Waits until the number of released orphans differs from `seen`; false after `time` without a release.
    pub(super) fn wait_for_release(&self, seen: u64, time: Duration) -> bool {
        let mut released = self.retained.released.lock();
        !self.retained.release.wait_while_for(&mut released, |released| *released == seen, time).timed_out()
    }

    /// Whether [`FileSystem::reap_orphans`] has work.
    pub fn has_orphans(&self) -> bool {
        self.retained.pending.load(Relaxed) || !self.retained.unused.lock().is_empty()
    }

    /// Frees released orphans, then unused orphans and truncations interrupted by a crash, in at most `budget` bounded
    /// steps. True if work remains. Called in the background.
    pub fn reap_orphans(&self, budget: usize) -> bool {
        if self.writable().is_err() {
            return false;
        }
        self.free_unused();
        if !self.retained.pending.swap(false, Relaxed) {
            return false;
        }
        let (steps, done) = self.reap_some(budget);
        if !done {
            self.retained.pending.store(true, Relaxed);
        }
        !done && steps == budget
    }

    /// Frees orphans for a caller that needs room, in at most `budget` steps. May run beside the background thread.
    pub fn free_due(&self, budget: usize) -> Due {
        if self.writable().is_err() {
            return Due::Nothing;
        }
        let had_unused = !self.retained.unused.lock().is_empty();
        self.free_unused();
        if self.reap_some(budget).0 > 0 || had_unused {
            return Due::Freed;
        }
        let now = self.head.engine().env().uptime();
        let is_expected = self.retained.orphaned.lock().is_some_and(|orphaned| now < orphaned + FORGOTTEN_WITHIN);
        if is_expected { Due::Expected } else { Due::Nothing }
    }

    /// Makes up to `budget` steps. Returns the number of steps, and whether no work remains.
    fn reap_some(&self, budget: usize) -> (usize, bool) {
        for steps in 0..budget {
            match self.reap_one() {
                Ok(true) => {}
                Ok(false) => return (steps, true),
                Err(errno) => {
                    tracing::warn!(%errno, "cannot free what is left of an unlinked file; trying again later");
                    return (steps, false);
                }
            }
        }
        (budget, false)
    }

    /// Makes one step; false if there is no work.
    fn reap_one(&self) -> Result<bool, Errno> {
        let _reaping = self.retained.reaping.lock();
        let found = self
            .read_tree(|view| self.reapable(view, 1, |kind, ino| Ok(kind == TRUNCATE || !self.retained.holds(ino))))?;
        let [(kind, ino)] = found[..] else { return Ok(false) };
        self.reap_step(kind, ino)?;
        Ok(true)
    }

    /// Frees some unused orphans charged to an account.
    pub(super) fn reap_charged(&self, account: Key) -> Result<Reaped, Errno> {
        let _reaping = self.retained.reaping.lock();
        let mut in_use = false;
        let found = self.read_tree(|view| {
            in_use = false;
            self.reapable(view, CHARGED_STEPS, |kind, ino| match load_inode(view, ino) {
                Ok(inode) if !Charge::of(&inode).keys().contains(&account) => Ok(false),
                Ok(_) => {
                    let is_used = kind == ORPHAN && self.retained.holds(ino);
                    in_use |= is_used;
                    Ok(!is_used)
                }
                Err(Failure::Refused(_)) => Ok(false),
                Err(failure) => Err(failure),
            })
        })?;
        let mut steps = 0;
        for (kind, ino) in &found {
            let mut done = false;
            while !done && steps < CHARGED_STEPS {
                done = self.reap_step(*kind, *ino)?;
                steps += 1;
            }
        }
        Ok(match (steps > 0, in_use) {
            (true, _) => Reaped::Some,
            (false, true) => Reaped::InUse,
            (false, false) => Reaped::Nothing,
        })
    }

    /// Orphans and truncations that `is_wanted` accepts, up to `most`: the kind of the item, and the inode number.
    fn reapable(
        &self,
        view: &View<'_>,
        most: usize,
        mut is_wanted: impl FnMut(u8, Ino) -> Result<bool, Failure>,
    ) -> Result<Vec<(u8, Ino)>, Failure> {
        let mut found = Vec::new();
        for entry in view.range(Key::new(DATASET, ORPHAN, 0)..Key::new(DATASET, TRUNCATE + 1, 0)) {
            let Key { kind, offset: ino, .. } = entry?.key();
            if is_wanted(kind, ino)? {
                found.push((kind, ino));
            }
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// Makes one step of freeing or truncating; true if the inode is finished.
    fn reap_step(&self, kind: u8, ino: Ino) -> Result<bool, Errno> {
        match kind {
            TRUNCATE => self.resume_truncation(ino).map(|()| true),
            _ => self.free_orphan(ino),
        }
    }

    /// Frees the given orphans in one change. Large orphans, and orphans whose lock another thread holds, are freed one
    /// by one; so are all, if the change fails. True if all orphans are gone.
    fn free_orphans(&self, orphans: &[Ino]) -> bool {
        // No waiting for a second file's lock while holding a first: the two files may share a lock.
        let locked: Vec<_> = orphans.iter().map(|&ino| (ino, self.locks.of(ino).try_write())).collect();
        let (together, alone): (Vec<_>, Vec<_>) = locked.into_iter().partition(|(_, lock)| lock.is_some());
        let mut left: Vec<Ino> = alone.into_iter().map(|(ino, _)| ino).collect();
        let large = self.update_tree(|change| {
            let mut large = Vec::new();
            for &(ino, _) in &together {
                if !self.free_some(change, ino, SMALL)? {
                    large.push(ino);
                }
            }
            Ok(large)
        });
        match large {
            Ok(large) => left.extend(large),
            Err(_) => left.extend(together.iter().map(|&(ino, _)| ino)),
        }
        drop(together);
        // A failure for one orphan does not stop the rest.
        left.into_iter().filter(|&ino| !matches!(self.free_orphan(ino), Ok(true))).count() == 0
    }

    /// Frees a bounded part of an orphan; true if the orphan is gone.
    fn free_orphan(&self, ino: Ino) -> Result<bool, Errno> {
        let _exclusive = self.locks.of(ino).write();
        self.update_tree(|change| self.free_some(change, ino, STEP))
    }

    /// Frees up to `budget` items, unless the inode is in use or no longer an orphan; true if the inode needs no
    /// further step.
    fn free_some(&self, change: &mut Change<'_>, ino: Ino, budget: usize) -> Result<bool, Failure> {
        match change.inode(ino) {
            Ok(inode) if inode.nlink == 0 && self.retained.holds(ino) => Ok(true),
            Ok(inode) if inode.nlink == 0 => free_step(change, ino, budget),
            Ok(_) | Err(Failure::Refused(Errno::NOENT)) => {
                change.delete(key::orphan(ino));
                Ok(true)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Frees an inode that has lost its last name, or makes the inode an orphan.
    pub(super) fn free_or_keep(&self, change: &mut Change<'_>, ino: Ino) -> Result<Fate, Failure> {
        if !self.retained.holds(ino) && free_step(change, ino, SMALL)? {
            return Ok(Fate::Settled);
        }
        change.put(key::orphan(ino), [], None);
        Ok(Fate::Orphan(ino))
    }

    /// Records the fate of an inode; called after the change was made.
    pub(super) fn settle(&self, fate: Fate) {
        if let Fate::Orphan(ino) = fate {
            match self.retained.mark_orphan(ino) {
                true => *self.retained.orphaned.lock() = Some(self.head.engine().env().uptime()),
                false => self.retained.pending.store(true, Relaxed),
            }
        }
    }

    /// Makes an inode without a name and with one use, without a reaper in between.
    pub(super) fn make_orphan<T, E>(&self, make: impl FnOnce() -> Result<(Ino, T), E>) -> Result<(Ino, T), E> {
        let _no_reaping = self.retained.reaping.lock();
        let (ino, made) = make()?;
        self.retain(ino);
        self.settle(Fate::Orphan(ino));
        Ok((ino, made))
    }
}

/// Frees up to `budget` items of an inode, and finally the inode; true if the inode is gone.
fn free_step(change: &mut Change<'_>, ino: Ino, budget: usize) -> Result<bool, Failure> {
    let inode = change.inode(ino)?;
    let items = Key::new(ino, INODE + 1, 0)..Key::new(ino, u8::MAX, 0);
    let discarded = discard(change, items, inode.record_shift, budget)?;
    if !discarded.done {
        let inode = change.edit(ino)?;
        inode.bytes = inode.bytes.saturating_sub(discarded.bytes);
        return Ok(false);
    }
    change.delete(key::orphan(ino));
    change.delete(key::truncate(ino));
    change.remove(ino)?;
    Ok(true)
}
