//! Merged streams, beside the streams that they were made from.

use super::{
    archives::{ME, of_snapshot, open, snapshot, three},
    world::{World, noise},
};
use crate::{
    fs::ROOT,
    stream::{
        archive::{self, Archive, Layers},
        merge,
    },
};

/// The merged stream of some streams, the last on top.
fn merged(streams: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let archives: Vec<Archive> = streams.iter().map(|stream| Archive::open(stream.clone()).unwrap()).collect();
    if let Some(error) = archives.iter().find_map(Archive::ended) {
        return Err(error.to_string());
    }
    let top = archives.last().unwrap();
    let layers = Layers::of((top, &top.streams()[0]), &archives);
    assert_eq!(layers.len(), streams.len());
    let mut out = Vec::new();
    let sent = merge(&layers, &mut out, &mut |_| {}).map_err(|error: archive::Error| error.to_string())?;
    assert_eq!(sent.bytes, out.len() as u64);
    Ok(out)
}

/// Receives streams one after another; the last must have the files of `tank/home@2`.
fn arrives(world: &World, seed: u64, streams: &[&[u8]]) {
    let copy = World::new(seed);
    for stream in streams {
        copy.receive("tank/copy", stream, false).unwrap();
    }
    let fs = copy.datasets.open_snapshot(&"tank/copy@2".parse().unwrap()).unwrap().fs;
    assert!(of_snapshot(&fs) == snapshot(world, 2), "the files differ");
    copy.judge();
}

#[test]
fn merged_streams_arrive_as_their_parts_do() {
    let (world, streams) = three(760);
    arrives(&world, 761, &[&streams[0], &streams[1], &streams[2]]);
    let full = merged(&streams).unwrap();
    assert!(full.len() < streams.iter().map(Vec::len).sum());
    arrives(&world, 762, &[&full]);
    let two = merged(&streams[..2]).unwrap();
    arrives(&world, 763, &[&two, &streams[2]]);
    // What was merged can be merged further, to the same stream.
    assert!(merged(&[two, streams[2].clone()]).unwrap() == full);
    let archives = [open(&full)];
    assert!(archives[0].is_indexed() && archives[0].streams()[0].begin.base.is_none());
}

#[test]
fn merged_increments_arrive_as_their_parts_do() {
    let (world, streams) = three(770);
    let increment = merged(&streams[1..]).unwrap();
    let archives = [open(&increment)];
    assert_eq!(archives[0].streams()[0].base().as_deref(), Some("tank/home@0"));
    arrives(&world, 771, &[&streams[0], &increment]);
}

#[test]
fn what_one_increment_cannot_express_is_refused() {
    let world = World::new(780);
    world.create("tank/home").unwrap();
    let fs = world.fs("tank/home");
    let file = fs.create(&ME, ROOT, b"file", 0o644, true).unwrap().ino;
    fs.write(file, 0, &noise(1, 128 << 10), false).unwrap();
    let mut streams = Vec::new();
    // The first increment cuts the record; the second replaces the part that has kept the record's key.
    for (number, at) in [(0, None), (1, Some(64 << 10)), (2, Some(0))] {
        if let Some(at) = at {
            fs.write(file, at, &noise(9 + at, 8 << 10), false).unwrap();
        }
        world.snapshot(&format!("tank/home@{number}")).unwrap();
        let base = (number > 0).then(|| format!("tank/home@{}", number - 1));
        streams.push(world.send(&format!("tank/home@{number}"), base.as_deref(), |_| ()).unwrap());
    }
    let Err(refused) = merged(&streams[1..]) else { panic!("no item keeps the key of the shared block") };
    assert!(refused.starts_with("the increments share a block of 'tank/home@0'"), "{refused}");
    arrives(&world, 781, &[&merged(&streams).unwrap()]);
}

#[test]
fn damage_is_never_merged() {
    let (_, streams) = three(790);
    let expected = merged(&streams).unwrap();
    let mut refused = 0;
    for number in 0..3 {
        for at in (0..streams[number].len()).step_by(streams[number].len() / 61) {
            let mut damaged = streams.clone();
            damaged[number][at] ^= 4;
            // A file without its magic is no stream.
            let Ok(_) = Archive::open(damaged[number].clone()) else { continue };
            match merged(&damaged) {
                Ok(stream) => assert!(stream == expected, "damage at byte {at} of {number} was copied"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused}");
}
