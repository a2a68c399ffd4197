//! A catalogue with hostile rows. The input edits rows of a real pool, behind all checksums; the pool is opened again,
//! and every administrative request is made. Any answer is right, as long as there is one: a row may name absent
//! objects, count wrongly, or lead in circles. Space need not balance, because rows say what is free; but the check
//! must end.

use dataset::{
    admin::{
        Datasets, DestroyRequest, DestroySnapshotsRequest, ListRequest, Progress, RollbackRequest, SendFrom,
        SendRequest,
    },
    catalogue::Body,
    error::Reader,
    lineage,
    name::{Name, SnapshotName},
    property::Kinds,
};
use pool::check::{self, Ledger};

use super::{
    edit,
    world::{CLONE, HOME, World, name},
};

/// More steps than freeing everything can take.
const STEPS: usize = 1_000;

pub(super) fn run(input: &[u8]) -> bool {
    let world = World::new();
    if !apply(&world.datasets, input) {
        return false;
    }
    let Ok(world) = world.reopened() else { return true };
    let datasets = &world.datasets;
    let _ = (datasets.destroy_unfinished(), datasets.history(), datasets.damage(), datasets.freeing());
    look(datasets);
    check(datasets);
    work(datasets);
    change(datasets);
    work(datasets);
    check(datasets);
    let _ = world.reopened();
    true
}

/// Writes the bodies of the input into the catalogue; a row with a block keeps the block. Whether there was an edit.
fn apply(datasets: &Datasets, mut input: &[u8]) -> bool {
    let known = edit::keys(datasets.engine().catalogue());
    let mut edits = Vec::new();
    while let Some((key, body)) = edit::take(&mut input, &known) {
        edits.push((key, body.to_vec()));
    }
    let any = !edits.is_empty();
    let put = datasets.run(move |tx| {
        for (key, bytes) in &edits {
            let block = tx.body(*key)?.and_then(|body| body.block);
            tx.put_body(*key, Body { bytes: bytes.clone(), block });
        }
        Ok(())
    });
    any && put.is_ok()
}

fn snapshot(of: &str, snapshot: &str) -> SnapshotName {
    name(of).snapshot(snapshot).expect("names of tests are valid")
}

fn look(datasets: &Datasets) {
    let request = ListRequest { depth: None, kinds: Kinds::ALL_DATASETS, ..ListRequest::default() };
    for listed in datasets.list(&request).into_iter().flatten() {
        for property in
            ["used", "usedbysnapshots", "written", "available", "compressratio", "origin", "quota", "test:note"]
        {
            let _ = datasets.get(&listed.name, property);
        }
        if let Name::Snapshot(name) = &listed.name {
            let _ = datasets.open_snapshot(name).map(|open| open.fs.statfs());
        }
    }
    let _ = (datasets.holds(&[snapshot(HOME, "older")], true), datasets.scrub().status());
    for (replicate, from) in [(true, None), (false, Some(SendFrom::Base(Name::Snapshot(snapshot(HOME, "old")))))] {
        let snapshot = snapshot(HOME, "a");
        let request =
            SendRequest { from, replicate, skip_missing: true, properties: true, ..SendRequest::plain(snapshot) };
        let _ = (
            datasets.plan_send(&request),
            datasets.send(&request, Reader::default(), &mut std::io::sink(), 0, &mut |_| {}),
        );
    }
}

fn change(datasets: &Datasets) {
    for dataset in [HOME, CLONE] {
        let Ok(open) = datasets.open_dataset(&name(dataset)) else { continue };
        let _ = (open.fs().statfs(), open.fs().unlink(dataset::fs::ROOT, b"file"));
    }
    let _ = datasets.scrub().start();
    let _ = datasets.snapshot(vec![snapshot("tank", "new")], true, Vec::new());
    let _ = datasets.clone_snapshot(&snapshot(HOME, "a"), &name("tank/other"), false, Vec::new(), (0, 0));
    let _ = datasets.promote(&name(CLONE));
    let _ = datasets.rename(&name(HOME), &name("tank/clone/moved"), false, (0, 0));
    let _ = datasets.inherit(&[Name::Dataset(name(HOME))], "quota", true, false);
    let _ = datasets.release("keep", &[snapshot(HOME, "older")], true);
    let back = RollbackRequest { snapshot: snapshot(HOME, "old"), later: true, dependents: true };
    let _ = datasets.rollback(back);
    let set = format!("{HOME}@%").parse().expect("a valid set");
    let snapshots = DestroySnapshotsRequest { set, recursive: true, dependents: false, defer: true };
    let _ = datasets.destroy_snapshots(snapshots, false);
    let _ = datasets.destroy(DestroyRequest { name: name(CLONE), recursive: true, dependents: true }, false);
    let _ = datasets.destroy(DestroyRequest { name: name(HOME), recursive: true, dependents: true }, false);
}

/// The background work.
fn work(datasets: &Datasets) {
    let goes_on = |step: &dyn Fn() -> Result<Progress, dataset::error::Error>| {
        let steps = (0..STEPS).take_while(|_| matches!(step(), Ok(Progress::Worked))).count();
        assert!(steps < STEPS, "work in the background never ends");
    };
    goes_on(&|| datasets.background_step());
    goes_on(&|| datasets.scrub().advance(1 << 20));
    goes_on(&|| datasets.repair_step());
}

fn check(datasets: &Datasets) {
    let engine = datasets.engine();
    let _ = engine.commit();
    let mut ledger = Ledger::default();
    check::enter_catalogue(engine, &mut ledger);
    if let Ok(report) = lineage::check::check(engine, &mut ledger) {
        report.enter(&mut ledger);
    }
    let _ = check::conclude(engine, &mut ledger);
}
