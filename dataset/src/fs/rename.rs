//! Renaming files and directories.

use pool::tree::View;
use rustix::io::Errno;

use super::{
    access::Inheritance,
    attr::Caller,
    change::{Change, load_directory},
    create::{Spec, enter},
    directory::{Dirent, Found, Probe, absent, check_name, check_old_name, probe},
    failure::Failure,
    file_system::{FileSystem, METADATA},
    inode::{FileType, Link},
    key::{self, Ino, ROOT},
    link, project,
    remove::{Fate, leave},
};

/// Variants of a rename, as of renameat2(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name is taken.
    pub noreplace: bool,
    /// Swap the two names.
    pub exchange: bool,
    /// Leave a whiteout, owned by the given caller, under the old name: a character device with number 0, by which
    /// union file systems hide an entry of a lower layer.
    pub whiteout: Option<Caller>,
}

/// A name, and the entry found under the name.
struct End<'a> {
    dir: Ino,
    name: &'a [u8],
    probe: Probe,
}

impl End<'_> {
    fn link(&self, found: &Found) -> Link {
        Link { dir: self.dir, offset: found.offset }
    }
}

fn is_dir(found: &Found) -> bool {
    found.file_type == FileType::Directory
}

/// EINVAL if `dir` is `ancestor` or lies below `ancestor`.
fn refuse_loop(view: &View<'_>, ancestor: Ino, dir: Ino) -> Result<(), Failure> {
    let mut at = dir;
    while at != ROOT {
        if at == ancestor {
            return Err(Errno::INVAL.into());
        }
        at = match load_directory(view, at)?.parent.dir {
            0 => return Ok(()),
            parent => parent,
        };
    }
    if ancestor == ROOT { Err(Errno::INVAL.into()) } else { Ok(()) }
}

impl FileSystem {
    /// Renames a file. If the new name exists, its file is replaced.
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.writable()?;
        if flags.exchange && (flags.noreplace || flags.whiteout.is_some()) {
            return Err(Errno::INVAL);
        }
        check_moved_name(name, check_old_name)?;
        check_moved_name(new_name, check_name)?;
        self.admit(METADATA)?;
        let fate = self.update_tree(|change| {
            change.edit_directory(dir)?;
            change.edit_directory(new_dir)?;
            let probe =
                |dir, name| Ok::<_, Failure>(End { dir, name, probe: probe(&change.view, self.seed(), dir, name)? });
            let (source, target) = (probe(dir, name)?, probe(new_dir, new_name)?);
            let moved = source.probe.found.ok_or_else(|| absent(name))?;
            match target.probe.found {
                None if flags.exchange => Err(Errno::NOENT.into()),
                Some(_) if flags.noreplace => Err(Errno::EXIST.into()),
                Some(other) if other.ino == moved.ino => Ok(Fate::Settled),
                other => {
                    check_free(change, (dir, &moved), (new_dir, other.as_ref()))?;
                    if dir != new_dir {
                        let back = other.as_ref().filter(|_| flags.exchange);
                        check_projects(change, (dir, back), (new_dir, &moved))?;
                    }
                    if let Some(other) = other.filter(|_| flags.exchange) {
                        return exchange(change, &source, &moved, &target, &other);
                    }
                    let fate = self.replace(change, &source, &moved, &target, other)?;
                    if let Some(caller) = &flags.whiteout {
                        leave_whiteout(change, caller, &source, moved.offset)?;
                    }
                    Ok(fate)
                }
            }
        })?;
        self.settle(fate);
        Ok(())
    }

    fn replace(
        &self,
        change: &mut Change<'_>,
        source: &End<'_>,
        moved: &Found,
        target: &End<'_>,
        replaced: Option<Found>,
    ) -> Result<Fate, Failure> {
        if is_dir(moved) && source.dir != target.dir {
            refuse_loop(&change.view, moved.ino, target.dir)?;
        }
        if let Some(other) = &replaced {
            check_replaceable(change, moved, other)?;
            leave(change, target.dir, other)?;
        }
        let offset = match &replaced {
            Some(other) => other.offset,
            None => target.probe.vacancy()?,
        };
        change.delete(key::dirent(source.dir, moved.offset));
        leave(change, source.dir, moved)?;
        enter(change, target.dir, offset, target.name, (moved.ino, moved.file_type))?;
        link::replace(change, moved.ino, source.link(moved), Link { dir: target.dir, offset })?;
        let now = change.now;
        change.edit(moved.ino)?.ctime = now;
        match &replaced {
            Some(other) => self.drop_link(change, other, target.link(other)),
            None => Ok(Fate::Settled),
        }
    }
}

/// Puts a whiteout in the place of the moved entry.
fn leave_whiteout(change: &mut Change<'_>, caller: &Caller, end: &End<'_>, offset: u64) -> Result<(), Failure> {
    let parent = *change.edit_directory(end.dir)?;
    let mut inode = Spec::new(FileType::CharDevice, 0).inode(change, caller, &parent, &Inheritance::default());
    inode.parent = Link { dir: end.dir, offset };
    let ino = change.add(inode)?;
    enter(change, end.dir, offset, end.name, (ino, FileType::CharDevice))
}

/// EPERM if attributes forbid removing one of the names or making the new one.
fn check_free(change: &Change<'_>, from: (Ino, &Found), to: (Ino, Option<&Found>)) -> Result<(), Failure> {
    change.inode(from.0)?.check_free()?;
    change.inode(from.1.ino)?.check_free()?;
    let dir = change.inode(to.0)?;
    match to.1 {
        Some(replaced) => {
            dir.check_free()?;
            Ok(change.inode(replaced.ino)?.check_free()?)
        }
        None => Ok(dir.check_mutable()?),
    }
}

/// EXDEV if a target directory passes on a project and the file moved there has another project.
fn check_projects(change: &Change<'_>, from: (Ino, Option<&Found>), to: (Ino, &Found)) -> Result<(), Failure> {
    project::check_entry(&change.inode(to.1.ino)?, &change.inode(to.0)?)?;
    match from.1 {
        Some(back) => Ok(project::check_entry(&change.inode(back.ino)?, &change.inode(from.0)?)?),
        None => Ok(()),
    }
}

fn check_replaceable(change: &Change<'_>, moved: &Found, replaced: &Found) -> Result<(), Failure> {
    match (is_dir(moved), is_dir(replaced)) {
        (false, false) => Ok(()),
        (false, true) => Err(Errno::ISDIR.into()),
        (true, false) => Err(Errno::NOTDIR.into()),
        (true, true) if change.inode(replaced.ino)?.size == 0 => Ok(()),
        (true, true) => Err(Errno::NOTEMPTY.into()),
    }
}

fn exchange(
    change: &mut Change<'_>,
    one: &End<'_>,
    first: &Found,
    two: &End<'_>,
    second: &Found,
) -> Result<Fate, Failure> {
    if one.dir != two.dir {
        if is_dir(first) {
            refuse_loop(&change.view, first.ino, two.dir)?;
        }
        if is_dir(second) {
            refuse_loop(&change.view, second.ino, one.dir)?;
        }
    }
    place(change, one, first, second)?;
    place(change, two, second, first)?;
    link::replace(change, first.ino, one.link(first), two.link(second))?;
    link::replace(change, second.ino, two.link(second), one.link(first))?;
    let now = change.now;
    change.edit(first.ino)?.ctime = now;
    change.edit(second.ino)?.ctime = now;
    Ok(Fate::Settled)
}

/// Points the entry of `outgoing` to `incoming`.
fn place(change: &mut Change<'_>, end: &End<'_>, outgoing: &Found, incoming: &Found) -> Result<(), Failure> {
    let dirent = Dirent { ino: incoming.ino, file_type: incoming.file_type, name: end.name };
    change.put(key::dirent(end.dir, outgoing.offset), dirent.encode(), None);
    let now = change.now;
    let dir = change.edit_directory(end.dir)?;
    (dir.mtime, dir.ctime) = (now, now);
    dir.nlink = dir.nlink + u32::from(is_dir(incoming)) - u32::from(is_dir(outgoing)).min(dir.nlink);
    Ok(())
}

/// EBUSY for `.` and `..`, which cannot be renamed or replaced.
fn check_moved_name(name: &[u8], check: fn(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    match name {
        b"." | b".." => Err(Errno::BUSY),
        _ => check(name),
    }
}
