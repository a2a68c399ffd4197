//! Streams that are cut off, damaged, foreign or forged: an error each time, and nothing lands.

use std::io::Read;

use pool::{
    env::{Env, SeededEnv},
    format::key::Key,
    units::Guid,
};

use super::world::{World, contents};
use crate::{
    fs::key::position,
    stream::{
        Begin, Census, Counted, Error, Start, Totals,
        crew::Crew,
        frame::{FrameReader, FrameWriter, Kind, Place, RESUMED_VERSION, VERSION},
        index::{Index, Trailer},
        range::{Origin, Range},
        steps::Steps,
        verify,
    },
};

/// A full stream of a small tree, and an incremental stream based on the full one.
fn streams(world: &mut World) -> (Vec<u8>, Vec<u8>) {
    let head = world.open(None);
    world.scribble(&head, 60);
    let first = world.snapshot(&head, "a");
    world.scribble(&head, 10);
    let second = world.snapshot(&head, "b");
    (world.stream(&first, None, 0), world.stream(&second, Some(&first), 0))
}

/// The offset of each record, and of the end.
fn bounds(stream: &[u8]) -> Vec<usize> {
    let mut input = stream;
    let mut frames = FrameReader::new(&mut input, 0).unwrap();
    let mut bounds = vec![frames.offset() as usize];
    while (frames.offset() as usize) < stream.len() {
        frames.next().unwrap();
        bounds.push(frames.offset() as usize);
    }
    bounds
}

fn refused(stream: &[u8]) -> Error {
    verify(&mut &stream[..], 0, &mut |_| {}).expect_err("a bad stream is refused")
}

#[test]
fn a_stream_cut_anywhere_is_refused_and_never_lands() {
    let mut world = World::new(1, 0);
    let (full, _) = streams(&mut world);
    let bounds = bounds(&full);
    let mut cuts: Vec<usize> =
        bounds.iter().flat_map(|at| [at.saturating_sub(1), *at, at + 1, at + 8, at + 20]).collect();
    cuts.extend((0..full.len()).step_by(full.len() / 100));
    cuts.retain(|cut| *cut < full.len());
    for cut in cuts {
        let error = refused(&full[..cut]);
        assert!(matches!(error, Error::Truncated { .. }), "cut at {cut}: {error}");
        if bounds.contains(&cut) {
            let head = world.open(None);
            let (result, lander) = world.receive(&full[..cut], &head, 0);
            assert!(result.is_err());
            assert_eq!((lander.finished, lander.abandoned), (0, lander.begun), "cut at {cut}");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_and_never_lands() {
    let mut world = World::new(2, 0);
    let (full, _) = streams(&mut world);
    let random = SeededEnv::new(3);
    let bounds = bounds(&full);
    let heads = bounds.iter().flat_map(|at| (*at..at + 10).chain(at.saturating_sub(3)..*at));
    let others = (0..300).map(|_| random.random() as usize % full.len());
    for at in heads.chain(others).filter(|at| *at < full.len()) {
        let mut bad = full.clone();
        bad[at] ^= 1 << (random.random() % 8);
        refused(&bad);
    }
    for _ in 0..60 {
        let mut bad = full.clone();
        let at = random.random() as usize % full.len();
        bad[at] ^= 1 << (random.random() % 8);
        let head = world.open(None);
        let (result, lander) = world.receive(&bad, &head, 0);
        assert!(result.is_err(), "flipped at {at}");
        assert_eq!((lander.finished, lander.abandoned), (0, lander.begun), "flipped at {at}");
    }
}

#[test]
fn records_cut_out_doubled_or_swapped_are_noticed() {
    let mut world = World::new(4, 0);
    let (full, _) = streams(&mut world);
    let bounds = bounds(&full);
    let record = |number: usize| &full[bounds[number]..bounds[number + 1]];
    for number in 0..bounds.len() - 2 {
        let (head, tail) = (&full[..bounds[number]], &full[bounds[number + 1]..]);
        refused(&[head, tail].concat());
        refused(&[head, record(number), record(number), tail].concat());
        let after = &full[bounds[number + 2]..];
        refused(&[head, record(number + 1), record(number), after].concat());
    }
}

#[test]
fn other_input_is_reported_as_no_stream() {
    assert!(matches!(refused(b"#!/bin/sh\n"), Error::Foreign));
    assert!(matches!(refused(&[0; 4096]), Error::Foreign));
    assert!(matches!(refused(b""), Error::Truncated { offset: 0, .. }));
    let newer = [&b"CENOTESTREAM"[..], &7u32.to_le_bytes(), &[0; 100]].concat();
    assert!(matches!(refused(&newer), Error::Version { version: 7, .. }));
}

#[test]
fn an_endless_promise_is_refused_before_memory_is_taken() {
    let mut stream = Vec::new();
    FrameWriter::new(&mut stream, VERSION).unwrap();
    stream.extend([Kind::Start as u8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(refused(&stream), Error::Damaged { record: 0, .. }));
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the wire was cut"))
        }
    }
    assert!(matches!(verify(&mut Broken, 0, &mut |_| {}), Err(Error::Read { offset: 0, .. })));
}

#[test]
fn a_census_stands_before_the_streams_and_ends() {
    let package = |before: usize, after: usize| {
        let mut out = Vec::new();
        let mut frames = FrameWriter::new(&mut out, VERSION).unwrap();
        let start = Start { root: "tank".into(), replicate: true, streams: 1, census: None };
        frames.put(Kind::Start, &start.encode()).unwrap();
        let snapshots = vec![(Guid(1), "a".to_owned())];
        let census = Census { datasets: vec![Counted { dataset: "tank".into(), snapshots }] };
        let record = census.encode().unwrap().remove(0);
        (0..before).for_each(|_| frames.put(Kind::Census, &record).unwrap());
        let begin = Begin { dataset: "tank".into(), snapshot: "a".into(), layout: 1, ..Begin::default() };
        let mut index = Index::default();
        index.begin(frames.offset(), frames.chain());
        frames.put(Kind::Begin, &begin.encode()).unwrap();
        (0..after).for_each(|_| frames.put(Kind::Census, &record).unwrap());
        frames.put(Kind::End, &Totals::default().encode()).unwrap();
        frames.put(Kind::Finish, &[]).unwrap();
        let trailer = Trailer { index: frames.offset(), before: frames.chain() };
        frames.put(Kind::Index, &index.encode()[0]).unwrap();
        frames.put(Kind::Trailer, &trailer.encode()).unwrap();
        out
    };
    assert!(verify(&mut &package(0, 0)[..], 0, &mut |_| {}).unwrap().start.census.is_none());
    let start = verify(&mut &package(16, 0)[..], 0, &mut |_| {}).unwrap().start;
    assert_eq!(start.census.unwrap().datasets.len(), 16);
    assert!(matches!(refused(&package(17, 0)), Error::Damaged { record: 17, .. }));
    assert!(matches!(refused(&package(1, 1)), Error::Damaged { record: 3, .. }));
}

/// Changes one record's payload and recomputes the chain, as an attacker would.
fn forge(stream: &[u8], random: &SeededEnv) -> Vec<u8> {
    let mut input = stream;
    let mut frames = FrameReader::new(&mut input, 0).unwrap();
    let mut records = Vec::new();
    while (frames.offset() as usize) < stream.len() {
        records.push(frames.next().unwrap());
    }
    let forged = random.random() as usize % records.len();
    let payload = &mut records[forged].payload;
    for _ in 0..1 + random.random() % 3 {
        if !payload.is_empty() {
            let at = random.random() as usize % payload.len();
            payload[at] = random.random() as u8;
        }
    }
    let mut out = Vec::new();
    let mut writer = FrameWriter::new(&mut out, VERSION).unwrap();
    let mut trailer = None;
    for record in &records {
        if record.kind == Kind::Index {
            trailer.get_or_insert(Trailer { index: writer.offset(), before: writer.chain() });
        }
        match record.kind {
            Kind::Trailer => writer.put(Kind::Trailer, &trailer.unwrap().encode()).unwrap(),
            Kind::Block => {
                writer.put_block(record.payload.as_slice().try_into().unwrap(), record.data.clone()).unwrap()
            }
            kind => writer.put(kind, &record.payload).unwrap(),
        }
    }
    out
}

#[test]
fn forged_records_do_no_harm() {
    let mut world = World::new(5, 0);
    let (full, increment) = streams(&mut world);
    let random = SeededEnv::new(6);
    let base = world.open(None);
    world.receive(&full, &base, 0).0.unwrap();
    let base = world.snapshot(&base, "base");
    let mut landed = 0;
    for round in 0..400 {
        let (forged, head) = match round % 2 {
            0 => (forge(&full, &random), world.open(None)),
            _ => (forge(&increment, &random), world.open(Some(&base))),
        };
        let (result, lander) = world.receive(&forged, &head, 0);
        assert_eq!((lander.finished, lander.abandoned), if result.is_ok() { (1, 0) } else { (0, lander.begun) });
        if result.is_ok() {
            contents(&head);
            landed += 1;
        }
        world.engine.close_head(head.id());
    }
    world.engine.commit().unwrap();
    assert!((10..390).contains(&landed), "{landed} of the forgeries were streams by the rules");
}

#[test]
fn empty_ranges_are_applied_before_they_are_many() {
    let (mut steps, crew) = (Steps::default(), Crew::new(0));
    for object in 0..10_000 {
        steps.range(Place::default(), Range::new(Key::new(object, 0, 0), Key::new(object + 1, 0, 0)), &crew);
    }
    let due = std::iter::from_fn(|| steps.next(16 << 20)).count();
    assert!(due > 5000, "{due} steps are due");
}

#[test]
fn no_stream_brings_the_position_of_a_receive() {
    let mut out = Vec::new();
    let mut frames = FrameWriter::new(&mut out, VERSION).unwrap();
    let start = Start { root: "tank".into(), replicate: false, streams: 1, census: None };
    frames.put(Kind::Start, &start.encode()).unwrap();
    let begin = Begin { dataset: "tank".into(), snapshot: "a".into(), layout: 1, ..Begin::default() };
    frames.put(Kind::Begin, &begin.encode()).unwrap();
    let mut range = Range::new(Key::MIN, Key::MAX);
    range.push(position(), b"forged", Origin::None);
    frames.put(Kind::Range, &range.encode()).unwrap();
    let Error::Damaged { problem, .. } = refused(&out) else { panic!("it is damaged") };
    assert!(problem.contains("only an unfinished receive has"), "{problem}");
}

#[test]
fn only_version_2_has_streams_that_start_at_a_key() {
    let package = |version: u32| {
        let mut out = Vec::new();
        let mut frames = FrameWriter::new(&mut out, version).unwrap();
        let start = Start { root: "tank".into(), replicate: false, streams: 1, census: None };
        frames.put(Kind::Start, &start.encode()).unwrap();
        let resumed = Some(Key::new(7, 0, 0));
        let begin = Begin { dataset: "tank".into(), snapshot: "a".into(), layout: 1, resumed, ..Begin::default() };
        let mut index = Index::default();
        index.begin(frames.offset(), frames.chain());
        frames.put(Kind::Begin, &begin.encode()).unwrap();
        // A range before the start is refused in either version.
        let early = Range::new(Key::new(6, 0, 0), Key::new(8, 0, 0));
        frames.put(Kind::Range, &early.encode()).unwrap();
        out
    };
    let about = |stream: &[u8]| match refused(stream) {
        Error::Damaged { problem, .. } => problem,
        error => panic!("{error}"),
    };
    assert!(about(&package(VERSION)).contains("starts at its first key"));
    assert!(about(&package(RESUMED_VERSION)).contains("starts before the end"));
}
