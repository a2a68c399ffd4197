//! The properties of datasets and pools: all parts of the program use the same tables.
//!
//! A [`Definition`] gives a property's name, kinds of objects, access, syntax and meaning. Parsing, printing, the
//! columns of `list`, the order of `get all` and the reference documentation all use the two tables [`DATASET`] and
//! [`POOL`]. A third table (`openzfs`) has properties of OpenZFS alone, each with a single value here. The features of
//! a pool, `feature@name`, are the features known to this program.
//!
//! Values are stored, compared and sent as *canonical text*: sizes as exact bytes, dates as seconds, ratios as `1.50`.
//! [`parse_value`] converts a user's text, and [`Syntax::print`] prints for users. Code reads types: each row is a
//! constant ([`Typed`]), and `effective.get(&RECORDSIZE)` is the record size. Names are looked up only if they come
//! from outside: arguments, the catalogue, streams.
//!
//! The module does no I/O, and leaves the storage and precedence of values to the catalogue.

mod account;
pub mod dataset;
mod decimal;
mod definition;
mod effective;
mod error;
mod figure;
mod hint;
mod openzfs;
mod owner;
pub mod pool;
mod setting;
mod source;
mod syntax;
mod typed;
mod words;

use std::fmt;

use ::pool::format::label::KNOWN_FEATURES;
pub use ::pool::size;

pub use self::account::AccountProperty;
pub use self::dataset::DATASET;
pub use self::definition::{Backing, Definition, Effect, Kinds, Nature};
pub use self::effective::{Effective, Valued};
pub use self::error::PropertyError;
pub(crate) use self::error::on_one_line;
pub use self::figure::{Figure, Limit, PoolFigure};
pub use self::openzfs::{DATASET_CONSTANTS, POOL_CONSTANTS, reason_for_absence, without_effect};
pub use self::owner::OwnerKind;
pub use self::pool::POOL;
pub(crate) use self::setting::SPECIAL;
pub use self::setting::{AclType, CanMount, DirectIo, Durability, FailMode, Setting, SnapDir, Spread};
pub use self::source::Source;
pub use self::syntax::{Align, Precision, Syntax};
pub use self::typed::Typed;
pub use self::words::{DISABLED, ENABLED, EXTENSIBLE_DATASET, FEATURE, MAX_USER_NAME, MAX_USER_VALUE};

/// The prefix of properties with the space written since a snapshot.
const WRITTEN_SINCE: &str = "written@";

/// OpenZFS's prefix of properties with the space written since a bookmark.
const WRITTEN_SINCE_BOOKMARK: &str = "written#";

/// The permission to set user properties.
const USERPROP: &str = "userprop";

/// A property found by name: in a table, or a user property.
#[derive(Clone, Debug, PartialEq)]
pub enum Property {
    /// A property that a table has a row for.
    Native(&'static Definition),
    /// A user property, `module:name`: any text, inherited.
    User(String),
    /// A pool's feature, `feature@name`, which can be enabled.
    Feature(String),
    /// The space written since a snapshot, `written@snapshot`: computed.
    Written(String),
    /// The usage or quota of a user, a group or a project, `userquota@name`.
    Account(AccountProperty),
}

impl Property {
    /// Finds a property of datasets, snapshots and bookmarks by name or alias.
    pub fn of_dataset(name: &str) -> Result<Property, PropertyError> {
        if name.strip_prefix(WRITTEN_SINCE).is_some_and(|snapshot| !snapshot.is_empty()) {
            return Ok(Property::Written(name.to_owned()));
        }
        if name.starts_with(WRITTEN_SINCE_BOOKMARK) {
            return Err(PropertyError::Absent { name: name.to_owned(), reason: openzfs::WRITTEN_SINCE_BOOKMARK });
        }
        if let Some(account) = AccountProperty::named(name) {
            return Ok(Property::Account(account));
        }
        if name.contains(':') {
            return check_user_name(name).map(|()| Property::User(name.to_owned()));
        }
        find(DATASET, DATASET_CONSTANTS, name).ok_or_else(|| unknown(name, false))
    }

    /// Finds a property of pools by name or alias.
    pub fn of_pool(name: &str) -> Result<Property, PropertyError> {
        match name.strip_prefix(FEATURE) {
            Some(feature) if feature == EXTENSIBLE_DATASET || KNOWN_FEATURES.contains(&feature) => {
                Ok(Property::Feature(name.to_owned()))
            }
            None if name.contains(':') => check_user_name(name).map(|()| Property::User(name.to_owned())),
            _ => find(POOL, POOL_CONSTANTS, name).ok_or_else(|| unknown(name, true)),
        }
    }

    /// The name, never an alias.
    pub fn name(&self) -> &str {
        match self {
            Property::Native(definition) => definition.name,
            Property::User(name) | Property::Feature(name) | Property::Written(name) => name,
            Property::Account(account) => account.name(),
        }
    }

    /// The row of the table, if any.
    pub fn definition(&self) -> Option<&'static Definition> {
        match self {
            Property::Native(definition) => Some(definition),
            _ => None,
        }
    }

    /// Whether the property has a single value, which is not stored.
    pub fn is_constant(&self) -> bool {
        self.definition().is_some_and(|definition| definition.backing == Backing::Constant)
    }

    /// The snapshot of `written@snapshot`: a short or a full name.
    pub fn written_since(&self) -> Option<&str> {
        match self {
            Property::Written(name) => name.strip_prefix(WRITTEN_SINCE),
            _ => None,
        }
    }

    /// The head of the column.
    pub fn column(&self) -> String {
        match self {
            Property::Native(definition) => definition.column.to_owned(),
            Property::User(_) | Property::Feature(_) | Property::Written(_) | Property::Account(_) => {
                self.name().to_ascii_uppercase()
            }
        }
    }

    /// The alignment of the column.
    pub fn align(&self) -> Align {
        match self {
            Property::Native(definition) => definition.align(),
            Property::User(_) | Property::Feature(_) => Align::Left,
            Property::Written(_) | Property::Account(_) => Align::Right,
        }
    }

    /// The syntax of the values.
    pub fn syntax(&self) -> Syntax {
        match self {
            Property::Native(definition) => definition.syntax,
            Property::User(_) | Property::Feature(_) => Syntax::Text { longest: MAX_USER_VALUE },
            Property::Written(_) => Syntax::Bytes,
            Property::Account(account) => account.syntax(),
        }
    }

    /// The permission that a user other than the pool's owner needs to set the property, or to read the property of
    /// another account.
    pub fn permission(&self) -> &str {
        match self {
            Property::User(_) => USERPROP,
            Property::Account(account) => account.permission(),
            _ => self.name(),
        }
    }

    /// Whether descendants inherit the property.
    pub fn is_inheritable(&self) -> bool {
        match self {
            Property::Native(definition) => definition.nature == Nature::Inheritable,
            Property::User(_) => true,
            Property::Feature(_) | Property::Written(_) | Property::Account(_) => false,
        }
    }

    /// Whether one of the kinds can have the property.
    pub fn applies_to(&self, kinds: Kinds) -> bool {
        match self {
            Property::Native(definition) => definition.kinds.intersects(kinds),
            Property::User(_) | Property::Written(_) | Property::Account(_) => {
                kinds.intersects(Kinds::FILESYSTEM.with(Kinds::SNAPSHOT))
            }
            Property::Feature(_) => kinds.intersects(Kinds::POOL),
        }
    }

    /// Checks a value to be set and returns the canonical text. `creating` is true while the object is created: only
    /// then a [`Nature::SetOnce`] property can be set.
    pub fn parse_value(&self, text: &str, creating: bool) -> Result<String, PropertyError> {
        match self {
            Property::Native(definition) if definition.backing == Backing::Constant && definition.is_settable() => {
                let absent = || PropertyError::Absent { name: definition.name.to_owned(), reason: definition.help };
                match (without_effect(definition.name, text), definition.default) {
                    (Some(_), Some(value)) => Ok(value.to_owned()),
                    _ => definition.syntax.parse(text).map_err(|_| absent()),
                }
            }
            Property::Native(definition) => {
                check_may_set(definition, creating)?;
                parse_value(definition, text)
            }
            Property::User(name) if text.len() > MAX_USER_VALUE => {
                Err(PropertyError::TooLong { name: name.clone(), length: text.len() })
            }
            Property::User(name) => match text.chars().find(|c| c.is_control()) {
                Some(character) => Err(PropertyError::Control { name: name.clone(), character }),
                None => Ok(text.to_owned()),
            },
            Property::Feature(_) if text == ENABLED || creating && text == DISABLED => Ok(text.to_owned()),
            Property::Feature(name) => Err(PropertyError::Feature { name: name.clone(), value: text.to_owned() }),
            Property::Written(name) => Err(PropertyError::ReadOnly { name: name.clone() }),
            Property::Account(account) => account.parse_value(text, creating),
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Checks the text of a value and returns the canonical form.
pub fn parse_value(definition: &Definition, text: &str) -> Result<String, PropertyError> {
    definition.syntax.parse(text).map_err(|problem| PropertyError::Value {
        name: definition.name,
        value: text.to_owned(),
        problem,
        expected: definition.syntax.to_string(),
    })
}

/// The definition with the exact name in a table; for code that names a property itself.
pub fn definition(table: &'static [Definition], name: &str) -> Option<&'static Definition> {
    table.iter().find(|definition| definition.name == name)
}

fn find(table: &'static [Definition], constants: &'static [Definition], name: &str) -> Option<Property> {
    table.iter().chain(constants).find(|definition| definition.answers_to(name)).map(Property::Native)
}

fn unknown(name: &str, of_pool: bool) -> PropertyError {
    PropertyError::Unknown { name: name.to_owned(), of_pool }
}

fn check_may_set(definition: &Definition, creating: bool) -> Result<(), PropertyError> {
    let name = || definition.name.to_owned();
    match definition.nature {
        Nature::ReadOnly => Err(PropertyError::ReadOnly { name: name() }),
        Nature::SetOnce if !creating => Err(PropertyError::SetOnce { name: name() }),
        _ => Ok(()),
    }
}

fn check_user_name(name: &str) -> Result<(), PropertyError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, ':' | '+' | '.' | '_' | '-');
    let bad = name.chars().find(|c| !is_allowed(*c));
    if let Some(character) = bad {
        return Err(PropertyError::UserCharacter { name: name.to_owned(), character });
    }
    if name.len() > MAX_USER_NAME || name.starts_with('-') {
        return Err(PropertyError::UserName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(name: &str, text: &str) -> Result<String, PropertyError> {
        Property::of_dataset(name).and_then(|property| property.parse_value(text, true))
    }

    #[test]
    fn the_tables_are_consistent() {
        for (table, constants) in [(DATASET, DATASET_CONSTANTS), (POOL, POOL_CONSTANTS)] {
            for (index, definition) in table.iter().chain(constants).enumerate() {
                let others = table.iter().chain(constants).skip(index + 1);
                let clashes = others.filter(|o| o.answers_to(definition.name) || definition.answers_to(o.name)).count();
                assert_eq!(clashes, 0, "{} has two meanings", definition.name);
                let is_constant = definition.backing == Backing::Constant;
                assert_eq!(definition.help.ends_with('.'), !is_constant, "{}", definition.name);
                if let Some(default) = definition.default {
                    let parsed = parse_value(definition, default);
                    assert_eq!(parsed.as_deref(), Ok(default), "the default of {} is canonical", definition.name);
                }
            }
        }
    }

    #[test]
    fn names_and_their_aliases_are_found() {
        let aliases = [
            ("avail", "available"),
            ("refer", "referenced"),
            ("compress", "compression"),
            ("ratio", "compressratio"),
            ("lused", "logicalused"),
            ("lrefer", "logicalreferenced"),
            ("rdonly", "readonly"),
            ("recsize", "recordsize"),
            ("refreserv", "refreservation"),
            ("reserv", "reservation"),
        ];
        for (alias, name) in aliases {
            assert_eq!(Property::of_dataset(alias).unwrap().name(), name);
        }
        for (alias, name) in [("alloc", "allocated"), ("cap", "capacity"), ("frag", "fragmentation")] {
            assert_eq!(Property::of_pool(alias).unwrap().name(), name);
        }
        assert!(matches!(Property::of_dataset("written@a:b"), Ok(Property::Written(_))));
        assert_eq!(Property::of_dataset("written@tank@a").unwrap().written_since(), Some("tank@a"));
        assert!(matches!(Property::of_dataset("me:backup"), Ok(Property::User(_))));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let error = canonical("encryption", "on").unwrap_err();
        assert!(matches!(error, PropertyError::Absent { .. }), "{error}");
        assert!(matches!(canonical("nosuch", "on"), Err(PropertyError::Unknown { .. })));
        assert!(matches!(canonical("Me:x", "on"), Err(PropertyError::UserCharacter { character: 'M', .. })));
        assert!(matches!(canonical("used", "1"), Err(PropertyError::ReadOnly { .. })));
        assert!(matches!(canonical("written@a", "1"), Err(PropertyError::ReadOnly { .. })));
        assert!(matches!(canonical("written@", "1"), Err(PropertyError::Unknown { .. })));
        for feature in ["feature@", "feature@none"] {
            assert!(matches!(Property::of_pool(feature), Err(PropertyError::Unknown { .. })), "{feature}");
        }
        let pool = Property::of_pool("ashift").unwrap();
        assert_eq!(pool.parse_value("12", true).unwrap(), "12");
        assert!(matches!(pool.parse_value("12", false), Err(PropertyError::SetOnce { .. })));
    }

    #[test]
    fn values_become_canonical() {
        let cases = [
            ("compression", "zstd-3", "zstd-3"),
            ("recordsize", "1M", "1048576"),
            ("quota", "10G", "10737418240"),
            ("quota", "none", "0"),
            ("xattr", "sa", "on"),
            ("xattr", "off", "off"),
            ("acltype", "noacl", "off"),
            ("acltype", "posixacl", "posix"),
            ("mountpoint", "/srv/data/", "/srv/data"),
            ("mountpoint", "none", "none"),
            ("copies", "2", "2"),
            ("special_small_blocks", "32K", "32768"),
            ("special_small_blocks", "0", "0"),
            ("alloc", "roundrobin", "roundrobin"),
            ("vdevs", "mirror-0,special", "mirror-0,special"),
            ("me:note", "anything at all", "anything at all"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(canonical(name, text).as_deref(), Ok(expected), "{name}={text}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
        for (name, text) in [
            ("compression", "zstd-20"),
            ("compression", "lzjb"),
            ("checksum", "md5"),
            ("recordsize", "100K"),
            ("recordsize", "32M"),
            ("quota", "-1"),
            ("quota", "ten"),
            ("mountpoint", "relative/path"),
            ("mountpoint", "/a/../b"),
            ("copies", "4"),
            ("special_small_blocks", "256"),
            ("special_small_blocks", "100K"),
            ("special_small_blocks", "none"),
            ("vdevs", ""),
            ("vdevs", "mirror-0,,special"),
            ("readonly", "yes"),
            ("xattr", "dir"),
            ("acltype", "nfsv4"),
            ("canmount", ""),
        ] {
            let error = canonical(name, text).unwrap_err();
            let said = error.to_string();
            assert!(error.hint().is_some() || said.contains("must be"), "{name}={text}: {said}");
        }
        let long = "x".repeat(MAX_USER_VALUE + 1);
        assert!(matches!(canonical("me:note", &long), Err(PropertyError::TooLong { .. })));
    }
}
