//! Rows found by a name, stored under its hash.
//!
//! The offset of the key is a 56-bit hash of the name followed by a number from 0 to 255 for names with equal hashes.
//! The hash is XXH3 without a key: only administrators choose the names of datasets and properties.

use pool::format::{key::Key, label::SPACES_IN_NAMES};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    coding::Row,
    key::{keys_from, kind},
    rows::{Bookmark, Hold, Named, Value},
    transaction::Transaction,
};
use crate::error::{Error, Result};

/// A row with a name.
pub trait ByName: Row {
    /// The name whose hash is part of the key.
    fn name(&self) -> &str;
}

macro_rules! by_name {
    ($($row:ident),*) => {$(
        impl ByName for $row {
            fn name(&self) -> &str {
                &self.name
            }
        }
    )*};
}
by_name!(Bookmark, Hold, Named, Value);

impl Transaction<'_> {
    /// The row with the given name, and its key.
    pub fn find_named<R: ByName>(&self, object: u64, kind: u8, name: &str) -> Result<Option<(Key, R)>> {
        let rows = self.rows::<R>(slots(object, kind, name))?;
        Ok(rows.into_iter().find(|(_, row)| row.name() == name))
    }

    /// Writes a row, replacing any row with the same name.
    pub fn put_named<R: ByName>(&mut self, object: u64, kind: u8, row: &R) -> Result<()> {
        // Older programs would report the name as damage.
        if matches!(kind, kind::CHILD | kind::SNAPSHOT_NAME | kind::BOOKMARK) && row.name().contains(' ') {
            self.need(SPACES_IN_NAMES);
        }
        let rows = self.rows::<R>(slots(object, kind, row.name()))?;
        if let Some((key, _)) = rows.iter().find(|(_, old)| old.name() == row.name()) {
            self.put(*key, row, None);
            return Ok(());
        }
        let mut key = slots(object, kind, row.name()).start;
        for (taken, _) in rows {
            if taken != key {
                break;
            }
            key = key.successor();
        }
        if key >= slots(object, kind, row.name()).end {
            return Err(Error::Hash { name: row.name().to_owned() });
        }
        self.put(key, row, None);
        Ok(())
    }

    /// Deletes the row with the given name and returns the row.
    pub fn delete_named<R: ByName>(&mut self, object: u64, kind: u8, name: &str) -> Result<Option<R>> {
        Ok(self.find_named(object, kind, name)?.map(|(key, row)| {
            self.delete(key);
            row
        }))
    }
}

/// The possible keys of a name.
fn slots(object: u64, kind: u8, name: &str) -> std::ops::Range<Key> {
    let start = xxh3_64(name.as_bytes()) << 8;
    let end = start.checked_add(256).map_or(keys_from(object, kind, 0).end, |end| Key::new(object, kind, end));
    Key::new(object, kind, start)..end
}
