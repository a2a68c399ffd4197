//! Names and numbers of users and groups, from this machine's `/etc/passwd` and `/etc/group`. A user or group without
//! a name appears as a number; projects have only numbers. Also decides whether the process is root.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
};

use dataset::property::OwnerKind;

/// Whether this process is root of the machine or of a container. In a user namespace created by an ordinary user,
/// uid 0 has no rights beyond the user's own, so the process is not root there: the root directory belongs to another
/// user.
pub fn is_root() -> bool {
    let map = || std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let owner = || std::fs::metadata("/").map_or(0, |root| root.uid());
    rustix::process::geteuid().is_root() && is_root_in(&map(), owner())
}

/// Whether uid 0 is root, in a namespace with this content of `/proc/self/uid_map` and this owner of the root
/// directory.
fn is_root_in(map: &str, owner: u32) -> bool {
    let numbers = |line: &str| line.split_whitespace().map_while(|number| number.parse().ok()).collect::<Vec<u64>>();
    let is_itself = |line: &str| matches!(numbers(line)[..], [0, 0, _]);
    map.is_empty() || map.lines().any(is_itself) || owner == 0
}

/// The number for a name or a decimal number. Names take precedence, because a name may consist of digits.
pub fn number(kind: OwnerKind, text: &str) -> Option<u32> {
    let named = entries(kind).into_iter().find(|(name, _)| name == text).map(|(_, number)| number);
    let is_number = || text.bytes().all(|byte| byte.is_ascii_digit());
    named.or_else(|| text.parse().ok().filter(|_| is_number()))
}

/// The names by number. If two names have the same number, the first counts.
pub fn names(kind: OwnerKind) -> BTreeMap<u32, String> {
    entries(kind).into_iter().rev().map(|(name, number)| (number, name)).collect()
}

/// The groups of a user: the group `primary`, and each group that lists the user as a member.
pub fn groups_of(user: u32, primary: u32) -> BTreeSet<u32> {
    let text = std::fs::read("/etc/group").unwrap_or_default();
    let names: Vec<String> =
        entries(OwnerKind::User).into_iter().filter(|(_, uid)| *uid == user).map(|(name, _)| name).collect();
    let text = String::from_utf8_lossy(&text);
    let listed = text.lines().filter(|line| names.iter().any(|name| is_member(line, name)));
    listed.filter_map(entry).map(|(_, gid)| gid).chain([primary]).collect()
}

/// The primary group of a user, if the user is known.
pub fn group_of(user: u32) -> Option<u32> {
    let text = std::fs::read("/etc/passwd").ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.lines().map(|line| line.split(':').skip(2).take(2).collect::<Vec<_>>());
    let own = fields.find(|fields| fields.first().and_then(|uid| uid.parse().ok()) == Some(user))?;
    own.get(1)?.parse().ok()
}

/// Whether a line `name:password:gid:member,member` of `/etc/group` lists a user.
fn is_member(line: &str, user: &str) -> bool {
    line.split(':').nth(3).is_some_and(|members| members.split(',').any(|member| member.trim() == user))
}

fn entries(kind: OwnerKind) -> Vec<(String, u32)> {
    let file = match kind {
        OwnerKind::User => "/etc/passwd",
        OwnerKind::Group => "/etc/group",
        OwnerKind::Project => return Vec::new(),
    };
    let text = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(entry).collect()
}

/// Parses a line `name:password:number:...` of either file.
fn entry(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split(':');
    let (name, number) = (fields.next()?, fields.nth(1)?);
    Some((name.to_owned(), number.parse().ok()?)).filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_0_of_a_namespace_is_root_where_it_owns_the_root() {
        let nobody = 65_534;
        assert!(is_root_in("         0          0 4294967295\n", nobody), "of the machine");
        assert!(!is_root_in("         0       1000          1\n", nobody), "of a namespace that a user has made");
        assert!(is_root_in("         0     100000      65536\n", 0), "of a container");
        assert!(is_root_in("", nobody), "where nothing tells");
    }

    #[test]
    fn members_are_listed_after_the_number() {
        assert!(is_member("staff:x:50:ann,bob", "bob") && !is_member("staff:x:50:ann,bobby", "bob"));
        assert!(!is_member("bob:x:50:", "bob") && !is_member("bob", "bob"));
    }

    #[test]
    fn lines_are_read_as_far_as_they_are_good() {
        assert_eq!(entry("ann:x:1000:100::/home/ann:/bin/sh"), Some(("ann".to_owned(), 1000)));
        assert_eq!(entry("staff:x:50:ann,bob"), Some(("staff".to_owned(), 50)));
        for bad in ["", "ann", "ann:x", "ann:x:", "ann:x:many", ":x:5"] {
            assert_eq!(entry(bad), None, "{bad}");
        }
        assert_eq!((number(OwnerKind::Project, "7"), number(OwnerKind::Project, "seven")), (Some(7), None));
        assert_eq!(number(OwnerKind::User, "root"), Some(0));
        assert_eq!((number(OwnerKind::User, "+5"), number(OwnerKind::User, "")), (None, None));
    }
}
