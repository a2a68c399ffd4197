//! What is shown of a known pool that cannot be had: nobody serves it, its service does not answer, or it cannot be opened.
//!
//! As in OpenZFS it keeps its row in `pool list`, with `-` where nothing is known, and its part of `pool status`, with advice;
//! commands about all pools go on with the others.

use std::{collections::BTreeMap, path::PathBuf};

use dataset::property::{
    Source,
    pool::{ALTROOT, GUID, HEALTH, NAME},
};
use protocol::{Failure, OnSaid, PoolRecord, PoolStatus, PropertyRecord, Request, Response, VdevRecord};

use super::{
    client::Client,
    places::Places,
    registry::{IndexedPool, KnownPool},
};
use crate::{
    execute::{Job, devices},
    health::{self, Condition, Details, State},
};

/// What stands for a value that is not known.
const NONE: &str = "-";

/// Why a pool cannot be had.
pub(super) struct Absence {
    condition: Condition,
    why: Option<Failure>,
}

impl Absence {
    fn of(condition: Condition) -> impl FnOnce(Failure) -> Absence {
        move |why| Absence { condition, why: Some(why) }
    }
}

impl Client {
    /// Answers a request for the state of a pool, also if the pool cannot be had.
    pub(super) fn show(&mut self, pool: &str, request: &Request, progress: OnSaid<'_>) -> Result<Response, Failure> {
        if let Some((places, indexed)) = self.of_another(pool) {
            return self.show_another(&places, &indexed, request, progress);
        }
        let response = self.show_own(pool, request, progress)?;
        match &response {
            Response::Pool(seen) => self.note_state(pool, &seen.state),
            Response::Status(seen) => self.note_state(pool, &seen.state),
            _ => {}
        }
        Ok(response)
    }

    /// The same of another user's pool: its service says it, or else the index says that there is one.
    fn show_another(
        &self,
        places: &Places,
        indexed: &IndexedPool,
        request: &Request,
        progress: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        let absence = match self.ask_another((places, indexed), request.clone(), progress) {
            Err(failure) if failure.is_unavailable() => Absence::of(Condition::NotOpened)(failure),
            answer => return answer,
        };
        Ok(answer(request, indexed.name.as_str(), Some(&KnownPool::from(indexed)), &absence))
    }

    fn show_own(&mut self, pool: &str, request: &Request, progress: OnSaid<'_>) -> Result<Response, Failure> {
        let known = match self.registry.get(pool) {
            Ok(Some(known)) => Ok(known),
            Ok(None) => return Err(Failure::no_pool(pool)),
            Err(failure) => Err(failure),
        };
        let absence = match &known {
            Ok(known) => match self.look(known, request, progress)? {
                Ok(response) => return Ok(response),
                Err(absence) => absence,
            },
            Err(failure) => Absence::of(Condition::NotOpened)(failure.clone()),
        };
        let known = known.ok();
        Ok(answer(request, pool, known.as_ref(), &absence))
    }

    /// Asks who has the pool, or opens it where no service is expected.
    fn look(
        &mut self,
        known: &KnownPool,
        request: &Request,
        progress: OnSaid<'_>,
    ) -> Result<Result<Response, Absence>, Failure> {
        let pool = known.name.to_string();
        let mut known = known.clone();
        // Held until the pool is open here.
        let mut lock = None;
        if !self.has_open(&known) {
            for is_last in [false, true] {
                match self.ask(&pool, request, &mut None, progress) {
                    Ok(Some(response)) => return Ok(Ok(response)),
                    Ok(None) => {}
                    Err(failure) if failure.is_unavailable() => {
                        return Ok(Err(Absence::of(Condition::Unanswered)(failure)));
                    }
                    Err(failure) => return Err(failure),
                }
                if !is_last {
                    // Another command, or a supervisor, may be about to start the service, or to end it.
                    match self.lock_unserved(&pool) {
                        Ok(taken) => lock = taken,
                        Err(failure) => return Ok(Err(Absence::of(Condition::Unanswered)(failure))),
                    }
                    known = self.registry.get(&pool)?.ok_or_else(|| Failure::no_pool(&pool))?;
                }
            }
            if self.can_mount().is_ok() {
                return Ok(Err(Absence { condition: Condition::NoService, why: None }));
            }
        }
        let command = self.command.clone();
        let opened = self.open(known);
        drop(lock);
        match opened {
            Ok(opened) => opened.execute(&command, request.clone(), None, &mut Job::new(Vec::new(), progress)).map(Ok),
            Err(failure) => Ok(Err(Absence::of(Condition::NotOpened)(failure))),
        }
    }
}

/// The answer to a request for the state of a pool that cannot be had.
fn answer(request: &Request, pool: &str, known: Option<&KnownPool>, absence: &Absence) -> Response {
    match request {
        Request::Pool { properties, vdevs } => Response::Pool(record(pool, known, absence, properties, *vdevs)),
        _ => Response::Status(Box::new(status(pool, known, absence))),
    }
}

/// The row of a pool.
fn record(
    pool: &str,
    known: Option<&KnownPool>,
    absence: &Absence,
    properties: &[String],
    with_devices: bool,
) -> PoolRecord {
    let state = absence.condition.state().to_string();
    let value = |name: &str| match known {
        _ if NAME.is(name) => pool.to_owned(),
        _ if HEALTH.is(name) => state.clone(),
        Some(known) if GUID.is(name) => known.guid.to_string(),
        Some(KnownPool { altroot: Some(altroot), .. }) if ALTROOT.is(name) => altroot.clone(),
        _ => NONE.to_owned(),
    };
    let property =
        |name: &str| PropertyRecord { name: name.to_owned(), value: value(name), source: Source::None, received: None };
    // Without names, all are asked for: these are what is known.
    let all = [GUID.name, HEALTH.name, ALTROOT.name].map(str::to_owned);
    let names = if properties.is_empty() { &all[..] } else { properties };
    PoolRecord {
        name: pool.to_owned(),
        guid: known.map_or(0, |known| known.guid),
        state: state.clone(),
        txg: 0,
        properties: names.iter().map(|name| property(name)).collect(),
        vdevs: known.filter(|_| with_devices).map(vdevs).unwrap_or_default(),
        spares: Vec::new(),
    }
}

/// The state of a pool in full.
fn status(pool: &str, known: Option<&KnownPool>, absence: &Absence) -> PoolStatus {
    // `cannot open 'tank': it is so` is shown behind words that say the first half.
    let why = absence.why.as_ref().map(|failure| {
        let prefix = format!("cannot open '{pool}': ");
        failure.message.strip_prefix(&prefix).unwrap_or(&failure.message).to_owned()
    });
    let way_out = absence.why.as_ref().and_then(|failure| failure.hint.clone());
    let details = Details { why, way_out, ..Details::default() };
    let verdict = health::verdict(pool, &[absence.condition], &details);
    PoolStatus {
        name: pool.to_owned(),
        guid: known.map_or(0, |known| known.guid),
        state: verdict.state.to_string(),
        txg: 0,
        status: verdict.status,
        action: verdict.action,
        scan: None,
        removal: None,
        expansion: None,
        rebalance: None,
        defragment: None,
        resize: None,
        activity: None,
        transports: BTreeMap::new(),
        vdevs: known.map(vdevs).unwrap_or_default(),
        spares: Vec::new(),
        damaged: None,
        unexamined: 0,
    }
}

/// The devices that a pool had when it was last open, and whether they are there.
fn vdevs(known: &KnownPool) -> Vec<VdevRecord> {
    let record = |path: PathBuf| {
        let (state, note) = match devices::pool_on(&path) {
            Some(pool) if known.is_numbered(pool) => (State::Online, None),
            Some(_) => (State::Unavail, Some("(it belongs to another pool)")),
            None if path.exists() => (State::Unavail, Some("(no label of the pool can be read)")),
            None => (State::Unavail, Some("(not found)")),
        };
        VdevRecord { note: note.map(str::to_owned), ..VdevRecord::idle(path.to_string_lossy().into_owned(), state) }
    };
    known.devices.iter().map(|device| record(device.to_path())).collect()
}
