//! The active alerts of a pool: the begin of an alert makes an event, and so does the end.
//!
//! An alert ends when its condition was absent for [`HOLD`], so a recurring condition makes at most two events
//! in that time. A service continues with the active alerts of the service before.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use protocol::{AlertRecord, EventRecord, Severity};

/// How long a condition must be absent before its alert ends.
const HOLD: Duration = Duration::from_secs(30);

/// The classes of alerts, before their word.
const CLASS: &str = "alert.fs.cenote.";

/// Names of the details of an event.
const STATE: &str = "alert_state";
const SUBJECT: &str = "alert_subject";
const SEVERITY: &str = "alert_severity";

/// The word of an alert, and its device or dataset.
type Key = (String, Option<String>);

/// A change of an alert, as an event: class and details.
type Change = (String, Vec<(&'static str, String)>);

/// The active alerts, each with its severity and the uptime when its condition was last seen.
#[derive(Debug, Default)]
pub(super) struct Active(BTreeMap<Key, (String, Duration)>);

impl Active {
    /// The active alerts after the given events, oldest first.
    pub(super) fn restored(events: &VecDeque<EventRecord>, now: Duration) -> Active {
        let mut active = BTreeMap::new();
        for event in events {
            let Some(word) = event.class.strip_prefix(CLASS) else { continue };
            let detail =
                |name: &str| event.details.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            let key = (word.to_owned(), detail(SUBJECT));
            match detail(STATE).as_deref() {
                Some("active") => drop(active.insert(key, (detail(SEVERITY).unwrap_or_default(), now))),
                _ => drop(active.remove(&key)),
            }
        }
        Active(active)
    }

    /// The begins and ends, given all present alerts. None ends while a suspended pool cannot be asked about all.
    pub(super) fn changes(&mut self, alerts: &[AlertRecord], is_suspended: bool, now: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        if is_suspended {
            self.0.values_mut().for_each(|(_, seen)| *seen = now);
        }
        for alert in alerts {
            let key = (alert.word.clone(), alert.subject.clone());
            let severity = alert.severity.as_str().to_owned();
            if self.0.insert(key.clone(), (severity.clone(), now)).is_none() {
                let mut change = described(&key, "active", severity);
                change.1.push(("alert_problem", alert.problem.clone()));
                change.1.push(("alert_action", alert.action.clone()));
                changes.push(change);
            }
        }
        let over = |(_, seen): &(String, Duration)| now.saturating_sub(*seen) >= HOLD;
        for (key, (severity, _)) in self.0.iter().filter(|(_, known)| over(known)) {
            changes.push(described(key, "cleared", severity.clone()));
        }
        self.0.retain(|_, known| !over(known));
        changes
    }
}

fn described((word, subject): &Key, state: &str, severity: String) -> Change {
    let mut details = vec![(STATE, state.to_owned()), (SEVERITY, severity)];
    details.extend(subject.iter().map(|subject| (SUBJECT, subject.clone())));
    (format!("{CLASS}{word}"), details)
}

/// The severity of an event: of an alert as the alert says, of OpenZFS's error reports a warning, of others a notice.
pub(crate) fn severity(event: &EventRecord) -> Severity {
    let said = event.details.iter().find(|(name, _)| name == SEVERITY).map(|(_, value)| value.as_str());
    match said {
        Some("critical") => Severity::Critical,
        Some("warning") => Severity::Warning,
        Some(_) => Severity::Notice,
        None if event.class == "ereport.fs.zfs.io_failure" => Severity::Critical,
        None if event.class.starts_with("ereport.") || event.class.starts_with("resource.") => Severity::Warning,
        None => Severity::Notice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(word: &str, subject: Option<&str>) -> AlertRecord {
        let (problem, action) = ("full".to_owned(), "add".to_owned());
        let subject = subject.map(str::to_owned);
        AlertRecord { word: word.to_owned(), severity: Severity::Notice, subject, problem, action }
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        let subject =
            |details: &[(&str, String)]| details.iter().find(|(name, _)| *name == SUBJECT).map(|(_, s)| s.clone());
        changes.iter().map(|(class, details)| format!("{class} {:?} {}", subject(details), details[0].1)).collect()
    }

    #[test]
    fn an_alert_is_said_once_when_it_begins_and_once_when_it_ends() {
        let mut active = Active::default();
        let all = [alert("near_capacity", None), alert("near_quota", Some("tank/a"))];
        let at = Duration::from_secs;
        let begun =
            ["alert.fs.cenote.near_capacity None active", r#"alert.fs.cenote.near_quota Some("tank/a") active"#];
        assert_eq!(shown(&active.changes(&all, false, at(0))), begun);
        // The quota comes and goes every few seconds.
        for second in 1..600 {
            let seen = if second % 5 == 0 { &all[..] } else { &all[..1] };
            assert_eq!(shown(&active.changes(seen, false, at(second))), [""; 0]);
        }
        assert_eq!(shown(&active.changes(&all[..1], false, at(624))), [""; 0]);
        assert_eq!(
            shown(&active.changes(&all[..1], false, at(625))),
            [r#"alert.fs.cenote.near_quota Some("tank/a") cleared"#]
        );
        assert_eq!(shown(&active.changes(&all[..1], false, at(700))), [""; 0]);
    }

    #[test]
    fn no_alert_ends_while_the_pool_is_suspended() {
        let mut active = Active::default();
        let all = [alert("near_quota", Some("tank/a"))];
        let at = Duration::from_secs;
        assert_eq!(active.changes(&all, false, at(0)).len(), 1);
        for second in [5, 100, 200] {
            assert_eq!(shown(&active.changes(&[], true, at(second))), [""; 0]);
        }
        assert_eq!(shown(&active.changes(&all, false, at(201))), [""; 0], "the alert is not said again");
        assert_eq!(active.changes(&[], false, at(231)).len(), 1);
    }

    #[test]
    fn a_new_service_continues_with_what_is_active() {
        let mut active = Active::default();
        let all = [alert("near_capacity", None), alert("near_quota", Some("tank/a"))];
        let mut events = VecDeque::new();
        let mut note = |changes: Vec<Change>| {
            for (class, details) in changes {
                let details = details.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                events.push_back(EventRecord { number: events.len() as u64 + 1, time: 0, class, details });
            }
        };
        note(active.changes(&all, false, Duration::ZERO));
        note(active.changes(&all[..1], false, HOLD));
        let mut next = Active::restored(&events, Duration::ZERO);
        assert_eq!(shown(&next.changes(&all[..1], false, Duration::ZERO)), [""; 0], "the alert is not said again");
        assert_eq!(shown(&next.changes(&[], false, HOLD)), ["alert.fs.cenote.near_capacity None cleared"]);
        assert_eq!(severity(&events[0]), Severity::Notice);
    }
}
