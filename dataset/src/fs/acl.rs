//! POSIX access control lists: their meaning, their coding, and how a list and a file's mode follow each other.
//!
//! A list is stored as the extended attribute that Linux programs read and write, in the coding of the kernel's version
//! 2: [`ACCESS`] is the list of a file, and [`DEFAULT`] is a directory's list for new files. The kernel checks
//! permissions. This module does what the kernel leaves to a file system:
//!
//! * An inconsistent list is refused, and a list that a mode can express is stored as the mode alone.
//! * The mode shows the entries of the owner, of all others, and as the group's the mask or else the group's own entry.
//!   Setting the mode changes the list, and setting the list changes the mode.
//! * A new file in a directory with a default list gets its access list from the default list; the umask is ignored.
//!
//! This module is pure; `access` works on the tree. A list is always in its item, never in a block, so
//! changing a mode reads no block. With `acltype=off` lists are hidden and no new list is made. Existing lists still
//! follow their modes, and apply again when `acltype` is switched on.

use rustix::io::Errno;

/// The name of a file's list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of a directory's list for new files.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The longest coded list, in bytes: the kernel returns no longer list.
pub const ACL_MAX: usize = 4096;

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id in entries without a user or group.
const NOBODY: u32 = u32::MAX;

/// The subject of an entry, in the order of entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The owner of the file.
    Owner,
    /// The user with this id.
    User(u32),
    /// The group of the file.
    Group,
    /// The group with this id.
    NamedGroup(u32),
    /// The upper bound of all entries but the owner's and `Other`.
    Mask,
    /// All users without an entry.
    Other,
}

impl Who {
    const fn code(self) -> u16 {
        match self {
            Who::Owner => 0x01,
            Who::User(_) => 0x02,
            Who::Group => 0x04,
            Who::NamedGroup(_) => 0x08,
            Who::Mask => 0x10,
            Who::Other => 0x20,
        }
    }

    fn id(self) -> u32 {
        match self {
            Who::User(id) | Who::NamedGroup(id) => id,
            Who::Owner | Who::Group | Who::Mask | Who::Other => NOBODY,
        }
    }

    fn decode(code: u16, id: u32) -> Option<Who> {
        Some(match code {
            0x01 => Who::Owner,
            0x02 if id != NOBODY => Who::User(id),
            0x04 => Who::Group,
            0x08 if id != NOBODY => Who::NamedGroup(id),
            0x10 => Who::Mask,
            0x20 => Who::Other,
            _ => return None,
        })
    }

    fn may_repeat(self) -> bool {
        matches!(self, Who::User(_) | Who::NamedGroup(_))
    }
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The user or group concerned.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// A valid list: one entry each for the owner, the group and all others, and a mask if a user or group is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// A list of the given entries; `None` if the list would be invalid.
    pub fn new(entries: Vec<AclEntry>) -> Option<Acl> {
        let ordered = entries.windows(2).all(|pair| {
            let (one, two) = (pair[0].who.code(), pair[1].who.code());
            one < two || (one == two && pair[0].who.may_repeat())
        });
        let has = |who: Who| entries.iter().any(|entry| entry.who == who);
        let named = entries.iter().any(|entry| entry.who.may_repeat());
        let complete = has(Who::Owner) && has(Who::Group) && has(Who::Other) && (has(Who::Mask) || !named);
        let sane =
            entries.iter().all(|entry| entry.permissions <= 7 && (!entry.who.may_repeat() || entry.who.id() != NOBODY));
        (ordered && complete && sane).then_some(Acl(entries))
    }

    /// Decodes a program's list; `None` if the list has no entries, and is therefore to be removed.
    ///
    /// # Errors
    /// EINVAL for malformed bytes, EOPNOTSUPP for another version, E2BIG for more than [`ACL_MAX`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Option<Acl>, Errno> {
        let Some((version, entries)) = bytes.split_first_chunk::<HEAD>() else {
            return if bytes.is_empty() { Ok(None) } else { Err(Errno::INVAL) };
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        if bytes.len() > ACL_MAX {
            return Err(Errno::TOOBIG);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(Errno::INVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(decode_entry).collect::<Option<Vec<_>>>();
        entries.and_then(Acl::new).map(Some).ok_or(Errno::INVAL)
    }

    /// The coding that Linux programs read.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.0.len() * ENTRY);
        out.extend(VERSION.to_le_bytes());
        for AclEntry { who, permissions } in &self.0 {
            out.extend(who.code().to_le_bytes());
            out.extend(u16::from(*permissions).to_le_bytes());
            out.extend(who.id().to_le_bytes());
        }
        out
    }

    /// The entries, sorted by subject.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Whether a mode can express the whole list.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits of the mode: nine bits.
    pub fn mode(&self) -> u16 {
        let [owner, group, other] = self.shown().map(|index| u16::from(self.0[index].permissions));
        owner << 6 | group << 3 | other
    }

    /// Changes the entries that the mode shows to the given mode.
    pub fn set_mode(&mut self, mode: u16) {
        for (index, shift) in self.shown().into_iter().zip([6, 3, 0]) {
            self.0[index].permissions = (mode >> shift & 7) as u8;
        }
    }

    /// The access list of a new file in a directory with this default list; `asked` is the mode that the program asked
    /// for, and [`Acl::mode`] of the result is the file's mode.
    pub fn inherited(&self, asked: u16) -> Acl {
        let mut acl = self.clone();
        acl.set_mode(self.mode() & asked);
        acl
    }

    /// The indices of the entries that a mode shows: the owner's, the group's or the mask, and all others'.
    fn shown(&self) -> [usize; 3] {
        let find = |who: Who| self.0.iter().position(|entry| entry.who == who);
        let group = find(Who::Mask).or_else(|| find(Who::Group));
        [find(Who::Owner), group, find(Who::Other)].map(|found| found.expect("a list is complete"))
    }
}

fn decode_entry(bytes: &[u8; ENTRY]) -> Option<AclEntry> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let who = Who::decode(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
    let permissions = u16::from_le_bytes([p0, p1]);
    (permissions <= 7).then_some(AclEntry { who, permissions: permissions as u8 })
}

/// Whether an extended attribute is a list.
pub(super) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(who: Who, permissions: u8) -> AclEntry {
        AclEntry { who, permissions }
    }

    fn list(entries: &[(Who, u8)]) -> Option<Acl> {
        Acl::new(entries.iter().map(|(who, permissions)| entry(*who, *permissions)).collect())
    }

    fn any_acl() -> impl Strategy<Value = Acl> {
        let named = || prop::collection::vec((0..NOBODY, 0u8..8), 0..6);
        (any::<[u8; 4]>(), named(), named(), any::<bool>()).prop_map(|(permissions, users, groups, masked)| {
            let [owner, group, mask, other] = permissions.map(|bits| bits & 7);
            let masked = masked || !users.is_empty() || !groups.is_empty();
            let users = users.into_iter().map(|(id, bits)| entry(Who::User(id), bits));
            let groups = groups.into_iter().map(|(id, bits)| entry(Who::NamedGroup(id), bits));
            let mut entries = vec![entry(Who::Owner, owner)];
            entries.extend(users);
            entries.push(entry(Who::Group, group));
            entries.extend(groups);
            entries.extend(masked.then_some(entry(Who::Mask, mask)));
            entries.push(entry(Who::Other, other));
            Acl::new(entries).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_list_round_trips(acl in any_acl()) {
            prop_assert_eq!(Acl::decode(&acl.encode()), Ok(Some(acl)));
        }

        #[test]
        fn an_accepted_list_round_trips(mut bytes in prop::collection::vec(0u8..=8, 0..64), headed: bool) {
            if headed {
                bytes.splice(0..0, VERSION.to_le_bytes());
            }
            if let Ok(Some(acl)) = Acl::decode(&bytes) {
                prop_assert_eq!(Acl::decode(&acl.encode()), Ok(Some(acl)));
            }
        }

        #[test]
        fn a_mode_that_is_set_is_shown(mut acl in any_acl(), mode in 0u16..0o1000) {
            acl.set_mode(mode);
            prop_assert_eq!(acl.mode(), mode);
        }

        #[test]
        fn an_inherited_list_allows_no_more_than_mode_or_default(acl in any_acl(), asked in 0u16..0o1000) {
            let made = acl.inherited(asked);
            prop_assert_eq!(made.mode(), acl.mode() & asked);
            prop_assert!(Acl::new(made.0).is_some());
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let (owner, group, other, mask) = ((Who::Owner, 6), (Who::Group, 4), (Who::Other, 4), (Who::Mask, 4));
        assert!(list(&[owner, group, other]).unwrap().is_minimal());
        assert!(list(&[owner, (Who::User(1), 7), (Who::User(1), 7), group, mask, other]).is_some());
        for wrong in [
            &[owner, group][..],
            &[owner, other, group],
            &[owner, owner, group, other],
            &[owner, (Who::User(1), 7), group, other],
            &[owner, group, (Who::User(1), 7), mask, other],
            &[owner, (Who::User(NOBODY), 7), group, mask, other],
            &[(Who::Owner, 8), group, other],
            &[],
        ] {
            assert_eq!(list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn other_codings_are_refused() {
        let good = list(&[(Who::Owner, 6), (Who::Group, 4), (Who::Other, 0)]).unwrap().encode();
        assert_eq!(Acl::decode(b""), Ok(None));
        assert_eq!(Acl::decode(&good[..HEAD]), Ok(None));
        assert_eq!(Acl::decode(&good[..2]), Err(Errno::INVAL));
        assert_eq!(Acl::decode(&good[..good.len() - 1]), Err(Errno::INVAL));
        assert_eq!(Acl::decode(&[[1, 0, 0, 0].as_slice(), &good[HEAD..]].concat()), Err(Errno::OPNOTSUPP));
        assert_eq!(Acl::decode(&[VERSION.to_le_bytes().as_slice(), &[1; ACL_MAX]].concat()), Err(Errno::TOOBIG));
    }

    #[test]
    fn a_mode_shows_the_mask_as_the_groups_bits() {
        let mut acl =
            list(&[(Who::Owner, 7), (Who::User(5), 7), (Who::Group, 5), (Who::Mask, 6), (Who::Other, 1)]).unwrap();
        assert_eq!(acl.mode(), 0o761);
        acl.set_mode(0o640);
        assert_eq!(acl.entries()[2], entry(Who::Group, 5));
        assert_eq!(acl.entries()[3], entry(Who::Mask, 4));
    }
}
