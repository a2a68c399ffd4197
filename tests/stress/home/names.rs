//! Making, renaming, linking, removing and listing.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use rand::{Rng, seq::IndexedRandom};
use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{Home, LONGEST_PATH, agree};
use crate::{
    Outcome, content,
    model::{Body, Place},
};

/// The greatest length of a new file, in bytes.
const NEW: usize = 60_000;

impl Home {
    pub(super) fn create(&mut self) -> Outcome<()> {
        let place = self.any_place();
        let length = if self.dice.random_bool(0.5) { self.dice.random_range(0..NEW) } else { 0 };
        let content = content::bytes(self.dice.random(), length);
        let path = self.path(&place);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::open(&path, flags, Mode::from(0o644)).map(fs::File::from);
        let wanted = self.model.make(&place, Body::File(content.clone()), 0o644).map(drop);
        let what = format!("create {}", path.display());
        match made {
            Ok(mut file) => {
                let written = std::io::Write::write_all(&mut file, &content);
                agree(
                    &what,
                    written.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
                    wanted,
                )
            }
            Err(error) => agree(what, Err::<(), _>(error), wanted),
        }
    }

    pub(super) fn make_dir(&mut self) -> Outcome<()> {
        let place = self.any_place();
        let made = rustix::fs::mkdir(self.path(&place), Mode::from(0o755));
        let wanted = self.model.make(&place, Body::Directory(Default::default()), 0o755).map(drop);
        agree(format!("mkdir {}", place.path.display()), made, wanted)
    }

    pub(super) fn make_link(&mut self) -> Outcome<()> {
        let place = self.any_place();
        let target = format!("../{}", "target/".repeat(self.dice.random_range(0..300)));
        let made = rustix::fs::symlink(&*target, self.path(&place));
        let wanted = self.model.make(&place, Body::Link(target), 0o777).map(drop);
        agree(format!("symlink {}", place.path.display()), made, wanted)
    }

    pub(super) fn link(&mut self) -> Outcome<()> {
        let Some((from, id)) = self.any(|_| true) else { return Ok(()) };
        let to = self.any_place();
        let made = rustix::fs::link(self.path(&from), self.path(&to));
        agree(format!("link {} {}", from.path.display(), to.path.display()), made, self.model.link(id, &to))
    }

    pub(super) fn unlink(&mut self) -> Outcome<()> {
        let place = match self.any(|_| true) {
            Some((place, _)) if self.dice.random_bool(0.9) => place,
            _ => self.any_place(),
        };
        let removed = rustix::fs::unlink(self.path(&place));
        agree(format!("unlink {}", place.path.display()), removed, self.model.unlink(&place))
    }

    pub(super) fn rmdir(&mut self) -> Outcome<()> {
        let of_dirs = self.dice.random_bool(0.8);
        let Some((place, _)) = self.any(|node| node.is_dir() || !of_dirs) else { return Ok(()) };
        let removed = rustix::fs::rmdir(self.path(&place));
        agree(format!("rmdir {}", place.path.display()), removed, self.model.rmdir(&place))
    }

    pub(super) fn rename(&mut self) -> Outcome<()> {
        let Some((from, to)) = self.any_rename() else { return Ok(()) };
        let renamed = rustix::fs::rename(self.path(&from), self.path(&to));
        let what = format!("rename {} {}", from.path.display(), to.path.display());
        agree(what, renamed, self.model.rename(&from, &to, false))
    }

    pub(super) fn rename_to_free(&mut self) -> Outcome<()> {
        let Some((from, to)) = self.any_rename() else { return Ok(()) };
        let renamed = rustix::fs::renameat_with(CWD, self.path(&from), CWD, self.path(&to), RenameFlags::NOREPLACE);
        let what = format!("rename {} {} without replacing", from.path.display(), to.path.display());
        agree(what, renamed, self.model.rename(&from, &to, true))
    }

    pub(super) fn exchange(&mut self) -> Outcome<()> {
        let Some((one, two)) = self.any_rename() else { return Ok(()) };
        let renamed = rustix::fs::renameat_with(CWD, self.path(&one), CWD, self.path(&two), RenameFlags::EXCHANGE);
        let what = format!("exchange {} {}", one.path.display(), two.path.display());
        agree(what, renamed, self.model.exchange(&one, &two))
    }

    /// A name to rename and a target: half the time an existing target.
    fn any_rename(&mut self) -> Option<(Place, Place)> {
        let (from, _) = self.any(|_| true)?;
        let to = match self.any(|_| true) {
            Some((place, _)) if self.dice.random_bool(0.5) => place,
            _ => self.any_place(),
        };
        let longest = self.model.places().iter().map(|(place, _)| place.path.as_os_str().len()).max()?;
        (longest + to.path.as_os_str().len() < LONGEST_PATH).then_some((from, to))
    }

    pub(super) fn list(&mut self) -> Outcome<()> {
        let (path, dir) = self.any_dir();
        let failed = |error: std::io::Error| format!("list {}: {error}", path.display());
        let entries = fs::read_dir(self.root.join(&path)).map_err(failed)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<Result<Vec<String>, _>>().map_err(failed)?;
        names.sort_unstable();
        let wanted = self.model.names(dir);
        if names == wanted { Ok(()) } else { Err(format!("list {}: {names:?} instead of {wanted:?}", path.display())) }
    }

    pub(super) fn stat(&mut self) -> Outcome<()> {
        let Some((place, id)) = self.any(|_| true) else { return Ok(()) };
        let path = self.path(&place);
        let failed = |error: std::io::Error| format!("stat {}: {error}", path.display());
        let found = fs::symlink_metadata(&path).map_err(failed)?;
        let node = self.model.node(id);
        let (size, is_right) = match &node.body {
            Body::File(content) => (content.len() as u64, found.is_file()),
            Body::Directory(_) => (found.len(), found.is_dir()),
            Body::Link(target) => (target.len() as u64, fs::read_link(&path).map_err(failed)?.as_os_str() == &**target),
        };
        let wanted = (size, node.mode, self.model.links(id));
        let found = (found.len(), found.permissions().mode() & 0o7777, found.nlink());
        match is_right && found == wanted {
            true => Ok(()),
            false => {
                Err(format!("stat {}: length, mode and links are {found:?} instead of {wanted:?}", path.display()))
            }
        }
    }

    /// Removes a directory with its content, or any other node.
    pub(super) fn clear(&mut self) -> Outcome<()> {
        let Some((victim, id)) = self.any(|node| node.is_dir()).or_else(|| self.any(|_| true)) else { return Ok(()) };
        let path = self.path(&victim);
        let removed = if self.model.node(id).is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| format!("remove {}: {error}", path.display()))?;
        let mut inside: Vec<Place> = self.model.places().into_iter().map(|(place, _)| place).collect();
        inside.retain(|place| place.path.starts_with(&victim.path));
        // The content of a directory is listed after the directory.
        for place in inside.iter().rev() {
            let gone = self.model.unlink(place).or_else(|_| self.model.rmdir(place));
            agree(format!("the model's {}", place.path.display()), gone, Ok(()))?;
        }
        // Also removes one file, so that a home of files alone shrinks too.
        match self.model.places().choose(&mut self.dice).cloned() {
            Some((place, id)) if !self.model.node(id).is_dir() => {
                agree("unlink", rustix::fs::unlink(self.path(&place)), self.model.unlink(&place))
            }
            _ => Ok(()),
        }
    }
}
