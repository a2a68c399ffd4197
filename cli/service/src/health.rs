//! The health of a pool and its devices: state, status text, action text, and the exit code of a command that needs
//! the pool.
//!
//! This is the only module that derives health. The facts about a pool are a set of [`Condition`]s, each with a row
//! in one table. The pool's state is the worst state of its conditions. The status text comes from the first
//! condition in table order: data loss precedes the risk of data loss, as in OpenZFS. A pool without conditions is
//! `ONLINE`. `list`, `status`, JSON, `-x` and events all show the result.
//!
//! The process that has the pool open finds the conditions ([`crate::execute`]). If the pool cannot be opened, the
//! asking command finds the conditions (`absent`).

mod alerts;
mod texts;

use std::time::Duration;

use dataset::admin::NearQuota;
use pool::{device::Whereabouts, vdev::Health};
use protocol::{AlertRecord, Exit, Failure, Severity, State};

/// A device without an answer for this long is reported as not responding.
pub(crate) const SILENT: Duration = Duration::from_secs(5);

/// The state of a device that is queried no further.
pub(crate) fn state_from(health: Health) -> State {
    match health {
        Health::Online => State::Online,
        Health::Faulted => State::Faulted,
        Health::Unavailable => State::Unavail,
        Health::Offline => State::Offline,
    }
}

/// The state of a device from its health in the pool, its file and its silence, with a note for `pool status`.
pub(crate) fn of_device(health: Health, place: Whereabouts, silence: Duration) -> (State, Option<String>) {
    match (health, place) {
        (Health::Online, Whereabouts::Removed) => (State::Removed, Some("(file removed while in use)".to_owned())),
        (Health::Online, Whereabouts::Replaced) => (State::Removed, Some("(path now names another file)".to_owned())),
        (Health::Online, Whereabouts::Cut(bytes)) => {
            let there = dataset::property::size::format_bytes(bytes);
            (State::Degraded, Some(format!("(file truncated to {there})")))
        }
        (Health::Online, Whereabouts::InPlace) if silence >= SILENT => {
            (State::Degraded, Some(format!("(not responding for {} s)", silence.as_secs())))
        }
        (health, _) => (state_from(health), None),
    }
}

/// What may be wrong with a pool. The first condition in this order gives the status text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// No service runs for a pool that should have a service.
    NoService,
    /// The service, or the command that has the pool open, does not answer.
    Unanswered,
    /// The pool cannot be opened.
    NotOpened,
    /// Commits of the pool wait for a device.
    Suspended,
    /// A commit has failed permanently.
    CommitFailed,
    /// A device's file was removed; the pool continues with the open file.
    Removed,
    /// Devices cannot be resilvered: some blocks have no good copy.
    Stuck,
    /// Files or metadata have no good copy.
    Damaged,
    /// Readers met bad copies not examined yet.
    Unexamined,
    /// A device's file is shorter than it was.
    Cut,
    /// A device of a mirror or a RAID-Z had too many errors.
    Faulted,
    /// A device does not answer requests.
    Silent,
    /// A device of a mirror or a RAID-Z is missing.
    Missing,
    /// A log vdev is missing.
    LogLost,
    /// A device of a mirror or a RAID-Z is offline.
    Offline,
    /// A device answers slowly.
    Slow,
    /// Devices are being resilvered.
    Resilvering,
    /// A cache device is missing.
    CacheOut,
    /// Devices had errors since the import; no data is lost.
    Errors,
    /// Datasets have used most of a quota.
    NearQuota,
    /// The pool is almost full.
    Full,
    /// A scrub is due for long.
    ScrubOverdue,
}

/// A condition, its word in the classes of events, the state of the pool, the urgency, and the exit code of a command
/// that needs the pool's content.
type Row = (Condition, &'static str, State, Severity, Exit);

/// All conditions, in their order.
const TABLE: [Row; 22] = [
    (Condition::NoService, "no_service", State::Unavail, Severity::Critical, Exit::Unavailable),
    (Condition::Unanswered, "unanswered", State::Unknown, Severity::Critical, Exit::Unavailable),
    (Condition::NotOpened, "not_opened", State::Unavail, Severity::Critical, Exit::Unavailable),
    (Condition::Suspended, "suspended", State::Suspended, Severity::Critical, Exit::Failed),
    (Condition::CommitFailed, "commit_failed", State::Suspended, Severity::Critical, Exit::Failed),
    (Condition::Removed, "device_removed", State::Degraded, Severity::Critical, Exit::Done),
    (Condition::Stuck, "resilver_stuck", State::Degraded, Severity::Critical, Exit::Done),
    (Condition::Damaged, "data_damaged", State::Online, Severity::Critical, Exit::Done),
    (Condition::Unexamined, "data_unexamined", State::Online, Severity::Warning, Exit::Done),
    (Condition::Cut, "device_truncated", State::Degraded, Severity::Critical, Exit::Done),
    (Condition::Faulted, "device_faulted", State::Degraded, Severity::Warning, Exit::Done),
    (Condition::Silent, "device_silent", State::Degraded, Severity::Warning, Exit::Done),
    (Condition::Missing, "device_missing", State::Degraded, Severity::Warning, Exit::Done),
    (Condition::LogLost, "log_missing", State::Degraded, Severity::Warning, Exit::Done),
    (Condition::Offline, "device_offline", State::Degraded, Severity::Warning, Exit::Done),
    (Condition::Slow, "device_slow", State::Online, Severity::Warning, Exit::Done),
    (Condition::Resilvering, "resilvering", State::Online, Severity::Warning, Exit::Done),
    (Condition::CacheOut, "cache_missing", State::Online, Severity::Warning, Exit::Done),
    (Condition::Errors, "device_errors", State::Online, Severity::Warning, Exit::Done),
    (Condition::NearQuota, "near_quota", State::Online, Severity::Notice, Exit::Done),
    (Condition::Full, "near_capacity", State::Online, Severity::Notice, Exit::Done),
    (Condition::ScrubOverdue, "scrub_overdue", State::Online, Severity::Notice, Exit::Done),
];

impl Condition {
    fn row(self) -> Row {
        TABLE[self as usize]
    }

    /// The state of a pool if this is its worst condition.
    pub(crate) fn state(self) -> State {
        self.row().2
    }

    /// The exit code of a command that needs the pool's content.
    pub(crate) fn exit(self) -> Exit {
        self.row().4
    }
}

/// Details for the status and action texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    /// Why the pool is suspended, takes no changes, or cannot be opened.
    pub(crate) why: Option<String>,
    /// The action text for the reason in `why`.
    pub(crate) way_out: Option<String>,
    /// Path of the device in the status text.
    pub(crate) device: Option<String>,
    /// The device in the status text is the only device of its vdev.
    pub(crate) is_alone: bool,
    /// Metadata shared by several files is lost.
    pub(crate) has_lost_nodes: bool,
    /// The last scan is a scrub that finished and left no damage.
    pub(crate) is_scrubbed: bool,
    /// Silence after which a device counts as faulted.
    pub(crate) deadline: Duration,
    /// Paths of the devices with errors, and the number of errors.
    pub(crate) errors: Vec<(String, u64)>,
    /// The nearly used quotas.
    pub(crate) quotas: Vec<NearQuota>,
    /// Percentage of space allocated.
    pub(crate) capacity: u64,
    /// Seconds since a scrub became due.
    pub(crate) overdue: u64,
}

/// The health of a pool, as shown to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The worst state of the pool's conditions.
    pub(crate) state: State,
    /// The status text; `None` if nothing is wrong.
    pub(crate) status: Option<String>,
    /// The action text; `None` if nothing is wrong.
    pub(crate) action: Option<String>,
    /// Everything that is wrong, in the order of the conditions.
    pub(crate) alerts: Vec<AlertRecord>,
}

/// The worst state of these conditions.
pub(crate) fn state_of(conditions: &[Condition]) -> State {
    conditions.iter().map(|condition| condition.state()).max().unwrap_or(State::Online)
}

/// The state and the texts for a pool with these conditions.
pub(crate) fn verdict(pool: &str, conditions: &[Condition], details: &Details) -> Verdict {
    let first = conditions.iter().min();
    Verdict {
        state: state_of(conditions),
        status: first.map(|first| texts::status(*first, details)),
        action: first.map(|first| texts::action(*first, pool, details)),
        alerts: alerts::all(pool, conditions, details),
    }
}

/// Gives a failure the exit code of a pool that is unavailable.
pub(crate) fn unavailable(condition: Condition, failure: Failure) -> Failure {
    Failure { exit: condition.exit(), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Condition> {
        TABLE.into_iter().map(|(condition, ..)| condition)
    }

    fn said(conditions: &[Condition]) -> Verdict {
        verdict("tank", conditions, &Details { why: Some("it hangs".into()), ..Details::default() })
    }

    #[test]
    fn the_table_has_a_row_for_each_condition_in_order() {
        for (at, (condition, ..)) in TABLE.into_iter().enumerate() {
            assert_eq!(condition as usize, at);
        }
        assert_eq!(Condition::ScrubOverdue as usize + 1, TABLE.len());
    }

    #[test]
    fn a_pool_without_conditions_is_online_and_has_nothing_to_say() {
        assert_eq!(said(&[]), Verdict { state: State::Online, status: None, action: None, alerts: vec![] });
    }

    #[test]
    fn whatever_is_the_matter_is_said_with_what_to_do() {
        for condition in all() {
            let Verdict { state, status, action, .. } = said(&[condition]);
            assert_eq!(state, condition.state(), "{condition:?}");
            let (status, action) = (status.unwrap(), action.unwrap());
            assert!(!status.is_empty() && !action.is_empty(), "{condition:?}");
            assert!(action.contains("tank") || matches!(condition, Condition::Resilvering | Condition::Silent));
            assert!(!condition.exit().eq(&Exit::Done) || state <= State::Degraded, "{condition:?}");
        }
    }

    #[test]
    fn the_first_condition_is_shown_and_the_worst_is_the_state() {
        // Every pair, and some of the larger sets.
        let (some, pairs) = ((0..1_u32 << TABLE.len()).step_by(31), 1_u32 << TABLE.len());
        for chosen in some.chain((0..pairs).filter(|chosen| chosen.count_ones() <= 2)) {
            let conditions: Vec<Condition> = all().filter(|c| chosen & 1 << *c as u32 != 0).rev_order();
            let expected = conditions.iter().map(|condition| condition.state()).max().unwrap_or(State::Online);
            assert_eq!(state_of(&conditions), expected);
            if chosen.count_ones() == 2 {
                let first = said(&[*conditions.iter().min().unwrap()]);
                assert_eq!((said(&conditions).status, said(&conditions).action), (first.status, first.action));
            }
        }
    }

    /// The conditions in reverse order of the table.
    trait RevOrder {
        fn rev_order(self) -> Vec<Condition>;
    }

    impl<I: Iterator<Item = Condition>> RevOrder for I {
        fn rev_order(self) -> Vec<Condition> {
            let mut all: Vec<Condition> = self.collect();
            all.reverse();
            all
        }
    }

    #[test]
    fn after_a_scrub_that_repaired_everything_no_other_is_advised() {
        let advice = |is_scrubbed| {
            let details = Details { is_scrubbed, ..Details::default() };
            verdict("tank", &[Condition::Errors], &details).action.unwrap()
        };
        assert!(advice(false).contains("pool scrub tank\nThen clear the errors: pool clear tank"));
        assert!(!advice(true).contains("scrub") && advice(true).contains("pool clear tank"), "{}", advice(true));
    }

    #[test]
    fn only_a_pool_that_cannot_be_had_has_commands_for_others_go_on() {
        let away = all().filter(|condition| condition.exit() == Exit::Unavailable);
        assert_eq!(away.collect::<Vec<_>>(), [Condition::NoService, Condition::Unanswered, Condition::NotOpened]);
    }

    #[test]
    fn devices_have_their_states() {
        let healths = [Health::Online, Health::Faulted, Health::Unavailable, Health::Offline];
        let places = [Whereabouts::InPlace, Whereabouts::Removed, Whereabouts::Replaced, Whereabouts::Cut(1 << 20)];
        let mut table = String::new();
        for (health, place) in healths.into_iter().flat_map(|health| places.map(|place| (health, place))) {
            for seconds in [4, 12] {
                let (state, note) = of_device(health, place, Duration::from_secs(seconds));
                // A device out of use is not queried, so its file state is unknown.
                if health == Health::Online {
                    table += &format!("{place:?} {seconds}: {state} {}\n", note.unwrap_or_default());
                } else {
                    assert_eq!((state, note), (state_from(health), None));
                }
            }
        }
        insta::assert_snapshot!(table, @r"
        InPlace 4: ONLINE 
        InPlace 12: DEGRADED (not responding for 12 s)
        Removed 4: REMOVED (file removed while in use)
        Removed 12: REMOVED (file removed while in use)
        Replaced 4: REMOVED (path now names another file)
        Replaced 12: REMOVED (path now names another file)
        Cut(1048576) 4: DEGRADED (file truncated to 1M)
        Cut(1048576) 12: DEGRADED (file truncated to 1M)
        ");
    }
}
