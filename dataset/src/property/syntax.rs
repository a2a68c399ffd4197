//! The syntax of property values: parsing and printing.

use std::fmt;

use pool::{
    block::compression::CompressionChoice,
    format::pointer::Checksum,
    size::{format_bytes, format_count, parse_size},
};

use super::setting::{AclType, FailMode, Words};

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// One of several words.
    Choice(&'static [&'static str]),
    /// A single value: the exact form, then, if different, the form for people, then further accepted forms.
    Fixed(&'static [&'static str]),
    /// The behaviour when a device fails.
    FailMode,
    /// `on`, also written `sa`, or `off`.
    Xattr,
    /// `posix`, also written `posixacl`, or `off`, also written `noacl`.
    AclType,
    /// A compression algorithm, with a level.
    Compression,
    /// A checksum algorithm.
    Checksum,
    /// A size that is a power of two within inclusive bounds.
    PowerOfTwo {
        /// The smallest value, in bytes.
        least: u64,
        /// The largest value, in bytes.
        most: u64,
    },
    /// `0`, or a size that is a power of two within inclusive bounds.
    PowerOfTwoOrZero {
        /// The smallest value, in bytes.
        least: u64,
        /// The largest value, in bytes.
        most: u64,
    },
    /// A whole number within inclusive bounds.
    Integer {
        /// The smallest value, inclusive.
        least: u64,
        /// The largest value, inclusive.
        most: u64,
    },
    /// A size of at least the given number of bytes.
    AtLeast(u64),
    /// A time such as `30d`, or `off`; the canonical form is the number of seconds, `0` for `off`.
    Interval {
        /// The shortest time, in seconds.
        least: u64,
    },
    /// A size, or `none`, with the canonical form `0`.
    Limit,
    /// A count, or `none`, with the canonical form `0`.
    CountLimit,
    /// A count, or `none`, with the canonical form of the greatest number: 0 is a limit too.
    Ceiling,
    /// An absolute path, `none` or `legacy`.
    Mountpoint,
    /// `any`, or a list of vdevs and `special`, which stands for all special vdevs.
    Vdevs,
    /// Any text of at most `longest` bytes.
    Text {
        /// The greatest length in bytes.
        longest: usize,
    },
    /// A computed number of bytes.
    Bytes,
    /// A computed count, printed like a size.
    Count,
    /// An identifying number, printed in full.
    Identifier,
    /// A part of a hundred.
    Percent,
    /// A quotient with two decimals.
    Ratio,
    /// Seconds since 1970, printed as a number: the time zone is the reader's.
    Date,
    /// A word that the engine chooses.
    Word,
}

/// The syntax of a compression.
const COMPRESSION: &str =
    "on | off | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,...,100,500,1000] | gzip | gzip-[1-9]";

/// The longest list of vdevs, in bytes.
const MAX_VDEVS: usize = 4096;

/// The audience of a printed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// For people: `1.50G`, `none`, `12%`.
    Human,
    /// For programs: the exact, canonical value.
    Exact,
}

/// The alignment of a column in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For columns of words.
    Left,
    /// For columns of numbers.
    Right,
}

impl Syntax {
    /// Checks a user's text and returns the canonical text; the error states the problem.
    pub(super) fn parse(self, text: &str) -> Result<String, String> {
        match self {
            Syntax::Choice(words) if words.contains(&text) => Ok(text.to_owned()),
            Syntax::FailMode if text == "panic" => {
                Err(format!("must be one of {self}; panic would lose pending writes"))
            }
            Syntax::FailMode => Syntax::Choice(FailMode::WORDS).parse(text),
            Syntax::Fixed(values) if values.contains(&text) => Ok(values[0].to_owned()),
            Syntax::Choice(_) | Syntax::Fixed(_) | Syntax::Word => Err(format!("must be one of {self}")),
            Syntax::Xattr => match text {
                "on" | "sa" => Ok("on".to_owned()),
                "off" => Ok("off".to_owned()),
                "dir" => Err("not supported: extended attributes are stored with their file (sa)".to_owned()),
                _ => Err(format!("must be one of {self}")),
            },
            Syntax::AclType => match text {
                "off" | "noacl" => Ok("off".to_owned()),
                "posix" | "posixacl" => Ok("posix".to_owned()),
                "nfsv4" => Err("not supported: only POSIX ACLs are".to_owned()),
                _ => Err(format!("must be one of {self}")),
            },
            Syntax::Compression => compression(text),
            Syntax::Checksum => checksum(text),
            Syntax::PowerOfTwo { least, most } => {
                let bytes = size(text)?;
                let fits = bytes.is_power_of_two() && (least..=most).contains(&bytes);
                fits.then(|| bytes.to_string()).ok_or_else(|| format!("must be {self}"))
            }
            Syntax::PowerOfTwoOrZero { least, most } => {
                let bytes = size(text)?;
                let fits = bytes == 0 || bytes.is_power_of_two() && (least..=most).contains(&bytes);
                fits.then(|| bytes.to_string()).ok_or_else(|| format!("must be {self}"))
            }
            Syntax::Integer { least, most } => {
                let value = text.parse::<u64>().map_err(|_| "not a whole number".to_owned())?;
                (least..=most).contains(&value).then(|| value.to_string()).ok_or_else(|| format!("must be {self}"))
            }
            Syntax::AtLeast(least) => {
                let bytes = size(text)?;
                (bytes >= least).then(|| bytes.to_string()).ok_or_else(|| format!("must be {self}"))
            }
            Syntax::Interval { least } => {
                let seconds = interval(text).ok_or_else(|| format!("must be {self}"))?;
                let fits = seconds == 0 || (least..=LONGEST_INTERVAL).contains(&seconds);
                fits.then(|| seconds.to_string()).ok_or_else(|| format!("must be {self}"))
            }
            Syntax::Limit | Syntax::CountLimit if text == "none" => Ok("0".to_owned()),
            Syntax::Ceiling if text == "none" => Ok(u64::MAX.to_string()),
            Syntax::Limit | Syntax::CountLimit | Syntax::Ceiling | Syntax::Bytes => {
                size(text).map(|bytes| bytes.to_string())
            }
            Syntax::Mountpoint => mountpoint(text),
            Syntax::Vdevs if text.len() > MAX_VDEVS => Err(format!("must have at most {MAX_VDEVS} bytes")),
            Syntax::Vdevs if text.contains(char::is_control) || text.split(',').any(str::is_empty) => {
                Err(format!("must be {self}"))
            }
            Syntax::Vdevs => Ok(text.to_owned()),
            Syntax::Text { longest } if text.len() > longest => Err(format!("must have at most {longest} bytes")),
            Syntax::Text { .. } if text.contains(char::is_control) => {
                Err("must be without control characters".to_owned())
            }
            Syntax::Text { .. } => Ok(text.to_owned()),
            Syntax::Count | Syntax::Identifier | Syntax::Percent | Syntax::Date => {
                text.parse::<u64>().map(|value| value.to_string()).map_err(|_| "not a whole number".to_owned())
            }
            Syntax::Ratio => Ok(text.to_owned()),
        }
    }

    /// Prints a canonical value. A text that is invalid in the syntax, such as `-`, is printed unchanged.
    pub fn print(self, canonical: &str, precision: Precision) -> String {
        if precision == Precision::Exact {
            return canonical.to_owned();
        }
        let shown = match self {
            Syntax::Fixed(values) => values.get(1).map(|shown| (*shown).to_owned()),
            Syntax::Limit | Syntax::CountLimit if canonical == "0" => Some("none".to_owned()),
            Syntax::Ceiling if canonical.parse() == Ok(u64::MAX) => Some("none".to_owned()),
            Syntax::Interval { .. } => canonical.parse().ok().map(format_interval),
            Syntax::PowerOfTwoOrZero { .. } if canonical == "0" => None,
            Syntax::Bytes
            | Syntax::Limit
            | Syntax::PowerOfTwo { .. }
            | Syntax::PowerOfTwoOrZero { .. }
            | Syntax::AtLeast(_) => canonical.parse().ok().map(format_bytes),
            Syntax::Count | Syntax::CountLimit | Syntax::Ceiling => canonical.parse().ok().map(format_count),
            Syntax::Percent => canonical.parse::<u64>().ok().map(|part| format!("{part}%")),
            Syntax::Ratio => canonical.parse::<f64>().ok().map(|_| format!("{canonical}x")),
            _ => None,
        };
        shown.unwrap_or_else(|| canonical.to_owned())
    }

    /// Whether values are numbers, to be compared as numbers.
    pub fn is_numeric(self) -> bool {
        matches!(
            self,
            Syntax::Bytes
                | Syntax::Limit
                | Syntax::CountLimit
                | Syntax::Ceiling
                | Syntax::PowerOfTwo { .. }
                | Syntax::PowerOfTwoOrZero { .. }
                | Syntax::AtLeast(_)
                | Syntax::Interval { .. }
                | Syntax::Integer { .. }
                | Syntax::Count
                | Syntax::Identifier
                | Syntax::Percent
                | Syntax::Ratio
                | Syntax::Date
        )
    }

    /// The alignment in a table.
    pub(super) fn align(self) -> Align {
        if self.is_numeric() && self != Syntax::Date { Align::Right } else { Align::Left }
    }
}

/// The syntax for help and errors.
impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syntax::Choice(words) => f.write_str(&words.join(" | ")),
            Syntax::Fixed(values) => f.write_str(values[values.len() - 1]),
            Syntax::FailMode => Syntax::Choice(FailMode::WORDS).fmt(f),
            Syntax::Xattr => f.write_str("on | off | sa"),
            Syntax::AclType => Syntax::Choice(AclType::WORDS).fmt(f),
            Syntax::Compression => f.write_str(COMPRESSION),
            Syntax::Checksum => Syntax::Choice(Checksum::WORDS).fmt(f),
            Syntax::PowerOfTwo { least, most } => {
                write!(f, "a power of two from {} to {}", format_bytes(*least), format_bytes(*most))
            }
            Syntax::PowerOfTwoOrZero { least, most } => {
                write!(f, "0, or a power of two from {} to {}", format_bytes(*least), format_bytes(*most))
            }
            Syntax::Integer { least, most } => write!(f, "a number from {least} to {most}"),
            Syntax::AtLeast(least) => write!(f, "a size of {} or more", format_bytes(*least)),
            Syntax::Interval { least } => write!(
                f,
                "off, or a time from {} to {} in hours, days or weeks, such as 30d",
                format_interval(*least),
                format_interval(LONGEST_INTERVAL)
            ),
            Syntax::Limit => f.write_str("a size, or none"),
            Syntax::CountLimit | Syntax::Ceiling => f.write_str("a number, or none"),
            Syntax::Mountpoint => f.write_str("an absolute path | none | legacy"),
            Syntax::Vdevs => f.write_str("any, or a comma-separated list of vdevs and special"),
            Syntax::Text { longest } => write!(f, "text of at most {longest} bytes"),
            Syntax::Bytes => f.write_str("a size"),
            Syntax::Count | Syntax::Identifier => f.write_str("a number"),
            Syntax::Percent => f.write_str("a percentage"),
            Syntax::Ratio => f.write_str("a ratio"),
            Syntax::Date => f.write_str("a date"),
            Syntax::Word => f.write_str("a word"),
        }
    }
}

fn compression(text: &str) -> Result<String, String> {
    let has_level = ["zstd-", "gzip-"].iter().any(|family| text.starts_with(family));
    match CompressionChoice::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None if has_level => Err("the algorithm does not support this level".to_owned()),
        None if matches!(text, "lzjb" | "zle") => Err("not supported by Cenote; use lz4".to_owned()),
        None => Err("unknown algorithm".to_owned()),
    }
}

fn checksum(text: &str) -> Result<String, String> {
    match text {
        known if Checksum::WORDS.contains(&known) => Ok(text.to_owned()),
        "fletcher2" | "fletcher4" | "sha512" | "skein" | "edonr" | "noparity" => {
            Err("not supported by Cenote; use xxh3 for speed, blake3 for strength".to_owned())
        }
        _ => Err("unknown algorithm".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// The units of an interval, longest first, and their seconds.
const UNITS: [(char, u64); 5] = [('w', 7 * 86_400), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// The longest interval, in seconds.
const LONGEST_INTERVAL: u64 = 3650 * 86_400;

/// The seconds of an interval: a number with a unit, or a number of seconds; 0 for `off`.
fn interval(text: &str) -> Option<u64> {
    if text == "off" {
        return Some(0);
    }
    let (number, seconds) =
        UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds))).unwrap_or((text, 1));
    // `u64::from_str` would accept a sign.
    number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse::<u64>().ok()?.checked_mul(seconds))?
}

/// An interval in the longest unit that leaves no rest, up to days; 0 is `off`.
fn format_interval(seconds: u64) -> String {
    if seconds == 0 {
        return "off".to_owned();
    }
    let unit = UNITS.iter().skip(1).find(|(_, length)| seconds.is_multiple_of(*length));
    unit.map_or_else(|| seconds.to_string(), |(unit, length)| format!("{}{unit}", seconds / length))
}

fn mountpoint(text: &str) -> Result<String, String> {
    if matches!(text, "none" | "legacy") {
        return Ok(text.to_owned());
    }
    if !text.starts_with('/') {
        return Err("must be an absolute path, 'none' or 'legacy'".to_owned());
    }
    if text.contains('\0') || text.split('/').any(|part| part == "..") {
        return Err("must not contain '..'".to_owned());
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_compression_have_bounds() {
        for text in ["on", "off", "lz4", "zstd", "zstd-19", "zstd-fast", "zstd-fast-500", "gzip", "gzip-9"] {
            assert_eq!(Syntax::Compression.parse(text).as_deref(), Ok(text));
        }
        for text in ["zstd-0", "zstd-20", "zstd-fast-11", "zstd-fast-", "gzip-0", "gzip-10", "zstd-x", "lzma", ""] {
            assert!(Syntax::Compression.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_have_units_and_bounds() {
        let syntax = Syntax::Interval { least: 3600 };
        for (text, canonical, shown) in [
            ("off", "0", "off"),
            ("0", "0", "off"),
            ("30d", "2592000", "30d"),
            ("4w", "2419200", "28d"),
            ("36h", "129600", "36h"),
            ("90m", "5400", "90m"),
            ("3601", "3601", "3601s"),
        ] {
            assert_eq!(syntax.parse(text).as_deref(), Ok(canonical));
            assert_eq!(syntax.print(canonical, Precision::Human), shown);
        }
        for text in ["", "d", "-1d", "+1d", "1y", "59m", "3651d", "1.5d", "99999999999999999999d", "9999999999999999w"]
        {
            assert!(syntax.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_shown_for_people_and_for_programs() {
        let cases = [
            (Syntax::Bytes, "1610612736", "1.50G"),
            (Syntax::Bytes, "0", "0B"),
            (Syntax::Limit, "0", "none"),
            (Syntax::Limit, "10737418240", "10G"),
            (Syntax::Ceiling, "18446744073709551615", "none"),
            (Syntax::Ceiling, "0", "0"),
            (Syntax::Ratio, "1.50", "1.50x"),
            (Syntax::Percent, "12", "12%"),
            (Syntax::Identifier, "123456789", "123456789"),
            (Syntax::Bytes, "-", "-"),
            (Syntax::Mountpoint, "none", "none"),
        ];
        for (syntax, canonical, shown) in cases {
            assert_eq!(syntax.print(canonical, Precision::Human), shown);
            assert_eq!(syntax.print(canonical, Precision::Exact), canonical);
        }
    }
}
