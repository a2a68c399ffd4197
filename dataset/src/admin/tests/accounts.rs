//! Accounts and quotas through the life of a dataset: snapshots, clones, rollbacks and streams include them.

use std::sync::Arc;

use pool::{
    device::{Device, MemoryDevice},
    format::{key::Key, label::PROJECT_QUOTA},
    tree::{Batch, View},
    txg::Plain,
    units::MIB,
    vdev::labels,
};
use rustix::io::Errno;

use super::world::{World, name, refusal};
use crate::{
    admin::Assignment,
    catalogue::{POOL, Transaction, keys, kind},
    error::Error,
    fs::{
        FileSystem, SetQuota,
        key::{ACCOUNTING, DATASET, PROJECT},
    },
    property::OwnerKind,
};

/// The bytes, objects and byte quota of root.
fn root_of(fs: &FileSystem) -> (u64, u64, u64) {
    let account = fs.account(OwnerKind::User, 0).unwrap();
    (account.used.bytes, account.used.objects, account.quota.bytes)
}

fn root(world: &World, dataset: &str) -> (u64, u64, u64) {
    root_of(&world.fs(dataset))
}

fn in_snapshot(world: &World, snapshot: &str) -> (u64, u64, u64) {
    root_of(&world.datasets.open_snapshot(&snapshot.parse().unwrap()).unwrap().fs)
}

fn limit(world: &World, dataset: &str, bytes: u64) -> Result<(), Errno> {
    world.fs(dataset).set_quota(OwnerKind::User, 0, SetQuota { bytes: Some(bytes), objects: None })
}

fn state(world: &World) -> &'static str {
    world.datasets.feature_state(PROJECT_QUOTA).unwrap()
}

#[test]
fn snapshots_clones_and_rollbacks_keep_their_accounts() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 256 * MIB));
    let mut world = World::on(device.clone(), 1);
    let named = || labels::read_label(&*device).unwrap().unwrap().features.contains_key(PROJECT_QUOTA);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &[1; 5000]);
    world.snapshot("tank/a@before").unwrap();
    assert_eq!((state(&world), named()), ("enabled", false));
    limit(&world, "tank/a", 100_000).unwrap();
    assert_eq!((state(&world), named()), ("active", true));
    world.write("tank/a", "more", &[2; 7000]);
    world.snapshot("tank/a@after").unwrap();
    world.write("tank/a", "third", &[3; 90_000 - 2000]);
    assert_eq!(world.try_write("tank/a", "fourth", &[]), Ok(()));
    assert_eq!(world.try_write("tank/a", "fourth", &[4]), Err(Errno::DQUOT));
    assert_eq!(root(&world, "tank/a"), (100_000, 5, 100_000));
    assert_eq!(
        (in_snapshot(&world, "tank/a@before"), in_snapshot(&world, "tank/a@after")),
        ((5000, 2, 0), (12_000, 3, 100_000))
    );

    world.clone("tank/a@after", "tank/clone").unwrap();
    world.clone("tank/a@before", "tank/plain").unwrap();
    world.remove("tank/clone", "more");
    assert_eq!((root(&world, "tank/clone"), root(&world, "tank/plain")), ((5000, 2, 100_000), (5000, 2, 0)));
    world.reopen();
    world.judge();
    world.rollback("tank/a@after", false, false).unwrap();
    assert_eq!(root(&world, "tank/a"), (12_000, 3, 100_000));
    world.remove("tank/a", "file");
    world.rollback("tank/a@before", true, true).unwrap();
    world.write("tank/a", "again", &[5; 1000]);
    assert_eq!(root(&world, "tank/a"), (6000, 3, 0), "they are as before anybody asked, and counted anew");
    world.work();
    world.judge();
}

#[test]
fn streams_carry_accounts_where_they_can_be_kept() {
    let world = World::new(3);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &[1; 5000]);
    limit(&world, "tank/a", 20_000).unwrap();
    world.snapshot("tank/a@one").unwrap();
    let full = world.send("tank/a@one", None, |_| {}).unwrap();
    world.write("tank/a", "more", &[2; 7000]);
    world.snapshot("tank/a@two").unwrap();
    let next = world.send("tank/a@two", Some("tank/a@one"), |_| {}).unwrap();

    let other = World::new(4);
    let disable = |tx: &mut Transaction<'_>| tx.delete_range(keys(POOL, kind::PROPERTY));
    other.datasets.run(disable).unwrap();
    other.datasets.close_all().unwrap();
    assert_eq!(limit(&other, "tank", 5), Err(Errno::OPNOTSUPP));
    other.datasets.set_pool_property("feature@file_attributes", "enabled").unwrap();
    let refused = refusal(other.receive("tank/b", &full, false));
    assert!(matches!(&refused, Error::NotReceived { problem, .. } if problem.contains(PROJECT_QUOTA)), "{refused}");
    other.datasets.set_pool_property("feature@project_quota", "enabled").unwrap();
    other.receive("tank/b", &full, false).unwrap();
    assert_eq!((root(&other, "tank/b"), state(&other)), ((5000, 2, 20_000), "active"));
    other.receive("tank/b", &next, false).unwrap();
    assert_eq!(root(&other, "tank/b"), (12_000, 3, 20_000));
    assert_eq!(other.try_write("tank/b", "third", &[3; 70_000]), Err(Errno::DQUOT));
    other.judge();
}

#[test]
fn accounts_of_which_a_stream_does_not_speak_are_refused() {
    for (index, (kind, body)) in [(ACCOUNTING, &[1, 0][..]), (PROJECT, &[1, 5, 1, 0, 0])].into_iter().enumerate() {
        let world = World::new(6 + index as u64);
        world.create("tank/a").unwrap();
        let put = |_: &View<'_>, batch: &mut Batch| {
            batch.put(Key::new(DATASET, kind, 0), body, None);
            Ok::<_, Plain>(())
        };
        world.fs("tank/a").head().update(put).unwrap();
        world.snapshot("tank/a@one").unwrap();
        let stream = world.send("tank/a@one", None, |_| {}).unwrap();
        assert_eq!(state(&world), "enabled");
        let refused = refusal(world.receive("tank/b", &stream, false));
        assert!(matches!(&refused, Error::NotReceived { problem, .. } if problem.contains("accounts")), "{refused}");
        assert_eq!(state(&world), "enabled");
    }
}

#[test]
fn a_rollback_to_accounts_goes_on_with_them() {
    let world = World::new(8);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &[1; 5000]);
    limit(&world, "tank/a", 20_000).unwrap();
    world.snapshot("tank/a@one").unwrap();
    // As after a stream that has removed the accounts.
    let delete = |view: &View<'_>, batch: &mut Batch| {
        for entry in view.range(Key::new(DATASET, ACCOUNTING, 0)..Key::new(DATASET, PROJECT + 1, 0)) {
            batch.delete(entry.map_err(Plain::from)?.key());
        }
        Ok::<_, Plain>(())
    };
    let fs = world.fs("tank/a");
    fs.head().update(delete).unwrap();
    fs.tree_replaced().unwrap();
    world.rollback("tank/a@one", false, false).unwrap();
    world.write("tank/a", "more", &[2; 1000]);
    assert_eq!(root(&world, "tank/a"), (6000, 3, 20_000));
    world.judge();
}

#[test]
fn quotas_are_not_kept_among_the_properties() {
    let world = World::new(5);
    let given = Assignment { property: "userquota@0".into(), value: "1000".into() };
    let refused = refusal(world.datasets.set(&[name("tank").into()], &[given]));
    assert!(matches!(refused, Error::NotApplicable { .. }), "{refused}");
}
