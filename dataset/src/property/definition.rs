//! One row of the tables of properties: the objects, the access, the syntax and storage of values, and the effects of a
//! change.

use serde::{Deserialize, Serialize};

use super::{
    figure::{Figure, Limit, PoolFigure},
    syntax::{Align, Syntax},
};

/// A set of kinds of objects that can have a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(u8);

impl Kinds {
    /// The empty set of kinds.
    pub const NONE: Kinds = Kinds(0);
    /// File systems only.
    pub const FILESYSTEM: Kinds = Kinds(1);
    /// Snapshots of datasets.
    pub const SNAPSHOT: Kinds = Kinds(2);
    /// Bookmarks of datasets.
    pub const BOOKMARK: Kinds = Kinds(4);
    /// The pool as a whole.
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

/// Who may change a property, and whether descendants inherit the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Computed; never set.
    ReadOnly,
    /// Set on one dataset or pool; descendants do not inherit the value.
    Settable,
    /// Set on a dataset, and inherited by descendants without a local value.
    Inheritable,
    /// Set at creation, and fixed from then on.
    SetOnce,
}

/// The storage of a property's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a row of the catalogue.
    Row,
    /// A number in the dataset's row.
    Limit(Limit),
    /// Computed from a dataset, a snapshot or a bookmark.
    Dataset(Figure),
    /// Computed from the pool.
    Pool(PoolFigure),
    /// A property of OpenZFS with a single value here.
    Constant,
}

/// A set of effects of a change on mounts, beyond updating open file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect(u8);

impl Effect {
    /// A change needs no action.
    pub const NONE: Effect = Effect(0);
    /// The property decides whether and where a dataset is mounted.
    pub const PLACE: Effect = Effect(1);
    /// The property is a mount option, changed while mounted.
    pub const MOUNT: Effect = Effect(2);
    /// The mount and the kernel agree on the property when mounting: a change needs a new mount.
    pub const REMOUNT: Effect = Effect(4);
    /// The kernel must first write changes made through `mmap`, which would be refused later.
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

/// One row: a property without the type of its values, added by [`super::Typed`].
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name in arguments, in the catalogue and in streams.
    pub name: &'static str,
    /// The head of the column. In lower case also an alias of the name, as in OpenZFS: `avail`, `refer`, `compress`.
    pub column: &'static str,
    /// The kinds of objects with the property.
    pub kinds: Kinds,
    /// The access and inheritance.
    pub nature: Nature,
    /// The syntax of the values.
    pub syntax: Syntax,
    /// The canonical default; `None` for a computed or missing default.
    pub default: Option<&'static str>,
    /// One sentence for the reference.
    pub help: &'static str,
    /// The storage of the value.
    pub backing: Backing,
    /// The effects of a change on mounts.
    pub effect: Effect,
}

impl Definition {
    /// A row without a name, with values in the catalogue.
    pub(super) const fn new(kinds: Kinds, nature: Nature, syntax: Syntax, default: Option<&'static str>) -> Definition {
        let (backing, effect) = (Backing::Row, Effect::NONE);
        Definition { name: "", column: "", kinds, nature, syntax, default, help: "", backing, effect }
    }

    /// Adds the name, the head of the column and the help sentence.
    pub(super) const fn named(self, name: &'static str, column: &'static str, help: &'static str) -> Definition {
        Definition { name, column, help, ..self }
    }

    /// Adds the effects of a change on mounts.
    pub(super) const fn affecting(self, effect: Effect) -> Definition {
        Definition { effect, ..self }
    }

    /// Whether a user can set the property.
    pub fn is_settable(&self) -> bool {
        self.nature != Nature::ReadOnly
    }

    /// Whether a change has all of the effects.
    pub fn affects(&self, effect: Effect) -> bool {
        self.effect.contains(effect)
    }

    /// The alignment of the column.
    pub fn align(&self) -> Align {
        self.syntax.align()
    }

    /// Whether `name` is the property's name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Whether `name` is the property's name or alias.
    pub(super) fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.column.eq_ignore_ascii_case(name)
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        self.name == other.name && self.kinds == other.kinds
    }
}

/// Defines a constant for each line, by which code reads the property, and the table of all lines.
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
