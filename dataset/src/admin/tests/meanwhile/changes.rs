//! The commands of the table: what frees or replaces what others read.

use super::{RECEIVED, World, put_state};
use crate::{
    admin::{DestroySnapshotsRequest, Result},
    fs::ROOT,
};

/// A column of the table.
pub(super) struct Change {
    pub(super) name: &'static str,
    /// What is to be there before, which nobody is stopped in.
    pub(super) prepare: fn(&World),
    pub(super) make: fn(&World) -> Result<()>,
    /// Whether it takes away a snapshot that readers read.
    pub(super) takes_snapshots: bool,
}

const PLAIN: Change = Change { name: "", prepare: |_| {}, make: |_| Ok(()), takes_snapshots: true };

/// All of them.
pub(super) const CHANGES: &[Change] = &[
    Change {
        name: "destroy of the snapshot",
        make: |world| world.destroy("tank/a@2", false, false).map(drop),
        ..PLAIN
    },
    Change { name: "destroy of all", make: |world| world.destroy("tank/a", true, false).map(drop), ..PLAIN },
    Change { name: "rollback", make: |world| world.rollback("tank/a@1", true, false).map(drop), ..PLAIN },
    Change { name: "receive by force", prepare: prepare_stream, make: receive, ..PLAIN },
    Change { name: "rename and destroy", make: rename_and_destroy, ..PLAIN },
    Change {
        name: "promote and destroy",
        prepare: |world| world.clone("tank/a@2", "tank/c").unwrap(),
        make: promote_and_destroy,
        ..PLAIN
    },
    Change { name: "release of the last hold", prepare: hold, make: release, ..PLAIN },
    Change {
        name: "destroy of the last clone",
        prepare: |world| {
            world.clone("tank/a@2", "tank/c").unwrap();
            defer(world);
        },
        make: |world| world.destroy("tank/c", false, false).map(drop),
        ..PLAIN
    },
    Change { name: "writing and removing", make: write_and_remove, takes_snapshots: false, ..PLAIN },
];

/// Leaves a stream beside: an increment on the first snapshot that others have made.
fn prepare_stream(world: &World) {
    let there = World::new(12);
    there.receive("tank/a", &world.send("tank/a@1", None, |_| {}).unwrap(), false).unwrap();
    put_state(&there, "tank/a", RECEIVED);
    there.snapshot("tank/a@received").unwrap();
    let stream = there.send("tank/a@received", Some("tank/a@1"), |_| {}).unwrap();
    world.create("tank/stream").unwrap();
    world.write("tank/stream", "stream", &stream);
}

fn receive(world: &World) -> Result<()> {
    let stream = world.files("tank/stream").remove("stream").unwrap();
    world.receive("tank/a", &stream, true).map(drop)
}

fn rename_and_destroy(world: &World) -> Result<()> {
    // The second time it has its new name already.
    if world.names().contains(&"tank/a".to_owned()) {
        world.datasets.rename(&"tank/a".parse().unwrap(), &"tank/b".parse().unwrap(), false, (0, 0))?;
    }
    world.destroy("tank/b", true, false).map(drop)
}

fn promote_and_destroy(world: &World) -> Result<()> {
    if world.names().contains(&"tank/a@2".to_owned()) {
        world.datasets.promote(&"tank/c".parse().unwrap())?;
    }
    world.destroy("tank/c", true, true).map(drop)
}

fn hold(world: &World) {
    world.datasets.hold("tag", &["tank/a@2".parse().unwrap()], false).unwrap();
    defer(world);
}

fn defer(world: &World) {
    let set = "tank/a@2".parse().unwrap();
    let request = DestroySnapshotsRequest { set, recursive: false, dependents: false, defer: true };
    assert_eq!(world.datasets.destroy_snapshots(request, false).unwrap().deferred, ["tank/a@2"]);
}

fn release(world: &World) -> Result<()> {
    world.datasets.release("tag", &["tank/a@2".parse().unwrap()], false)
}

fn write_and_remove(world: &World) -> Result<()> {
    let fs = world.fs("tank/a");
    for file in ["small", "other", "tiny"] {
        fs.unlink(ROOT, file.as_bytes()).unwrap();
    }
    world.write("tank/a", "more", &[3; 100_000]);
    Ok(())
}
