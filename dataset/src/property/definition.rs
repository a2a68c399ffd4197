//! One row of the tables of properties: what it applies to, who may change it, how its values are written, where they
//! are kept, and what a change of it entails.

use serde::{Deserialize, Serialize};

use super::{Syntax, dataset, pool};

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

/// Where the value of a property is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a row of the catalogue.
    Row,
    /// In the dataset's own row, as a number.
    Limit(dataset::Limit),
    /// Nowhere: it is computed from a dataset, a snapshot or a bookmark.
    Dataset(dataset::Figure),
    /// Nowhere: it is computed from the pool.
    Pool(pool::Figure),
    /// Nowhere: OpenZFS has the property, and here it has one value.
    Constant,
}

/// What a change of a property entails for mounts, beside that open file systems follow it; a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect(u8);

impl Effect {
    /// Nothing.
    pub const NONE: Effect = Effect(0);
    /// It decides whether and where a dataset is mounted.
    pub const PLACE: Effect = Effect(1);
    /// It is an option of a mount, which changes while the mount lives.
    pub const MOUNT: Effect = Effect(2);
    /// The mount and the kernel agree on it when the mount is made: it takes a new mount.
    pub const REMOUNT: Effect = Effect(4);
    /// Changes made through `mmap` that the kernel has not written yet would be refused: it writes them first.
    pub const WRITE_BACK: Effect = Effect(8);

    /// Both sets together.
    pub const fn with(self, other: Effect) -> Effect {
        Effect(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: Effect) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One row: a property without the type of its values, which [`super::Typed`] adds.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name in arguments, in the catalogue and in streams.
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
    /// Where its value is kept.
    pub backing: Backing,
    /// What a change of it entails for mounts.
    pub effect: Effect,
}

impl Definition {
    /// A row that has no name yet, and whose values are kept in the catalogue.
    pub(super) const fn new(kinds: Kinds, nature: Nature, syntax: Syntax, default: Option<&'static str>) -> Definition {
        let (backing, effect) = (Backing::Row, Effect::NONE);
        Definition { name: "", column: "", kinds, nature, syntax, default, help: "", backing, effect }
    }

    /// The same with its name, the head of its column and its sentence.
    pub(super) const fn named(self, name: &'static str, column: &'static str, help: &'static str) -> Definition {
        Definition { name, column, help, ..self }
    }

    /// The same with what a change entails for mounts.
    pub(super) const fn affecting(self, effect: Effect) -> Definition {
        Definition { effect, ..self }
    }

    /// Whether a user can set it at all.
    pub fn is_settable(&self) -> bool {
        self.nature != Nature::ReadOnly
    }

    /// Whether a change of it entails all of `effect`.
    pub fn affects(&self, effect: Effect) -> bool {
        self.effect.contains(effect)
    }

    /// Where its column's values stand.
    pub fn align(&self) -> Align {
        self.syntax.align()
    }

    /// Whether this is its name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
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

/// Makes of each line a constant that code reads the property by, and of all of them the table.
macro_rules! rows {
    ($(#[$doc:meta])* $table:ident;
     $($row:ident: $type:ty = $name:literal, $column:literal, $definition:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $row: Typed<$type> = Typed::new($definition.named($name, $column, $help));
        )*

        $(#[$doc])*
        pub static $table: &[Definition] = &[$($row.row),*];

        #[cfg(test)]
        #[test]
        fn every_value_is_of_its_type() {
            $($row.check_type();)*
        }
    };
}

pub(super) use rows;
