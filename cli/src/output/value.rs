//! Text of a property's value: by the property's syntax, with dates in the reader's time zone.

use dataset::property::{Precision, Property, Syntax};

use super::time::{self, Zone};

/// Style of values in output.
#[derive(Clone, Debug)]
pub struct Style {
    /// Rounded for people, or exact for programs.
    pub precision: Precision,
    /// Time zone of dates.
    pub zone: Zone,
}

impl Style {
    /// Text of a canonical value; `-` for an empty value.
    pub fn show(&self, property: &Property, canonical: &str) -> String {
        let syntax = property.syntax();
        match (syntax, canonical.parse::<i64>()) {
            _ if canonical.is_empty() => "-".to_owned(),
            (Syntax::Date, Ok(seconds)) if self.precision == Precision::Human => time::long(seconds, self.zone),
            _ => syntax.print(canonical, self.precision),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn dates_are_dates_for_people_and_seconds_for_programs() {
        let creation = Property::of_dataset("creation").unwrap();
        let show = |precision| Style { precision, zone: || TimeZone::UTC }.show(&creation, "1762506330");
        assert_eq!(show(Precision::Human), "Fri Nov  7  9:05 2025");
        assert_eq!(show(Precision::Exact), "1762506330");
    }
}
