//! Verifying a pool that nobody has open.

use std::{path::PathBuf, sync::Arc};

use dataset::{
    admin::{Datasets, ListRequest},
    lineage,
    name::{DatasetName, Name},
    property::Kinds,
};
use pool::{
    admin::{OpenOptions, Pool},
    check::{Code, Finding, Ledger, conclude, enter_catalogue},
    device::Access,
    env::SystemEnv,
    error::ErrorKind,
};

use super::{devices, job::Job, refusal::OrRefused};
use crate::{
    failure::Failure,
    protocol::{CheckFinding, CheckReport},
};

/// Verifies the pool on these devices: every copy of every block, every reference against the space maps, every counter
/// and every file system. Nothing is changed.
pub(crate) fn check(name: &str, paths: &[PathBuf], job: &mut Job<'_>) -> Result<CheckReport, Failure> {
    let devices = devices::open_all(paths, Access::ReadOnly).or_refused("check", name)?;
    let options = OpenOptions { read_only: true, force: true, host: devices::host(), ..OpenOptions::default() };
    let mut report =
        CheckReport { pool: name.to_owned(), guid: 0, txg: 0, blocks: 0, bytes: 0, datasets: 0, findings: Vec::new() };
    let pool = match pool::admin::open(devices, &options, Arc::new(SystemEnv)) {
        // A pool too damaged to be opened is a finding, and the only one.
        Err(error) if error.kind() == ErrorKind::Damage => {
            report.findings.push(CheckFinding { kind: "unreadable pool".to_owned(), detail: error.to_string() });
            return Ok(report);
        }
        opened => opened.or_refused("check", name)?,
    };
    report.guid = pool.engine().guid().0;
    report.txg = pool.engine().committed().0;
    job.tell("checking the catalogue", 0, None);
    let mut ledger = Ledger::default();
    enter_catalogue(pool.engine(), &mut ledger);
    match lineage::check::check(pool.engine()) {
        Ok(lines) => {
            report.bytes = lines.blocks.values().map(|block| block.allocated(pool.engine().sector())).sum();
            lines.enter(&mut ledger);
        }
        Err(error) => ledger.find(Finding::new(Code::Catalogue, error.to_string())),
    }
    report.datasets = check_files(&pool, name, &mut ledger, job)?;
    job.check()?;
    job.tell("checking all blocks", 0, None);
    report.blocks = ledger.len() as u64;
    let findings = conclude(pool.engine(), &mut ledger).or_refused("check", name)?;
    report.findings = findings.into_iter().map(finding).collect();
    Ok(report)
}

/// Checks the file system of each data set and snapshot, and says how many they are.
fn check_files(pool: &Pool, name: &str, ledger: &mut Ledger, job: &mut Job<'_>) -> Result<u64, Failure> {
    let name: DatasetName = name.parse().map_err(|error| Failure::name("check", &error))?;
    let datasets = Datasets::open(pool.engine().clone(), name.clone()).or_refused("check", &name)?;
    let kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);
    let listed = match datasets.list(&ListRequest { roots: Vec::new(), depth: None, kinds }) {
        Ok(listed) => listed,
        Err(error) => {
            ledger.find(Finding::new(Code::Catalogue, error.to_string()));
            return Ok(0);
        }
    };
    let count = listed.len() as u64;
    for (done, listed) in listed.into_iter().enumerate() {
        job.check()?;
        job.tell(&format!("checking {}", listed.name), done as u64, Some(count));
        if let Err(problem) = check_one(&datasets, &listed.name, ledger) {
            ledger.find(Finding::new(Code::FileSystem, format!("{}: {problem}", listed.name)));
        }
    }
    Ok(count)
}

fn check_one(datasets: &Datasets, name: &Name, ledger: &mut Ledger) -> dataset::admin::Result<()> {
    let head = match name {
        Name::Dataset(name) => datasets.open_dataset(name)?.head().clone(),
        Name::Snapshot(name) => datasets.open_snapshot(name)?.head,
        Name::Bookmark(_) => return Ok(()),
    };
    for found in dataset::fs::check::check(&head)? {
        ledger.find(Finding::new(Code::FileSystem, format!("{name}: inode {}: {:?}", found.ino, found.problem)));
    }
    Ok(())
}

fn finding(finding: Finding) -> CheckFinding {
    let kind = match finding.code {
        Code::UnreadableNode => "unreadable node",
        Code::DamagedCopy => "damaged block",
        Code::Overlap => "overlapping blocks",
        Code::NotAllocated => "unallocated block",
        Code::Leaked => "leaked space",
        Code::Catalogue => "catalogue",
        Code::Counter => "wrong counter",
        Code::Deadlist => "deadlist",
        Code::FileSystem => "file system",
    };
    CheckFinding { kind: kind.to_owned(), detail: finding.to_string() }
}
