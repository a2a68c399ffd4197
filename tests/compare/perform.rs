//! Executing a call, with the visible result as text, equal for equal results.

use std::{
    fmt::Debug,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, Dir, FileType, Gid, Mode, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use crate::call::{Act, Call, Step};

/// The longest attribute value or list of names requested, in bytes.
const LONGEST: usize = 4096;

/// Takes one step in a folder; returns the result, and the state of the paths in the call.
pub(crate) fn perform(folder: &Path, step: &Step) -> String {
    if let Some((user, group)) = step.caller {
        become_somebody(user, group);
    }
    let answer = ask(folder, &step.call);
    if step.caller.is_some() {
        become_somebody(0, 0);
    }
    let seen: Vec<String> = step.call.paths().into_iter().map(|path| look(&at(folder, path))).collect();
    format!("{answer}; then {}", seen.join(" and "))
}

/// Changes the effective user and group of this thread, the only one. From root to a user and back: only root may.
fn become_somebody(user: u32, group: u32) {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let to_group = || rustix::thread::set_thread_res_gid(None, Some(group), None);
    let to_user = || rustix::thread::set_thread_res_uid(None, Some(user), None);
    let changed =
        if user.is_root() { to_user().and_then(|()| to_group()) } else { to_group().and_then(|()| to_user()) };
    changed.expect("root may play anybody");
}

fn at(folder: &Path, path: &str) -> PathBuf {
    PathBuf::from(format!("{}/{path}", folder.display()))
}

fn text_of<T: Debug>(result: Result<T, Errno>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error {}", error.raw_os_error()),
    }
}

/// The visible attributes of a file, without those that file systems may choose.
fn shown(stat: &Stat) -> String {
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let size = if is_dir { 0 } else { stat.st_size };
    let owner = (stat.st_uid, stat.st_gid);
    format!("mode {:o}, {} links, owner {owner:?}, {size} bytes, device {}", stat.st_mode, stat.st_nlink, stat.st_rdev)
}

fn look(path: &Path) -> String {
    let stat = rustix::fs::lstat(path).map(|stat| shown(&stat));
    let mut list = [0; LONGEST];
    let names = rustix::fs::llistxattr(path, &mut list[..]).map(|length| names(&list[..length]));
    format!("{}, attributes {}", text_of(stat), text_of(names))
}

fn names(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort_unstable();
    names
}

fn ask(folder: &Path, call: &Call) -> String {
    let at = |path: &str| at(folder, path);
    let symlinks = |follow: bool| if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    match call {
        Call::Open { path, flags, mode, acts } => match rustix::fs::open(at(path), *flags, Mode::from(*mode)) {
            Ok(file) => acts.iter().map(|act| perform_act(file.as_fd(), act)).collect::<Vec<_>>().join(", "),
            Err(error) => text_of(Err::<(), _>(error)),
        },
        Call::MakeDir { path, mode } => text_of(rustix::fs::mkdir(at(path), Mode::from(*mode))),
        Call::RemoveDir { path } => text_of(rustix::fs::rmdir(at(path))),
        Call::Unlink { path } => text_of(rustix::fs::unlink(at(path))),
        Call::Rename { from, to, flags } => text_of(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), *flags)),
        Call::Link { from, to, follow } => {
            let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            text_of(rustix::fs::linkat(CWD, at(from), CWD, at(to), flags))
        }
        Call::Symlink { target, path } => text_of(rustix::fs::symlink(&**target, at(path))),
        Call::MakeNode { path, kind, mode, device } => {
            text_of(rustix::fs::mknodat(CWD, at(path), *kind, Mode::from(*mode), *device))
        }
        Call::ChangeMode { path, mode } => text_of(rustix::fs::chmod(at(path), Mode::from(*mode))),
        Call::ChangeOwner { path, user, group, follow } => {
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            text_of(rustix::fs::chownat(CWD, at(path), user, group, symlinks(*follow)))
        }
        Call::Stat { path, follow } => {
            text_of(rustix::fs::statat(CWD, at(path), symlinks(*follow)).map(|stat| shown(&stat)))
        }
        Call::ReadLink { path } => text_of(rustix::fs::readlink(at(path), Vec::new())),
        Call::List { path } => {
            let opened = rustix::fs::open(at(path), rustix::fs::OFlags::DIRECTORY, Mode::empty());
            text_of(opened.and_then(|dir| list(dir.as_fd())))
        }
        Call::Access { path, mode } => text_of(rustix::fs::access(at(path), Access::from_bits_retain(*mode))),
        Call::SetTimes { path, seconds, nanoseconds, follow } => {
            let time = Timespec { tv_sec: *seconds, tv_nsec: *nanoseconds };
            let times = Timestamps { last_access: time, last_modification: time };
            let set = rustix::fs::utimensat(CWD, at(path), &times, symlinks(*follow));
            text_of(
                set.and_then(|()| rustix::fs::statat(CWD, at(path), symlinks(*follow)))
                    .map(|stat| [(stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec)]),
            )
        }
        Call::SetAttribute { path, name, length, flags, follow } => {
            let (path, value) = (at(path), vec![b'v'; *length]);
            text_of(match follow {
                true => rustix::fs::setxattr(path, &**name, &value, *flags),
                false => rustix::fs::lsetxattr(path, &**name, &value, *flags),
            })
        }
        Call::GetAttribute { path, name, follow } => {
            let (path, mut value) = (at(path), [0; LONGEST]);
            text_of(match follow {
                true => rustix::fs::getxattr(path, &**name, &mut value[..]),
                false => rustix::fs::lgetxattr(path, &**name, &mut value[..]),
            })
        }
        Call::RemoveAttribute { path, name, follow } => text_of(match follow {
            true => rustix::fs::removexattr(at(path), &**name),
            false => rustix::fs::lremovexattr(at(path), &**name),
        }),
    }
}

fn perform_act(file: BorrowedFd<'_>, act: &Act) -> String {
    match act {
        Act::Write { offset: Some(offset), length, byte } => {
            text_of(rustix::io::pwrite(file, &vec![*byte; *length], *offset))
        }
        Act::Write { offset: None, length, byte } => text_of(rustix::io::write(file, &vec![*byte; *length])),
        Act::Read { offset, length } => {
            let mut bytes = vec![0; *length];
            text_of(rustix::io::pread(file, &mut bytes[..], *offset).map(|count| blake3::hash(&bytes[..count])))
        }
        Act::Truncate { length } => text_of(rustix::fs::ftruncate(file, *length)),
        Act::Allocate { flags, offset, length } => text_of(rustix::fs::fallocate(file, *flags, *offset, *length)),
        Act::Seek { hole, offset } => seek(file, *hole, *offset),
        Act::Stat => text_of(rustix::fs::fstat(file).map(|stat| shown(&stat))),
        Act::Sync => text_of(rustix::fs::fsync(file)),
        Act::List => text_of(list(file)),
        Act::ChangeMode { mode } => text_of(rustix::fs::fchmod(file, Mode::from(*mode))),
        Act::Copy { from, to, length } => {
            let (mut from, mut to) = (*from, *to);
            text_of(rustix::fs::copy_file_range(file, Some(&mut from), file, Some(&mut to), *length))
        }
        Act::SetAttribute => text_of(rustix::fs::fsetxattr(file, "user.f", b"value", XattrFlags::empty())),
    }
}

/// A file system may place holes freely, but must report one at the end.
fn seek(file: BorrowedFd<'_>, hole: bool, offset: u64) -> String {
    let is_file =
        rustix::fs::fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_file {
        return "no file".to_owned();
    }
    match hole {
        true => text_of(rustix::fs::seek(file, SeekFrom::Hole(offset)).map(|hole| hole >= offset)),
        false => text_of(rustix::fs::seek(file, SeekFrom::End(0))),
    }
}

fn list(dir: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        names.push(format!("{} {:?}", entry.file_name().to_string_lossy(), entry.file_type()));
    }
    names.sort_unstable();
    Ok(names)
}
