//! Responses in parts: records of files and datasets, in any number.
//!
//! A tree may have any number of files, with long paths. So the service sends records part by part, and never holds all
//! of them. The command prints files as parts arrive. Neighbouring paths share a prefix, so a record carries only the
//! rest of its path. Datasets are sent in parts too: every user may list datasets, and a pool may have a hundred
//! thousand snapshots. The command collects datasets for sorting and for aligned columns.

use serde::{Deserialize, Serialize};

use super::{
    dataset::DatasetRecord,
    file::{ChangeRecord, EntryRecord, FileAttributesRecord, PathBytes, ProjectRecord},
};

/// Estimated size of a record without its path, in bytes.
const RECORD_BYTES: usize = 128;

/// Part of a response; all records in a part have the same type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// Directory entries.
    Entries(Vec<Shared<EntryRecord>>),
    /// Attributes of files.
    FileAttributes(Vec<Shared<FileAttributesRecord>>),
    /// Projects of files.
    Projects(Vec<Shared<ProjectRecord>>),
    /// Differences between two states.
    Changes(Vec<Shared<ChangeRecord>>),
    /// Datasets, snapshots and bookmarks.
    Datasets(Vec<Shared<DatasetRecord>>),
}

/// A record without the prefix shared with the path of the previous record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared<T> {
    /// Length of the shared prefix, in bytes.
    keep: u64,
    /// The record, with the rest of its path.
    record: T,
}

impl<T: Chained> Shared<T> {
    /// Estimated size of the record, in bytes.
    pub fn size(&mut self) -> usize {
        self.record.size()
    }
}

/// A record type for responses in parts.
pub trait Chained: Sized {
    /// The record's path; `None` for a type without paths.
    fn path(&mut self) -> Option<&mut PathBytes>;

    /// Estimated size of the record, in bytes.
    fn size(&mut self) -> usize {
        RECORD_BYTES + self.path().map_or(0, |path| path.0.len())
    }

    /// Wraps records of this type in a part.
    fn part(records: Vec<Shared<Self>>) -> Part;

    /// The records of a part; `None` if the part has records of another type.
    fn of(part: Part) -> Option<Vec<Shared<Self>>>;
}

macro_rules! chained {
    ($record:ident, $path:ident, $part:ident) => {
        impl Chained for $record {
            fn path(&mut self) -> Option<&mut PathBytes> {
                Some(&mut self.$path)
            }

            fn part(records: Vec<Shared<Self>>) -> Part {
                Part::$part(records)
            }

            fn of(part: Part) -> Option<Vec<Shared<Self>>> {
                match part {
                    Part::$part(records) => Some(records),
                    _ => None,
                }
            }
        }
    };
}

chained!(EntryRecord, name, Entries);
chained!(FileAttributesRecord, path, FileAttributes);
chained!(ProjectRecord, path, Projects);
chained!(ChangeRecord, path, Changes);

impl Chained for DatasetRecord {
    fn path(&mut self) -> Option<&mut PathBytes> {
        None
    }

    fn size(&mut self) -> usize {
        let of_properties = self.properties.iter().map(|property| {
            let received = property.received.as_ref().map_or(0, String::len);
            RECORD_BYTES + property.name.len() + property.value.len() + received
        });
        RECORD_BYTES + self.name.as_str().len() + of_properties.sum::<usize>()
    }

    fn part(records: Vec<Shared<Self>>) -> Part {
        Part::Datasets(records)
    }

    fn of(part: Part) -> Option<Vec<Shared<Self>>> {
        match part {
            Part::Datasets(records) => Some(records),
            _ => None,
        }
    }
}

/// The path of the previous record, kept by the sender and by the receiver.
#[derive(Debug, Default)]
pub struct Chain(Vec<u8>);

impl Chain {
    /// Drops from `record` the prefix shared with the previous path.
    pub fn shared<T: Chained>(&mut self, mut record: T) -> Shared<T> {
        let Some(path) = record.path() else { return Shared { keep: 0, record } };
        let keep = alike(&self.0, &path.0);
        self.0.truncate(keep);
        self.0.extend_from_slice(&path.0[keep..]);
        path.0.drain(..keep);
        path.0.shrink_to_fit();
        Shared { keep: keep as u64, record }
    }

    /// Restores the full path; `None` if the shared prefix is longer than the previous path.
    pub fn whole<T: Chained>(&mut self, shared: Shared<T>) -> Option<T> {
        let Shared { keep, mut record } = shared;
        let Some(path) = record.path() else { return Some(record) };
        let keep = usize::try_from(keep).ok().filter(|keep| *keep <= self.0.len())?;
        self.0.truncate(keep);
        self.0.extend_from_slice(&path.0);
        path.0.clone_from(&self.0);
        Some(record)
    }
}

/// Length of the common prefix in bytes. Deep paths share most of their bytes, so whole blocks are compared first.
fn alike(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 256;
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK)).take_while(|(one, other)| one == other);
    let known = blocks.count() * BLOCK;
    known + one[known..].iter().zip(&other[known..]).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &[u8]) -> ProjectRecord {
        ProjectRecord { path: PathBytes(path.to_vec()), id: 7, inherit: false, directory: true }
    }

    #[test]
    fn what_is_alike_is_counted_to_the_byte() {
        let one: Vec<u8> = (0..1000).map(|number| number as u8).collect();
        for length in [0, 1, 255, 256, 257, 700, 1000] {
            assert_eq!(alike(&one, &one[..length]), length);
            let other = [&one[..length], b"x!"].concat();
            assert_eq!((alike(&one, &other), alike(&other, &one)), (length, length));
        }
    }

    #[test]
    fn a_path_that_keeps_more_than_there_is_is_refused() {
        let mut chain = Chain::default();
        assert!(chain.whole(Shared { keep: 1, record: record(b"a") }).is_none());
        assert!(chain.whole(Shared { keep: 0, record: record(b"a") }).is_some());
        assert!(chain.whole(Shared { keep: u64::MAX, record: record(b"a") }).is_none());
    }
}
