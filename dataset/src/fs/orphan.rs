//! Inodes without a name: kept while they are used, then freed.
//!
//! Whether an inode is used is counted here, in memory: the mount counts the kernel's references. An inode that loses its
//! last name while it is used becomes an orphan, and is freed after the last release; one that is too large to be freed in
//! one step becomes an orphan too, and is freed by the background in bounded steps. An orphan item survives a crash, and
//! so does what is still to be done about it: after opening, the background frees what it finds.
//!
//! Orphans are gathered and freed many in one change. Where files are removed by the thousand, whoever removes and
//! whoever frees would otherwise hand the tree's lock to each other twice for each file, and mostly wait.

use std::{
    collections::HashMap,
    mem,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    FileSystem,
    account::ledger::Charge,
    change::{Change, load_inode},
    failure::Failure,
    file::discard::discard,
    key::{self, DATASET, INODE, Ino, ORPHAN, TRUNCATE},
    remove::Fate,
};
use pool::{format::key::Key, tree::View, txg::Due};

const SHARDS: usize = 64;
/// An inode of at most so many items is freed with its last name.
const SMALL: usize = 64;
/// Larger ones are freed by so many items a step.
pub(super) const STEP: usize = 512;
/// So many orphans are freed in one change.
const TOGETHER: usize = 32;
/// Whom a quota refuses something, for them so many steps are made before it is tried again.
const CHARGED_STEPS: usize = 64;
/// A file that lost its last name no longer ago than this is expected to be forgotten by the kernel. After that a program
/// has it open, and may have it open for days.
const FORGOTTEN_WITHIN: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    count: u64,
    orphan: bool,
}

/// Which inodes are used, and whether there is anything to free.
pub(super) struct Retained {
    shards: Box<[Mutex<HashMap<Ino, Use>>]>,
    pending: AtomicBool,
    /// Orphans that were used until not long ago, to be freed together.
    unused: Mutex<Vec<Ino>>,
    /// Held while somebody looks for orphans and frees them, and while an inode is made that is an orphan from the start.
    reaping: Mutex<()>,
    /// The uptime when an inode last lost its last name while it was used.
    orphaned: Mutex<Option<Duration>>,
    /// How many orphans were used no more, for those that wait for one.
    released: Mutex<u64>,
    release: Condvar,
}

/// What was freed of an account's orphans.
pub(super) enum Reaped {
    /// Some of it.
    Some,
    /// Nothing: all are still used.
    InUse,
    /// Nothing: there are none.
    Nothing,
}

impl Default for Retained {
    fn default() -> Retained {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        // What the last crash has left is not known yet.
        Retained {
            shards,
            pending: AtomicBool::new(true),
            unused: Mutex::default(),
            reaping: Mutex::default(),
            orphaned: Mutex::default(),
            released: Mutex::default(),
            release: Condvar::default(),
        }
    }
}

impl Retained {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Use>> {
        self.shards[(ino % SHARDS as u64) as usize].lock()
    }

    fn holds(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// Notes that the inode is to be freed by its last release; false if it is not used any more.
    fn mark_orphan(&self, ino: Ino) -> bool {
        self.shard(ino).get_mut(&ino).map(|used| used.orphan = true).is_some()
    }
}

impl FileSystem {
    /// Counts one more use of the inode.
    pub fn retain(&self, ino: Ino) {
        self.retained.shard(ino).entry(ino).or_default().count += 1;
    }

    /// Counts `count` uses less. True if that leaves something to free: [`FileSystem::free_unused`] does it, best after a
    /// moment in which there may be more. If that is never called, the background does it.
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

    /// Frees the orphans whose last use was released; of large ones a part, and the background the rest.
    pub fn free_unused(&self) {
        let unused = mem::take(&mut *self.retained.unused.lock());
        for together in unused.chunks(TOGETHER) {
            if !self.free_orphans(together) {
                self.retained.pending.store(true, Relaxed);
            }
        }
    }

    /// To be called when another tree was put in the place of this one's: numbers may belong to other files there. What
    /// is to be freed in it is found by looking.
    pub(super) fn forget_unused(&self) {
        self.retained.unused.lock().clear();
        self.retained.pending.store(true, Relaxed);
    }

    /// How many orphans were used no more until now.
    pub(super) fn released(&self) -> u64 {
        *self.retained.released.lock()
    }

    /// Waits for another orphan than those `seen` to be used no more; false if none was in this time.
    pub(super) fn wait_for_release(&self, seen: u64, time: Duration) -> bool {
        let mut released = self.retained.released.lock();
        !self.retained.release.wait_while_for(&mut released, |released| *released == seen, time).timed_out()
    }

    /// Whether [`FileSystem::reap_orphans`] has anything to do.
    pub fn has_orphans(&self) -> bool {
        self.retained.pending.load(Relaxed) || !self.retained.unused.lock().is_empty()
    }

    /// Frees what was released; then orphans that nobody uses, and what truncations a crash has cut short, in at most
    /// `budget` bounded steps. Returns whether there is more to do. For the background.
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

    /// The same for a caller that needs room, in at most `budget` steps, also while the background is at it.
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

    /// Makes up to `budget` steps. Returns how many were made, and whether nothing is left to do.
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

    /// One step; false if there is nothing to do.
    fn reap_one(&self) -> Result<bool, Errno> {
        let _reaping = self.retained.reaping.lock();
        let found = self
            .read_tree(|view| self.reapable(view, 1, |kind, ino| Ok(kind == TRUNCATE || !self.retained.holds(ino))))?;
        let [(kind, ino)] = found[..] else { return Ok(false) };
        self.reap_step(kind, ino)?;
        Ok(true)
    }

    /// Frees some of what an account holds of orphans that nobody uses.
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

    /// What there is to free or to truncate, up to `most` of those that are wanted: the kind of its item, and the inode.
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

    /// One step with one of them; whether that was all.
    fn reap_step(&self, kind: u8, ino: Ino) -> Result<bool, Errno> {
        match kind {
            TRUNCATE => self.resume_truncation(ino).map(|()| true),
            _ => self.free_orphan(ino),
        }
    }

    /// Frees these orphans in one change, but one by one those that are large or in somebody's hands, and all of them if
    /// the change fails for one. Returns whether that was all of them.
    fn free_orphans(&self, orphans: &[Ino]) -> bool {
        // Whoever holds one file's lock does not wait for another's here: two may be one.
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
        // Each of them is tried, whatever became of the others.
        left.into_iter().filter(|&ino| !matches!(self.free_orphan(ino), Ok(true))).count() == 0
    }

    /// Frees a bounded part of an orphan; returns whether that was all.
    fn free_orphan(&self, ino: Ino) -> Result<bool, Errno> {
        let _exclusive = self.locks.of(ino).write();
        self.update_tree(|change| self.free_some(change, ino, STEP))
    }

    /// Frees up to `budget` items of an orphan, unless it is used again or none any more; returns whether that was all.
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

    /// Frees an inode that has lost its last name, or makes it an orphan.
    pub(super) fn free_or_keep(&self, change: &mut Change<'_>, ino: Ino) -> Result<Fate, Failure> {
        if !self.retained.holds(ino) && free_step(change, ino, SMALL)? {
            return Ok(Fate::Settled);
        }
        change.put(key::orphan(ino), [], None);
        Ok(Fate::Orphan(ino))
    }

    /// After the change that gave an inode this fate.
    pub(super) fn settle(&self, fate: Fate) {
        if let Fate::Orphan(ino) = fate {
            match self.retained.mark_orphan(ino) {
                true => *self.retained.orphaned.lock() = Some(self.head.engine().env().uptime()),
                false => self.retained.pending.store(true, Relaxed),
            }
        }
    }

    /// Makes an orphan that is used from the start, with no reaper in between.
    pub(super) fn make_orphan<T, E>(&self, make: impl FnOnce() -> Result<(Ino, T), E>) -> Result<(Ino, T), E> {
        let _no_reaping = self.retained.reaping.lock();
        let (ino, made) = make()?;
        self.retain(ino);
        self.settle(Fate::Orphan(ino));
        Ok((ino, made))
    }
}

/// Frees up to `budget` items of an inode, and at the end the inode; returns whether that was all.
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
