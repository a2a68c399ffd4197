//! Jobs in `pool status`: the removal in the wording of `zpool status`, as scripts expect, the rebalance, the
//! defragmentation and the resize.

use dataset::property::size::format_bytes;
use protocol::{DefragmentRecord, RebalanceRecord, RemovalEnd, RemovalRecord, ResizeRecord};
use serde_json::{Value, json};

use crate::output::time::{self, Zone};

/// The text after `remove:`.
pub(super) fn render(removal: &RemovalRecord, zone: Zone) -> String {
    let (start, end) = (time::scan(removal.start, zone), time::scan(removal.end, zone));
    match removal.ended {
        None if removal.paused => {
            let done = Done::of_removal(removal);
            format!("Evacuation of {} paused, started on {start}\n{}", removal.name, done.so_far())
        }
        None => {
            let done = Done::of_removal(removal);
            let progress = done.progress("no estimated completion time");
            format!("Evacuation of {} in progress since {start}\n{progress}{}", removal.name, limit(removal.limit))
        }
        Some(RemovalEnd::Finished) => format!(
            "Removal of vdev {} copied {} in {}, completed on {end}",
            removal.vdev,
            format_bytes(removal.copied),
            duration(removal.seconds)
        ),
        Some(RemovalEnd::Canceled) => format!("Removal of {} canceled on {end}", removal.name),
        Some(RemovalEnd::Unreadable) => {
            format!("Removal of {} failed on {end}: data on it could not be read", removal.name)
        }
        Some(RemovalEnd::NoRoom) => {
            format!("Removal of {} failed on {end}: too few empty regions on other vdevs", removal.name)
        }
    }
}

/// The text after `rebalance:`.
pub(super) fn render_rebalance(rebalance: &RebalanceRecord, zone: Zone) -> String {
    let (start, end) = (time::scan(rebalance.start, zone), time::scan(rebalance.end, zone));
    let done = Done { copied: rebalance.copied, before: 0, total: rebalance.total, seconds: rebalance.seconds };
    match rebalance.ended {
        None if rebalance.paused => format!("paused, started on {start}\n{}", done.so_far()),
        None => format!("in progress since {start}\n{}{}", done.progress("no estimate yet"), limit(rebalance.limit)),
        Some(RemovalEnd::Finished) => {
            format!("moved {} in {} on {end}", format_bytes(rebalance.copied), duration(rebalance.seconds))
        }
        Some(RemovalEnd::Canceled) => format!("canceled on {end}"),
        Some(RemovalEnd::Unreadable) => format!("failed on {end}:\ndata could not be read"),
        Some(RemovalEnd::NoRoom) => format!("failed on {end}:\ntoo few empty regions"),
    }
}

/// The text after `defragment:`.
pub(super) fn render_defragment(defragment: &DefragmentRecord, zone: Zone) -> String {
    let DefragmentRecord { moved, wanted, emptied, taken, maps, .. } = defragment;
    let rebalanced = render_rebalance(moved, zone);
    let emptied = match moved.ended {
        None => format!("{emptied} of {wanted} regions emptied, {taken} filled"),
        Some(_) => format!("{emptied} regions emptied, {taken} filled"),
    };
    format!("{rebalanced}\n{emptied}\n{} of memory used for maps", format_bytes(*maps))
}

/// The text after `resize:`.
pub(super) fn render_resize(resize: &ResizeRecord, zone: Zone) -> String {
    let ResizeRecord { moved, name, size, obstacle } = resize;
    let obstacle = obstacle.as_ref().map_or_else(String::new, |obstacle| format!("\n{obstacle}"));
    let becomes = if moved.ended == Some(RemovalEnd::Finished) { "is now" } else { "shrinks to" };
    format!("{}\n{name} {becomes} {}{obstacle}", render_rebalance(moved, zone), format_bytes(*size))
}

pub(super) fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!("\nlimited to {}/s", format_bytes(limit)))
}

/// Progress of a job, in bytes and seconds.
struct Done {
    copied: u64,
    /// The part of `copied` from before the period of `seconds`.
    before: u64,
    total: u64,
    seconds: u64,
}

impl Done {
    fn of_removal(removal: &RemovalRecord) -> Done {
        // A block with several copies counts once, and data freed meanwhile is not copied.
        let RemovalRecord { copied, before, total, seconds, .. } = *removal;
        Done { copied, before, total, seconds }
    }

    fn total(&self) -> u64 {
        self.total.max(self.copied)
    }

    /// Share of the total, as `29.29% done`.
    fn share(&self) -> String {
        let permyriad = (u128::from(self.copied) * 10_000).checked_div(self.total().into()).unwrap_or(0);
        format!("{}.{:02}% done", permyriad / 100, permyriad % 100)
    }

    fn so_far(&self) -> String {
        format!("{} copied out of {}, {}", format_bytes(self.copied), format_bytes(self.total()), self.share())
    }

    /// Progress with rate and remaining time; `unknown` replaces an unknown time.
    fn progress(&self, unknown: &str) -> String {
        let rate = self.copied.saturating_sub(self.before).checked_div(self.seconds).unwrap_or(0);
        let left = match (self.total() - self.copied).checked_div(rate) {
            Some(seconds) => format!("{} to go", duration(seconds)),
            None => unknown.to_owned(),
        };
        format!(
            "{} copied out of {} at {}/s, {}, {left}",
            format_bytes(self.copied),
            format_bytes(self.total()),
            format_bytes(rate),
            self.share()
        )
    }
}

/// Hours and minutes, as `1h2m`.
fn duration(seconds: u64) -> String {
    format!("{}h{}m", seconds / 3600, seconds / 60 % 60)
}

/// The removal in JSON.
pub(super) fn encode(removal: &RemovalRecord) -> Value {
    let state = state(removal.ended, removal.paused);
    json!({
        "name": removal.name,
        "vdev": removal.vdev.to_string(),
        "state": state,
        "start_time": removal.start.to_string(),
        "end_time": removal.end.to_string(),
        "seconds": removal.seconds.to_string(),
        "to_copy": removal.total.to_string(),
        "copied": removal.copied.to_string(),
        "errors": removal.errors.to_string(),
    })
}

/// The rebalance in JSON.
pub(super) fn encode_rebalance(rebalance: &RebalanceRecord) -> Value {
    json!({
        "state": state(rebalance.ended, rebalance.paused),
        "start_time": rebalance.start.to_string(),
        "end_time": rebalance.end.to_string(),
        "seconds": rebalance.seconds.to_string(),
        "limit": rebalance.limit.map(|limit| limit.to_string()),
        "to_copy": rebalance.total.to_string(),
        "copied": rebalance.copied.to_string(),
        "errors": rebalance.errors.to_string(),
    })
}

/// The defragmentation in JSON.
pub(super) fn encode_defragment(defragment: &DefragmentRecord) -> Value {
    let mut value = encode_rebalance(&defragment.moved);
    let numbers = [
        ("regions_to_empty", defragment.wanted),
        ("regions_emptied", defragment.emptied),
        ("regions_filled", defragment.taken),
        ("packed_chunks", defragment.packed),
        ("map_memory", defragment.maps),
    ];
    let numbers = numbers.into_iter().map(|(name, number)| (name.to_owned(), json!(number.to_string())));
    value.as_object_mut().expect("it is one").extend(numbers);
    value
}

/// The resize in JSON.
pub(super) fn encode_resize(resize: &ResizeRecord) -> Value {
    let mut value = encode_rebalance(&resize.moved);
    let named =
        [("name", json!(resize.name)), ("size", json!(resize.size.to_string())), ("obstacle", json!(resize.obstacle))];
    let named = named.into_iter().map(|(name, value)| (name.to_owned(), value));
    value.as_object_mut().expect("it is one").extend(named);
    value
}

fn state(ended: Option<RemovalEnd>, paused: bool) -> &'static str {
    match ended {
        None if paused => "PAUSED",
        None => "SCANNING",
        Some(RemovalEnd::Finished) => "FINISHED",
        Some(_) => "CANCELED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn removal(ended: Option<RemovalEnd>) -> RemovalRecord {
        RemovalRecord {
            name: "mirror-1".into(),
            vdev: 1,
            ended,
            paused: false,
            limit: None,
            start: 1_762_506_330,
            end: 1_762_506_330,
            seconds: 3700,
            total: 1 << 30,
            before: 0,
            copied: 300 << 20,
            errors: 0,
        }
    }

    #[test]
    fn each_state_has_its_words() {
        let of = |ended| render(&removal(ended), || TimeZone::UTC);
        insta::assert_snapshot!(of(None), @r"
        Evacuation of mirror-1 in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        ");
        insta::assert_snapshot!(of(Some(RemovalEnd::Finished)), @"Removal of vdev 1 copied 300M in 1h1m, completed on Fri Nov  7 09:05:30 2025");
        insta::assert_snapshot!(of(Some(RemovalEnd::Canceled)), @"Removal of mirror-1 canceled on Fri Nov  7 09:05:30 2025");
        assert!(of(Some(RemovalEnd::Unreadable)).ends_with("could not be read"));
        assert!(of(Some(RemovalEnd::NoRoom)).ends_with("empty regions on other vdevs"));
    }

    fn rebalance(ended: Option<RemovalEnd>) -> RebalanceRecord {
        let (start, end, seconds) = (1_762_506_330, 1_762_506_330, 3700);
        let (total, copied, errors) = (1 << 30, 300 << 20, 0);
        RebalanceRecord { ended, paused: false, limit: None, start, end, seconds, total, copied, errors }
    }

    #[test]
    fn a_rebalance_shows_how_far_it_is_in_lines_that_fit() {
        let of = |rebalance: RebalanceRecord| render_rebalance(&rebalance, || TimeZone::UTC);
        let running = RebalanceRecord { limit: Some(20 << 20), ..rebalance(None) };
        insta::assert_snapshot!(of(running.clone()), @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        limited to 20M/s
        ");
        insta::assert_snapshot!(of(RebalanceRecord { paused: true, ..running.clone() }), @r"
        paused, started on Fri Nov  7 09:05:30 2025
        300M copied out of 1G, 29.29% done
        ");
        insta::assert_snapshot!(of(rebalance(Some(RemovalEnd::Finished))), @"moved 300M in 1h1m on Fri Nov  7 09:05:30 2025");
        let fresh = RebalanceRecord { copied: 0, seconds: 0, ..running };
        let ends = [RemovalEnd::Canceled, RemovalEnd::Unreadable, RemovalEnd::NoRoom].map(|end| rebalance(Some(end)));
        for shown in ends.into_iter().chain([fresh]).map(of) {
            // `pool status` puts a title and a tab before each line.
            assert!(shown.lines().all(|line| line.len() <= 69), "{shown}");
        }
    }

    #[test]
    fn a_defragmentation_says_what_it_gains_and_costs() {
        let of = |ended| {
            let moved = rebalance(ended);
            let record = DefragmentRecord { moved, wanted: 60, emptied: 41, taken: 12, packed: 41, maps: 5000 };
            (render_defragment(&record, || TimeZone::UTC), encode_defragment(&record))
        };
        insta::assert_snapshot!(of(None).0, @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        41 of 60 regions emptied, 12 filled
        4.88K of memory used for maps
        ");
        let (shown, json) = of(Some(RemovalEnd::Finished));
        insta::assert_snapshot!(shown, @r"
        moved 300M in 1h1m on Fri Nov  7 09:05:30 2025
        41 regions emptied, 12 filled
        4.88K of memory used for maps
        ");
        assert_eq!((&json["regions_emptied"], &json["map_memory"]), (&json!("41"), &json!("5000")));
    }

    #[test]
    fn a_resize_says_what_becomes_of_which_device() {
        let of = |ended| {
            let record =
                ResizeRecord { moved: rebalance(ended), name: "mirror-0".into(), size: 10 << 30, obstacle: None };
            (render_resize(&record, || TimeZone::UTC), encode_resize(&record))
        };
        insta::assert_snapshot!(of(None).0, @r"
        in progress since Fri Nov  7 09:05:30 2025
        300M copied out of 1G at 83.0K/s, 29.29% done, 2h28m to go
        mirror-0 shrinks to 10G
        ");
        let (shown, json) = of(Some(RemovalEnd::Finished));
        insta::assert_snapshot!(shown, @r"
        moved 300M in 1h1m on Fri Nov  7 09:05:30 2025
        mirror-0 is now 10G
        ");
        assert_eq!(
            (&json["name"], &json["size"], &json["state"]),
            (&json!("mirror-0"), &json!("10737418240"), &json!("FINISHED"))
        );
    }

    #[test]
    fn numbers_at_their_ends_neither_divide_by_zero_nor_overflow() {
        let fresh = RemovalRecord { seconds: 0, copied: 0, total: 0, ..removal(None) };
        assert!(render(&fresh, || TimeZone::UTC).ends_with("0.00% done, no estimated completion time"));
        let huge = RemovalRecord { copied: u64::MAX, seconds: 1, ..removal(None) };
        assert!(render(&huge, || TimeZone::UTC).contains("100.00% done, 0h0m to go"));
    }
}
