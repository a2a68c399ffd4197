//! One line of the tables of properties: what it applies to, who may change it, how its values are written.

use serde::{Deserialize, Serialize};

use super::Syntax;

/// What a property can belong to; a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(u8);

impl Kinds {
    /// Nothing.
    pub const NONE: Kinds = Kinds(0);
    /// File systems.
    pub const FILESYSTEM: Kinds = Kinds(1);
    /// Snapshots.
    pub const SNAPSHOT: Kinds = Kinds(2);
    /// Bookmarks.
    pub const BOOKMARK: Kinds = Kinds(4);
    /// Pools.
    pub const POOL: Kinds = Kinds(8);
    /// File systems, snapshots and bookmarks.
    pub const ALL_DATASETS: Kinds = Kinds(7);

    /// Both sets together.
    pub const fn with(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: Kinds) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the sets share a member.
    pub const fn intersects(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is in this set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Who may change a property, and whether the datasets below follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Computed; never set.
    ReadOnly,
    /// Set on one dataset or pool, for it alone.
    Settable,
    /// Set on a dataset, for it and those below that do not set it themselves.
    Inheritable,
    /// Set when its owner is created, and fixed from then on.
    SetOnce,
}

/// Where a table puts a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One property.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// The head of its column. In lower case it is an alias of the name, as in ZFS: `avail`, `refer`, `compress`.
    pub column: &'static str,
    /// What has it.
    pub kinds: Kinds,
    /// Who may change it.
    pub nature: Nature,
    /// How its values are written.
    pub syntax: Syntax,
    /// Its canonical value where none is set; `None` if that is computed, or there is none.
    pub default: Option<&'static str>,
    /// One sentence for the reference.
    pub help: &'static str,
}

impl Definition {
    /// Whether a user can set it at all.
    pub fn is_settable(&self) -> bool {
        self.nature != Nature::ReadOnly
    }

    /// Where its column's values stand.
    pub fn align(&self) -> Align {
        self.syntax.align()
    }

    /// Whether this is its name or its alias.
    pub(super) fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.column.eq_ignore_ascii_case(name)
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        self.name == other.name && self.kinds == other.kinds
    }
}
