//! Data and holes of files: truncating, punching, copying, and maps of the data.

use std::os::unix::fs::FileExt;

use rand::Rng;
use rustix::{
    fs::{FallocateFlags, OFlags, SeekFrom},
    io::Errno,
};

use super::{Home, LONGEST, agree, agree_on_bytes, bytes::failed, open};
use crate::Outcome;

impl Home {
    pub(super) fn truncate(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let most = if self.dice.random_bool(0.7) { length } else { LONGEST };
        let new = self.dice.random_range(0..=most);
        open(&path, OFlags::empty())?.set_len(new as u64).map_err(failed("truncate", &path))?;
        self.model.content(id).resize(new, 0);
        Ok(())
    }

    pub(super) fn punch(&mut self) -> Outcome<()> {
        self.allocate_with(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }

    pub(super) fn zero(&mut self) -> Outcome<()> {
        let keep = if self.dice.random_bool(0.5) { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.allocate_with(FallocateFlags::ZERO_RANGE | keep)
    }

    pub(super) fn allocate(&mut self) -> Outcome<()> {
        let keep = if self.dice.random_bool(0.5) { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.allocate_with(keep)
    }

    fn allocate_with(&mut self, how: FallocateFlags) -> Outcome<()> {
        let Some((path, id, _)) = self.any_file() else { return Ok(()) };
        let (start, end) = self.any_part(LONGEST);
        if start == end {
            return Ok(());
        }
        let file = open(&path, OFlags::empty())?;
        let done = rustix::fs::fallocate(&file, how, start as u64, (end - start) as u64);
        agree(format!("fallocate {how:?} {}", path.display()), done, Ok(()))?;
        let content = self.model.content(id);
        if !how.contains(FallocateFlags::KEEP_SIZE) {
            content.resize(content.len().max(end), 0);
        }
        if how.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let length = content.len();
            content[start.min(length)..end.min(length)].fill(0);
        }
        Ok(())
    }

    pub(super) fn copy(&mut self) -> Outcome<()> {
        let Some((from, source, length)) = self.any_file() else { return Ok(()) };
        let Some((to, target, _)) = self.any_file() else { return Ok(()) };
        let (start, end) = self.any_part(length);
        let place = self.dice.random_range(0..=LONGEST - (end - start));
        let is_overlapping = source == target && place < end && start < place + (end - start);
        if start == end || is_overlapping {
            return Ok(());
        }
        let (reader, writer) = (open(&from, OFlags::empty())?, open(&to, OFlags::empty())?);
        let (mut reading, mut writing) = (start as u64, place as u64);
        while reading < end as u64 {
            let left = end - reading as usize;
            let copied = rustix::fs::copy_file_range(&reader, Some(&mut reading), &writer, Some(&mut writing), left);
            match copied {
                Ok(0) => return Err(format!("copy_file_range {} ends at {reading}", from.display())),
                copied => agree(format!("copy_file_range {}", from.display()), copied, Ok(()))?,
            }
        }
        let content = self.model.content(source)[start..end].to_vec();
        self.put(target, place, &content);
        self.compare(&writer, target, (place, place + content.len()), "read what was copied", &to)
    }

    /// Checks that ranges skipped by `SEEK_DATA` are zero, and that the last one ends with the file.
    pub(super) fn seek(&mut self) -> Outcome<()> {
        let Some((path, id, length)) = self.any_file() else { return Ok(()) };
        let file = open(&path, OFlags::empty())?;
        let what = format!("holes of {}", path.display());
        let (mut at, mut found) = (0, vec![0; length]);
        while at < length as u64 {
            let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                data => data.map_err(|error| format!("{what}: {error}"))?,
            };
            at = rustix::fs::seek(&file, SeekFrom::Hole(data)).map_err(|error| format!("{what}: {error}"))?;
            if at <= data || at > length as u64 {
                return Err(format!("{what}: data at {data} ends at {at} in {length} bytes"));
            }
            let part = &mut found[data as usize..at as usize];
            file.read_exact_at(part, data).map_err(failed("read", &path))?;
        }
        agree_on_bytes(what, &found, self.model.content(id), 0)
    }
}
