//! Writing and reading, in each way open to a program.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use rand::Rng;
use rustix::fs::OFlags;
use vmap::{Flush, Map, MapMut};

use super::{Home, LONGEST, agree, agree_on_bytes, open};
use crate::{Outcome, content, model::Id};

/// The most bytes written at once.
const WRITTEN: usize = 100_000;
/// How far behind the end a file is written, in bytes.
const BEHIND: usize = 20_000;
/// The alignment of direct I/O, in bytes.
const ALIGNED: usize = 4096;

impl Home {
    pub(super) fn write(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let start = self.dice.random_range(0..=length + BEHIND).min(LONGEST);
        let content = self.any_content(LONGEST - start);
        let file = open(&path, OFlags::empty())?;
        file.write_all_at(&content, start as u64).map_err(failed("write", &path))?;
        self.put(id, start, &content);
        Ok(())
    }

    pub(super) fn write_directly(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let start = self.dice.random_range(0..=length).min(LONGEST / 2) / ALIGNED * ALIGNED;
        let content = content::bytes(self.dice.random(), self.dice.random_range(1..8) * ALIGNED);
        let file = open(&path, OFlags::DIRECT)?;
        file.write_all_at(&content, start as u64).map_err(failed("write directly", &path))?;
        self.put(id, start, &content);
        self.compare(&file, id, (start, start + content.len()), "read directly", &path)
    }

    pub(super) fn append(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let content = self.any_content(LONGEST - length);
        let mut file = open(&path, OFlags::APPEND)?;
        file.write_all(&content).map_err(failed("append", &path))?;
        self.put(id, length, &content);
        Ok(())
    }

    pub(super) fn read(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let part = self.any_part(length);
        let file = open(&path, OFlags::empty())?;
        self.compare(&file, id, part, "read", &path)
    }

    pub(super) fn read_whole(&mut self) -> Outcome<()> {
        let Some((path, id, _)) = self.any_file() else { return Ok(()) };
        let found = std::fs::read(&path).map_err(failed("read", &path))?;
        agree_on_bytes(format!("read {}", path.display()), &found, self.model.content(id), 0)
    }

    /// Writes through a shared mapping; `read` must see the same, flushed or not.
    pub(super) fn write_mapped(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let (start, end) = self.any_part(length);
        if start == end {
            return Ok(());
        }
        let file = open(&path, OFlags::empty())?;
        let content = content::bytes(self.dice.random(), end - start);
        let mapped = MapMut::with_options().write().offset(start).len(end - start).map(&file);
        let mut map = mapped.map_err(|error| format!("map {}: {error}", path.display()))?;
        map.copy_from_slice(&content);
        self.put(id, start, &content);
        if self.dice.random_bool(0.3) {
            let how = if self.dice.random_bool(0.5) { Flush::Sync } else { Flush::Async };
            map.flush(&file, how).map_err(|error| format!("flush {}: {error}", path.display()))?;
        }
        self.compare(&file, id, (start, end), "read what was mapped", &path)
    }

    pub(super) fn read_mapped(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let (start, end) = self.any_part(length);
        if start == end {
            return Ok(());
        }
        let file = open(&path, OFlags::empty())?;
        let mapped = Map::with_options().offset(start).len(end - start).map(&file);
        let map = mapped.map_err(|error| format!("map {}: {error}", path.display()))?;
        agree_on_bytes(format!("map {}", path.display()), &map, &self.model.content(id)[start..end], start)
    }

    /// A file without a name is whole as long as it is open.
    pub(super) fn hold(&mut self) -> Outcome<()> {
        let path = self.root.join("held");
        let mut wanted = self.any_content(LONGEST);
        std::fs::write(&path, &wanted).map_err(failed("write", &path))?;
        let file = open(&path, OFlags::empty())?;
        agree("unlink what is held", rustix::fs::unlink(&path), Ok(()))?;
        let more = self.any_content(WRITTEN);
        file.write_all_at(&more, wanted.len() as u64).map_err(failed("write", &path))?;
        wanted.extend(&more);
        let metadata = file.metadata().map_err(failed("stat", &path))?;
        let mut found = vec![0; wanted.len()];
        file.read_exact_at(&mut found, 0).map_err(failed("read", &path))?;
        match (metadata.nlink(), metadata.len()) {
            (0, length) if length == wanted.len() as u64 => agree_on_bytes("read what is held", &found, &wanted, 0),
            found => Err(format!("what is held has links and length {found:?}, not 0 and {}", wanted.len())),
        }
    }

    pub(super) fn sync(&mut self) -> Outcome<()> {
        let Some((path, ..)) = self.any_file() else { return Ok(()) };
        open(&path, OFlags::empty())?.sync_all().map_err(failed("sync", &path))
    }

    /// Some bytes to write, at most `most`.
    pub(super) fn any_content(&mut self, most: usize) -> Vec<u8> {
        let most = most.min(if self.dice.random_bool(0.6) { 6000 } else { WRITTEN });
        let length = self.dice.random_range(0..=most);
        content::bytes(self.dice.random(), length)
    }

    /// Writes in the model.
    pub(super) fn put(&mut self, id: Id, start: usize, content: &[u8]) {
        let file = self.model.content(id);
        if !content.is_empty() {
            file.resize(file.len().max(start + content.len()), 0);
            file[start..start + content.len()].copy_from_slice(content);
        }
    }

    /// Compares a part of a file with the model.
    pub(super) fn compare(
        &mut self,
        file: &File,
        id: Id,
        (start, end): (usize, usize),
        what: &str,
        path: &Path,
    ) -> Outcome<()> {
        let mut found = vec![0; end - start];
        file.read_exact_at(&mut found, start as u64).map_err(failed(what, path))?;
        let wanted = &self.model.content(id)[start..end];
        agree_on_bytes(format!("{what} {}", path.display()), &found, wanted, start)
    }
}

pub(super) fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{what} {}: {error}", path.display())
}
