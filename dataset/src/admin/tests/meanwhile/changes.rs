//! The commands of the table: each frees or replaces data that a reader or writer is using.

use super::{World, scene::Scene};
use crate::{
    admin::DestroySnapshotsRequest,
    error::{Error, Result},
    fs::ROOT,
};

/// The state that a stream brings.
pub(super) const RECEIVED: u8 = 9;

/// A column of the table.
pub(super) struct Change {
    pub(super) name: &'static str,
    /// Preparations before the command, during which no thread is stopped.
    pub(super) prepare: fn(&Scene),
    pub(super) make: fn(&Scene) -> Result<()>,
    /// Whether the command removes a snapshot in use by readers.
    pub(super) takes_snapshots: bool,
    /// Whether the command marks the snapshot for deferred destruction.
    pub(super) defers: bool,
}

const PLAIN: Change = Change { name: "", prepare: |_| {}, make: |_| Ok(()), takes_snapshots: true, defers: false };

/// All commands.
pub(super) const CHANGES: &[Change] = &[
    Change {
        name: "destroy of the snapshot",
        make: |scene| scene.destroy("tank/a@2", false, false).map(drop),
        ..PLAIN
    },
    Change { name: "destroy of all", make: |scene| scene.destroy("tank/a", true, false).map(drop), ..PLAIN },
    Change { name: "rollback", make: |scene| scene.rollback("tank/a@1", true, false).map(drop), ..PLAIN },
    Change {
        name: "receive by force",
        prepare: |scene| leave_stream(scene, "tank/stream", Some("tank/a@1"), (RECEIVED, "received")),
        make: |scene| scene.receive("tank/a", &stream(scene, "tank/stream"), true).map(drop),
        ..PLAIN
    },
    Change { name: "rename and destroy", make: rename_and_destroy, ..PLAIN },
    Change { name: "promote and destroy", prepare: clone, make: promote_and_destroy, ..PLAIN },
    Change { name: "release of the last hold", prepare: hold, make: release, defers: true, ..PLAIN },
    Change {
        name: "destroy of the last clone",
        prepare: |scene| {
            clone(scene);
            defer(scene);
        },
        make: |scene| scene.destroy("tank/c", false, false).map(drop),
        defers: true,
        ..PLAIN
    },
    Change { name: "writing and removing", make: write_and_remove, takes_snapshots: false, ..PLAIN },
];

/// Whether a request was refused because an object exists, or no longer exists.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::Exists { .. }
            | Error::HasChildren { .. }
            | Error::HasSnapshots { .. }
            | Error::HasClones { .. }
            | Error::Held { .. }
            | Error::NotClone { .. }
            | Error::NotReceived { .. }
            | Error::Busy { .. }
            | Error::InUse { .. }
    )
}

/// Leaves a stream in a file of a dataset: the given state, made by another pool from `base` or from an empty dataset.
pub(super) fn leave_stream(scene: &Scene, dataset: &str, base: Option<&str>, (state, name): (u8, &str)) {
    let there = World::new(12);
    match base {
        Some(base) => drop(there.receive("tank/a", &scene.send(base, None, |_| {}).unwrap(), false).unwrap()),
        None => drop(there.create("tank/a").unwrap()),
    }
    scene.kind.put_state(&there, "tank/a", state);
    let snapshot = format!("tank/a@{name}");
    there.snapshot(&snapshot).unwrap();
    let stream = there.send(&snapshot, base, |_| {}).unwrap();
    scene.create(dataset).unwrap();
    scene.write(dataset, "stream", &stream);
}

/// The stream left in a dataset by [`leave_stream`].
pub(super) fn stream(scene: &Scene, dataset: &str) -> Vec<u8> {
    scene.files(dataset).remove("stream").unwrap()
}

fn rename_and_destroy(scene: &Scene) -> Result<()> {
    // At the second call the dataset already has the new name.
    if scene.names().contains(&"tank/a".to_owned()) {
        scene.datasets.rename(&"tank/a".parse().unwrap(), &"tank/b".parse().unwrap(), false, (0, 0))?;
    }
    scene.destroy("tank/b", true, false).map(drop)
}

fn clone(scene: &Scene) {
    if !scene.names().contains(&"tank/c".to_owned()) {
        scene.world.clone("tank/a@2", "tank/c").unwrap();
    }
}

fn promote_and_destroy(scene: &Scene) -> Result<()> {
    if scene.names().contains(&"tank/a@2".to_owned()) {
        scene.datasets.promote(&"tank/c".parse().unwrap())?;
    }
    scene.destroy("tank/c", true, true).map(drop)
}

fn hold(scene: &Scene) {
    scene.datasets.hold("tag", &["tank/a@2".parse().unwrap()], false).unwrap();
    defer(scene);
}

fn defer(scene: &Scene) {
    let set = "tank/a@2".parse().unwrap();
    let request = DestroySnapshotsRequest { set, recursive: false, dependents: false, defer: true };
    assert_eq!(scene.datasets.destroy_snapshots(request, false).unwrap().deferred, ["tank/a@2"]);
}

fn release(scene: &Scene) -> Result<()> {
    scene.datasets.release("tag", &["tank/a@2".parse().unwrap()], false)
}

fn write_and_remove(scene: &Scene) -> Result<()> {
    let fs = scene.datasets.open_dataset(&"tank/a".parse().unwrap())?.fs().clone();
    for file in ["small", "other", "tiny"] {
        fs.unlink(ROOT, file.as_bytes()).unwrap();
    }
    scene.write("tank/a", "more", &[3; 100_000]);
    Ok(())
}
