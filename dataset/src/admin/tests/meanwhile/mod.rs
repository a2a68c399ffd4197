//! What is read or written while something takes it away: each reader, stopped at its n-th read, and each writer, stopped
//! before its n-th step, beside each command that frees or replaces what it reads or writes.
//!
//! The content says whose it is: every byte of a file is the number of its state. When the command is done, all that it has
//! freed is written over with another's bytes, as soon as that is allowed. So a reader that believes what it should not has
//! these bytes, and one that blames a device has counted an error there. A reader may fail, or give the bytes of a state that
//! there was; what reads a whole snapshot is right, for the command is refused.
//!
//! For a writer others make files after the command: these get the inode numbers, and in a new dataset the names, of those
//! that are gone. A writer has written all of it into what it was given, or fails because that is gone; nothing else has its
//! bytes, owner, mode, attributes or names, and a stream arrives as a whole or leaves nothing.
//!
//! One more reader, writer or command is one more row: see [`readers::READERS`], [`writers::WRITERS`] and
//! [`changes::CHANGES`]. [`soak`] plays cells that nobody has written down.

mod changes;
mod readers;
mod scene;
mod soak;
mod stopping;
mod writers;
mod written;

use std::thread;

use self::{
    changes::{CHANGES, Change, RECEIVED, is_refusal},
    readers::{READERS, Read, Reader},
    scene::{FILES, Kind, Scene, forget},
    stopping::Before,
    writers::{Given, WRITERS, Writer},
    written::{Ended, Target, has_arrived, others_come},
};
use super::world::World;
use crate::admin::{Error, Result};

/// At which of its reads a reader is stopped.
const READS: [usize; 5] = [1, 2, 3, 5, 8];
/// Before which of its steps a writer is stopped.
const STEPS: [usize; 5] = [2, 4, 6, 9, 11];

/// Makes changes in their order; what each said.
fn make(scene: &Scene, cell: &str, changes: &[&Change]) -> Vec<Result<()>> {
    let made = changes.iter().map(|change| {
        let made = (change.make)(scene);
        if let Err(error) = &made {
            assert!(is_refusal(error), "{cell}: {}: {error}", change.name);
        }
        made
    });
    made.collect()
}

/// Makes what was refused again; alone it is refused no more.
fn make_again(scene: &Scene, cell: &str, changes: &[&Change], made: &[Result<()>]) {
    for (change, _) in changes.iter().zip(made).filter(|(_, made)| made.is_err()) {
        let made = (change.make)(scene);
        let is_good = made.as_ref().map_or_else(|error| changes.len() > 1 && is_refusal(error), |()| true);
        assert!(is_good, "{cell}, after it: {made:?}");
    }
}

fn prepare(scene: &Scene, changes: &[&Change]) {
    // What is deferred gets no more clones.
    let (later, first): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(|change| change.defers);
    first.into_iter().chain(later).for_each(|change| (change.prepare)(scene));
}

fn names(changes: &[&Change]) -> String {
    changes.iter().map(|change| change.name).collect::<Vec<_>>().join(", ")
}

/// One reader beside some commands, at one stop. Whether the reader was stopped.
fn play(kind: &Kind, reader: &Reader, changes: &[&Change], stop: usize) -> bool {
    let cell = format!("{} beside {} at read {stop}, checksum={}", reader.name, names(changes), kind.checksum);
    let scene = Scene::new(kind);
    prepare(&scene, changes);
    scene.rest();
    let expected = (reader.read)(&scene).unwrap_or_else(|error| panic!("{cell}: {error}"));
    scene.engine.commit().unwrap();
    scene.settle();
    let before = scene.allocated();
    forget(&scene);
    let mut was_stopped = false;
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            scene.device.arm(Before::Read, stop);
            (reader.read)(&scene)
        });
        was_stopped = scene.device.wait(|| reading.is_finished());
        let made = make(&scene, &cell, changes);
        let is_held = was_stopped && reader.holds;
        for (change, made) in changes.iter().zip(&made) {
            match made {
                Err(Error::InUse { .. }) if is_held => {}
                Ok(()) if !(is_held && change.takes_snapshots) => {}
                // A command before it has moved the snapshot out of its way, such as a promotion.
                Ok(()) if changes.len() > 1 && scene.names().iter().any(|name| name.ends_with("@2")) => {}
                Err(_) if changes.len() > 1 => {}
                other => panic!("{cell}: {}: {other:?}", change.name),
            }
        }
        if reader.runs_short {
            scene.engine.storage().space.give_up_holds();
        }
        scene.reuse(&before);
        scene.device.go_on();
        // A command that was refused may have renamed or promoted before.
        let has_taken = changes
            .iter()
            .zip(&made)
            .any(|(change, made)| change.takes_snapshots && (made.is_ok() || changes.len() > 1));
        judge(&cell, reader, has_taken, &expected, reading.join().unwrap());
        make_again(&scene, &cell, changes, &made);
    });
    scene.is_unharmed(&cell);
    was_stopped
}

fn judge(cell: &str, reader: &Reader, has_taken: bool, expected: &Read, found: Result<Read, Error>) {
    match found {
        // What it read was taken away; but what is held, or only written beside, is there.
        Err(error) => {
            let is_there = reader.holds || !has_taken && !reader.runs_short;
            assert!(!is_there, "{cell}: {error}");
        }
        Ok(found) if reader.is_live => {
            let is_a_state = |byte: &u8| [1, 2, 3, RECEIVED].contains(byte);
            for (file, bytes) in &found {
                assert!(bytes.iter().all(is_a_state), "{cell}: '{file}' has bytes that it never had");
                assert!(is_known(file), "{cell}: there was never a '{file}'");
            }
        }
        Ok(found) => assert!(found == *expected, "{cell}: it is not what it was"),
    }
}

/// Whether a state has a file of this name.
fn is_known(file: &str) -> bool {
    let name = file.trim_start_matches('/');
    let is_of = |known: &str| name.starts_with(known);
    name.len() <= 1 || FILES.into_iter().any(is_of) || is_of("only-in-") || is_of("more")
}

/// One writer beside some commands, at one stop. Whether the writer was stopped.
fn play_writer(kind: &Kind, writer: &Writer, changes: &[&Change], stop: usize) -> bool {
    let cell = format!("{} beside {} at step {stop}, checksum={}", writer.name, names(changes), kind.checksum);
    let scene = Scene::new(kind);
    (writer.prepare)(&scene);
    prepare(&scene, changes);
    scene.rest();
    let before = scene.allocated();
    forget(&scene);
    let target = Target::of_writer(&scene, writer);
    let mut was_stopped = false;
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            scene.device.arm(Before::Step, stop);
            (writer.write)(&scene)
        });
        was_stopped = scene.device.wait(|| writing.is_finished());
        let had_arrived = has_arrived(&scene);
        let made = make(&scene, &cell, changes);
        let may_refuse = changes.len() > 1 || matches!(writer.given, Given::Stream { .. });
        assert!(may_refuse || made.iter().all(Result::is_ok), "{cell}: {made:?}");
        if was_stopped {
            others_come(&scene, writer);
        }
        scene.reuse(&before);
        scene.device.go_on();
        let lost_source = changes.iter().any(|change| change.takes_snapshots);
        let written = writing.join().unwrap();
        if was_stopped {
            Ended { cell: &cell, writer, target, lost_source, had_arrived, written }.judge(&scene);
        }
    });
    scene.is_unharmed(&cell);
    scene.world.judge();
    was_stopped
}

/// All commands beside one reader.
fn play_all(reader: &str) {
    let reader = READERS.iter().find(|known| known.name == reader).expect("a row of the table");
    on_all_cells(|kind, change| {
        let stopped = READS.iter().filter(|stop| play(kind, reader, &[change], **stop)).count();
        assert!(stopped > 0, "{} was never stopped", reader.name);
    });
}

/// All commands beside one writer.
fn play_all_beside_writing(writer: &str) {
    let writer = WRITERS.iter().find(|known| known.name == writer).expect("a row of the table");
    on_all_cells(|kind, change| {
        let stopped = STEPS.iter().filter(|stop| play_writer(kind, writer, &[change], **stop)).count();
        assert!(stopped > 0, "{} was never stopped", writer.name);
    });
}

fn on_all_cells(play: impl Fn(&Kind, &Change)) {
    for checksum in ["off", "on"] {
        CHANGES.iter().for_each(|change| play(&Kind::table(checksum), change));
    }
}

#[test]
fn a_snapshot_is_read_while_it_is_taken_away() {
    play_all("cat of a snapshot");
}

#[test]
fn a_file_is_read_while_its_data_set_is_replaced() {
    play_all("cat of a file");
}

#[test]
fn all_of_a_snapshot_is_copied_while_it_is_taken_away() {
    play_all("copy of a snapshot");
}

#[test]
fn a_snapshot_is_sent_while_it_is_taken_away() {
    play_all("send");
}

#[test]
fn snapshots_are_compared_while_they_are_taken_away() {
    play_all("diff of snapshots");
}

#[test]
fn a_data_set_is_compared_while_it_is_replaced() {
    play_all("diff to the dataset");
}

#[test]
fn a_data_set_is_compared_while_room_is_short() {
    play_all("diff to the dataset, short of room");
}

#[test]
fn a_file_is_written_while_its_data_set_is_replaced() {
    play_all_beside_writing("copy into a file");
}

#[test]
fn a_directory_is_written_while_its_data_set_is_replaced() {
    play_all_beside_writing("copy of a directory");
}

#[test]
fn a_snapshot_is_copied_to_what_is_replaced_with_it() {
    play_all_beside_writing("copy out of a snapshot into its dataset");
}

#[test]
fn a_snapshot_that_is_taken_away_is_copied_elsewhere() {
    play_all_beside_writing("copy out of a snapshot into another dataset");
}

#[test]
fn attributes_are_set_while_the_data_set_is_replaced() {
    play_all_beside_writing("setattr -R");
}

#[test]
fn projects_are_set_while_the_data_set_is_replaced() {
    play_all_beside_writing("project -r");
}

#[test]
fn a_full_stream_arrives_whatever_happens_beside_it() {
    play_all_beside_writing("receive of a full stream");
}

#[test]
fn an_increment_arrives_as_a_whole_or_leaves_nothing() {
    play_all_beside_writing("receive of an increment");
}

#[test]
fn an_increment_by_force_arrives_as_a_whole_or_not() {
    play_all_beside_writing("receive of an increment by force");
}

#[test]
fn every_row_of_the_table_is_played() {
    let source = include_str!("mod.rs");
    let is_played = |call: &str, name: &str| source.contains(&format!("{call}(\"{name}\")"));
    assert!(READERS.iter().all(|reader| is_played("play_all", reader.name)));
    assert!(WRITERS.iter().all(|writer| is_played("play_all_beside_writing", writer.name)));
}
