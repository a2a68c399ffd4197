//! Who holds a lock on a file: the answer that "resource busy" leaves out.
//!
//! The kernel lists advisory locks in `/proc/locks` with the owner's process id and the file's inode. All of this is best
//! effort: the owner may be in another process namespace, or be gone by the time we look. Then nothing is known.

use std::fs;

/// The longest command line that a message repeats, in characters.
const MAX_COMMAND: usize = 80;

/// The file that a lock is on, as `/proc/locks` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockedFile {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) inode: u64,
}

/// Describes the process that holds a lock on `file`, "process 1234 (pool service tank)", where it can be found.
pub(super) fn describe(file: LockedFile) -> Option<String> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    owner_in(&locks, &mounts, file).map(describe_process)
}

/// The process id of the first `flock` on `file` in the text of `/proc/locks`. Some file systems report another device
/// number to `stat` than they lock under, which no mount has: then a line that matches in the inode alone is taken second.
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

fn describe_process(pid: u32) -> String {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    match command_line(&raw) {
        command if command.is_empty() => format!("process {pid}"),
        command => format!("process {pid} ({command})"),
    }
}

/// A command line as a person would type it: the program without its folder, spaces for the zeros between arguments,
/// nothing that could move a terminal's cursor, and not too long.
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
    fn a_command_line_is_shown_without_its_folder_and_control_characters() {
        assert_eq!(command_line(b"/usr/bin/pool\0service\0ta\x1bnk\0"), "pool service tank");
        assert_eq!(command_line(b""), "");
        assert_eq!(command_line(&[b'x'; 200]).chars().count(), MAX_COMMAND + 1);
    }
}
