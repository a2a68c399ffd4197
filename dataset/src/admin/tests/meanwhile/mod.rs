//! Reads and writes while commands remove their data: each reader, stopped at its n-th read, and each writer, stopped
//! before its n-th step, beside each command that frees or replaces the data in use.
//!
//! Content identifies its state: every byte of a file is the number of a state. After the command, all freed space is
//! overwritten with foreign bytes as soon as reuse is allowed. So a reader that trusts a stale address returns foreign
//! bytes, and a reader that blames a device has counted an error. A reader may fail, or return the bytes of an existing
//! state. A reader of a whole snapshot always succeeds, because the command is refused.
//!
//! Beside a writer, new files are made after the command, with the inode numbers, and in a new dataset the names, of
//! files that are gone. A writer has written all bytes to its own target, or fails because the target is gone. No other
//! file gets the writer's bytes, owner, mode, attributes or names. A stream arrives entirely, or leaves nothing.
//!
//! Another reader, writer or command is another row: see [`readers::READERS`], [`writers::WRITERS`] and
//! [`changes::CHANGES`]. [`soak`] plays random cells.

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
use crate::error::{Error, Result};

/// The reads at which a reader is stopped.
const READS: [usize; 5] = [1, 2, 3, 5, 8];
/// The steps before which a writer is stopped.
const STEPS: [usize; 5] = [2, 4, 6, 9, 11];

/// Makes the changes in order; returns the results.
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

/// Repeats refused changes; alone none is refused.
fn make_again(scene: &Scene, cell: &str, changes: &[&Change], made: &[Result<()>]) {
    for (change, _) in changes.iter().zip(made).filter(|(_, made)| made.is_err()) {
        let made = (change.make)(scene);
        let is_good = made.as_ref().map_or_else(|error| changes.len() > 1 && is_refusal(error), |()| true);
        assert!(is_good, "{cell}, after it: {made:?}");
    }
}

fn prepare(scene: &Scene, changes: &[&Change]) {
    // A snapshot marked for deferred destruction gets no more clones, so deferring commands prepare last.
    let (later, first): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(|change| change.defers);
    first.into_iter().chain(later).for_each(|change| (change.prepare)(scene));
}

fn names(changes: &[&Change]) -> String {
    changes.iter().map(|change| change.name).collect::<Vec<_>>().join(", ")
}

/// One reader beside some commands, at one stop. True if the reader was stopped.
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
                // An earlier command, such as a promote, has moved the snapshot away.
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
        // A refused command may have renamed or promoted before.
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
        // The data read is gone. But held snapshots, and data merely near a change, must still be readable.
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

/// Whether some state has a file with the given name.
fn is_known(file: &str) -> bool {
    let name = file.trim_start_matches('/');
    let is_of = |known: &str| name.starts_with(known);
    name.len() <= 1 || FILES.into_iter().any(is_of) || is_of("only-in-") || is_of("more")
}

/// One writer beside some commands, at one stop. True if the writer was stopped.
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

/// One reader beside all commands.
fn play_all(reader: &str) {
    let reader = READERS.iter().find(|known| known.name == reader).expect("a row of the table");
    on_all_cells(|kind, change| {
        let stopped = READS.iter().filter(|stop| play(kind, reader, &[change], **stop)).count();
        assert!(stopped > 0, "{} was never stopped", reader.name);
    });
}

/// One writer beside all commands.
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
