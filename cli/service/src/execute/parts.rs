//! Collecting the records of an answer into parts: see [`protocol::Part`].

use std::mem;

use protocol::{Chain, Chained, Failure, Shared};

use super::job::Job;

/// Maximum size of a part, in bytes, except for a larger single record.
const PART_BYTES: usize = 64 << 10;

/// Collects records into parts, and sends full parts.
#[derive(Debug)]
pub(super) struct Parts<T> {
    chain: Chain,
    records: Vec<Shared<T>>,
    bytes: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Parts<T> {
        Parts { chain: Chain::default(), records: Vec::new(), bytes: 0 }
    }
}

impl<T: Chained> Parts<T> {
    /// Adds a record, and sends a full part.
    pub(super) fn push(&mut self, record: T, job: &mut Job<'_>) -> Result<(), Failure> {
        let mut shared = self.chain.shared(record);
        self.bytes += shared.size();
        self.records.push(shared);
        if self.bytes >= PART_BYTES { self.finish(job) } else { Ok(()) }
    }

    /// Sends the remaining records.
    pub(super) fn finish(&mut self, job: &mut Job<'_>) -> Result<(), Failure> {
        self.bytes = 0;
        match mem::take(&mut self.records) {
            records if records.is_empty() => Ok(()),
            records => job.part(T::part(records)),
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{PathBytes, ProjectRecord, Said};

    use super::*;

    fn record(path: &[u8]) -> ProjectRecord {
        ProjectRecord { path: PathBytes(path.to_vec()), id: 7, inherit: false, directory: true }
    }

    #[test]
    fn paths_come_back_whole_and_parts_stay_small() {
        let deep = b"directory/".repeat(5000);
        let paths: Vec<Vec<u8>> = (0..3000).map(|n| [&deep[..n * 10], format!("{n}").as_bytes()].concat()).collect();
        let (mut parts, mut heard) = (Parts::default(), Vec::new());
        let mut said = |said| {
            heard.push(said);
            Ok(None)
        };
        let mut job = Job::new(Vec::new(), &mut said);
        paths.iter().try_for_each(|path| parts.push(record(path), &mut job)).unwrap();
        parts.finish(&mut job).unwrap();
        assert!(heard.len() > 3, "{} parts", heard.len());
        let (mut chain, mut found) = (Chain::default(), Vec::new());
        for said in heard {
            let Said::Part(part) = said else { panic!("progress") };
            assert!(serde_json::to_vec(&part).unwrap().len() < 1 << 20);
            let records = ProjectRecord::of(part).unwrap();
            found.extend(records.into_iter().map(|shared| chain.whole(shared).unwrap().path.0));
        }
        assert_eq!(found, paths);
    }
}
