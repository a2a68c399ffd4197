//! Scrubbing a part of a pool on demand: a file system or a snapshot, a file, or what is known to be damaged. Blocks are
//! examined and mended as in a scrub of everything, which may run at the same time: see [`crate::scrub`].
//!
//! Whoever asked for it does the steps, and how far it has come stands with him: if he goes away, so does it. Each step
//! begins at the root that the tree has then, at the key that the step before reached. Of a tree all is examined that was
//! committed when the examination began, also what it shares with others.
//!
//! # What is known to be damaged
//!
//! An entry of the list of damage names objects of a tree: all that these have is examined. What is still lost is noted
//! again, in a transaction group after the one with which the examination began; so an entry that was not, when all of it
//! could be examined, is of something that is good again or gone, and leaves the list. If power fails in between, the entry
//! is there, and the next examination or scrub decides.

use std::collections::VecDeque;

use pool::{
    error::Error as PoolError,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Verdict},
    units::Txg,
};

use super::{
    datasets::{Datasets, Progress},
    error::{Error, Result},
    resolve::Target,
    scrub::{RETRIES, start, stored},
};
use crate::{
    catalogue::kind,
    fs::{self, Identity},
    name::Name,
    scrub::{
        damage::{self, Damage, SPACE},
        mend,
        pass::{self, Budget, Found, Part},
    },
};

/// What is to be examined.
#[derive(Clone, Debug)]
pub enum Scope {
    /// A file system as it is, or a snapshot.
    Tree(Name),
    /// A file in one of these, which has this id.
    File(u64, Identity),
    /// All that the list of damage names.
    Damage,
}

/// What an examination has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Bytes read, all copies counted.
    pub examined: u64,
    /// Bytes written over bad copies.
    pub repaired: u64,
    /// Blocks without a good copy.
    pub errors: u64,
}

/// An examination under way.
#[derive(Debug)]
pub struct Examination {
    left: VecDeque<Stretch>,
    /// What was born later was just written.
    limit: Txg,
    found: Examined,
    /// How often the next step was tried already, because the tree changed under it.
    tries: u32,
}

/// What is examined in one go.
#[derive(Debug)]
struct Stretch {
    at: Position,
    /// What of the list of damage it is.
    entry: Option<Damage>,
    /// The one file that it is about.
    file: Option<Identity>,
    /// Something could not be examined.
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
    /// What was found so far.
    pub fn found(&self) -> Examined {
        self.found
    }
}

impl Datasets {
    /// Begins an examination, with a commit: what was written before is examined too.
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
            Target::Bookmark(..) => Err(Error::not_found("dataset", name)),
        }
    }

    /// Examines about `budget` bytes and mends what can be mended.
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
        let examined = self.engine().hold_still().mend_space(from, budget);
        examination.found.examined += examined.bytes;
        examination.found.repaired += examined.mended;
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
        // What is gone needs nothing.
        let Some(((root, level), seen)) = mend::committed_root(self.engine(), tree)? else { return Ok(None) };
        if let Some((file, pinned)) = one {
            match fs::identity_in(&self.engine().open_pinned(tree, root, level, pinned), file.0) {
                Ok(None) => return Ok(None),
                // A rollback or a receive has given its number to another file.
                Ok(Some(other)) if other != file => return Err(PoolError::Stale.into()),
                // A file whose inode cannot be read is examined all the more.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let (limit, after) = (examination.limit, Txg::ZERO);
        let part = Part { tree, root, level, seen, after, since: Txg::ZERO, limit, from, to };
        // The other blocks of the catalogue are the roots of trees.
        let is_meant = |key: Key| tree != CATALOGUE || key.kind == kind::PAGE;
        let Found { bytes, suspects, unread, next } =
            pass::examine(self.engine(), &part, Budget::freely(budget), is_meant);
        examination.found.examined += bytes;
        let reached = next.unwrap_or(Key::MAX);
        let (mut next, mut lost) = (reached, Vec::new());
        for suspect in &suspects {
            let outcome = mend::mend(self.engine(), suspect, true)?;
            match outcome.verdict {
                Verdict::Mended { copies } => {
                    examination.found.repaired += stored(suspect, self.engine().sector()) * copies as u64;
                }
                Verdict::Lost => examination.found.errors += 1,
                // What is below it was passed over, and stands under a younger node now.
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

    /// Drops an entry of the list of damage, unless it was found again after `limit`.
    fn forget_damage(&self, entry: Damage, limit: Txg) -> Result<()> {
        self.run(move |tx| damage::forget_entry(tx, entry, limit))
    }
}
