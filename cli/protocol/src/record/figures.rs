//! Figures about mounted file systems, what the kernel asks of them, and about caches.

use dataset::name::Name;
use pool::txg::CacheFigures;
use serde::{Deserialize, Serialize};

use super::file::PathBytes;

/// The requests of the kernel to a mounted file system or snapshot since its mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSample {
    /// Name of the file system or snapshot.
    pub dataset: Name,
    /// Time since the mount, in nanoseconds.
    pub elapsed: u64,
    /// The requests since the mount.
    pub counts: FileCounts,
}

impl FileSample {
    /// The requests since an earlier sample of the same dataset. A dataset that was mounted again since then counts
    /// from its mount.
    pub fn since(&self, before: Option<&FileSample>) -> FileCounts {
        match before.filter(|before| before.elapsed < self.elapsed) {
            Some(before) => self.counts.since(&before.counts),
            None => self.counts,
        }
    }
}

/// Requests of the kernel, in the columns of `fsstat`. What the kernel answers from its own cache is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCounts {
    /// Files, directories, symbolic links and special files made.
    pub new_files: u64,
    /// Names removed: unlink and rmdir.
    pub name_removals: u64,
    /// Names changed: rename and link.
    pub name_changes: u64,
    /// Requests for attributes.
    pub attribute_gets: u64,
    /// Attributes changed.
    pub attribute_sets: u64,
    /// Requests for a name.
    pub lookups: u64,
    /// Parts of directories listed.
    pub directory_reads: u64,
    /// Requests to read a file.
    pub reads: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Requests to write a file.
    pub writes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

/// The requests to a mounted file system or snapshot by user, process and file, since a watch began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchSample {
    /// Name of the file system or snapshot.
    pub dataset: Name,
    /// Time since the mount, in nanoseconds.
    pub elapsed: u64,
    /// A row for each user, process and file; at most 1,024.
    pub rows: Vec<WatchRow>,
    /// Requests that found no room among the rows.
    pub others: WatchCounts,
}

/// The requests of a process as a user about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRow {
    /// The effective user ID.
    pub user: u32,
    /// The process ID; 0 for the kernel itself.
    pub process: u32,
    /// Name of the program; empty if the process has ended.
    pub program: String,
    /// Number by which the kernel knows the file.
    pub node: u64,
    /// A path from the root of the mount; empty if the file has no name any more.
    pub path: PathBytes,
    /// The requests since the watch began.
    pub counts: WatchCounts,
}

/// Requests of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchCounts {
    /// Requests of all kinds.
    pub requests: u64,
    /// Requests to read a file.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Requests to write a file.
    pub writes: u64,
    /// Bytes given by writes.
    pub written_bytes: u64,
}

impl WatchCounts {
    /// The requests since an earlier sample. A row that was dropped in between counts from zero.
    pub fn since(&self, before: Option<&WatchCounts>) -> WatchCounts {
        let Some(before) = before.filter(|before| before.requests <= self.requests) else { return *self };
        WatchCounts {
            requests: self.requests - before.requests,
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// The caches of a pool, and the memory of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSample {
    /// Time since import, in nanoseconds.
    pub elapsed: u64,
    /// Lookups since import, and present sizes.
    pub figures: CacheFigures,
    /// Resident memory of the process that has the pool open, in bytes; 0 if unknown.
    pub resident: u64,
}

impl CacheSample {
    /// Lookups and evictions since an earlier sample, with the present sizes. A restarted service counts from zero.
    pub fn since(&self, before: Option<&CacheSample>) -> CacheFigures {
        let Some(before) = before.filter(|before| before.elapsed < self.elapsed) else { return self.figures };
        let (now, then) = (self.figures.lookups, before.figures.lookups);
        let mut since = self.figures;
        since.lookups.data_hits = now.data_hits.saturating_sub(then.data_hits);
        since.lookups.data_misses = now.data_misses.saturating_sub(then.data_misses);
        since.lookups.metadata_hits = now.metadata_hits.saturating_sub(then.metadata_hits);
        since.lookups.metadata_misses = now.metadata_misses.saturating_sub(then.metadata_misses);
        since.lookups.prefetch_hits = now.prefetch_hits.saturating_sub(then.prefetch_hits);
        since.lookups.device_hits = now.device_hits.saturating_sub(then.device_hits);
        since.lookups.device_misses = now.device_misses.saturating_sub(then.device_misses);
        since.evictions = self.figures.evictions.saturating_sub(before.figures.evictions);
        since
    }
}

/// Each figure of the caches with its name in JSON and metrics, in the order of `pool stat -H`.
pub fn cache_figures(figures: &CacheFigures, resident: u64) -> [(&'static str, Unit, u64); 19] {
    let lookups = &figures.lookups;
    [
        ("data_hits", Unit::Count, lookups.data_hits),
        ("data_misses", Unit::Count, lookups.data_misses),
        ("metadata_hits", Unit::Count, lookups.metadata_hits),
        ("metadata_misses", Unit::Count, lookups.metadata_misses),
        ("prefetch_hits", Unit::Count, lookups.prefetch_hits),
        ("device_hits", Unit::Count, lookups.device_hits),
        ("device_misses", Unit::Count, lookups.device_misses),
        ("evictions", Unit::Count, figures.evictions),
        ("size", Unit::Bytes, figures.size),
        ("target", Unit::Bytes, figures.target),
        ("data_size", Unit::Bytes, figures.data),
        ("metadata_size", Unit::Bytes, figures.metadata),
        ("dirty_size", Unit::Bytes, figures.dirty),
        ("dirty_target", Unit::Bytes, figures.dirty_limit),
        ("prefetch_size", Unit::Bytes, figures.prefetch),
        ("device_size", Unit::Bytes, figures.devices),
        ("device_blocks", Unit::Count, figures.device_blocks),
        ("device_index_size", Unit::Bytes, figures.device_index),
        ("resident_size", Unit::Bytes, resident),
    ]
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of requests.
    Count,
    /// A number of bytes.
    Bytes,
}

impl FileCounts {
    /// Each figure with its name in JSON and metrics, in the order of the columns.
    pub fn figures(&self) -> [(&'static str, Unit, u64); 11] {
        let [new, removal, change, get, set, lookup, list, reads, read, writes, written] = self.all();
        [
            ("new_file", Unit::Count, new),
            ("name_removal", Unit::Count, removal),
            ("name_change", Unit::Count, change),
            ("attr_get", Unit::Count, get),
            ("attr_set", Unit::Count, set),
            ("lookup_ops", Unit::Count, lookup),
            ("readdir_ops", Unit::Count, list),
            ("read_ops", Unit::Count, reads),
            ("read_bytes", Unit::Bytes, read),
            ("write_ops", Unit::Count, writes),
            ("write_bytes", Unit::Bytes, written),
        ]
    }

    /// The sum of several counts.
    pub fn sum<'a>(counts: impl IntoIterator<Item = &'a FileCounts>) -> FileCounts {
        counts.into_iter().fold(FileCounts::default(), |sum, counts| sum.with(counts, u64::saturating_add))
    }

    fn since(&self, before: &FileCounts) -> FileCounts {
        self.with(before, u64::saturating_sub)
    }

    fn with(&self, other: &FileCounts, join: fn(u64, u64) -> u64) -> FileCounts {
        let (mine, others) = (self.all(), other.all());
        let joined = std::array::from_fn(|at| join(mine[at], others[at]));
        let [
            new_files,
            name_removals,
            name_changes,
            attribute_gets,
            attribute_sets,
            lookups,
            directory_reads,
            reads,
            read_bytes,
            writes,
            written_bytes,
        ] = joined;
        FileCounts {
            new_files,
            name_removals,
            name_changes,
            attribute_gets,
            attribute_sets,
            lookups,
            directory_reads,
            reads,
            read_bytes,
            writes,
            written_bytes,
        }
    }

    fn all(&self) -> [u64; 11] {
        [
            self.new_files,
            self.name_removals,
            self.name_changes,
            self.attribute_gets,
            self.attribute_sets,
            self.lookups,
            self.directory_reads,
            self.reads,
            self.read_bytes,
            self.writes,
            self.written_bytes,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_made_anew_counts_from_its_beginning() {
        let sample = |elapsed, reads| FileSample {
            dataset: "tank".parse().unwrap(),
            elapsed,
            counts: FileCounts { reads, read_bytes: 10 * reads, ..FileCounts::default() },
        };
        let later = sample(20, 7).since(Some(&sample(10, 4)));
        assert_eq!((later.reads, later.read_bytes), (3, 30));
        assert_eq!(sample(5, 2).since(Some(&sample(10, 4))).reads, 2);
        assert_eq!(FileCounts::sum([&later, &later]).read_bytes, 60);
    }
}
