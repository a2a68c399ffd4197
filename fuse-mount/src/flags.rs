//! `chattr` and `lsattr`: attributes of files as the kernel's two sets of flags, and the four requests for them.
//!
//! The kernel itself turns the system calls into these requests. Kernels before 5.13 do not check who may change what,
//! so the check is here. Each request gets or sets one word of attributes. Attributes unknown to Cenote are refused, so
//! that no program believes they act. A file's project is part of the same requests: `chattr -p` and `+P`, `lsattr -p`.

use dataset::fs::{Attribute, Errno, FileAttributes, Project};
use pool::block::compression::CompressionChoice;

/// A request to read or set flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `FS_IOC_GETFLAGS`: answers `FS_*_FL` bits.
    GetFlags,
    /// `FS_IOC_SETFLAGS`: takes `FS_*_FL` bits.
    SetFlags,
    /// `FS_IOC_FSGETXATTR`
    GetExtended,
    /// `FS_IOC_FSSETXATTR`
    SetExtended,
}

impl Command {
    /// The command with this number.
    pub(crate) fn of(number: u32) -> Option<Command> {
        Some(match number {
            0x8008_6601 => Command::GetFlags,
            0x4008_6602 => Command::SetFlags,
            0x801c_581f => Command::GetExtended,
            0x401c_5820 => Command::SetExtended,
            _ => return None,
        })
    }
}

/// The size in bytes of a `struct fsxattr`; its first word has the flags.
const EXTENDED: usize = 28;
/// The offset in bytes of the project ID in a `struct fsxattr`.
const PROJECT_AT: usize = 12;

/// "A directory hands down its project": the flag of `lsattr`, and of `struct fsxattr`.
const HANDS_DOWN: (u32, u32) = (0x2000_0000, 0x200);

const COMPRESSED: u32 = 0x4;
const NOT_COMPRESSED: u32 = 0x400;

/// The attributes that are on or off, each with its flag of `lsattr` and of `struct fsxattr`.
const SWITCHES: [(Attribute, u32, u32); 4] = [
    (Attribute::Immutable, 0x10, 0x8),
    (Attribute::Append, 0x20, 0x10),
    (Attribute::NoDump, 0x40, 0x80),
    (Attribute::NoAtime, 0x80, 0x40),
];

/// The answer to a request to read.
pub(crate) fn shown(command: Command, attributes: &FileAttributes, project: Project) -> Vec<u8> {
    let collect = |flag: fn(&(Attribute, u32, u32)) -> u32| -> u32 {
        SWITCHES.iter().filter(|switch| attributes.has(switch.0)).map(flag).sum()
    };
    let hands_down = if project.inherit { HANDS_DOWN } else { (0, 0) };
    if command == Command::GetExtended {
        let mut answer = (collect(|switch| switch.2) | hands_down.1).to_ne_bytes().to_vec();
        answer.resize(EXTENDED, 0);
        answer[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&project.id.to_ne_bytes());
        return answer;
    }
    let compression = match attributes.compression() {
        None => 0,
        Some(CompressionChoice::Off) => NOT_COMPRESSED,
        Some(_) => COMPRESSED,
    };
    (collect(|switch| switch.1) | hands_down.0 | compression).to_ne_bytes().to_vec()
}

/// The project after a request to set, for a file whose project is `before`.
pub(crate) fn project(command: Command, data: &[u8], before: Project) -> Result<Project, Errno> {
    let word = |at: usize| data.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_ne_bytes(*word));
    let flags = word(0).ok_or(Errno::INVAL)?;
    Ok(match command {
        Command::SetExtended => {
            Project { id: word(PROJECT_AT).ok_or(Errno::INVAL)?, inherit: flags & HANDS_DOWN.1 != 0 }
        }
        _ => Project { inherit: flags & HANDS_DOWN.0 != 0, ..before },
    })
}

/// Sets attributes as a request says. Attributes outside the request's set stay.
pub(crate) fn set(command: Command, data: &[u8], attributes: &mut FileAttributes) -> Result<(), Errno> {
    let (flags, rest) = data.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
    let flags = u32::from_ne_bytes(*flags);
    let flag = |switch: &(Attribute, u32, u32)| if command == Command::SetExtended { switch.2 } else { switch.1 };
    let mut known: u32 = SWITCHES.iter().map(flag).sum();
    if command == Command::SetExtended {
        known |= HANDS_DOWN.1;
        // All other words are hints about sizes.
        let project = PROJECT_AT - 4..PROJECT_AT;
        if rest.iter().enumerate().any(|(at, byte)| *byte != 0 && !project.contains(&at)) {
            return Err(Errno::OPNOTSUPP);
        }
    } else {
        known |= COMPRESSED | NOT_COMPRESSED | HANDS_DOWN.0;
        set_compression(flags, attributes)?;
    }
    if flags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    SWITCHES.iter().for_each(|switch| attributes.turn(switch.0, flags & flag(switch) != 0));
    Ok(())
}

/// Whether the user `uid` may make a change to a file of `owner`: the owner and root may; flags that bind root need
/// root.
pub(crate) fn check_user(uid: u32, owner: u32, before: &FileAttributes, after: &FileAttributes) -> Result<(), Errno> {
    let binds = |attribute: Attribute| before.has(attribute) != after.has(attribute);
    let is_bound = binds(Attribute::Immutable) || binds(Attribute::Append);
    if uid == 0 || uid == owner && !is_bound { Ok(()) } else { Err(Errno::PERM) }
}

/// The flag only says compressed or not: if compressed, the file keeps its algorithm.
fn set_compression(flags: u32, attributes: &mut FileAttributes) -> Result<(), Errno> {
    let own = attributes.compression();
    let wanted = match (flags & COMPRESSED != 0, flags & NOT_COMPRESSED != 0) {
        (true, true) => return Err(Errno::INVAL),
        (true, false) => own.filter(|own| *own != CompressionChoice::Off).or(Some(CompressionChoice::default())),
        (false, true) => Some(CompressionChoice::Off),
        (false, false) => None,
    };
    attributes.set_compression(wanted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(values: &[(Attribute, &str)]) -> FileAttributes {
        let mut attributes = FileAttributes::default();
        values.iter().for_each(|(attribute, value)| attributes.set(*attribute, value).unwrap());
        attributes
    }

    #[test]
    fn what_is_shown_can_be_set_again() {
        for values in [
            &[][..],
            &[(Attribute::Immutable, "on"), (Attribute::NoAtime, "on")],
            &[(Attribute::Append, "on"), (Attribute::NoDump, "on"), (Attribute::Compression, "zstd-9")],
            &[(Attribute::Compression, "off"), (Attribute::RecordSize, "4096"), (Attribute::Direct, "on")],
        ] {
            let before = attributes(values);
            for (get, put) in [(Command::GetFlags, Command::SetFlags), (Command::GetExtended, Command::SetExtended)] {
                let mut after = before;
                let of = Project { id: 7, inherit: true };
                let answer = shown(get, &before, of);
                set(put, &answer, &mut after).unwrap();
                assert_eq!((after, project(put, &answer, of)), (before, Ok(of)));
            }
        }
    }

    #[test]
    fn flags_are_those_of_linux() {
        let locked = attributes(&[(Attribute::Immutable, "on"), (Attribute::Compression, "lz4")]);
        let none = Project::default();
        assert_eq!(shown(Command::GetFlags, &locked, none), 0x14u32.to_ne_bytes());
        assert_eq!(shown(Command::GetExtended, &locked, none)[..4], 0x8u32.to_ne_bytes());
        let extended = shown(Command::GetExtended, &locked, Project { id: 9, inherit: true });
        assert_eq!(extended.len(), EXTENDED);
        assert_eq!((&extended[..4], &extended[12..16]), (&0x208u32.to_ne_bytes()[..], &9u32.to_ne_bytes()[..]));
        let mut changed = locked;
        set(Command::SetFlags, &0x400u32.to_ne_bytes(), &mut changed).unwrap();
        assert_eq!(changed, attributes(&[(Attribute::Compression, "off")]));
        set(Command::SetFlags, &0x4u32.to_ne_bytes(), &mut changed).unwrap();
        assert_eq!(changed, attributes(&[(Attribute::Compression, "lz4")]));
    }

    #[test]
    fn strangers_change_nothing_and_owners_not_what_binds_root() {
        let (none, kept) = (attributes(&[]), attributes(&[(Attribute::NoDump, "on")]));
        let bound = [Attribute::Immutable, Attribute::Append].map(|attribute| attributes(&[(attribute, "on")]));
        for (uid, owner, after, allowed) in [
            (0, 7, &bound[0], true),
            (7, 7, &kept, true),
            (7, 7, &bound[0], false),
            (7, 7, &bound[1], false),
            (8, 7, &kept, false),
            (8, 7, &none, false),
        ] {
            assert_eq!(check_user(uid, owner, &none, after).is_ok(), allowed, "{uid} {owner} {after:?}");
            assert_eq!(check_user(uid, owner, after, &none).is_ok(), allowed, "{uid} {owner} {after:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut attributes = FileAttributes::default();
        let mut refused = |command, data: &[u8]| set(command, data, &mut attributes).unwrap_err();
        assert_eq!(refused(Command::SetFlags, &0x1u32.to_ne_bytes()), Errno::OPNOTSUPP);
        assert_eq!(refused(Command::SetFlags, &0x404u32.to_ne_bytes()), Errno::INVAL);
        assert_eq!(refused(Command::SetFlags, &[0; 3]), Errno::INVAL);
        assert_eq!(refused(Command::SetExtended, &[[0; 4], [1; 4]].concat()), Errno::OPNOTSUPP);
        assert_eq!(Command::of(0x5401), None);
    }
}
