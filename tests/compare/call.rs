//! Random calls to a file system, from a seed: few names, so that calls meet each other, and arguments at the edges.
//!
//! Left out are calls that tmpfs lacks (zeroing a range), and facts that the kernel does not tell a FUSE file system:
//!
//! * whether a program is in a file's group: modes with a set-group bit get the group's execution bit too, which makes
//!   the group irrelevant;
//! * the end of a directory (`lseek`), which FUSE makes up;
//! * a change of owner without effect, by a user who is not the owner.

use rand::{Rng, seq::IndexedRandom};
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};

/// One call, by root or another user.
#[derive(Debug)]
pub(crate) struct Step {
    /// User and group.
    pub(crate) caller: Option<(u32, u32)>,
    pub(crate) call: Call,
}

/// A call. Paths are relative to the scene's folder.
#[derive(Debug)]
pub(crate) enum Call {
    Open { path: String, flags: OFlags, mode: u32, acts: Vec<Act> },
    MakeDir { path: String, mode: u32 },
    RemoveDir { path: String },
    Unlink { path: String },
    Rename { from: String, to: String, flags: RenameFlags },
    Link { from: String, to: String, follow: bool },
    Symlink { target: String, path: String },
    MakeNode { path: String, kind: FileType, mode: u32, device: u64 },
    ChangeMode { path: String, mode: u32 },
    ChangeOwner { path: String, user: Option<u32>, group: Option<u32>, follow: bool },
    Stat { path: String, follow: bool },
    ReadLink { path: String },
    List { path: String },
    Access { path: String, mode: u32 },
    SetTimes { path: String, seconds: i64, nanoseconds: i64, follow: bool },
    SetAttribute { path: String, name: String, length: usize, flags: XattrFlags, follow: bool },
    GetAttribute { path: String, name: String, follow: bool },
    RemoveAttribute { path: String, name: String, follow: bool },
}

/// An operation on an open file.
#[derive(Debug)]
pub(crate) enum Act {
    Write { offset: Option<u64>, length: usize, byte: u8 },
    Read { offset: u64, length: usize },
    Truncate { length: u64 },
    Allocate { flags: FallocateFlags, offset: u64, length: u64 },
    Seek { hole: bool, offset: u64 },
    Stat,
    Sync,
    List,
    ChangeMode { mode: u32 },
    Copy { from: u64, to: u64, length: usize },
    SetAttribute,
}

const OFFSETS: [u64; 14] = [
    0,
    1,
    100,
    4095,
    4096,
    4097,
    65_536,
    131_071,
    131_072,
    131_073,
    1 << 20,
    (1 << 31) - 1,
    (1 << 43) + 7,
    // Negative, as the system takes it.
    u64::MAX - 4095,
];
const LENGTHS: [usize; 6] = [0, 1, 10, 4096, 5000, 150_000];
const USERS: [u32; 2] = [1, 1000];

impl Step {
    pub(crate) fn random(dice: &mut impl Rng) -> Step {
        let caller = dice.random_bool(0.2).then(|| (pick(dice, &USERS), pick(dice, &USERS)));
        let call = Call::random(dice, caller.is_none());
        Step { caller, call }
    }
}

impl Call {
    /// Every path in the call.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Call::Rename { from, to, .. } | Call::Link { from, to, .. } => vec![from, to],
            Call::Open { path, .. }
            | Call::MakeDir { path, .. }
            | Call::RemoveDir { path }
            | Call::Unlink { path }
            | Call::Symlink { path, .. }
            | Call::MakeNode { path, .. }
            | Call::ChangeMode { path, .. }
            | Call::ChangeOwner { path, .. }
            | Call::Stat { path, .. }
            | Call::ReadLink { path }
            | Call::List { path }
            | Call::Access { path, .. }
            | Call::SetTimes { path, .. }
            | Call::SetAttribute { path, .. }
            | Call::GetAttribute { path, .. }
            | Call::RemoveAttribute { path, .. } => vec![path],
        }
    }

    fn random(dice: &mut impl Rng, by_root: bool) -> Call {
        let (path, other, follow) = (any_path(dice), any_path(dice), dice.random_bool(0.5));
        let mode = any_mode(dice);
        match dice.random_range(0..30) {
            0..=7 => Call::Open { path, flags: any_flags(dice), mode, acts: any_acts(dice) },
            8..=10 => Call::MakeDir { path, mode },
            11 => Call::RemoveDir { path },
            12 => Call::Unlink { path },
            13..=15 => {
                let flags = if follow { 0 } else { dice.random_range(0..16) };
                Call::Rename { from: path, to: other, flags: RenameFlags::from_bits_retain(flags) }
            }
            16 => Call::Link { from: path, to: other, follow },
            17 => Call::Symlink { target: other, path },
            18 => Call::MakeNode { path, kind: any_kind(dice), mode, device: pick(dice, &[0, 0x103, 0x801]) },
            19..=20 => Call::ChangeMode { path, mode },
            21 => {
                let mut owner = || pick(dice, &[None, Some(0), Some(1), Some(1000)]);
                let (user, group) = (owner(), owner());
                let group = if by_root || user.is_some() { group } else { group.or(Some(1)) };
                Call::ChangeOwner { path, user, group, follow }
            }
            22..=23 => Call::Stat { path, follow },
            24 => Call::ReadLink { path },
            25 => Call::List { path },
            26 => Call::Access { path, mode: dice.random_range(0..8) },
            27 => {
                let seconds = pick(dice, &[-5, 0, 1_000_000_000, 1 << 31, 3_000_000_000]);
                Call::SetTimes { path, seconds, nanoseconds: dice.random_range(0..1_000_000_000), follow }
            }
            28 => {
                let flags = XattrFlags::from_bits_retain(dice.random_range(0..5));
                Call::SetAttribute {
                    path,
                    name: any_attribute(dice),
                    length: pick(dice, &LENGTHS) % 1500,
                    flags,
                    follow,
                }
            }
            _ if follow => Call::GetAttribute { path, name: any_attribute(dice), follow: dice.random() },
            _ => Call::RemoveAttribute { path, name: any_attribute(dice), follow: dice.random() },
        }
    }
}

fn pick<T: Copy>(dice: &mut impl Rng, values: &[T]) -> T {
    *values.choose(dice).expect("there are some")
}

/// One to three names, rarely with an odd suffix.
fn any_path(dice: &mut impl Rng) -> String {
    let long = "x".repeat(255);
    let names = ["a", "b", "c", "d", "e", "f", "é", &long];
    let depth = pick(dice, &[1, 1, 1, 2, 2, 3]);
    let mut parts: Vec<&str> = (0..depth).map(|_| pick(dice, &names)).collect();
    let too_long = "y".repeat(256);
    match dice.random_range(0..40) {
        0 | 1 => parts.push(""),
        2 => parts.push("."),
        3 => parts.push(".."),
        4 => parts.push(&too_long),
        _ => {}
    }
    parts.join("/")
}

fn any_mode(dice: &mut impl Rng) -> u32 {
    let mode = dice.random_range(0..0o10000);
    if mode & 0o010 == 0 { mode & !0o2000 } else { mode }
}

fn any_kind(dice: &mut impl Rng) -> FileType {
    use FileType::{BlockDevice, CharacterDevice, Directory, Fifo, RegularFile, Socket, Symlink};
    pick(dice, &[RegularFile, Fifo, Socket, CharacterDevice, BlockDevice, Directory, Symlink])
}

fn any_flags(dice: &mut impl Rng) -> OFlags {
    let mut flags = pick(dice, &[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR]);
    // A pipe without another end, or a device without a driver, must not block.
    flags |= OFlags::CLOEXEC | OFlags::NONBLOCK;
    let chances = [
        (OFlags::CREATE, 0.7),
        (OFlags::EXCL, 0.15),
        (OFlags::TRUNC, 0.15),
        (OFlags::APPEND, 0.15),
        (OFlags::DIRECTORY, 0.08),
        (OFlags::NOFOLLOW, 0.1),
        (OFlags::SYNC, 0.05),
        (OFlags::PATH, 0.03),
        (OFlags::NOATIME, 0.05),
    ];
    chances.into_iter().filter(|(_, chance)| dice.random_bool(*chance)).for_each(|(flag, _)| flags |= flag);
    flags
}

fn any_acts(dice: &mut impl Rng) -> Vec<Act> {
    (0..dice.random_range(0..6)).map(|_| any_act(dice)).collect()
}

fn any_act(dice: &mut impl Rng) -> Act {
    let (offset, length) = (pick(dice, &OFFSETS), pick(dice, &LENGTHS));
    match dice.random_range(0..12) {
        0 | 1 => Act::Write { offset: dice.random_bool(0.6).then_some(offset), length, byte: dice.random() },
        2 => Act::Read { offset, length },
        3 => Act::Truncate { length: offset },
        4 => {
            let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
            let flags = pick(dice, &[FallocateFlags::empty(), keep, punch, punch | keep, punch | keep]);
            // Without a hole, the range takes real memory on the other side.
            let offset = if flags.contains(punch) { offset } else { offset % (1 << 20) };
            Act::Allocate { flags, offset, length: length as u64 }
        }
        5 => Act::Seek { hole: dice.random(), offset },
        6 => Act::Stat,
        7 => Act::Sync,
        8 => Act::List,
        9 => Act::ChangeMode { mode: any_mode(dice) },
        10 => Act::Copy { from: pick(dice, &[0, 100, 4096]), to: pick(dice, &[0, 4096, 300_000]), length },
        _ => Act::SetAttribute,
    }
}

fn any_attribute(dice: &mut impl Rng) -> String {
    let (longest, too_long) = ("n".repeat(250), "n".repeat(251));
    let names = ["user.a", "user.b", "user.", "trusted.t", "security.s", "other.o", "system.x", ""];
    match dice.random_range(0..10) {
        0 => format!("user.{longest}"),
        1 => format!("user.{too_long}"),
        number => names[number - 2].to_owned(),
    }
}
