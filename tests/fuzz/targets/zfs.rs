//! Streams of OpenZFS. An input holds the records of a stream without its end, and gets an end with the right checksum.
//! The records' own checksums are zero, as very old senders write them.

use dataset::{admin::ReceiveRequest, name::Name, zfs::is_stream};

use super::{
    files,
    world::{World, name},
};

/// The length of a record without its payload.
const HEADER: usize = 312;
/// The type of the last record, and the place of its checksum.
const END: u8 = 5;
const SUM_AT: usize = 8;

/// The records with an end.
fn ended(records: &[u8]) -> Vec<u8> {
    let mut sums = [0u64; 4];
    for word in records.as_chunks::<4>().0 {
        let mut add = u64::from(u32::from_le_bytes(*word));
        for sum in &mut sums {
            *sum = sum.wrapping_add(add);
            add = *sum;
        }
    }
    let mut end = [0; HEADER];
    end[0] = END;
    for (at, sum) in sums.iter().enumerate() {
        end[SUM_AT + 8 * at..][..8].copy_from_slice(&sum.to_le_bytes());
    }
    [records, &end].concat()
}

pub(super) fn run(input: &[u8]) -> bool {
    if !is_stream(input) {
        return false;
    }
    let world = World::new();
    let request = ReceiveRequest { force: true, ..ReceiveRequest::plain(Name::Dataset(name("tank/new"))) };
    let (arrived, result) = world.datasets.receive(request, &mut &ended(input)[..], 0, &mut |_| {});
    world.check_space();
    for snapshot in &arrived.snapshots {
        let dataset = world.datasets.open_dataset(&snapshot.name.dataset()).expect("it was received");
        let findings = dataset::fs::check::check(dataset.head()).expect("memory does not fail");
        assert!(findings.is_empty(), "the check finds {findings:#?}");
        files::visit_all(dataset.fs());
        files::change_all(dataset.fs());
    }
    world.check_space();
    result.is_ok()
}
