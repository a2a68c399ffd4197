//! The requests of the kernel to each mount: in the columns of `fs stat`, and for `fs top`.

use std::{fs, sync::Arc};

use fuse_mount::{Actor, Counters, Done, Mount, Opcode};
use protocol::{FileCounts, FileSample, PathBytes, WatchCounts, WatchRow, WatchSample};

use super::Mounts;

impl Mounts {
    /// The requests to each mounted dataset since its mount, by name.
    pub(crate) fn counters(&self) -> Vec<FileSample> {
        self.drop_ended();
        let table = self.table.lock();
        let mut samples: Vec<FileSample> = table
            .values()
            .map(|active| FileSample {
                dataset: active.name.clone(),
                elapsed: u64::try_from(active.mount.counters().elapsed().as_nanos()).unwrap_or(u64::MAX),
                counts: counts(active.mount.counters()),
            })
            .collect();
        samples.sort_by(|a, b| a.dataset.as_str().cmp(b.dataset.as_str()));
        samples
    }
}

impl Mounts {
    /// The requests to each mounted dataset by user, process and file, by name. The next ten seconds are watched.
    pub(crate) fn watched(&self) -> Vec<WatchSample> {
        self.drop_ended();
        let mut mounts: Vec<(_, Arc<Mount>)> =
            self.table.lock().values().map(|active| (active.name.clone(), active.mount.clone())).collect();
        mounts.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        let sample = |(dataset, mount): (_, Arc<Mount>)| {
            let (rows, others) = mount.look();
            WatchSample {
                dataset,
                elapsed: u64::try_from(mount.counters().elapsed().as_nanos()).unwrap_or(u64::MAX),
                rows: rows.into_iter().map(|(actor, done)| row(&mount, actor, done)).collect(),
                others: watch_counts(others),
            }
        };
        mounts.into_iter().map(sample).collect()
    }
}

fn row(mount: &Mount, actor: Actor, done: Done) -> WatchRow {
    let program = fs::read_to_string(format!("/proc/{}/comm", actor.pid)).unwrap_or_default();
    WatchRow {
        user: actor.uid,
        process: actor.pid,
        program: program.trim_end().to_owned(),
        node: actor.node,
        path: PathBytes(mount.path_of(actor.node).unwrap_or_default()),
        counts: watch_counts(done),
    }
}

fn watch_counts(done: Done) -> WatchCounts {
    let Done { requests, reads, read_bytes, writes, written_bytes } = done;
    WatchCounts { requests, reads, read_bytes, writes, written_bytes }
}

fn counts(counters: &Counters) -> FileCounts {
    let sum = |kinds: &[Opcode]| kinds.iter().map(|&kind| counters.get(kind)).sum();
    FileCounts {
        new_files: sum(&[Opcode::Create, Opcode::MkNod, Opcode::MkDir, Opcode::Symlink]),
        name_removals: sum(&[Opcode::Unlink, Opcode::RmDir]),
        name_changes: sum(&[Opcode::Rename, Opcode::Link]),
        attribute_gets: sum(&[Opcode::GetAttr, Opcode::Statx]),
        attribute_sets: sum(&[Opcode::SetAttr]),
        lookups: sum(&[Opcode::Lookup]),
        directory_reads: sum(&[Opcode::ReadDir, Opcode::ReadDirPlus]),
        reads: sum(&[Opcode::Read]),
        read_bytes: counters.read_bytes(),
        writes: sum(&[Opcode::Write]),
        written_bytes: counters.written_bytes(),
    }
}
