//! How many messages a target gets in an hour. The number of withheld messages comes with the next message.

use std::time::{Duration, Instant};

use super::config::Target;

const HOUR: Duration = Duration::from_secs(3600);

/// The messages of the current hour, by target. A target whose configuration changed begins anew.
#[derive(Debug, Default)]
pub(super) struct Limits(Vec<Spent>);

#[derive(Debug)]
struct Spent {
    target: Target,
    begun: Instant,
    sent: u32,
    withheld: u64,
}

impl Limits {
    /// Whether a message may be sent now: the number of messages withheld before, or `None` if this one is withheld too.
    pub(super) fn admit(&mut self, target: &Target, now: Instant) -> Option<u64> {
        let spent = self.of(target, now);
        if now.saturating_duration_since(spent.begun) >= HOUR {
            (spent.begun, spent.sent) = (now, 0);
        }
        if spent.sent >= target.hourly {
            spent.withheld += 1;
            return None;
        }
        spent.sent += 1;
        Some(std::mem::take(&mut spent.withheld))
    }

    /// The number of messages withheld, if any, from a target whose hour is over: counts as a message.
    pub(super) fn take_withheld(&mut self, target: &Target, now: Instant) -> Option<u64> {
        let spent = self.of(target, now);
        let is_due = spent.withheld > 0 && now.saturating_duration_since(spent.begun) >= HOUR;
        is_due.then(|| self.admit(target, now)).flatten()
    }

    fn of(&mut self, target: &Target, now: Instant) -> &mut Spent {
        let at = self.0.iter().position(|spent| spent.target == *target).unwrap_or_else(|| {
            // Bounded, although the configuration changes often: the oldest is forgotten.
            if self.0.len() == 64 {
                self.0.remove(0);
            }
            self.0.push(Spent { target: target.clone(), begun: now, sent: 0, withheld: 0 });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_its_messages_and_the_next_reports_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notify.toml");
        std::fs::write(&file, "[[desktop]]\nhourly = 3\n[[mail]]\nto = 'root'").unwrap();
        let targets = super::super::config::read(&file).unwrap();
        let target = targets.iter().find(|target| target.hourly == 3).unwrap();
        let (mut limits, start) = (Limits::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let admitted: Vec<_> = (0..10).map(|second| limits.admit(target, at(second))).collect();
        assert_eq!(admitted[..4], [Some(0), Some(0), Some(0), None]);
        assert_eq!(limits.take_withheld(target, at(3599)), None);
        assert_eq!(limits.take_withheld(target, at(3600)), Some(7));
        assert_eq!(limits.take_withheld(target, at(3700)), None);
        assert_eq!([limits.admit(target, at(3700)), limits.admit(target, at(3701))], [Some(0), Some(0)]);
        assert_eq!(limits.admit(target, at(3702)), None, "the summary was a message of this hour");
        assert_eq!(limits.admit(target, at(7200)), Some(1));
    }
}
