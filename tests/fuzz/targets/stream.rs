//! Streams. An input holds records in the form of [`Records`], and gets its checksums here; an input with the head of a
//! stream is taken unchanged.
//!
//! Two targets: the first reads and verifies the stream, the second receives it into a pool.

use dataset::{
    admin::ReceiveRequest,
    name::Name,
    stream::{identify, verify},
};

use super::{
    files,
    seal::Records,
    world::{HOME, World, name},
};

fn sealed(input: &[u8]) -> Vec<u8> {
    match input.starts_with(b"CENOTESTREAM") {
        true => input.to_vec(),
        false => Records(input).sealed(),
    }
}

pub(super) fn run(input: &[u8]) -> bool {
    let stream = sealed(input);
    let head = identify(&mut &stream[..]);
    let mut last = 0;
    let verified = verify(&mut &stream[..], 0, &mut |bytes| {
        assert!((last..=stream.len() as u64).contains(&bytes), "progress goes on, and not too far");
        last = bytes;
    });
    let Ok(contents) = verified else { return false };
    assert!(contents.bytes <= stream.len() as u64);
    assert_eq!(contents.start.streams, contents.streams.len() as u64);
    assert!(contents.totals.stored <= contents.totals.logical && contents.totals.stored <= contents.bytes);
    assert_eq!(head.expect("its head was verified"), (contents.start, contents.streams[0].clone()));
    true
}

/// The first byte is the destination: 0 for a new dataset, 1 for the existing one.
pub(super) fn receive(input: &[u8]) -> bool {
    let Some((target @ 0..=1, input)) = input.split_first() else { return false };
    let target = [NEW, HOME][usize::from(*target)];
    let world = World::new();
    let request = ReceiveRequest { force: true, ..ReceiveRequest::plain(Name::Dataset(name(target))) };
    let (arrived, result) = world.datasets.receive(request, &mut &sealed(input)[..], 0, &mut |_| {});
    world.check_space();
    for snapshot in &arrived.snapshots {
        let Ok(dataset) = world.datasets.open_dataset(&snapshot.name.dataset()) else { continue };
        files::visit_all(dataset.fs());
        files::change_all(dataset.fs());
    }
    world.check_space();
    result.is_ok()
}

/// The dataset that a full stream makes.
const NEW: &str = "tank/new";
