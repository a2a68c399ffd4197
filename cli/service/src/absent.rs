//! Output for a known pool that is unavailable: no service runs, its service does not answer, or the pool cannot be
//! opened.
//!
//! As in OpenZFS, such a pool keeps its row in `pool list`, with `-` for unknown values, and its section in `pool
//! status`, with advice. Commands about all pools continue with the other pools.

use std::{collections::BTreeMap, path::PathBuf};

use dataset::property::{
    Source,
    pool::{ALTROOT, GUID, HEALTH, NAME},
};
use protocol::{
    Failure, OnSaid, PoolRecord, PoolRequest, PoolStatus, PropertyRecord, Request, Response, State, VdevRecord,
};

use super::{
    client::Client,
    places::Places,
    registry::{IndexedPool, KnownPool},
};
use crate::{
    execute::{Job, devices},
    health::{self, Condition, Details},
};

/// Text for an unknown value.
const NONE: &str = "-";

/// Why a pool is unavailable.
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
    /// Answers a request for a pool's state, even for an unavailable pool.
    pub(super) fn show(&mut self, pool: &str, request: &Request, progress: OnSaid<'_>) -> Result<Response, Failure> {
        if let Some((places, indexed)) = self.of_another(pool) {
            return self.show_another(&places, &indexed, request, progress);
        }
        let response = self.show_own(pool, request, progress)?;
        match &response {
            Response::Pool(seen) => self.note_state(pool, seen.state),
            Response::Status(seen) => self.note_state(pool, seen.state),
            _ => {}
        }
        Ok(response)
    }

    /// As `show`, for another user's pool: the answer comes from its service, or else from the index.
    fn show_another(
        &self,
        places: &Places,
        indexed: &IndexedPool,
        request: &Request,
        progress: OnSaid<'_>,
    ) -> Result<Response, Failure> {
        let absence = match self.ask_another((places, indexed), request.clone(), None, progress) {
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

    /// Asks the pool's service; opens the pool if no service is expected.
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
                match self.ask(&pool, request.clone(), &mut None, progress) {
                    Ok(Some(response)) => return Ok(Ok(response)),
                    Ok(None) => {}
                    Err(failure) if failure.is_unavailable() => {
                        return Ok(Err(Absence::of(Condition::Unanswered)(failure)));
                    }
                    Err(failure) => return Err(failure),
                }
                if !is_last {
                    // Another command, or a supervisor, may just be starting or ending the service.
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

/// The answer for the state of an unavailable pool.
fn answer(request: &Request, pool: &str, known: Option<&KnownPool>, absence: &Absence) -> Response {
    match request {
        Request::Pool(PoolRequest::Pool { properties, vdevs }) => {
            Response::Pool(record(pool, known, absence, properties, *vdevs))
        }
        _ => Response::Status(Box::new(status(pool, known, absence))),
    }
}

/// The row of a pool in `pool list`.
fn record(
    pool: &str,
    known: Option<&KnownPool>,
    absence: &Absence,
    properties: &[String],
    with_devices: bool,
) -> PoolRecord {
    let state = absence.condition.state();
    let value = |name: &str| match known {
        _ if NAME.is(name) => pool.to_owned(),
        _ if HEALTH.is(name) => state.to_string(),
        Some(known) if GUID.is(name) => known.guid.to_string(),
        Some(KnownPool { altroot: Some(altroot), .. }) if ALTROOT.is(name) => altroot.clone(),
        _ => NONE.to_owned(),
    };
    let property =
        |name: &str| PropertyRecord { name: name.to_owned(), value: value(name), source: Source::None, received: None };
    // An empty list of names means all properties: of an unavailable pool only these are known.
    let all = [GUID.name, HEALTH.name, ALTROOT.name].map(str::to_owned);
    let names = if properties.is_empty() { &all[..] } else { properties };
    PoolRecord {
        name: pool.to_owned(),
        guid: known.map_or(0, |known| known.guid),
        state,
        txg: 0,
        properties: names.iter().map(|name| property(name)).collect(),
        vdevs: known.filter(|_| with_devices).map(vdevs).unwrap_or_default(),
        spares: Vec::new(),
    }
}

/// The section of a pool in `pool status`.
fn status(pool: &str, known: Option<&KnownPool>, absence: &Absence) -> PoolStatus {
    // The status text itself says that the pool cannot be opened.
    let why = absence.why.as_ref().map(|failure| failure.reason_about(pool));
    let way_out = absence.why.as_ref().and_then(|failure| failure.hint.clone());
    let details = Details { why, way_out, ..Details::default() };
    let verdict = health::verdict(pool, &[absence.condition], &details);
    PoolStatus {
        name: pool.to_owned(),
        guid: known.map_or(0, |known| known.guid),
        state: verdict.state,
        txg: 0,
        status: verdict.status,
        action: verdict.action,
        alerts: verdict.alerts,
        next_scrub: None,
        jobs: Vec::new(),
        activity: None,
        transports: BTreeMap::new(),
        vdevs: known.map(vdevs).unwrap_or_default(),
        spares: Vec::new(),
        damaged: None,
        unexamined: 0,
    }
}

/// The devices of a pool when last open, and whether each is present.
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
