//! The properties of a user, a group or a project: `userused@ann`, `groupobjquota@100`.
//!
//! The values are in the dataset's tree, not in the catalogue: see [`crate::fs::account`]. This module defines their
//! names and syntax. The machine with the files maps names to ids.

use super::{error::PropertyError, owner::OwnerKind, syntax::Syntax};

/// The prefixes of the names, with their meaning.
const STEMS: [(&str, OwnerKind, bool, bool); 12] = [
    ("userused@", OwnerKind::User, false, false),
    ("userquota@", OwnerKind::User, true, false),
    ("userobjused@", OwnerKind::User, false, true),
    ("userobjquota@", OwnerKind::User, true, true),
    ("groupused@", OwnerKind::Group, false, false),
    ("groupquota@", OwnerKind::Group, true, false),
    ("groupobjused@", OwnerKind::Group, false, true),
    ("groupobjquota@", OwnerKind::Group, true, true),
    ("projectused@", OwnerKind::Project, false, false),
    ("projectquota@", OwnerKind::Project, true, false),
    ("projectobjused@", OwnerKind::Project, false, true),
    ("projectobjquota@", OwnerKind::Project, true, true),
];

/// A property of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountProperty {
    name: String,
    stem: &'static str,
    kind: OwnerKind,
    is_quota: bool,
    counts_objects: bool,
}

impl AccountProperty {
    /// The property with the given name, if an account's.
    pub(super) fn named(name: &str) -> Option<AccountProperty> {
        let (stem, kind, is_quota, counts_objects) =
            STEMS.into_iter().find(|(stem, ..)| name.len() > stem.len() && name.starts_with(stem))?;
        Some(AccountProperty { name: name.to_owned(), stem, kind, is_quota, counts_objects })
    }

    /// The full name, owner included: `userquota@alice`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The permission to read or set the property of another account: the name without the owner.
    pub(crate) fn permission(&self) -> &str {
        self.stem.trim_end_matches('@')
    }

    /// The names of all account properties without owners.
    pub(crate) fn stems() -> impl Iterator<Item = &'static str> {
        STEMS.into_iter().map(|(stem, ..)| stem.trim_end_matches('@'))
    }

    /// Users, groups or projects.
    pub fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// The owner, by name or id.
    pub fn owner(&self) -> &str {
        &self.name[self.stem.len()..]
    }

    /// Whether a quota; otherwise usage.
    pub fn is_quota(&self) -> bool {
        self.is_quota
    }

    /// Whether a number of objects; otherwise bytes.
    pub fn counts_objects(&self) -> bool {
        self.counts_objects
    }

    /// The syntax of the values.
    pub(super) fn syntax(&self) -> Syntax {
        match (self.is_quota, self.counts_objects) {
            (true, false) => Syntax::Limit,
            (true, true) => Syntax::CountLimit,
            (false, false) => Syntax::Bytes,
            (false, true) => Syntax::Count,
        }
    }

    /// The canonical text of a value.
    pub(super) fn parse_value(&self, text: &str, creating: bool) -> Result<String, PropertyError> {
        if !self.is_quota {
            return Err(PropertyError::ReadOnly { name: self.name.clone() });
        }
        if creating {
            let reason = "it can only be set on existing file systems: fs set";
            return Err(PropertyError::Absent { name: self.name.clone(), reason });
        }
        self.syntax().parse(text).map_err(|problem| PropertyError::Value {
            name: self.stem,
            value: text.to_owned(),
            problem,
            expected: self.syntax().to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_number_it_is() {
        let read =
            |name: &str| AccountProperty::named(name).map(|it| (it.kind(), it.owner().to_owned(), it.is_quota()));
        assert_eq!(read("userquota@ann"), Some((OwnerKind::User, "ann".into(), true)));
        assert_eq!(read("groupobjused@100"), Some((OwnerKind::Group, "100".into(), false)));
        assert_eq!(read("projectquota@7"), Some((OwnerKind::Project, "7".into(), true)));
        assert_eq!((read("userquota@"), read("userquota"), read("used@a")), (None, None, None));
        let parse = |name: &str, text: &str| AccountProperty::named(name).unwrap().parse_value(text, false);
        assert_eq!(parse("userquota@ann", "10M").as_deref(), Ok("10485760"));
        assert_eq!(parse("userobjquota@ann", "none").as_deref(), Ok("0"));
        assert_eq!(parse("userobjquota@ann", "1000").as_deref(), Ok("1000"));
        assert!(matches!(parse("userquota@ann", "much"), Err(PropertyError::Value { .. })));
        assert!(matches!(parse("userused@ann", "1"), Err(PropertyError::ReadOnly { .. })));
    }
}
