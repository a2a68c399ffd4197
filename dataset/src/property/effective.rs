//! The values of a dataset's or snapshot's properties, with their sources.

use std::collections::{BTreeMap, btree_map};

use super::{setting::Setting, source::Source, typed::Typed};

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valued {
    /// The canonical value.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
}

/// The values of all settable properties of a dataset or snapshot, by name; limits only if they have rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective(BTreeMap<String, Valued>);

impl Effective {
    /// The value of a property; the default if the value is missing or invalid.
    ///
    /// # Panics
    /// If the table has no default: see [`Typed::default`].
    pub fn get<T: Setting>(&self, property: &Typed<T>) -> T {
        self.find(property).unwrap_or_else(|| property.default())
    }

    /// The value of a property; `None` if missing or invalid.
    pub fn find<T: Setting>(&self, property: &Typed<T>) -> Option<T> {
        self.valued(property.name).and_then(|valued| property.read(&valued.value))
    }

    /// The text and source of the property with the given name.
    pub fn valued(&self, name: &str) -> Option<&Valued> {
        self.0.get(name)
    }

    /// Sets the value of a property.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>, source: Source) {
        self.0.insert(name.into(), Valued { value: value.into(), source });
    }
}

impl<'a> IntoIterator for &'a Effective {
    type Item = (&'a String, &'a Valued);
    type IntoIter = btree_map::Iter<'a, String, Valued>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::dataset::{ATIME, COPIES, RECORDSIZE};

    #[test]
    fn what_is_absent_or_damaged_counts_as_the_default() {
        let mut values = Effective::default();
        assert_eq!((values.get(&ATIME), values.get(&COPIES), values.get(&RECORDSIZE)), (true, 1, 128 << 10));
        for (property, value) in [("atime", "off"), ("copies", "200"), ("recordsize", "65536")] {
            values.insert(property, value, Source::Local);
        }
        assert_eq!((values.get(&ATIME), values.get(&COPIES), values.get(&RECORDSIZE)), (false, 1, 64 << 10));
    }
}
