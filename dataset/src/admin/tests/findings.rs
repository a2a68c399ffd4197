//! Plants each kind of damage, and expects the finding.
//!
//! [`planting`] has an arm for each kind, so a new kind without a planting does not compile; the tests below plant more
//! damage of the same kinds.

use std::collections::BTreeSet;

use pool::{
    format::{key::Key, pointer::BlockPointer},
    units::{ChunkId, Txg},
};

use super::world::{World, noise};
use crate::{
    catalogue::{
        Bucket, DatasetRow, Hold, MASTER, Master, Named, POOL, SHARING, SharedRow, SharingRow, SnapshotRow,
        Transaction, dataset_key, decode_page, encode_page, keys, kind, snapshot_key,
    },
    error::Result,
    lineage::check::FindingKind,
};

/// A dataset with snapshots, deadlists, a clone and a hold.
fn world() -> World {
    let world = World::new(51);
    world.create("tank/a").unwrap();
    for round in 0..3 {
        for index in 0..4 {
            world.write("tank/a", &format!("file{index}"), &noise(round * 10 + index + 1, 30_000));
        }
        world.snapshot(&format!("tank/a@{round}")).unwrap();
    }
    world.write("tank/a", "file0", b"small");
    world.create("tank/other").unwrap();
    world.copy("tank/a", "file1", "tank/other", "copy");
    world.clone("tank/a@1", "tank/b").unwrap();
    world.datasets.hold("tag", &["tank/a@0".parse().unwrap()], false).unwrap();
    world.engine.commit().unwrap();
    world.judge();
    world
}

/// The ids of the objects in the world.
struct Ids {
    dataset: u64,
    clone: u64,
    snapshots: Vec<u64>,
    deadlist: u64,
}

fn ids(world: &World) -> Ids {
    let id = |name: &str| match world.datasets.resolve(&name.parse().unwrap()).unwrap() {
        crate::admin::Target::Dataset(id) | crate::admin::Target::Snapshot(id) => id,
        crate::admin::Target::Bookmark(..) => unreachable!("none was made"),
    };
    let snapshots: Vec<u64> = (0..3).map(|index| id(&format!("tank/a@{index}"))).collect();
    let newest = snapshots[2];
    let deadlist = world.datasets.read(|tx| Ok(tx.row::<SnapshotRow>(snapshot_key(newest))?.deadlist)).unwrap();
    Ids { dataset: id("tank/a"), clone: id("tank/b"), snapshots, deadlist }
}

type Damage = fn(&mut Transaction<'_>, &Ids) -> Result<()>;

/// Plants damage and expects the finding.
fn planted(kind: FindingKind, damage: impl Fn(&mut Transaction<'_>, &Ids) -> Result<()> + Send + 'static) {
    let world = world();
    let ids = ids(&world);
    world.datasets.run(move |tx| damage(tx, &ids)).unwrap();
    let findings = world.findings();
    assert!(findings.iter().any(|finding| finding.kind == kind), "{kind:?} is not among {findings:#?}");
    assert!(findings.iter().all(|finding| !finding.to_string().is_empty()));
}

/// A damage that the check reports as `kind`, and the other kinds that the check reports for the same damage.
fn planting(kind: FindingKind) -> (Damage, &'static [FindingKind]) {
    use FindingKind as K;
    match kind {
        K::Row => (
            |tx, ids| {
                tx.put_body(Key::new(ids.dataset, 99, 0), Default::default());
                Ok(())
            },
            &[],
        ),
        K::Name => (|tx, ids| edit_dataset(tx, ids.dataset, |row| row.children = 7), &[]),
        K::Line => (|tx, ids| edit_snapshot(tx, ids.snapshots[0], |row| row.next = 0), &[]),
        K::Clone => (
            |tx, ids| {
                tx.delete(Key::new(ids.snapshots[1], kind::CLONE, ids.clone));
                Ok(())
            },
            &[],
        ),
        K::Hold => (|tx, ids| tx.delete_named::<Hold>(ids.snapshots[0], kind::HOLD, "tag").map(drop), &[]),
        K::Node => (
            |tx, ids| {
                let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(ids.dataset))?;
                let mut root = root.expect("a dataset has a tree");
                root.addresses[0].chunk = ChunkId(999);
                tx.put(dataset_key(ids.dataset), &row, Some(root));
                Ok(())
            },
            &[K::Referenced, K::NotDead, K::Used],
        ),
        K::Intruder => (
            |tx, ids| {
                let (row, _) = tx.row_and_block::<SnapshotRow>(snapshot_key(ids.snapshots[2]))?;
                let (_, older) = tx.row_and_block::<SnapshotRow>(snapshot_key(ids.snapshots[0]))?;
                tx.put(snapshot_key(ids.snapshots[2]), &row, older);
                Ok(())
            },
            &[K::NotDead, K::Dead, K::Total],
        ),
        K::Referenced => (|tx, ids| edit_dataset(tx, ids.dataset, |row| row.referenced.allocated += 4096), &[]),
        K::NotDead => {
            (|tx, ids| edit_page(tx, ids, |blocks| blocks.truncate(blocks.len() - 1)), &[K::DeadTotal, K::Used])
        }
        K::Dead => (|tx, ids| edit_page(tx, ids, |blocks| blocks.push(blocks[0])), &[K::DeadTotal, K::Used]),
        K::Bucket => (
            |tx, ids| {
                let (key, bucket) = first_bucket(tx, ids)?;
                tx.delete(key);
                tx.put(Key { offset: u64::from(u32::MAX), ..key }, &bucket, None);
                Ok(())
            },
            &[],
        ),
        K::DeadTotal => (|tx, ids| edit_snapshot(tx, ids.snapshots[1], |row| row.dead.logical += 1), &[]),
        K::Page => (
            |tx, ids| {
                let (_, bucket) = first_bucket(tx, ids)?;
                let key = tx.last_key(keys(bucket.last, kind::PAGE))?.expect("a list has a page");
                tx.put_body(key, Default::default());
                Ok(())
            },
            &[K::NotDead, K::DeadTotal, K::Used],
        ),
        K::List => (
            |tx, ids| {
                let (key, _) = first_bucket(tx, ids)?;
                tx.delete(key);
                Ok(())
            },
            &[K::NotDead, K::DeadTotal, K::Used],
        ),
        K::Used => (|tx, ids| edit_dataset(tx, ids.dataset, |row| row.used_snapshots.logical += 1), &[]),
        K::Total => (|tx, _| tx.edit_master(|master: &mut Master| master.physical.allocated += 1), &[]),
        K::Freed => (
            |tx, ids| {
                let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(ids.dataset))?;
                let root = root.expect("a dataset has a tree");
                crate::lineage::work::free_tree(tx, root, row.level, Txg::ZERO, Default::default())
            },
            &[],
        ),
        K::References => (|tx, _| edit_shared(tx, |row| row.more += 1), &[K::Sharing]),
        K::Sharing => (
            |tx, _| {
                let sharing: SharingRow = tx.row(SHARING)?;
                tx.set(SHARING, &SharingRow { blocks: sharing.blocks + 1, ..sharing })
            },
            &[],
        ),
    }
}

/// Changes the first row of a shared block.
fn edit_shared(tx: &mut Transaction<'_>, edit: impl Fn(&mut SharedRow)) -> Result<()> {
    let key = tx.first_key(keys(POOL, kind::SHARED))?.expect("a block is shared");
    let mut row: SharedRow = tx.row(key)?;
    edit(&mut row);
    tx.set(key, &row)
}

#[test]
fn references_that_are_counted_wrong() {
    planted(FindingKind::References, |tx, _| edit_shared(tx, |row| row.more = 0));
    planted(FindingKind::References, |tx, _| edit_shared(tx, |row| row.birth = row.birth.next()));
    planted(FindingKind::References, |tx, _| edit_shared(tx, |row| row.space.allocated += 4096));
    planted(FindingKind::References, |tx, _| {
        let key = tx.first_key(keys(POOL, kind::SHARED))?.expect("a block is shared");
        tx.delete(key);
        Ok(())
    });
    planted(FindingKind::References, |tx, _| {
        let key = tx.first_key(keys(POOL, kind::SHARED))?.expect("a block is shared");
        let row: SharedRow = tx.row(key)?;
        tx.put(Key { offset: key.offset + (1 << 40), ..key }, &row, None);
        Ok(())
    });
    planted(FindingKind::Sharing, |tx, _| {
        tx.delete(SHARING);
        Ok(())
    });
}

#[test]
fn each_kind_is_planted_and_seen_as_itself() {
    let mut wrong = Vec::new();
    for &kind in FindingKind::ALL {
        let (damage, with_it) = planting(kind);
        let (world, expected) = (world(), with_it.iter().copied().chain([kind]).collect::<BTreeSet<_>>());
        let ids = ids(&world);
        world.datasets.run(move |tx| damage(tx, &ids)).unwrap();
        let seen: BTreeSet<FindingKind> = world.findings().into_iter().map(|finding| finding.kind).collect();
        if seen != expected {
            wrong.push((kind, seen));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn edit_dataset(tx: &mut Transaction<'_>, id: u64, edit: impl FnOnce(&mut DatasetRow)) -> Result<()> {
    let mut row: DatasetRow = tx.row(dataset_key(id))?;
    edit(&mut row);
    tx.set(dataset_key(id), &row)
}

fn edit_snapshot(tx: &mut Transaction<'_>, id: u64, edit: impl FnOnce(&mut SnapshotRow)) -> Result<()> {
    let mut row: SnapshotRow = tx.row(snapshot_key(id))?;
    edit(&mut row);
    tx.set(snapshot_key(id), &row)
}

fn first_bucket(tx: &Transaction<'_>, ids: &Ids) -> Result<(Key, Bucket)> {
    Ok(tx.rows::<Bucket>(keys(ids.deadlist, kind::DEADLIST))?.into_iter().next().expect("the snapshot has lost blocks"))
}

/// Changes the blocks of the last page of the newest snapshot's deadlist; the page must be inline in its row.
fn edit_page(tx: &mut Transaction<'_>, ids: &Ids, edit: impl Fn(&mut Vec<BlockPointer>)) -> Result<()> {
    let (_, bucket) = first_bucket(tx, ids)?;
    let key = tx.last_key(keys(bucket.last, kind::PAGE))?.expect("a list has a page");
    let mut body = tx.body(key)?.expect("it was just found");
    let mut blocks = decode_page(&body.bytes).expect("a good page");
    edit(&mut blocks);
    body.bytes = encode_page(&blocks);
    tx.put_body(key, body);
    Ok(())
}

#[test]
fn rows_that_make_no_sense() {
    planted(FindingKind::Row, |tx, ids| {
        tx.put_body(Key::new(ids.dataset, 99, 0), Default::default());
        Ok(())
    });
}

#[test]
fn names_that_do_not_fit() {
    planted(FindingKind::Name, |tx, ids| edit_dataset(tx, ids.dataset, |row| row.name = "other".into()));
    planted(FindingKind::Name, |tx, ids| edit_dataset(tx, ids.dataset, |row| row.children = 7));
}

#[test]
fn lines_that_do_not_fit() {
    planted(FindingKind::Line, |tx, ids| edit_snapshot(tx, ids.snapshots[1], |row| row.previous = 0));
    planted(FindingKind::Line, |tx, ids| edit_snapshot(tx, ids.snapshots[0], |row| row.next = 0));
    planted(FindingKind::Line, |tx, ids| edit_dataset(tx, ids.dataset, |row| row.newest_txg = Txg(1)));
    planted(FindingKind::Line, |tx, ids| tx.delete_named::<Named>(ids.dataset, kind::SNAPSHOT_NAME, "1").map(drop));
}

#[test]
fn clones_and_holds_that_do_not_fit() {
    planted(FindingKind::Clone, |tx, ids| {
        tx.delete(Key::new(ids.snapshots[1], kind::CLONE, ids.clone));
        Ok(())
    });
    planted(FindingKind::Clone, |tx, ids| edit_dataset(tx, ids.clone, |row| row.origin_txg = Txg(1)));
    planted(FindingKind::Hold, |tx, ids| tx.delete_named::<Hold>(ids.snapshots[0], kind::HOLD, "tag").map(drop));
}

#[test]
fn counters_that_are_wrong() {
    planted(FindingKind::Referenced, |tx, ids| edit_dataset(tx, ids.dataset, |row| row.referenced.allocated += 4096));
    planted(FindingKind::Used, |tx, ids| edit_dataset(tx, ids.dataset, |row| row.used_snapshots.logical += 1));
    planted(FindingKind::Used, |tx, _| {
        edit_dataset(tx, crate::catalogue::ROOT, |row| row.used_children.allocated -= 1)
    });
    planted(FindingKind::Total, |tx, _| tx.edit_master(|master: &mut Master| master.physical.allocated += 1));
    planted(FindingKind::Total, |tx, _| {
        let master = tx.master()?;
        tx.put(MASTER, &Master { next_id: 2, ..master }, None);
        Ok(())
    });
    planted(FindingKind::DeadTotal, |tx, ids| edit_snapshot(tx, ids.snapshots[1], |row| row.dead.logical += 1));
    planted(FindingKind::DeadTotal, |tx, ids| {
        let (key, bucket) = first_bucket(tx, ids)?;
        tx.set(key, &Bucket { count: bucket.count + 1, ..bucket })
    });
}

#[test]
fn deadlists_that_are_wrong() {
    planted(FindingKind::NotDead, |tx, ids| edit_page(tx, ids, |blocks| blocks.truncate(blocks.len() - 1)));
    planted(FindingKind::Dead, |tx, ids| edit_page(tx, ids, |blocks| blocks.push(blocks[0])));
    planted(FindingKind::Bucket, |tx, ids| {
        let (key, bucket) = first_bucket(tx, ids)?;
        tx.delete(key);
        tx.put(Key { offset: u64::from(u32::MAX), ..key }, &bucket, None);
        Ok(())
    });
    planted(FindingKind::List, |tx, ids| {
        let (key, _) = first_bucket(tx, ids)?;
        tx.delete(key);
        Ok(())
    });
    planted(FindingKind::Page, |tx, ids| {
        let (_, bucket) = first_bucket(tx, ids)?;
        let key = tx.last_key(keys(bucket.last, kind::PAGE))?.expect("a list has a page");
        tx.put_body(key, Default::default());
        Ok(())
    });
}

#[test]
fn trees_that_are_wrong() {
    // A snapshot with the tree of another snapshot.
    planted(FindingKind::Intruder, |tx, ids| {
        let (row, _) = tx.row_and_block::<SnapshotRow>(snapshot_key(ids.snapshots[2]))?;
        let (_, older) = tx.row_and_block::<SnapshotRow>(snapshot_key(ids.snapshots[0]))?;
        tx.put(snapshot_key(ids.snapshots[2]), &row, older);
        Ok(())
    });
    planted(FindingKind::Node, |tx, ids| {
        let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(ids.dataset))?;
        let mut root = root.expect("a dataset has a tree");
        root.addresses[0].chunk = ChunkId(999);
        tx.put(dataset_key(ids.dataset), &row, Some(root));
        Ok(())
    });
}

#[test]
fn work_on_what_is_in_use() {
    planted(FindingKind::Freed, |tx, ids| {
        let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(ids.dataset))?;
        let root = root.expect("a dataset has a tree");
        crate::lineage::work::free_tree(tx, root, row.level, Txg::ZERO, Default::default())
    });
}
