//! A received tree equals the tree that was sent.

use std::collections::BTreeSet;

use pool::{
    format::key::Key,
    tree::{Block, Policy},
    txg::{Head, Plain},
};

use super::world::{World, blocks, contents, source};
use crate::stream::{Error, Package, Watched, estimate, identify, send, verify};

/// Sends a full stream and incremental streams of random trees to a second pool, and on to a third.
fn replicate(seed: u64, threads: usize) {
    let (mut here, mut there, mut beyond) =
        (World::new(seed, threads), World::new(seed + 100, threads), World::new(seed + 200, threads));
    let head = here.open(None);
    let (copy, second) = (there.open(None), beyond.open(None));
    let (mut base, mut received_base) = (None, None);
    for round in 0..5 {
        here.scribble(&head, [900, 5, 60, 0, 300][round]);
        let snapshot = here.snapshot(&head, &format!("s{round}"));
        let stream = here.stream(&snapshot, base.as_ref(), threads);
        let before = blocks(&copy);
        let killed_before = there.kills(&copy).len();

        let (result, lander) = there.receive(&stream, &copy, threads);
        let received = result.unwrap();
        assert_eq!((received.bytes, lander.finished, lander.abandoned), (stream.len() as u64, 1, 0));
        let received_snapshot = there.snapshot(&copy, "copy");
        assert_eq!(contents(&copy), contents(&head), "seed {seed}, round {round}");

        // Exactly the blocks without an item are dropped, each once.
        let after = blocks(&copy);
        let killed: Vec<_> = there.kills(&copy).split_off(killed_before);
        let dropped: Vec<_> = killed.into_iter().filter(|address| before.contains(address)).collect();
        let gone: BTreeSet<_> = before.difference(&after).copied().collect();
        assert_eq!(dropped.len(), gone.len(), "seed {seed}, round {round}");
        assert_eq!(dropped.into_iter().collect::<BTreeSet<_>>(), gone);

        let onward = there.stream(&received_snapshot, received_base.as_ref(), threads);
        beyond.receive(&onward, &second, threads).0.unwrap();
        beyond.engine.commit().unwrap();
        assert_eq!(contents(&second), contents(&head));
        (base, received_base) = (Some(snapshot), Some(received_snapshot));
    }
}

#[test]
fn increments_bring_the_copy_to_the_same_state() {
    for seed in 0..6 {
        replicate(seed, 0);
    }
}

#[test]
fn threads_make_no_difference() {
    for seed in 10..13 {
        replicate(seed, 3);
    }
}

#[test]
fn an_increment_costs_only_the_changes() {
    let mut world = World::new(1, 0);
    let head = world.open(None);
    world.scribble(&head, 3000);
    let first = world.snapshot(&head, "a");
    let unchanged = world.snapshot(&head, "b");
    head.update(|_, batch| -> Result<(), Plain> {
        batch.put(Key::new(7, 0, 1), b"one more", None);
        Ok(())
    })
    .unwrap();
    let changed = world.snapshot(&head, "c");
    let full = world.stream(&first, None, 0).len();
    let more = world.stream(&changed, Some(&first), 0).len();
    assert!(full > 1 << 20 && more < 64 << 10, "{full} and {more} bytes");
    assert!(world.stream(&changed, Some(&unchanged), 0).len() == more);
    let about = estimate(&source(&changed, Some(&first))).unwrap();
    assert!(about <= more as u64 && more as u64 - about < 1024, "{about} of {more} bytes");
}

fn put_file(world: &World, head: &Head, blocks: u64) {
    let policy = Policy {
        compression: pool::block::compression::CompressionChoice::Lz4,
        checksum: pool::format::pointer::Checksum::Blake3,
        copies: 1,
        small_blocks: 0,
        placement: pool::space::Placement::ANYWHERE,
    };
    for number in 0..blocks {
        head.admit(128 << 10).unwrap();
        // Every second byte is random: the first byte of a hash of its position.
        let byte = |at: u64| {
            if at.is_multiple_of(2) { blake3::hash(&(at ^ number << 17).to_le_bytes()).as_bytes()[0] } else { 7 }
        };
        let content: Vec<u8> = (0..128 << 10).map(byte).collect();
        head.update(|view, batch| -> Result<(), Plain> {
            let record = head.record(view.txg(), policy, content.clone());
            batch.put(Key::new(9, 4, number << 17), b"", Some(&Block::Pending(record)));
            Ok(())
        })
        .unwrap();
    }
    world.engine.commit().unwrap();
}

#[test]
fn the_rest_of_an_overwritten_record_does_not_travel() {
    let (mut here, mut there) = (World::new(2, 0), World::new(3, 0));
    let (head, copy) = (here.open(None), there.open(None));
    put_file(&here, &head, 2);
    let first = here.snapshot(&head, "a");
    there.receive(&here.stream(&first, None, 0), &copy, 0).0.unwrap();
    there.engine.commit().unwrap();
    head.update(|view, batch| -> Result<(), Plain> {
        let block = view.get(Key::new(9, 4, 0))?.unwrap().block().unwrap();
        let pointer = pool::format::pointer::BlockPointer { logical_birth: view.txg(), ..block.pointer().unwrap() };
        batch.put(Key::new(9, 4, 0), b"head", Some(&block));
        batch.put(Key::new(9, 4, 4096), b"overwritten", None);
        batch.put(Key::new(9, 4, 8192), b"rest", Some(&Block::Stored(pointer)));
        Ok(())
    })
    .unwrap();
    let second = here.snapshot(&head, "b");
    let increment = here.stream(&second, Some(&first), 0);
    assert!(increment.len() < 2000, "{} bytes", increment.len());
    let before = blocks(&copy);
    there.receive(&increment, &copy, 0).0.unwrap();
    there.engine.commit().unwrap();
    assert_eq!(contents(&copy), contents(&head));
    assert_eq!(blocks(&copy), before);
    assert_eq!(there.kills(&copy).iter().filter(|address| before.contains(address)).count(), 0);
}

#[test]
fn a_range_of_many_megabytes_is_applied_in_parts() {
    let (mut here, mut there) = (World::new(4, 2), World::new(5, 2));
    let (head, copy) = (here.open(None), there.open(None));
    put_file(&here, &head, 300);
    let snapshot = here.snapshot(&head, "a");
    let stream = here.stream(&snapshot, None, 2);
    assert!(stream.len() > 16 << 20);
    there.receive(&stream, &copy, 2).0.unwrap();
    there.engine.commit().unwrap();
    assert!(contents(&copy) == contents(&head));
}

#[test]
fn an_increment_on_something_else_is_refused() {
    let (mut here, mut there) = (World::new(6, 0), World::new(7, 0));
    let head = here.open(None);
    here.scribble(&head, 500);
    let first = here.snapshot(&head, "a");
    here.scribble(&head, 50);
    let second = here.snapshot(&head, "b");
    let empty = there.open(None);
    let (result, lander) = there.receive(&here.stream(&second, Some(&first), 0), &empty, 0);
    assert!(matches!(result, Err(Error::MissingBlock { .. })), "{result:?}");
    assert_eq!((lander.finished, lander.abandoned), (0, 1));
}

#[test]
fn a_package_holds_several_streams_and_says_so() {
    let (mut here, mut there) = (World::new(8, 0), World::new(9, 0));
    let (head, copy) = (here.open(None), there.open(None));
    here.scribble(&head, 200);
    let first = here.snapshot(&head, "a");
    here.scribble(&head, 20);
    let second = here.snapshot(&head, "b");
    let mut sources = vec![source(&first, None), source(&second, Some(&first))];
    sources[0].begin.properties = Some(vec![("compression".into(), "zstd".into())]);
    let package =
        Package { root: "tank/home".into(), replicate: true, census: None, sources, watched: Watched::default() };
    let begins: Vec<_> = package.sources.iter().map(|source| source.begin.clone()).collect();
    let mut stream = Vec::new();
    let sent = send(package, &mut stream, 0, &mut |_| {}).unwrap();

    let contents_of = verify(&mut &stream[..], 2, &mut |_| {}).unwrap();
    assert_eq!((&contents_of.streams, contents_of.totals), (&begins, sent.totals));
    assert!(contents_of.start.replicate && contents_of.start.root == "tank/home");
    let (start, begin) = identify(&mut &stream[..]).unwrap();
    assert_eq!((start.streams, begin), (2, begins[0].clone()));

    let (result, lander) = there.receive(&stream, &copy, 0);
    assert_eq!((result.unwrap().streams, lander.begun, lander.finished), (2, 2, 2));
    there.engine.commit().unwrap();
    assert_eq!(contents(&copy), contents(&head));
}
