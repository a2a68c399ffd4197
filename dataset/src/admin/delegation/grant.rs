//! Grants, permissions, and their stored form.
//!
//! A grant is a PROPERTY row of its dataset. The row's name begins with [`PREFIX`]; names of properties
//! have no space.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{Transaction, Value, keys, kind},
    error::{Error, Result},
    property::{AccountProperty, Property},
};

/// The beginning of the names of rows with grants.
const PREFIX: &str = "allow ";

/// The longest stored list of permissions, in bytes: several times the length of all permissions.
const MAX_LIST: usize = 8 << 10;

/// The most grants on a dataset: every request of a delegated user reads all of them.
const MAX_GRANTS: usize = 1000;

/// The longest name of a set, in bytes, as in OpenZFS.
const MAX_SET: usize = 64;

/// The permission to delegate own permissions.
pub const ALLOW: &str = "allow";

/// The permissions beside properties. The last line is of OpenZFS, and without effect here.
const OPERATIONS: &[&str] = &[
    ALLOW,
    "bookmark",
    "clone",
    "create",
    "destroy",
    "diff",
    "hold",
    "mount",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "snapshot",
    "userprop", //
    "change-key",
    "load-key",
    "send:raw",
    "share",
];

/// A receiver of permissions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Grantee {
    /// A user of the machine, by uid.
    User(u32),
    /// The members of a group, by gid.
    Group(u32),
    /// All users of the machine.
    Everyone,
    /// The creator of a dataset below, for the new dataset.
    Creator,
    /// Grantees of the named set; the name begins with `@`.
    Set(String),
}

/// The range of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// The dataset of the grant.
    pub local: bool,
    /// Its snapshots, and the datasets below.
    pub descendent: bool,
}

impl Reach {
    /// The dataset itself.
    pub(in crate::admin) const LOCAL: Reach = Reach { local: true, descendent: false };
    /// Snapshots and datasets below the dataset.
    pub(in crate::admin) const DESCENDENT: Reach = Reach { local: false, descendent: true };
}

/// The permissions of a grantee on a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The receiver of the permissions.
    pub to: Grantee,
    /// Permissions and sets for the dataset itself; all of a set or of a creator.
    pub local: BTreeSet<String>,
    /// Permissions and sets for snapshots and datasets below the dataset.
    pub descendent: BTreeSet<String>,
}

/// A text without a permission of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPermission(pub String);

impl fmt::Display for BadPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid permission '{}'", self.0)
    }
}

/// The permission by name, aliases of properties resolved; or the set, if the name begins with `@`.
///
/// # Errors
/// [`BadPermission`] if no subcommand, settable property or possible set has the name.
pub fn permission(text: &str) -> std::result::Result<String, BadPermission> {
    if text.starts_with('@') {
        return set_name(text);
    }
    if OPERATIONS.contains(&text) || AccountProperty::stems().any(|stem| stem == text) {
        return Ok(text.to_owned());
    }
    match Property::of_dataset(text) {
        Ok(Property::Native(definition)) if definition.is_settable() => Ok(definition.name.to_owned()),
        _ => Err(BadPermission(text.to_owned())),
    }
}

/// The permissions beside properties, sorted.
pub fn permission_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = OPERATIONS.iter().copied().chain(AccountProperty::stems()).collect();
    names.sort_unstable();
    names
}

/// The name of a set, with its `@`.
///
/// # Errors
/// [`BadPermission`] if no set can have the name.
pub fn set_name(text: &str) -> std::result::Result<String, BadPermission> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match text.strip_prefix('@') {
        Some(name) if !name.is_empty() && name.chars().all(is_allowed) && text.len() <= MAX_SET => Ok(text.to_owned()),
        _ => Err(BadPermission(text.to_owned())),
    }
}

impl Grant {
    pub(in crate::admin) fn new(to: Grantee) -> Grant {
        Grant { to, local: BTreeSet::new(), descendent: BTreeSet::new() }
    }

    /// The permissions within `reach`.
    pub(in crate::admin) fn within(&self, reach: Reach) -> &BTreeSet<String> {
        if reach.local { &self.local } else { &self.descendent }
    }

    pub(in crate::admin) fn add(&mut self, permissions: &BTreeSet<String>, reach: Reach) {
        if reach.local || self.has_one_list() {
            self.local.extend(permissions.iter().cloned());
        }
        if reach.descendent && !self.has_one_list() {
            self.descendent.extend(permissions.iter().cloned());
        }
    }

    /// Takes permissions back. Empty `permissions` mean all.
    pub(in crate::admin) fn remove(&mut self, permissions: &BTreeSet<String>, reach: Reach) {
        let stays = |name: &String| !permissions.is_empty() && !permissions.contains(name);
        if reach.local || self.has_one_list() {
            self.local.retain(stays);
        }
        if reach.descendent {
            self.descendent.retain(stays);
        }
    }

    pub(in crate::admin) fn is_empty(&self) -> bool {
        self.local.is_empty() && self.descendent.is_empty()
    }

    /// Whether the permissions have no reach of their own.
    fn has_one_list(&self) -> bool {
        matches!(self.to, Grantee::Creator | Grantee::Set(_))
    }

    fn row(&self) -> Value {
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        Value { name: self.to.row(), value: Some(format!("{};{}", list(&self.local), list(&self.descendent))) }
    }

    /// The grant of a row; `None` for rows of properties, and for malformed rows, so a malformed row permits nothing.
    fn of_row(row: &Value) -> Option<Grant> {
        let to = Grantee::of_row(&row.name)?;
        let (local, descendent) = row.value.as_deref()?.split_once(';')?;
        let list = |text: &str| text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Grant { to, local: list(local), descendent: list(descendent) })
    }
}

impl Grantee {
    /// Fails if the grantee is a set whose name no set can have.
    pub(in crate::admin) fn check(&self) -> Result<()> {
        match self {
            Grantee::Set(name) => set_name(name).map(drop).map_err(|_| Error::BadSet),
            _ => Ok(()),
        }
    }

    /// The name of the grantee's row.
    fn row(&self) -> String {
        match self {
            Grantee::User(uid) => format!("{PREFIX}user {uid}"),
            Grantee::Group(gid) => format!("{PREFIX}group {gid}"),
            Grantee::Everyone => format!("{PREFIX}everyone"),
            Grantee::Creator => format!("{PREFIX}creator"),
            Grantee::Set(name) => format!("{PREFIX}{name}"),
        }
    }

    fn of_row(name: &str) -> Option<Grantee> {
        let key = name.strip_prefix(PREFIX)?;
        match key.split_once(' ') {
            Some(("user", uid)) => uid.parse().ok().map(Grantee::User),
            Some(("group", gid)) => gid.parse().ok().map(Grantee::Group),
            Some(_) => None,
            None if key == "everyone" => Some(Grantee::Everyone),
            None if key == "creator" => Some(Grantee::Creator),
            None => set_name(key).ok().map(Grantee::Set),
        }
    }
}

/// Whether a row of a dataset's properties is a grant, and no property.
pub(in crate::admin) fn is_grant(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The grants on a dataset, by grantee.
pub(in crate::admin) fn of(tx: &Transaction<'_>, id: u64) -> Result<Vec<Grant>> {
    let rows = tx.rows::<Value>(keys(id, kind::PROPERTY))?;
    let mut grants: Vec<Grant> = rows.iter().filter_map(|(_, row)| Grant::of_row(row)).collect();
    grants.sort_by(|a, b| a.to.cmp(&b.to));
    Ok(grants)
}

/// The grant of a grantee on a dataset, perhaps without permissions.
pub(in crate::admin) fn to(tx: &Transaction<'_>, id: u64, grantee: &Grantee) -> Result<Grant> {
    let row = tx.find_named::<Value>(id, kind::PROPERTY, &grantee.row())?;
    Ok(row.and_then(|(_, row)| Grant::of_row(&row)).unwrap_or_else(|| Grant::new(grantee.clone())))
}

/// Stores a grant in place of the grantee's earlier grant; without permissions, none is left.
pub(in crate::admin) fn put(tx: &mut Transaction<'_>, id: u64, grant: &Grant) -> Result<()> {
    if grant.is_empty() {
        return tx.delete_named::<Value>(id, kind::PROPERTY, &grant.to.row()).map(drop);
    }
    grant.to.check()?;
    let row = grant.row();
    if row.value.as_ref().map_or(0, String::len) > MAX_LIST {
        return Err(Error::TooManyPermissions { most: MAX_LIST });
    }
    let is_new = tx.find_named::<Value>(id, kind::PROPERTY, &row.name)?.is_none();
    if is_new && of(tx, id)?.len() >= MAX_GRANTS {
        return Err(Error::TooManyGrants { most: MAX_GRANTS });
    }
    tx.put_named(id, kind::PROPERTY, &row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn grants_are_read_as_written_and_nothing_else_is() {
        let both = Reach { local: true, descendent: true };
        let grantees = [Grantee::User(1000), Grantee::Group(0), Grantee::Everyone, Grantee::Creator];
        for to in grantees.into_iter().chain([Grantee::Set("@a".into())]) {
            let mut grant = Grant::new(to);
            grant.add(&names(&["create", "@b"]), both);
            grant.add(&names(&["send"]), Reach::LOCAL);
            assert_eq!(Grant::of_row(&grant.row()), Some(grant));
        }
        for (name, value) in [
            ("allow user -1", ";"),
            ("allow user", ";"),
            ("allow @", ";"),
            ("allow everyone", "create"),
            ("atime", "on;"),
        ] {
            assert_eq!(Grant::of_row(&Value { name: name.into(), value: Some(value.into()) }), None, "{name}");
        }
    }

    #[test]
    fn what_is_taken_back_keeps_the_other_reach() {
        let mut grant = Grant::new(Grantee::Everyone);
        grant.add(&names(&["create", "mount"]), Reach { local: true, descendent: true });
        grant.remove(&names(&["mount"]), Reach::LOCAL);
        assert_eq!((&grant.local, &grant.descendent), (&names(&["create"]), &names(&["create", "mount"])));
        grant.remove(&BTreeSet::new(), Reach { local: true, descendent: true });
        assert!(grant.is_empty());
    }

    #[test]
    fn permissions_are_subcommands_and_settable_properties() {
        for (text, name) in
            [("create", "create"), ("compress", "compression"), ("userquota", "userquota"), ("@s-1", "@s-1")]
        {
            assert_eq!(permission(text).as_deref(), Ok(name));
        }
        for text in ["", "@", "@a b", "@a,b", "@a;b", "used", "no", "me:x", "userquota@ann", "Create"] {
            assert_eq!(permission(text), Err(BadPermission(text.into())));
        }
    }
}
