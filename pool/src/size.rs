//! Sizes as written and read by people: `10G`, `1.50T`, `0B`.
//!
//! Printing follows OpenZFS exactly, because scripts and eyes depend on the format: at most five characters, without
//! decimals for a whole multiple of the unit, else with as many decimals (at most two) as fit.

/// Powers of 1024, the smallest first.
const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// Prints a count of bytes: `512B`, `1.50K`, `10G`.
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes}B") } else { format_count(bytes) }
}

/// The shortest size of at least so many bytes: a user who types it gets no less.
pub fn format_bytes_up(bytes: u64) -> String {
    let step = (1 << (bytes.checked_ilog2().unwrap_or(0) / 10 * 10)) / 128;
    let above = |bytes: u64| bytes.checked_add(std::cmp::max(step, 1));
    let candidates = std::iter::successors(Some(bytes), |bytes| above(*bytes)).take(256).map(format_bytes);
    let is_enough = |text: &String| parse_size(text).is_ok_and(|size| size >= bytes);
    candidates.into_iter().find(is_enough).unwrap_or_else(|| bytes.to_string())
}

/// Two sizes that a message compares: rounded if their texts differ, else exact.
pub fn format_apart(one: u64, other: u64) -> (String, String) {
    let rounded = (format_bytes(one), format_bytes_up(other));
    if rounded.0 == rounded.1 { (format!("{one} bytes"), format!("{other} bytes")) } else { rounded }
}

/// Prints a plain count in the same format, without a unit below 1024: `512`, `1.50K`.
pub fn format_count(count: u64) -> String {
    let index = (0..UNITS.len()).rev().find(|i| count >> (10 * i) > 0).unwrap_or(0);
    let unit = 1u64 << (10 * index);
    if count.is_multiple_of(unit) {
        return format!("{}{}", count / unit, UNITS[index]);
    }
    let value = count as f64 / unit as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{value:.decimals$}{}", UNITS[index]))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{}", UNITS[index]))
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text does not begin with a number.
    #[error("'{0}' is not a number")]
    NotANumber(String),
    /// An unknown unit follows the number.
    #[error("'{0}' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)")]
    Unit(String),
    /// More than 64 bits.
    #[error("'{0}' is larger than the largest size, 16E - 1")]
    TooLarge(String),
    /// The number of bytes is not whole.
    #[error("'{0}' is not a whole number of bytes")]
    Fraction(String),
}

/// Reads a size: a number with optional decimals and a unit (`B`, `K`, `KB`, `KiB`, … `E`) in upper or lower case; all
/// units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = unit_shift(unit).ok_or_else(|| match number {
        "" => SizeError::NotANumber(text.to_owned()),
        _ => SizeError::Unit(unit.to_owned()),
    })?;
    let Some((whole, decimals)) = number.split_once('.') else {
        return scale(parse_whole(number, text)?, shift, text);
    };
    let whole = if whole.is_empty() { 0 } else { parse_whole(whole, text)? };
    let base = scale(whole, shift, text)?;
    let part = decimal_part(decimals, shift).ok_or_else(|| SizeError::NotANumber(text.to_owned()))?;
    if shift == 0 && part != 0 {
        return Err(SizeError::Fraction(text.to_owned()));
    }
    base.checked_add(part).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

fn unit_shift(unit: &str) -> Option<u32> {
    let upper = unit.to_ascii_uppercase();
    if matches!(upper.as_str(), "" | "B") {
        return Some(0);
    }
    let prefix = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let index = UNITS.iter().skip(1).position(|unit| *unit == prefix)?;
    Some(10 * (index as u32 + 1))
}

fn parse_whole(number: &str, text: &str) -> Result<u64, SizeError> {
    match number.parse::<u64>() {
        Ok(value) => Ok(value),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => Err(SizeError::TooLarge(text.to_owned())),
        Err(_) => Err(SizeError::NotANumber(text.to_owned())),
    }
}

fn scale(value: u64, shift: u32, text: &str) -> Result<u64, SizeError> {
    value.checked_mul(1 << shift).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// The decimals of a number with a unit of `1 << shift` bytes, in bytes rounded down; for bytes, nonzero decimals count
/// as 1. `None` for non-digits.
fn decimal_part(decimals: &str, shift: u32) -> Option<u64> {
    let is_number = !decimals.is_empty() && decimals.bytes().all(|b| b.is_ascii_digit());
    if !is_number {
        return None;
    }
    if shift == 0 {
        return Some(u64::from(decimals.bytes().any(|b| b != b'0')));
    }
    // Eighteen digits are finer than a byte in the largest unit, and fit.
    let digits = &decimals[..decimals.len().min(18)];
    let value: u128 = digits.parse().ok()?;
    Some(((value << shift) / 10u128.pow(digits.len() as u32)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_zfs_prints_them() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10_239, "10.0K"),
            (131_072, "128K"),
            (1_048_575, "1024K"),
            (101_000, "98.6K"),
            (1_000_000, "977K"),
            (3 << 29, "1.50G"),
            (u64::MAX, "16.0E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_bytes(bytes), text, "{bytes}");
        }
        assert_eq!(format_count(999), "999");
    }

    #[test]
    fn a_size_to_type_is_never_less_than_needed() {
        let cases = [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (73_400_321, "70.1M"), ((1 << 40) + 1, "1.01T")];
        for (bytes, text) in cases {
            assert_eq!(format_bytes_up(bytes), text, "{bytes}");
        }
        for bytes in (0..64).flat_map(|shift| [(1_u64 << shift) - 1, (1 << shift) + 1, (1 << shift) + (1 << shift) / 3])
        {
            assert!(parse_size(&format_bytes_up(bytes)).unwrap() >= bytes, "{bytes}");
        }
        assert_eq!(format_bytes_up(u64::MAX), u64::MAX.to_string());
        assert_eq!(format_apart(500 << 20, 1 << 30), ("500M".to_owned(), "1G".to_owned()));
        assert_eq!(format_apart((1 << 30) - 512, 1 << 30).0, "1024M");
        assert_eq!(format_apart(1 << 30, 1 << 30).0, "1073741824 bytes");
    }

    #[test]
    fn sizes_are_read_in_every_spelling() {
        for text in ["1536K", "1.5M", "1.5m", "1.5MB", "1.5MiB", "1572864", "1572864B", "1.50000000000000000000M"] {
            assert_eq!(parse_size(text), Ok(1_572_864), "{text}");
        }
        assert_eq!(parse_size("15E"), Ok(15 << 60));
        assert_eq!(parse_size(".5K"), Ok(512));
        assert_eq!(parse_size("1.0"), Ok(1));
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        for text in ["", "G", "-1", "1.2.3", "1.", "x"] {
            assert_eq!(parse_size(text), Err(SizeError::NotANumber(text.to_owned())), "{text}");
        }
        assert_eq!(parse_size("10Q"), Err(SizeError::Unit("Q".to_owned())));
        assert_eq!(parse_size("16E"), Err(SizeError::TooLarge("16E".to_owned())));
        assert_eq!(parse_size("99999999999999999999"), Err(SizeError::TooLarge("99999999999999999999".to_owned())));
        assert_eq!(parse_size("1.5"), Err(SizeError::Fraction("1.5".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn printed_sizes_are_short_and_can_be_read(bytes: u64) {
            let text = format_bytes(bytes);
            proptest::prop_assert!(text.len() <= 5);
            if let Ok(read) = parse_size(&text) {
                proptest::prop_assert!(read.abs_diff(bytes) <= bytes / 100 + 1, "{} {}", bytes, text);
            }
        }

        #[test]
        fn any_text_is_a_size_or_an_error(text in "[0-9.KMGEiBx]{0,24}") {
            let _ = parse_size(&text);
        }
    }
}
