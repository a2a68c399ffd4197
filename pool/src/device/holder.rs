//! The holder of a lock on a file: the answer that "resource busy" leaves out.
//!
//! The kernel lists advisory locks in `/proc/locks` with the owner's process id and the file's inode. All of this is
//! best effort: the owner may be in another process namespace, or be gone by now. A lock outlives the process that took
//! it if another process inherited the descriptor: then a process with the file open is named.
//!
//! Any user who can open a file can lock it, so a holder of another user is reported as such: the lock may be meant to
//! prevent an import.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::fs::{major, minor};

use crate::error::Holder;

/// The longest command line in a message, in characters.
const MAX_COMMAND: usize = 80;

/// A locked file, as `/proc/locks` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockedFile {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) inode: u64,
}

/// The process that holds a lock on `file`, if found.
pub(super) fn holder_of(file: LockedFile) -> Option<Holder> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let taker = owner_in(&locks, &mounts, file)?;
    let is_there = Path::new("/proc").join(taker.to_string()).is_dir();
    let heir = if is_there { None } else { process_that_has(file) };
    Some(process(heir.unwrap_or(taker)))
}

fn process(id: u32) -> Holder {
    let folder = Path::new("/proc").join(id.to_string());
    let raw = fs::read(folder.join("cmdline")).unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    let uid = folder.metadata().map(|metadata| metadata.uid()).ok().filter(|uid| *uid != own);
    Holder::Process { id, command: command_line(&raw), user: uid.map(user_name) }
}

/// The first process with the file open, among processes that this user may inspect.
fn process_that_has(file: LockedFile) -> Option<u32> {
    let has = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        open.filter_map(|entry| entry.ok()?.path().metadata().ok()).any(|open| {
            let (major, minor) = (major(open.dev()), minor(open.dev()));
            LockedFile { major, minor, inode: open.ino() } == file
        })
    };
    let own = std::process::id();
    let processes = fs::read_dir("/proc").ok()?;
    let mut ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.find(|pid| *pid != own && has(pid))
}

/// The name of a user in `/etc/passwd`, or the number.
fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&users, uid).unwrap_or_else(|| uid.to_string())
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    let user = users.lines().find(|line| line.split(':').nth(2).is_some_and(|field| field.parse() == Ok(uid)))?;
    let name: String = user.split(':').next()?.chars().filter(|c| !c.is_control()).take(32).collect();
    (!name.is_empty()).then_some(name)
}

/// The process id of the first `flock` on `file` in the text of `/proc/locks`. Some file systems report another device
/// number to `stat` than they lock under, and no mount has that number: then a line that matches in the inode alone is
/// taken second.
fn owner_in(locks: &str, mounts: &str, file: LockedFile) -> Option<u32> {
    let mut similar = None;
    let number = format!("{}:{}", file.major, file.minor);
    let is_mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some(&number));
    for (pid, held) in locks.lines().filter_map(parse_line) {
        if held == file {
            return Some(pid);
        }
        if held.inode == file.inode && !is_mounted {
            similar.get_or_insert(pid);
        }
    }
    similar
}

/// Parses a held lock: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`. A waiting one has `->` in second place.
fn parse_line(line: &str) -> Option<(u32, LockedFile)> {
    let mut fields = line.split_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok().filter(|pid| *pid > 0)?;
    let mut file = fields.next()?.split(':');
    let major = u32::from_str_radix(file.next()?, 16).ok()?;
    let minor = u32::from_str_radix(file.next()?, 16).ok()?;
    let inode = file.next()?.parse().ok()?;
    Some((pid, LockedFile { major, minor, inode }))
}

/// A command line as typed: the program without its folder, spaces for the zeros between arguments, no control
/// characters, and limited in length.
fn command_line(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut arguments = text.split('\0').filter(|argument| !argument.is_empty());
    let program = arguments.next().map(|path| path.rsplit('/').next().unwrap_or(path));
    let line = program.into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().filter(|c| !c.is_control()).take(MAX_COMMAND).collect();
    if line.chars().count() > MAX_COMMAND {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
        1: POSIX  ADVISORY  WRITE 11 fe:01:42 0 EOF\n\
        2: FLOCK  ADVISORY  WRITE 22 00:2a:42 0 EOF\n\
        3: FLOCK  ADVISORY  READ 33 fe:01:42 0 EOF\n\
        3: -> FLOCK  ADVISORY  WRITE 44 fe:01:43 0 EOF\n\
        garbage\n";

    const MOUNTS: &str = "\
        30 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n\
        41 30 0:42 / /mnt/a rw - fuse.cenote a rw\n\
        42 30 0:46 / /mnt/b rw - fuse.cenote b rw\n";

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        for mounts in ["", MOUNTS] {
            assert_eq!(owner_in(LOCKS, mounts, LockedFile { major: 0xfe, minor: 1, inode: 42 }), Some(33));
        }
    }

    #[test]
    fn an_inode_on_an_unknown_device_is_second_best() {
        assert_eq!(owner_in(LOCKS, MOUNTS, LockedFile { major: 7, minor: 1, inode: 42 }), Some(22));
    }

    #[test]
    fn an_inode_of_another_mount_is_another_file() {
        assert_eq!(owner_in(LOCKS, MOUNTS, LockedFile { major: 0, minor: 46, inode: 42 }), None);
    }

    #[test]
    fn who_waits_does_not_hold() {
        assert_eq!(owner_in(LOCKS, MOUNTS, LockedFile { major: 0xfe, minor: 1, inode: 43 }), None);
    }

    #[test]
    fn a_process_of_another_user_is_named_with_its_user() {
        let users = "root:x:0:0::/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!([name_in(users, 1000), name_in(users, 7)], [Some("ann".to_owned()), None]);
        let (id, command) = (7, "flock tank.img".to_owned());
        let holder = Holder::Process { id, command, user: Some("ann".into()) };
        assert_eq!(holder.to_string(), "process 7 of user ann (flock tank.img)");
        assert_eq!(holder.other_users_process(), Some(7));
        assert_eq!(process(std::process::id()).other_users_process(), None);
    }

    #[test]
    fn a_command_line_is_shown_without_folder_or_control_characters() {
        assert_eq!(command_line(b"/usr/bin/pool\0service\0ta\x1bnk\0"), "pool service tank");
        assert_eq!(command_line(b""), "");
        assert_eq!(command_line(&[b'x'; 200]).chars().count(), MAX_COMMAND + 1);
    }
}
