//! A row of the table together with the type of its values, so that code names a property once and reads a type.

use std::{fmt, marker::PhantomData, ops::Deref};

use super::Definition;
#[cfg(test)]
use super::{Backing, Syntax};

/// A type that values of properties are read as.
pub trait Setting: Sized {
    /// The value that a canonical text stands for; `None` if the text stands for none.
    fn read(canonical: &str) -> Option<Self>;
}

/// One property whose values are of the type `T`: `RECORDSIZE`, `ATIME`.
pub struct Typed<T: 'static> {
    pub(super) row: Definition,
    values: PhantomData<fn() -> T>,
}

impl<T: Setting> Typed<T> {
    pub(super) const fn new(row: Definition) -> Typed<T> {
        Typed { row, values: PhantomData }
    }

    /// The value that a text stands for. One that can be set must be as the row's syntax has it.
    pub fn read(&self, text: &str) -> Option<T> {
        match self.row.is_settable() {
            true => self.row.syntax.parse(text).ok().and_then(|canonical| T::read(&canonical)),
            false => T::read(text),
        }
    }

    /// The value where none is set.
    ///
    /// # Panics
    /// If the table gives none: the property is computed, or depends on its owner as `mountpoint` does.
    pub fn default(&self) -> T {
        let default = self.row.default.and_then(|default| self.read(default));
        default.unwrap_or_else(|| panic!("the table has no default of {}", self.row.name))
    }
}

#[cfg(test)]
impl<T: Setting> Typed<T> {
    /// Checks that the default, and each word that may be written, stand for values of the type.
    pub(super) fn check_type(&self) {
        let words = match (self.row.backing, self.row.syntax) {
            (Backing::Row, Syntax::Choice(words)) => words,
            _ => &[],
        };
        for text in words.iter().copied().chain(self.row.default) {
            assert!(self.read(text).is_some(), "{}={text}", self.row.name);
        }
    }
}

impl<T> Typed<T> {
    /// The row of the table.
    pub const fn row(&self) -> Definition {
        self.row
    }
}

impl<T> Deref for Typed<T> {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        &self.row
    }
}

impl<T> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)
    }
}
