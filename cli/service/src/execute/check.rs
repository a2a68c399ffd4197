//! Checking a pool: every copy of every block, every reference against the space maps, every counter and every file
//! system. A check changes nothing.
//!
//! A pool that no process has open is opened read-only. For a pool in use, the last committed state is opened
//! separately: the check verifies the state that a crash at this moment would leave.

use std::sync::Arc;

use dataset::{
    admin::{Datasets, ListRequest},
    lineage,
    name::{DatasetName, Name},
    property::Kinds,
};
use pool::{
    admin::OpenOptions,
    check::{Code, Finding, Ledger, conclude_while, enter_catalogue},
    device::Access,
    env::SystemEnv,
    error::ErrorKind,
    txg::Engine,
};
use protocol::{CheckFinding, CheckReport, Failure};

use super::{
    Cancel, OpenPool,
    devices::{self, Closed},
    job::Job,
    memory,
    refusal::OrRefused,
};

/// Checks a pool that no process has open.
pub(crate) fn check(closed: &Closed, job: &mut Job<'_>) -> Result<CheckReport, Failure> {
    let name = closed.name.as_str();
    let devices = devices::open_closed(closed, Access::ReadOnly).or_refused("check", name)?;
    let settings = memory::default_settings();
    let options =
        OpenOptions { read_only: true, force: true, host: devices::host(), settings, ..OpenOptions::default() };
    match pool::admin::open(devices, &options, Arc::new(SystemEnv)) {
        // If the pool is too damaged to be opened, this is the only finding.
        Err(error) if error.kind() == ErrorKind::Damage => {
            let found = finding(Finding::new(Code::UnreadablePool, error.to_string()));
            Ok(CheckReport { findings: vec![found], ..empty_report(name) })
        }
        opened => check_state(opened.or_refused("check", name)?.engine(), name, job),
    }
}

/// Checks the last committed state of a pool in use.
pub(super) fn check_live(pool: &OpenPool, job: &mut Job<'_>) -> Result<CheckReport, Failure> {
    let name = pool.name();
    let state = pool.pool.committed_state().or_refused("check", &name)?;
    let report = check_state(state.engine(), name.as_str(), job);
    if state.is_lost() {
        let problem = "the pool ran short of space and had to free blocks of the state under verification";
        let hint = format!("free some space and try again, or export the pool first: pool export {name}");
        return Err(Failure::cannot("check", &name, problem).hint(hint));
    }
    report
}

fn empty_report(name: &str) -> CheckReport {
    let findings = Vec::new();
    CheckReport { pool: name.to_owned(), guid: 0, txg: 0, blocks: 0, bytes: 0, datasets: 0, orphans: 0, findings }
}

/// Checks a state that cannot change meanwhile.
fn check_state(engine: &Arc<Engine>, name: &str, job: &mut Job<'_>) -> Result<CheckReport, Failure> {
    let mut report = CheckReport { guid: engine.guid().0, txg: engine.committed().0, ..empty_report(name) };
    job.report("checking the catalogue", 0, None);
    let mut ledger = Ledger::default();
    enter_catalogue(engine, &mut ledger);
    match lineage::check::check(engine, &mut ledger) {
        Ok(lines) => lines.enter(&mut ledger),
        Err(error) => ledger.find(Finding::new(Code::Catalogue, error.to_string())),
    }
    check_files(engine, &mut report, &mut ledger, job)?;
    job.check()?;
    job.report("checking all blocks", 0, None);
    let blocks = ledger.distinct();
    report.blocks = blocks.len() as u64;
    report.bytes = blocks.iter().map(|block| block.allocated(engine.sector())).sum();
    let cancels = job.cancels();
    let goes_on = |_| !cancels.iter().any(Cancel::is_cancelled);
    let findings = conclude_while(engine, &mut ledger, &goes_on).or_refused("check", name)?;
    job.check()?;
    report.findings = findings.into_iter().map(finding).collect();
    Ok(report)
}

/// Checks and counts the file system of each dataset and snapshot.
fn check_files(
    engine: &Arc<Engine>,
    report: &mut CheckReport,
    ledger: &mut Ledger,
    job: &mut Job<'_>,
) -> Result<(), Failure> {
    let name: DatasetName = report.pool.parse().map_err(|error| Failure::name("check", &error))?;
    let datasets = Datasets::open(engine.clone(), name.clone()).or_refused("check", &name)?;
    let kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);
    let listed = match datasets.list(&ListRequest { roots: Vec::new(), depth: None, kinds }) {
        Ok(listed) => listed,
        Err(error) => {
            ledger.find(Finding::new(Code::Catalogue, error.to_string()));
            return Ok(());
        }
    };
    report.datasets = listed.len() as u64;
    // Of an interrupted receive only the blocks are checked: its files are a part of a snapshot.
    for (done, listed) in listed.into_iter().filter(|listed| !listed.is_partial()).enumerate() {
        job.check()?;
        job.report(&format!("checking {}", listed.name), done as u64, Some(report.datasets));
        match check_one(&datasets, &listed.name, ledger) {
            // Files without a name in a snapshot are freed together with the snapshot.
            Ok(orphans) if matches!(listed.name, Name::Dataset(_)) => report.orphans += orphans,
            Ok(_) => {}
            Err(problem) => ledger.find(Finding::new(Code::FileSystem, format!("{}: {problem}", listed.name))),
        }
    }
    Ok(())
}

/// Checks a single file system. Returns the number of files without a name.
fn check_one(datasets: &Datasets, name: &Name, ledger: &mut Ledger) -> dataset::error::Result<u64> {
    let head = match name {
        Name::Dataset(name) => datasets.open_dataset(name)?.head().clone(),
        Name::Snapshot(name) => datasets.open_snapshot(name)?.head,
        Name::Bookmark(_) => return Ok(0),
    };
    let report = dataset::fs::check::report(&head)?;
    for found in report.findings {
        ledger.find(Finding::new(Code::FileSystem, format!("{name}: {found}")));
    }
    Ok(report.orphans)
}

fn finding(finding: Finding) -> CheckFinding {
    CheckFinding { code: finding.code.number(), kind: finding.code.name().to_owned(), detail: finding.to_string() }
}
