//! `chattr` and `lsattr`: attributes of files as the kernel's two sets of flags, and the four requests that carry them.
//!
//! The kernel turns the system calls into these requests itself, whatever program made them. Kernels before 5.13 do not
//! check who may change what, so it is checked here. Each asks for one attribute word or sets it; those that Cenote does not have are refused, so that no
//! program is told that they act.

use dataset::fs::{Attribute, Errno, FileAttributes};
use pool::block::compression::CompressionChoice;

/// A request to read or set flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `FS_IOC_GETFLAGS`
    GetFlags,
    /// `FS_IOC_SETFLAGS`
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

/// The size of a `struct fsxattr`; its first word has the flags.
const EXTENDED: usize = 28;

const COMPRESSED: u32 = 0x4;
const NOT_COMPRESSED: u32 = 0x400;

/// The attributes that are on or off, with their flags among those of `lsattr` and in a `struct fsxattr`.
const SWITCHES: [(Attribute, u32, u32); 4] = [
    (Attribute::Immutable, 0x10, 0x8),
    (Attribute::Append, 0x20, 0x10),
    (Attribute::NoDump, 0x40, 0x80),
    (Attribute::NoAtime, 0x80, 0x40),
];

/// The answer to a request to read.
pub(crate) fn shown(command: Command, attributes: &FileAttributes) -> Vec<u8> {
    let collect = |flag: fn(&(Attribute, u32, u32)) -> u32| -> u32 {
        SWITCHES.iter().filter(|switch| attributes.has(switch.0)).map(flag).sum()
    };
    if command == Command::GetExtended {
        let mut answer = collect(|switch| switch.2).to_ne_bytes().to_vec();
        answer.resize(EXTENDED, 0);
        return answer;
    }
    let compression = match attributes.compression() {
        None => 0,
        Some(CompressionChoice::Off) => NOT_COMPRESSED,
        Some(_) => COMPRESSED,
    };
    (collect(|switch| switch.1) | compression).to_ne_bytes().to_vec()
}

/// Has attributes be what a request to set says. What it does not speak of stays.
pub(crate) fn set(command: Command, data: &[u8], attributes: &mut FileAttributes) -> Result<(), Errno> {
    let (flags, rest) = data.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
    let flags = u32::from_ne_bytes(*flags);
    let flag = |switch: &(Attribute, u32, u32)| if command == Command::SetExtended { switch.2 } else { switch.1 };
    let mut known: u32 = SWITCHES.iter().map(flag).sum();
    if command == Command::SetExtended {
        // Hints about sizes and projects.
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Errno::OPNOTSUPP);
        }
    } else {
        known |= COMPRESSED | NOT_COMPRESSED;
        set_compression(flags, attributes)?;
    }
    if flags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    SWITCHES.iter().for_each(|switch| attributes.turn(switch.0, flags & flag(switch) != 0));
    Ok(())
}

/// Whether the user `uid` may change what a file of `owner` has: the owner and root may, and only root what binds root.
pub(crate) fn check_user(uid: u32, owner: u32, before: &FileAttributes, after: &FileAttributes) -> Result<(), Errno> {
    let binds = |attribute: Attribute| before.has(attribute) != after.has(attribute);
    let is_bound = binds(Attribute::Immutable) || binds(Attribute::Append);
    if uid == 0 || uid == owner && !is_bound { Ok(()) } else { Err(Errno::PERM) }
}

/// A flag says only whether: which way a file is compressed stays if it is to be.
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
                set(put, &shown(get, &before), &mut after).unwrap();
                assert_eq!(after, before);
            }
        }
    }

    #[test]
    fn flags_are_those_of_linux() {
        let locked = attributes(&[(Attribute::Immutable, "on"), (Attribute::Compression, "lz4")]);
        assert_eq!(shown(Command::GetFlags, &locked), 0x14u32.to_ne_bytes());
        assert_eq!(shown(Command::GetExtended, &locked)[..4], 0x8u32.to_ne_bytes());
        assert_eq!(shown(Command::GetExtended, &locked).len(), EXTENDED);
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
