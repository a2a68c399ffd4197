//! The requests of the kernel to each mount, in the columns of `fs stat`.

use fuse_mount::{Counters, Opcode};
use protocol::{FileCounts, FileSample};

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
