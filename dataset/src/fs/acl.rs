//! POSIX access control lists: what they say, their coding, and how they and a file's mode move together.
//!
//! A list is kept as the extended attribute that Linux programs read and write, [`ACCESS`] for a file's own and [`DEFAULT`]
//! for what is made in a directory, in the coding of the kernel's version 2. The kernel checks permissions by it; what is
//! done here is what the kernel leaves to a file system:
//!
//! * a list that makes no sense is refused, and one that says no more than a mode is kept as the mode alone;
//! * the mode shows the list's entries of the owner, of the others, and as the group's either the mask or the group's own;
//!   whichever of the two is set, the other follows;
//! * what is made in a directory with a default list gets its access list from it instead of from the umask.
//!
//! The first half is pure; the second puts it into the tree. Lists always stand in their item, never in a block, so that
//! changing a mode reads nothing besides. With `acltype=off` nobody sees lists and no new ones come, but those that are
//! there go on following their modes, and act again when lists do.

use pool::tree::View;
use rustix::io::Errno;

use super::{
    FileSystem, METADATA,
    change::Change,
    failure::Failure,
    inode::{FileType, Inode},
    key::Ino,
    xattr::{self, Value, Xattr},
};

/// The name of the list that says who may do what with a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of a directory's list for what is made in it.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The longest coded list, in bytes: the kernel hands out no longer ones.
pub const ACL_MAX: usize = 4096;

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id in entries that name nobody.
const NOBODY: u32 = u32::MAX;

const SGID: u16 = 0o2000;
const PERMISSIONS: u16 = 0o777;

/// Whom an entry is about, in the order in which entries stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The file's owner.
    Owner,
    /// This user.
    User(u32),
    /// The file's group.
    Group,
    /// This group.
    NamedGroup(u32),
    /// The most that entries of users and groups allow, but for the owner's.
    Mask,
    /// Everybody else.
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

/// One line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// A list that makes sense: one entry each of the owner, the group and the others, and a mask if anybody is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// A list of these entries, if it makes sense.
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

    /// The list that a program has coded; `None` if it has no entries, which means that there is to be no list.
    ///
    /// # Errors
    /// EINVAL for what is no list, EOPNOTSUPP for another version, E2BIG for one that is too long.
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

    /// As programs read it.
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

    /// Its entries, in their order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Whether it says no more than a mode can.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that a mode shows for it.
    pub fn mode(&self) -> u16 {
        let [owner, group, other] = self.shown().map(|index| u16::from(self.0[index].permissions));
        owner << 6 | group << 3 | other
    }

    /// Has it say what a mode that was set says.
    pub fn set_mode(&mut self, mode: u16) {
        for (index, shift) in self.shown().into_iter().zip([6, 3, 0]) {
            self.0[index].permissions = (mode >> shift & 7) as u8;
        }
    }

    /// What it, as a directory's default list, makes of the mode that a program asks for: the access list of what is made,
    /// whose [`Acl::mode`] is the mode.
    pub fn inherited(&self, asked: u16) -> Acl {
        let mut acl = self.clone();
        acl.set_mode(self.mode() & asked);
        acl
    }

    /// The entries that a mode shows: of the owner, of the group or the mask, and of the others.
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

/// The list that stands in an item. One that makes no sense, which no version of this program has stored, counts as none.
fn load(view: &View<'_>, ino: Ino, name: &[u8]) -> Result<Option<Acl>, Failure> {
    match xattr::find(view, ino, name)? {
        Ok(entry) => Ok(match xattr::decode(&entry)?.value {
            Value::Inline(value) => Acl::decode(value).ok().flatten(),
            Value::Block(_) => None,
        }),
        Err(_) => Ok(None),
    }
}

fn store(change: &mut Change<'_>, ino: Ino, name: &[u8], acl: &Acl) -> Result<(), Failure> {
    let place = xattr::replace(change, ino, name)?;
    change.put(place, Xattr { name, value: Value::Inline(&acl.encode()) }.encode(), None);
    Ok(())
}

/// Has a file's access list follow a mode that is being set.
pub(super) fn follow_mode(change: &mut Change<'_>, ino: Ino, mode: u16) -> Result<(), Failure> {
    if let Some(mut acl) = load(&change.view, ino, ACCESS)? {
        acl.set_mode(mode);
        store(change, ino, ACCESS, &acl)?;
    }
    Ok(())
}

/// What something new gets from its directory.
#[derive(Default)]
pub(super) struct Inheritance(Option<Acl>);

impl Inheritance {
    /// Of something of this type in `dir`.
    pub(super) fn of(view: &View<'_>, dir: Ino, file_type: FileType) -> Result<Inheritance, Failure> {
        match file_type {
            FileType::Symlink => Ok(Inheritance::default()),
            _ => load(view, dir, DEFAULT).map(Inheritance),
        }
    }

    /// The mode: what was asked for, restricted by the directory's list or, without one, by the umask.
    pub(super) fn mode(&self, asked: u16, umask: u32) -> u16 {
        match &self.0 {
            Some(default) => asked & !PERMISSIONS | default.inherited(asked).mode(),
            None => asked & !(umask as u16 & PERMISSIONS),
        }
    }

    /// Gives the new inode its lists.
    pub(super) fn bequeath(&self, change: &mut Change<'_>, ino: Ino, inode: &Inode) -> Result<(), Failure> {
        let Some(default) = &self.0 else { return Ok(()) };
        let own = default.inherited(inode.mode);
        if !own.is_minimal() {
            store(change, ino, ACCESS, &own)?;
        }
        if inode.is_dir() { store(change, ino, DEFAULT, default) } else { Ok(()) }
    }
}

impl FileSystem {
    /// Sets or, with an empty one, removes a list: `name` is [`ACCESS`] or [`DEFAULT`]. The access list changes the mode;
    /// `kills_sgid` says that the set-group bit goes, as it does when somebody changes it who is not in the file's group.
    ///
    /// # Errors
    /// EOPNOTSUPP where there are no lists, EACCES for a default list of what is no directory, and as [`Acl::decode`].
    pub fn set_acl(&self, ino: Ino, name: &[u8], value: &[u8], kills_sgid: bool) -> Result<(), Errno> {
        assert!(is_acl(name), "only lists are set as such");
        self.writable()?;
        self.check_acl_name(name)?;
        let acl = Acl::decode(value)?;
        self.admit(METADATA + value.len() as u64)?;
        self.update_tree(|change| {
            let inode = change.inode(ino)?;
            inode.check_free()?;
            match inode.file_type {
                FileType::Symlink => return Err(Errno::OPNOTSUPP.into()),
                FileType::Directory => {}
                _ if name == DEFAULT && acl.is_some() => return Err(Errno::ACCESS.into()),
                _ => {}
            }
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.ctime = now;
            if let Some(acl) = acl.as_ref().filter(|_| name == ACCESS) {
                inode.mode = inode.mode & !PERMISSIONS | acl.mode();
                if kills_sgid {
                    inode.mode &= !SGID;
                }
            }
            match &acl {
                Some(acl) if name == DEFAULT || !acl.is_minimal() => store(change, ino, name, acl),
                _ => xattr::delete_named(change, ino, name).map(drop),
            }
        })
    }

    /// Fails for a list's name if there are no lists.
    pub(super) fn check_acl_name(&self, name: &[u8]) -> Result<(), Errno> {
        if is_acl(name) && !self.options().acl { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    /// What something new of this type in `dir` gets from it.
    pub(super) fn inheritance(&self, view: &View<'_>, dir: Ino, file_type: FileType) -> Result<Inheritance, Failure> {
        if self.options().acl { Inheritance::of(view, dir, file_type) } else { Ok(Inheritance::default()) }
    }
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
        fn what_is_accepted_is_what_was_meant(mut bytes in prop::collection::vec(0u8..=8, 0..64), headed: bool) {
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
        fn what_is_inherited_allows_no_more_than_either(acl in any_acl(), asked in 0u16..0o1000) {
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
    fn other_codings_are_told_apart() {
        let good = list(&[(Who::Owner, 6), (Who::Group, 4), (Who::Other, 0)]).unwrap().encode();
        assert_eq!(Acl::decode(b""), Ok(None));
        assert_eq!(Acl::decode(&good[..HEAD]), Ok(None));
        assert_eq!(Acl::decode(&good[..2]), Err(Errno::INVAL));
        assert_eq!(Acl::decode(&good[..good.len() - 1]), Err(Errno::INVAL));
        assert_eq!(Acl::decode(&[[1, 0, 0, 0].as_slice(), &good[HEAD..]].concat()), Err(Errno::OPNOTSUPP));
        assert_eq!(Acl::decode(&[VERSION.to_le_bytes().as_slice(), &[1; ACL_MAX]].concat()), Err(Errno::TOOBIG));
    }

    #[test]
    fn the_mask_is_what_a_mode_shows_for_the_group() {
        let mut acl =
            list(&[(Who::Owner, 7), (Who::User(5), 7), (Who::Group, 5), (Who::Mask, 6), (Who::Other, 1)]).unwrap();
        assert_eq!(acl.mode(), 0o761);
        acl.set_mode(0o640);
        assert_eq!(acl.entries()[2], entry(Who::Group, 5));
        assert_eq!(acl.entries()[3], entry(Who::Mask, 4));
    }
}
