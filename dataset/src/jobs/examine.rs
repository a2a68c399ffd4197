//! Scrubbing a part of a pool on demand: a file system or snapshot, a file, or all known damage. Blocks are examined
//! and repaired as in a scrub of the whole pool, which may run at the same time: see [`crate::scrub`].
//!
//! The requesting command makes the steps and keeps the position: the examination ends with the command. Each step
//! begins at the tree's current root, at the key that the previous step reached. The examination covers everything in
//! the tree that was committed at its beginning, shared blocks included.
//!
//! # Entries of the list of damage
//!
//! An entry of the list of damage names objects of a tree, which are examined completely. Lost objects are recorded
//! again, in a txg after the examination began. So if an entry was not recorded again and everything could be examined,
//! the objects are good again or gone, and the entry is deleted. If power fails in between, the entry stays, and the
//! next examination or scrub decides.

use std::collections::VecDeque;

use pool::{
    error::Error as PoolError,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Verdict},
    units::Txg,
};

use super::scrub::{RETRIES, start, stored};
use crate::{
    admin::{Datasets, Progress, Target},
    catalogue::kind,
    error::{Error, Result},
    fs::{self, Identity},
    name::Name,
    scrub::{
        damage::{self, Damage, SPACE},
        pass::{self, Budget, Found, Part},
        repair,
    },
};

/// The scope of an examination.
#[derive(Clone, Debug)]
pub enum Scope {
    /// A file system in its current state, or a snapshot.
    Tree(Name),
    /// A file in the dataset or snapshot with the given id.
    File(u64, Identity),
    /// All objects in the list of damage.
    Damage,
}

/// The result of an examination so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Bytes read, over all copies.
    pub examined: u64,
    /// Bytes written to repair bad copies.
    pub repaired: u64,
    /// Blocks without a good copy.
    pub errors: u64,
}

/// An examination in progress.
#[derive(Debug)]
pub struct Examination {
    left: VecDeque<Stretch>,
    /// Blocks born later were just written, and are skipped.
    limit: Txg,
    found: Examined,
    /// The number of attempts at the next step, which fails while the tree changes.
    tries: u32,
}

/// A part of an examination.
#[derive(Debug)]
struct Stretch {
    at: Position,
    /// The entry of the list of damage, if any.
    entry: Option<Damage>,
    /// The single file to examine, if any.
    file: Option<Identity>,
    /// Whether some blocks could not be examined.
    is_unsure: bool,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    Space(OwnCursor),
    Tree { tree: u64, from: Key, to: Key },
}

impl Stretch {
    fn of_objects(tree: u64, first: u64, last: u64) -> Stretch {
        let to = last.checked_add(1).map_or(Key::MAX, |next| Key::new(next, 0, 0));
        Stretch {
            at: Position::Tree { tree, from: Key::new(first, 0, 0), to },
            entry: None,
            file: None,
            is_unsure: false,
        }
    }

    fn of_file(tree: u64, file: Identity) -> Stretch {
        Stretch { file: Some(file), ..Stretch::of_objects(tree, file.0, file.0) }
    }

    fn of_damage(entry: Damage) -> Stretch {
        let Damage { tree, first, last } = entry;
        let objects = Stretch::of_objects(tree, first, last);
        let at = if entry == Damage::of_space() { Position::Space(OwnCursor::default()) } else { objects.at };
        Stretch { at, entry: Some(entry), ..objects }
    }
}

impl Examination {
    /// The result so far.
    pub fn found(&self) -> Examined {
        self.found
    }
}

impl Datasets {
    /// Begins an examination with a commit, so that all earlier writes are examined.
    pub fn begin_examination(&self, scope: &Scope) -> Result<Examination> {
        self.engine().writable()?;
        let limit = self.engine().commit()?;
        let left = match scope {
            Scope::Tree(name) => VecDeque::from([Stretch::of_objects(self.tree(name)?, 0, SPACE)]),
            Scope::File(tree, file) => VecDeque::from([Stretch::of_file(*tree, *file)]),
            Scope::Damage => self.damage()?.into_iter().map(Stretch::of_damage).collect(),
        };
        Ok(Examination { left, limit, found: Examined::default(), tries: 0 })
    }

    fn tree(&self, name: &Name) -> Result<u64> {
        match self.resolve(name)? {
            Target::Dataset(id) | Target::Snapshot(id) => Ok(id),
            Target::Bookmark(..) => Err(Error::no_dataset(name)),
        }
    }

    /// Examines about `budget` bytes, and repairs bad copies.
    pub fn examination_step(&self, examination: &mut Examination, budget: u64) -> Result<Progress> {
        let Some(mut stretch) = examination.left.pop_front() else { return Ok(Progress::Idle) };
        self.engine().writable()?;
        let next = match stretch.at {
            Position::Space(from) => self.examine_space(examination, from, budget)?,
            Position::Tree { .. } => self.examine_tree(examination, &mut stretch, budget)?,
        };
        match (next, stretch.entry) {
            (Some(at), _) => examination.left.push_front(Stretch { at, ..stretch }),
            (None, Some(entry)) if !stretch.is_unsure => self.forget_damage(entry, examination.limit)?,
            (None, _) => {}
        }
        Ok(Progress::Worked)
    }

    fn examine_space(&self, examination: &mut Examination, from: OwnCursor, budget: u64) -> Result<Option<Position>> {
        let examined = self.engine().hold_still().repair_space(from, budget);
        examination.found.examined += examined.bytes;
        examination.found.repaired += examined.repaired;
        examination.found.errors += examined.lost;
        if examined.lost > 0 {
            self.note_damage_since(vec![Damage::of_space()], examination.limit)?;
        }
        Ok(examined.next.map(Position::Space))
    }

    fn examine_tree(
        &self,
        examination: &mut Examination,
        stretch: &mut Stretch,
        budget: u64,
    ) -> Result<Option<Position>> {
        let Position::Tree { tree, from, to } = stretch.at else { return Ok(None) };
        let one = stretch.file.map(|file| (file, self.engine().pin()));
        // A destroyed tree needs no examination.
        let Some(((root, level), seen)) = repair::committed_root(self.engine(), tree)? else { return Ok(None) };
        if let Some((file, pinned)) = one {
            match fs::identity_in(&self.engine().open_pinned(tree, root, level, pinned), file.0) {
                Ok(None) => return Ok(None),
                // A rollback or a receive has given the number to another file.
                Ok(Some(other)) if other != file => return Err(PoolError::Stale.into()),
                // A file with an unreadable inode is examined too.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let (limit, after) = (examination.limit, Txg::ZERO);
        let part = Part { tree, root, level, seen, after, since: Txg::ZERO, limit, from, to };
        // All other blocks of the catalogue are the roots of trees.
        let is_meant = |key: Key| tree != CATALOGUE || key.kind == kind::PAGE;
        let Found { bytes, suspects, unread, next } =
            pass::examine(self.engine(), &part, Budget::freely(budget), is_meant);
        examination.found.examined += bytes;
        let reached = next.unwrap_or(Key::MAX);
        let (mut next, mut lost) = (reached, Vec::new());
        for suspect in &suspects {
            let outcome = repair::repair(self.engine(), suspect, true)?;
            match outcome.verdict {
                Verdict::Repaired { copies } => {
                    examination.found.repaired += stored(suspect, self.engine().sector()) * copies as u64;
                }
                Verdict::Lost => examination.found.errors += 1,
                // The blocks below were skipped, and are below a younger node now.
                Verdict::Gone if unread.contains(&suspect.place) => next = next.min(start(&suspect.place).max(from)),
                Verdict::Gone | Verdict::Whole => {}
                Verdict::Weak(error) | Verdict::Unknown(error) => {
                    tracing::warn!("scrub: {error}");
                    stretch.is_unsure = true;
                }
            }
            lost.extend(outcome.damage);
        }
        self.note_damage_since(lost, examination.limit)?;
        examination.tries = if next > from { 0 } else { examination.tries + 1 };
        if examination.tries >= RETRIES {
            (examination.tries, next, stretch.is_unsure) = (0, reached, true);
        }
        Ok((next < to && next < Key::MAX).then_some(Position::Tree { tree, from: next, to }))
    }

    /// Deletes an entry of the list of damage, unless found again after `limit`.
    fn forget_damage(&self, entry: Damage, limit: Txg) -> Result<()> {
        self.run(move |tx| damage::forget_entry(tx, entry, limit))
    }
}
