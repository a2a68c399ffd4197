//! A row of the table with the type of its values, so that code names a property once and reads a type.

use std::{fmt, marker::PhantomData, ops::Deref};

#[cfg(test)]
use super::{definition::Backing, syntax::Syntax};
use super::{definition::Definition, setting::Setting};

/// A property with values of type `T`: `RECORDSIZE`, `ATIME`.
pub struct Typed<T: 'static> {
    pub(super) row: Definition,
    values: PhantomData<fn() -> T>,
}

impl<T: Setting> Typed<T> {
    pub(super) const fn new(row: Definition) -> Typed<T> {
        Typed { row, values: PhantomData }
    }

    /// The value of a text. For a settable property the text must be valid in the row's syntax.
    pub fn read(&self, text: &str) -> Option<T> {
        match self.row.is_settable() {
            true => self.row.syntax.parse(text).ok().and_then(|canonical| T::read(&canonical)),
            false => T::read(text),
        }
    }

    /// The default value.
    ///
    /// # Panics
    /// If the table has no default: the property is computed, or depends on its object as `mountpoint` does.
    pub fn default(&self) -> T {
        let default = self.row.default.and_then(|default| self.read(default));
        default.unwrap_or_else(|| panic!("the table has no default of {}", self.row.name))
    }
}

#[cfg(test)]
impl<T: Setting> Typed<T> {
    /// Asserts that the default and all words of the syntax are values of the type.
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
