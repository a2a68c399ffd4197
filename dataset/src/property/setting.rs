//! Settings that the engine acts on, as types: parsed from the canonical text of their property.

use std::fmt;
use std::str::FromStr;

/// How new data is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    Off,
    /// By the default algorithm, LZ4.
    On,
    /// LZ4: light, for everything.
    Lz4,
    /// Zstandard at a level from 1 to 19; plain `zstd` is level 3.
    Zstd(Option<u8>),
    /// Zstandard's fast levels, from 1 (best) to 1000 (fastest); plain `zstd-fast` is 1.
    ZstdFast(Option<u16>),
    /// Deflate at a level from 1 to 9; plain `gzip` is level 6.
    Gzip(Option<u8>),
}

impl Compression {
    /// What may be written.
    pub const VALUES: &str =
        "on | off | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,...,100,500,1000] | gzip | gzip-[1-9]";
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Compression, String> {
        match text {
            "on" => return Ok(Compression::On),
            "off" => return Ok(Compression::Off),
            "lz4" => return Ok(Compression::Lz4),
            "zstd" => return Ok(Compression::Zstd(None)),
            "zstd-fast" => return Ok(Compression::ZstdFast(None)),
            "gzip" => return Ok(Compression::Gzip(None)),
            "lzjb" | "zle" => return Err("is an algorithm of ZFS that Cenote does not have; use lz4".to_owned()),
            _ => {}
        }
        let level = |prefix: &str| text.strip_prefix(prefix).map(|level| level.parse::<u16>().ok());
        let parsed = if let Some(level) = level("zstd-fast-") {
            level.filter(|level| is_fast_level(*level)).map(|level| Compression::ZstdFast(Some(level)))
        } else if let Some(level) = level("zstd-") {
            level.filter(|level| (1..=19).contains(level)).map(|level| Compression::Zstd(Some(level as u8)))
        } else if let Some(level) = level("gzip-") {
            level.filter(|level| (1..=9).contains(level)).map(|level| Compression::Gzip(Some(level as u8)))
        } else {
            return Err("is not a known algorithm".to_owned());
        };
        parsed.ok_or_else(|| "has a level that the algorithm does not have".to_owned())
    }
}

fn is_fast_level(level: u16) -> bool {
    matches!(level, 1..=10 | 20 | 30 | 40 | 50 | 60 | 70 | 80 | 90 | 100 | 500 | 1000)
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => f.write_str("off"),
            Compression::On => f.write_str("on"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(None) => f.write_str("zstd"),
            Compression::Zstd(Some(level)) => write!(f, "zstd-{level}"),
            Compression::ZstdFast(None) => f.write_str("zstd-fast"),
            Compression::ZstdFast(Some(level)) => write!(f, "zstd-fast-{level}"),
            Compression::Gzip(None) => f.write_str("gzip"),
            Compression::Gzip(Some(level)) => write!(f, "gzip-{level}"),
        }
    }
}

/// How new data is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// File data is not checked; metadata always is.
    Off,
    /// By the default algorithm, BLAKE3.
    On,
    /// BLAKE3: cryptographic and fast.
    Blake3,
    /// XXH3 with 128 bits: the fastest; detects accidents, not intent.
    Xxh3,
    /// SHA-256.
    Sha256,
}

impl Checksum {
    /// What may be written.
    pub const VALUES: &str = "on | off | blake3 | xxh3 | sha256";
}

impl FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Checksum, String> {
        match text {
            "on" => Ok(Checksum::On),
            "off" => Ok(Checksum::Off),
            "blake3" => Ok(Checksum::Blake3),
            "xxh3" => Ok(Checksum::Xxh3),
            "sha256" => Ok(Checksum::Sha256),
            "fletcher2" | "fletcher4" | "sha512" | "skein" | "edonr" | "noparity" => {
                Err("is an algorithm of ZFS that Cenote does not have; use xxh3 for speed, blake3 for strength"
                    .to_owned())
            }
            _ => Err("is not a known algorithm".to_owned()),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checksum::Off => "off",
            Checksum::On => "on",
            Checksum::Blake3 => "blake3",
            Checksum::Xxh3 => "xxh3",
            Checksum::Sha256 => "sha256",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_print_as_they_were_read() {
        for text in ["on", "off", "lz4", "zstd", "zstd-19", "zstd-fast", "zstd-fast-500", "gzip", "gzip-9"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        for text in Checksum::VALUES.split(" | ") {
            assert_eq!(text.parse::<Checksum>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn levels_have_bounds() {
        for text in ["zstd-0", "zstd-20", "zstd-fast-11", "zstd-fast-", "gzip-0", "gzip-10", "zstd-x", "lzma", ""] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
