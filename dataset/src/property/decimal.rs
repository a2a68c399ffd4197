//! Numbers of the engine as texts of the tables, so that a default is written once.

/// The decimal digits of a number.
pub(super) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(super) const fn of(mut number: u64) -> Decimal {
        let (mut digits, mut start) = ([b'0'; 20], 20);
        loop {
            start -= 1;
            digits[start] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Decimal { digits, start };
            }
        }
    }

    pub(super) const fn text(&self) -> &str {
        match str::from_utf8(self.digits.split_at(self.start).1) {
            Ok(text) => text,
            Err(_) => panic!("digits are UTF-8"),
        }
    }
}

/// The text of a constant of type `u64`.
macro_rules! decimal {
    ($number:expr) => {{
        const DECIMAL: &$crate::property::decimal::Decimal = &$crate::property::decimal::Decimal::of($number);
        DECIMAL.text()
    }};
}

pub(super) use decimal;

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn the_text_of_a_number_is_what_display_prints() {
        for number in [0, 7, 10, 268_435_456, u64::MAX] {
            assert_eq!(Decimal::of(number).text(), number.to_string());
        }
    }
}
