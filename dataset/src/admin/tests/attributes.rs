//! Attributes of files as a feature of the pool: labels and streams.

use std::sync::Arc;

use pool::{
    device::{Device, MemoryDevice},
    format::label::FILE_ATTRIBUTES,
    units::MIB,
    vdev::labels,
};
use rustix::io::Errno;

use super::world::{World, refusal};
use crate::{
    catalogue::{POOL, Transaction, keys, kind},
    error::Error,
    fs::{Attribute, FileAttributes, Ino, ROOT},
};

fn state(world: &World) -> &'static str {
    world.datasets.feature_state(FILE_ATTRIBUTES).unwrap()
}

fn find(world: &World, dataset: &str) -> Ino {
    world.fs(dataset).lookup(ROOT, b"file").unwrap().ino
}

fn append_only(world: &World, dataset: &str, on: bool) -> Result<(), Errno> {
    let turn = |attributes: &mut FileAttributes| {
        attributes.turn(Attribute::Append, on);
        Ok(())
    };
    world.fs(dataset).set_file_attributes(find(world, dataset), turn)
}

fn is_append_only(world: &World, dataset: &str) -> bool {
    world.fs(dataset).file_attributes(find(world, dataset)).unwrap().has(Attribute::Append)
}

/// Makes the pool look like an older program's, with all features disabled.
fn disable(world: &World) {
    let disable = |tx: &mut Transaction<'_>| tx.delete_range(keys(POOL, kind::PROPERTY));
    world.datasets.run(disable).unwrap();
    world.datasets.close_all().unwrap();
}

#[test]
fn the_feature_is_named_by_the_labels_before_it_is_used() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 64 * MIB));
    let mut world = World::on(device.clone(), 1);
    let named = || labels::read_label(&*device).unwrap().unwrap().features.contains_key(FILE_ATTRIBUTES);
    world.write("tank", "file", b"content");
    append_only(&world, "tank", false).unwrap();
    assert_eq!((state(&world), named()), ("enabled", false));
    append_only(&world, "tank", true).unwrap();
    assert_eq!((state(&world), named()), ("active", true));
    append_only(&world, "tank", false).unwrap();
    world.judge();
    world.reopen();
    assert_eq!((state(&world), named()), ("active", true));
}

#[test]
fn a_pool_without_the_feature_has_none_until_it_is_enabled() {
    let world = World::new(2);
    disable(&world);
    world.write("tank", "file", b"content");
    assert_eq!((append_only(&world, "tank", true), state(&world)), (Err(Errno::OPNOTSUPP), "disabled"));
    world.datasets.set_pool_property("feature@file_attributes", "enabled").unwrap();
    assert_eq!((append_only(&world, "tank", true), state(&world)), (Ok(()), "active"));
    world.judge();
}

#[test]
fn streams_say_whether_files_may_have_them() {
    let world = World::new(3);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", b"content");
    world.snapshot("tank/a@plain").unwrap();
    let plain = world.send("tank/a@plain", None, |_| {}).unwrap();
    append_only(&world, "tank/a", true).unwrap();
    world.snapshot("tank/a@one").unwrap();
    let special = world.send("tank/a@one", None, |_| {}).unwrap();

    let other = World::new(4);
    disable(&other);
    other.receive("tank/plain", &plain, false).unwrap();
    let refused = refusal(other.receive("tank/special", &special, false));
    assert!(matches!(&refused, Error::NotReceived { problem, .. } if problem.contains(FILE_ATTRIBUTES)), "{refused}");
    assert_eq!(state(&other), "disabled");
    other.datasets.set_pool_property("feature@file_attributes", "enabled").unwrap();
    other.receive("tank/special", &special, false).unwrap();
    assert_eq!((state(&other), is_append_only(&other, "tank/special")), ("active", true));
    assert!(!is_append_only(&other, "tank/plain"));
    other.judge();
}
