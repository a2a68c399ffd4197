//! Requests about the pool itself: properties, state, history.

use std::{collections::BTreeMap, thread, time::Duration};

use dataset::{
    admin::Sharing,
    jobs::records,
    property::{
        Backing, EXTENSIBLE_DATASET, FEATURE, POOL, POOL_CONSTANTS, PoolFigure, Property, Source,
        pool::{ALTROOT, ASHIFT, CACHE_SIZE, DIRTY_LIMIT, READONLY},
        size::format_bytes,
    },
};
use pool::{
    block::storage::Vdevs,
    format::label::{KNOWN_FEATURES, RESUMABLE_RECEIVE},
    space::SpaceTotals,
};
use protocol::{Assignment, Failure, HistoryRecord, PoolRecord, PoolStatus, PropertyRecord};

use super::{dataset::each_once, open_pool::OpenPool, refusal::OrRefused, standing::with_errors};
use crate::health::Verdict;

/// Text for a value that does not exist.
const NONE: &str = "-";
const NANOS: i64 = 1_000_000_000;
/// How long `pool status` waits for the examination of bad copies found by readers, and the polling interval.
const EXAMINATION: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(5);

impl OpenPool {
    pub(super) fn pool_record(&self, names: &[String], vdevs: bool) -> Result<PoolRecord, Failure> {
        let all: Vec<String>;
        let names = match names {
            [] => {
                let features =
                    KNOWN_FEATURES.iter().chain([&EXTENSIBLE_DATASET]).map(|name| format!("{FEATURE}{name}"));
                let rows = POOL.iter().chain(POOL_CONSTANTS).map(|definition| definition.name.to_owned());
                let own = self.user_properties()?.into_keys();
                all = rows.chain(features).chain(own).collect();
                &all
            }
            names => {
                all = each_once(names);
                &all
            }
        };
        self.images.look();
        Ok(PoolRecord {
            name: self.name().to_string(),
            guid: self.guid(),
            state: self.state(),
            txg: self.engine().committed().0,
            properties: names.iter().map(|name| self.pool_property(name)).collect::<Result<_, _>>()?,
            vdevs: if vdevs { self.vdev_records() } else { Vec::new() },
            spares: if vdevs { self.spare_records() } else { Vec::new() },
        })
    }

    fn pool_property(&self, name: &str) -> Result<PropertyRecord, Failure> {
        let record = |value: String, source| PropertyRecord { name: name.to_owned(), value, source, received: None };
        let known = |feature: &&str| KNOWN_FEATURES.contains(feature);
        let feature = match name.strip_prefix(FEATURE) {
            Some(EXTENSIBLE_DATASET) => Some(RESUMABLE_RECEIVE),
            other => other.filter(known),
        };
        if let Some(feature) = feature {
            let state = self.datasets.feature_state(feature).or_refused("open", self.name())?;
            return Ok(record(state.to_owned(), Source::Local));
        }
        let found = Property::of_pool(name).ok();
        if let Some(Property::User(_)) = found {
            let value = self.kept(name)?;
            let source = if value.is_some() { Source::Local } else { Source::None };
            return Ok(record(value.unwrap_or_else(|| NONE.to_owned()), source));
        }
        let Some(definition) = found.as_ref().and_then(Property::definition) else {
            return Ok(record(NONE.to_owned(), Source::Default));
        };
        let usual = definition.default.unwrap_or(NONE).to_owned();
        let (value, default) = match definition.backing {
            Backing::Pool(figure) => {
                let value = self.figure(figure)?.unwrap_or_else(|| NONE.to_owned());
                return Ok(record(value, Source::None));
            }
            Backing::Constant => return Ok(record(usual, definition.source_of_constant())),
            _ if READONLY.is(name) => (self.engine().read_only().then(|| "on".to_owned()), usual),
            _ if ASHIFT.is(name) => (Some(self.pool.label().ashift.to_string()), usual),
            _ if CACHE_SIZE.is(name) => (self.kept(name)?, self.defaults.cache.to_string()),
            _ if DIRTY_LIMIT.is(name) => (self.kept(name)?, self.defaults.dirty.to_string()),
            _ => (self.kept(name)?, usual),
        };
        let source = if value.is_some() { Source::Local } else { Source::Default };
        let value = value.unwrap_or(default);
        Ok(record(if value.is_empty() { NONE.to_owned() } else { value }, source))
    }

    /// The user properties; none while the pool is suspended, because reading the catalogue may need a device.
    fn user_properties(&self) -> Result<BTreeMap<String, String>, Failure> {
        match self.engine().suspension().is_suspended() {
            true => Ok(BTreeMap::new()),
            false => self.datasets.pool_user_properties().or_refused("open", self.name()),
        }
    }

    /// The stored value of a property.
    fn kept(&self, name: &str) -> Result<Option<String>, Failure> {
        self.datasets.pool_property(name).or_refused("open", self.name())
    }

    /// A computed value; `None` if unavailable, for example while the pool is suspended.
    fn figure(&self, figure: PoolFigure) -> Result<Option<String>, Failure> {
        let totals = self.engine().space_totals();
        let is_suspended = self.engine().suspension().is_suspended();
        let number = match figure {
            PoolFigure::Size => totals.size,
            PoolFigure::Capacity => percent(totals.size - totals.free, totals.size),
            PoolFigure::Free => totals.free,
            PoolFigure::Allocated => allocated(&totals),
            PoolFigure::Fragmentation => self.engine().storage().space.fragmentation(None).into(),
            PoolFigure::Guid => self.guid(),
            PoolFigure::LoadGuid => self.load_guid,
            // Reading the catalogue may need a device, which a suspended pool lacks.
            PoolFigure::BcloneUsed | PoolFigure::BcloneSaved | PoolFigure::BcloneRatio | PoolFigure::Freeing
                if is_suspended =>
            {
                return Ok(None);
            }
            PoolFigure::BcloneUsed => self.sharing()?.used,
            PoolFigure::BcloneSaved => self.sharing()?.saved,
            PoolFigure::BcloneRatio => return Ok(Some(ratio(self.sharing()?))),
            PoolFigure::Freeing => self.datasets.freeing().or_refused("open", self.name())?,
            PoolFigure::Leaked => 0,
            PoolFigure::ExpandSize => {
                return Ok(Some(self.pool.growth()).filter(|bytes| *bytes > 0).map(|b| b.to_string()));
            }
            PoolFigure::Name => return Ok(Some(self.name().to_string())),
            PoolFigure::Altroot => return Ok(Some(self.altroot.clone()).filter(|altroot| !altroot.is_empty())),
            PoolFigure::Health => return Ok(Some(self.state().to_string())),
            PoolFigure::DedupRatio => return Ok(Some("1.00".to_owned())),
            PoolFigure::Version | PoolFigure::Checkpoint => return Ok(None),
        };
        Ok(Some(number.to_string()))
    }

    fn sharing(&self) -> Result<Sharing, Failure> {
        self.datasets.sharing().or_refused("open", self.name())
    }

    /// Refuses properties that are set at import only.
    pub(super) fn check_settable(&self, assignments: &[Assignment]) -> Result<(), Failure> {
        for Assignment { name, .. } in assignments {
            if ALTROOT.is(name) || READONLY.is(name) {
                let problem = format!("property '{name}' can only be set at import");
                return Err(Failure::cannot("set property for", self.name(), problem));
            }
        }
        Ok(())
    }

    pub(crate) fn set_pool(&self, assignments: &[Assignment]) -> Result<(), Failure> {
        self.check_settable(assignments)?;
        for Assignment { name, value } in assignments {
            self.datasets.set_pool_property(name, value).or_refused("set property for", self.name())?;
        }
        self.tune();
        Ok(())
    }

    /// Number of mounted file systems, by kernel transport.
    fn transports(&self) -> BTreeMap<String, u64> {
        let mut count = BTreeMap::new();
        for mount in self.mounts.iter().flat_map(|mounts| mounts.list()) {
            *count.entry(mount.transport).or_default() += 1;
        }
        count
    }

    pub(super) fn status(&self) -> Result<PoolStatus, Failure> {
        self.images.look();
        self.await_examinations();
        let vdevs = self.vdev_records();
        let errors = with_errors(&vdevs);
        // Read before the damage: a block examined after this point is part of the damage read below.
        let (waiting, passed) = self.engine().unexamined();
        let unexamined = waiting + passed;
        // Reading the catalogue may need a device, which a suspended pool lacks.
        let (damaged, freeing) = match self.engine().suspension().is_suspended() {
            true => (None, 0),
            false => (
                Some(self.datasets.damaged_names().or_refused("open", self.name())?),
                self.datasets.freeing().or_refused("open", self.name())?,
            ),
        };
        let jobs = records(&self.datasets, &self.pool).or_refused("open", self.name())?;
        let Verdict { state, status, action, alerts } =
            self.verdict(damaged.as_ref().map(Vec::len), unexamined > 0, errors, &jobs)?;
        let is_suspended = self.engine().suspension().is_suspended();
        let next = (!is_suspended).then(|| self.datasets.due_scrub()).flatten();
        Ok(PoolStatus {
            name: self.name().to_string(),
            guid: self.guid(),
            state,
            txg: self.engine().committed().0,
            status,
            action,
            alerts,
            next_scrub: next.map(|due| due.from.div_euclid(NANOS)),
            jobs,
            transports: self.transports(),
            activity: (freeing > 0).then(|| format!("freeing {} of destroyed datasets", format_bytes(freeing))),
            vdevs,
            spares: self.spare_records(),
            damaged,
            unexamined,
        })
    }

    /// Waits up to [`EXAMINATION`] until the bad copies just found by readers are examined.
    fn await_examinations(&self) {
        let engine = self.engine();
        if engine.unexamined().0 == 0 || !(engine.read_only() || engine.writable().is_ok()) {
            return;
        }
        self.jobs.wake();
        let end = engine.env().uptime() + EXAMINATION;
        while engine.unexamined().0 > 0 && engine.env().uptime() < end {
            thread::sleep(GLANCE);
        }
    }

    pub(super) fn vdevs(&self) -> &Vdevs {
        &self.engine().storage().vdevs
    }

    /// The history; with `internal`, including internal events.
    pub(super) fn history(&self, internal: bool) -> Result<Vec<HistoryRecord>, Failure> {
        // Commits the latest lines. If the pool takes no more changes, the history up to the last commit is still
        // readable.
        if let Err(error) = self.engine().commit() {
            tracing::debug!("the history may lack its latest lines: {error}");
        }
        let events = self.datasets.history().or_refused("open", self.name())?;
        let record = |event: dataset::admin::Event| HistoryRecord {
            time: event.time.div_euclid(NANOS),
            txg: event.txg.0,
            internal: event.user.is_empty(),
            user: event.user.parse().ok().map(|user| (user, event.host)),
            text: event.command,
        };
        Ok(events.into_iter().map(record).filter(|record| internal || !record.internal).collect())
    }
}

/// Space in use, in bytes, including freed space that is not reusable yet.
pub(super) fn allocated(totals: &SpaceTotals) -> u64 {
    totals.size - totals.free
}

/// `bcloneratio`: bytes referenced per byte that shared blocks take, with two decimals.
fn ratio(sharing: Sharing) -> String {
    let Sharing { used, saved } = sharing;
    let hundredths = if used == 0 { 100 } else { (u128::from(used) + u128::from(saved)) * 100 / u128::from(used) };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The percentage of a part in the whole, rounded down; 0 for an empty whole.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_sharing_is_that_of_all_references() {
        assert_eq!(ratio(Sharing { used: 0, saved: 0 }), "1.00");
        assert_eq!(ratio(Sharing { used: 3, saved: 2 }), "1.66");
        assert_eq!(ratio(Sharing { used: 1, saved: u64::MAX }), "18446744073709551616.00");
    }

    #[test]
    fn percentages_neither_overflow_nor_divide_by_zero() {
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(1, 3), 33);
        assert_eq!(percent(0, 0), 0);
    }
}
