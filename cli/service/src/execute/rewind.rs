//! Which of the older states on a pool's devices can be opened by going back.
//!
//! Each state is opened read-only and verified before anything is written. In the most recent states nothing can have
//! been overwritten, so only their roots are verified; older states need a check of all metadata. The newest state
//! that passes is chosen.

use std::sync::Arc;

use dataset::lineage::check;
use pool::{
    admin::{KeptState, OpenOptions, states},
    device::Device,
    env::SystemEnv,
    error::ErrorKind,
    txg::Settings,
};
use protocol::{Failure, PassedState, RewindReport, StateRecord};

use super::{devices, memory, refusal::OrRefused};

const ACTION: &str = "rewind";
const NANOS: i64 = 1_000_000_000;

/// Chooses a state of the pool on these devices: the state of txg `to`, or else the newest readable state. Writes
/// nothing.
pub(crate) fn choose(
    name: &str,
    devices: &[Arc<dyn Device>],
    to: Option<u64>,
    force: bool,
) -> Result<RewindReport, Failure> {
    let options = OpenOptions {
        read_only: true,
        force,
        host: devices::host(),
        settings: Settings { workers: 0, ..memory::default_settings() },
        ..OpenOptions::default()
    };
    let kept = states(devices, &options).or_refused(ACTION, name)?;
    let mut report = RewindReport {
        pool: name.to_owned(),
        newest: record(kept[0]),
        taken: record(kept[0]),
        passed: Vec::new(),
        dry_run: true,
    };
    let known = to.is_none_or(|to| kept.iter().any(|state| state.txg.0 == to));
    if !known {
        let oldest = kept.last().map_or(0, |state| state.txg.0);
        let range = format!("the devices keep transaction groups {oldest} to {}", kept[0].txg);
        let problem = format!("it has no state of transaction group {}: {range}", to.unwrap_or_default());
        return Err(Failure::cannot(ACTION, name, problem));
    }
    for state in kept {
        if to.is_some_and(|to| to != state.txg.0) {
            continue;
        }
        report.taken = record(state);
        match judge(name, devices, &options, state)? {
            None => return Ok(report),
            Some(problem) => report.passed.push(PassedState { state: report.taken, problem }),
        }
    }
    Err(nothing_left(&report))
}

fn record(state: KeptState) -> StateRecord {
    StateRecord { txg: state.txg.0, time: state.written.div_euclid(NANOS) }
}

/// The defect that excludes a state; `None` if the state is usable.
fn judge(
    name: &str,
    devices: &[Arc<dyn Device>],
    options: &OpenOptions,
    state: KeptState,
) -> Result<Option<String>, Failure> {
    let options = OpenOptions { state: Some(state.txg), ..options.clone() };
    let pool = match pool::admin::open(devices.to_vec(), &options, Arc::new(SystemEnv)) {
        Ok(pool) => pool,
        Err(error) if matches!(error.kind(), ErrorKind::Damage | ErrorKind::Device) => {
            return Ok(Some(error.to_string()));
        }
        Err(error) => return Err(Failure::engine(ACTION, name, &error)),
    };
    let judged = match state.is_whole {
        true => check::state::roots(pool.engine()),
        false => check::state::all_metadata(pool.engine()),
    };
    Ok(judged.err().map(|error| error.to_string()))
}

fn nothing_left(report: &RewindReport) -> Failure {
    let tried: Vec<String> = report
        .passed
        .iter()
        .map(|passed| format!("transaction group {}: {}", passed.state.txg, passed.problem))
        .collect();
    Failure::cannot(ACTION, &report.pool, "no state can be read").hint(tried.join("\n"))
}
