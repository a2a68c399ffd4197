//! Dates in the formats of ZFS, in the reader's time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Determines the reader's time zone. Callers ask only to format a date: the answer may take a walk through the
/// system's whole zone database, wasted on most commands.
pub type Zone = fn() -> TimeZone;

/// `Fri Nov  7  9:05 2025`, for `creation` and holds.
pub fn long(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%a %b %e %k:%M %Y")
}

/// `Fri Nov  7 09:05:30 2025`, for scrubs.
pub fn scan(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%a %b %e %H:%M:%S %Y")
}

/// `2025-11-07.09:05:30`, for the history.
pub fn history(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%Y-%m-%d.%H:%M:%S")
}

/// `Nov 07 2025 09:05:30`, for events.
pub fn events(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%b %d %Y %H:%M:%S")
}

/// `2025-11-07 09:05`, for listings of files.
pub fn listing(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%Y-%m-%d %H:%M")
}

/// `2025-11-07 09:05:30`, where seconds count.
pub fn exact(seconds: i64, zone: Zone) -> String {
    format(seconds, zone, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time; a time outside the calendar becomes its number of seconds.
fn format(seconds: i64, zone: Zone, pattern: &str) -> String {
    match Timestamp::from_second(seconds) {
        Ok(timestamp) => timestamp.to_zoned(zone()).strftime(pattern).to_string(),
        Err(_) => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_shown_in_the_given_zone() {
        let seconds = 1_762_506_330;
        assert_eq!(long(seconds, || TimeZone::UTC), "Fri Nov  7  9:05 2025");
        let zone: Zone = || TimeZone::fixed(jiff::tz::offset(10));
        assert_eq!(history(seconds, zone), "2025-11-07.19:05:30");
        assert_eq!(listing(seconds, zone), "2025-11-07 19:05");
        assert_eq!(exact(seconds, zone), "2025-11-07 19:05:30");
        assert_eq!(long(i64::MAX, || TimeZone::UTC), i64::MAX.to_string());
    }
}
