//! A process's home: every operation is done on the disk and in the model, which must agree.
//!
//! ```text
//! names       making, renaming, linking, removing, listing
//! bytes       writing and reading, in each way open to a program
//! space       truncating, holes, copies, maps of the data
//! attributes  modes, times, extended attributes
//! ```

mod attributes;
mod bytes;
mod names;
mod space;

use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use rand::{
    Rng, SeedableRng,
    rngs::SmallRng,
    seq::{IndexedRandom, IteratorRandom},
};
use rustix::io::Errno;

use crate::{
    Outcome, manifest,
    model::{Body, HOME, Id, Model, Node, Place},
};

/// With more names than this, some are removed.
const CROWDED: usize = 150;
/// The greatest length of a file, in bytes.
const LONGEST: usize = 400_000;
/// The deepest directory for new files, and the longest path for the target of a rename.
const DEEPEST: usize = 6;
const LONGEST_PATH: usize = 3500;

type Operation = fn(&mut Home) -> Outcome<()>;

/// The operations, each with its relative frequency.
const OPERATIONS: [(u32, Operation); 28] = [
    (8, Home::create),
    (3, Home::make_dir),
    (2, Home::make_link),
    (4, Home::link),
    (4, Home::unlink),
    (2, Home::rmdir),
    (6, Home::rename),
    (2, Home::rename_to_free),
    (3, Home::exchange),
    (3, Home::list),
    (3, Home::stat),
    (10, Home::write),
    (3, Home::write_directly),
    (4, Home::append),
    (6, Home::read),
    (3, Home::read_whole),
    (6, Home::write_mapped),
    (4, Home::read_mapped),
    (2, Home::hold),
    (1, Home::sync),
    (4, Home::truncate),
    (3, Home::punch),
    (2, Home::zero),
    (2, Home::allocate),
    (4, Home::copy),
    (2, Home::seek),
    (2, Home::change_mode_and_times),
    (4, Home::change_attribute),
];

/// A home and its model.
pub(crate) struct Home {
    root: PathBuf,
    model: Model,
    dice: SmallRng,
}

impl Home {
    /// An empty home, in a folder still to be made.
    pub(crate) fn new(root: PathBuf, seed: u64) -> Outcome<Home> {
        agree("the home", rustix::fs::mkdir(&root, 0o755.into()), Ok(()))?;
        Ok(Home { root, model: Model::new(0o755), dice: SmallRng::seed_from_u64(seed) })
    }

    /// Does one random operation.
    pub(crate) fn act(&mut self) -> Outcome<()> {
        if self.model.places().len() > CROWDED {
            return self.clear();
        }
        let (_, operation) = OPERATIONS.choose_weighted(&mut self.dice, |(weight, _)| *weight).expect("weights");
        operation(self)
    }

    /// Compares everything with the model, and returns the required manifest.
    pub(crate) fn finish(&self) -> Outcome<String> {
        let wanted = manifest::of_model(&self.model);
        manifest::differences(&wanted, &manifest::of_folder(&self.root, false)?)?;
        Ok(wanted)
    }

    fn path(&self, place: &Place) -> PathBuf {
        self.root.join(&place.path)
    }

    /// A random named node.
    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<(Place, Id)> {
        let places = self.model.places();
        places.into_iter().filter(|(_, id)| wanted(self.model.node(*id))).choose(&mut self.dice)
    }

    /// A file: one of its names, its number and its length.
    fn any_file(&mut self) -> Option<(PathBuf, Id, usize)> {
        let (place, id) = self.any(|node| matches!(node.body, Body::File(_)))?;
        let length = self.model.content(id).len();
        Some((self.path(&place), id, length))
    }

    /// A directory for a new file, perhaps the home itself.
    fn any_dir(&mut self) -> (PathBuf, Id) {
        let shallow =
            |(place, id): &(Place, Id)| self.model.node(*id).is_dir() && place.path.components().count() <= DEEPEST;
        let dirs: Vec<_> = self.model.places().into_iter().filter(shallow).collect();
        let choice = self.dice.random_range(0..=dirs.len());
        dirs.into_iter().nth(choice).map_or((PathBuf::new(), HOME), |(place, id)| (place.path, id))
    }

    /// A name for a new file, which may be taken.
    fn any_place(&mut self) -> Place {
        let (path, dir) = self.any_dir();
        let number = self.dice.random_range(0..40);
        let name = match number % 8 {
            0 => format!("{}-{number}", "long".repeat(60)),
            1 => format!("名前 {number}"),
            _ => format!("name-{number}"),
        };
        Place { dir, path: path.join(&name), name }
    }

    /// A part of a file of this length: begin and end.
    fn any_part(&mut self, length: usize) -> (usize, usize) {
        let start = self.dice.random_range(0..=length);
        (start, self.dice.random_range(start..=length))
    }
}

/// Fails unless the result is as in the model.
fn agree<T>(what: impl Display, found: Result<T, Errno>, wanted: Result<(), Errno>) -> Outcome<()> {
    match (found, wanted) {
        (Ok(_), Ok(())) => Ok(()),
        (Err(found), Err(wanted)) if found == wanted => Ok(()),
        (found, wanted) => Err(format!("{what}: {:?} instead of {wanted:?}", found.map(drop))),
    }
}

/// Fails unless a part of a file is as in the model.
fn agree_on_bytes(what: impl Display, found: &[u8], wanted: &[u8], start: usize) -> Outcome<()> {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} bytes from {start} on instead of {}", found.len(), wanted.len()));
    }
    let mut wrong = found.iter().zip(wanted).enumerate().filter(|(_, (found, wanted))| found != wanted);
    match wrong.next() {
        None => Ok(()),
        Some((at, (found, wanted))) => Err(format!(
            "{what}: byte {} is {found:#04x} instead of {wanted:#04x}, and {} more are wrong up to byte {}",
            start + at,
            wrong.clone().count(),
            start + wrong.next_back().map_or(at, |(at, _)| at),
        )),
    }
}

/// Opens a file for reading and writing, with additional flags.
fn open(path: &std::path::Path, flags: rustix::fs::OFlags) -> Outcome<File> {
    let flags = flags.bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(|error| format!("open {}: {error}", path.display()))
}
