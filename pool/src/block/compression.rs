//! Compression of blocks: the choices, the work, and when it is not worth the time.
//!
//! A compressed block must save at least one sector, because space is allocated in whole sectors; otherwise the block
//! is stored uncompressed. A reader needs only the family ([`Compression`]), so levels are a writer's choice
//! ([`CompressionChoice`]) that can change at any time.
//!
//! The slow families probe first. `looks_random` counts the bytes of a small sample. If their distribution is flat, LZ4
//! is tried, which passes over incompressible data at memory speed. The slow family starts only if LZ4 finds a sector
//! to save, through repetition that byte counts cannot see. (OpenZFS's zstd also tries LZ4 first.)
//!
//! Decompression takes hostile bytes: it never writes more than the length in the pointer, and any other length is an
//! error.

use std::{cell::RefCell, fmt};

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::format::{
    codec::{Malformed, malformed},
    pointer::{Compression, MAX_BLOCK},
};

/// How a dataset's blocks are to be compressed, with the level. Spelled as in OpenZFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionChoice {
    /// `off`: stored uncompressed.
    Off,
    /// `lz4` and `on`: LZ4 block format.
    #[default]
    Lz4,
    /// `zstd-1` to `zstd-19`; `zstd` is `zstd-3`.
    Zstd(i32),
    /// `zstd-fast-1` to `-10`, then tens to 100, 500 and 1000; `zstd-fast` is `zstd-fast-1`.
    ZstdFast(u32),
    /// `gzip-1` to `gzip-9`; `gzip` is `gzip-6`.
    Gzip(u32),
}

const ZSTD_DEFAULT: i32 = 3;
const ZSTD_FAST_DEFAULT: u32 = 1;
const GZIP_DEFAULT: u32 = 6;

impl CompressionChoice {
    /// Parses the value of the property `compression`; `None` if invalid.
    pub fn parse(text: &str) -> Option<CompressionChoice> {
        match text {
            "off" => Some(CompressionChoice::Off),
            "on" | "lz4" => Some(CompressionChoice::Lz4),
            "zstd" => Some(CompressionChoice::Zstd(ZSTD_DEFAULT)),
            "zstd-fast" => Some(CompressionChoice::ZstdFast(ZSTD_FAST_DEFAULT)),
            "gzip" => Some(CompressionChoice::Gzip(GZIP_DEFAULT)),
            leveled => parse_level(leveled),
        }
    }

    /// The family, as stored in a block pointer.
    pub fn family(self) -> Compression {
        match self {
            CompressionChoice::Off => Compression::Off,
            CompressionChoice::Lz4 => Compression::Lz4,
            CompressionChoice::Zstd(_) | CompressionChoice::ZstdFast(_) => Compression::Zstd,
            CompressionChoice::Gzip(_) => Compression::Zlib,
        }
    }
}

fn parse_level(text: &str) -> Option<CompressionChoice> {
    let (family, digits) = text.rsplit_once('-')?;
    if digits.starts_with(['+', '0']) {
        return None;
    }
    let level = digits.parse::<u32>().ok()?;
    match (family, level) {
        ("zstd", 1..=19) => Some(CompressionChoice::Zstd(level.cast_signed())),
        ("zstd-fast", 1..=10 | 20 | 30 | 40 | 50 | 60 | 70 | 80 | 90 | 100 | 500 | 1000) => {
            Some(CompressionChoice::ZstdFast(level))
        }
        ("gzip", 1..=9) => Some(CompressionChoice::Gzip(level)),
        _ => None,
    }
}

impl fmt::Display for CompressionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CompressionChoice::Off => f.write_str("off"),
            CompressionChoice::Lz4 => f.write_str("lz4"),
            CompressionChoice::Zstd(ZSTD_DEFAULT) => f.write_str("zstd"),
            CompressionChoice::Zstd(level) => write!(f, "zstd-{level}"),
            CompressionChoice::ZstdFast(ZSTD_FAST_DEFAULT) => f.write_str("zstd-fast"),
            CompressionChoice::ZstdFast(level) => write!(f, "zstd-fast-{level}"),
            CompressionChoice::Gzip(GZIP_DEFAULT) => f.write_str("gzip"),
            CompressionChoice::Gzip(level) => write!(f, "gzip-{level}"),
        }
    }
}

/// A thread's state between blocks, so that a block allocates only its output: tables, contexts, a buffer. Parts are
/// made when first used.
#[derive(Default)]
pub struct Compressor {
    small_table: Option<CompressTable>,
    large_table: Option<CompressTable>,
    zstd: Option<(i32, zstd::bulk::Compressor<'static>)>,
    zlib: Option<(u32, Compress)>,
    buffer: Vec<u8>,
}

/// Shorter inputs use the smaller, faster table of LZ4.
const SMALL_TABLE_LIMIT: usize = u16::MAX as usize;

/// Compresses a block; `None` unless at least one sector of `sector` bytes is saved.
///
/// # Panics
/// If `sector` is zero.
pub fn compress(
    choice: CompressionChoice,
    input: &[u8],
    sector: u32,
    scratch: &mut Compressor,
) -> Option<(Compression, Vec<u8>)> {
    // The largest useful result: one sector less than the input.
    let limit = input.len().div_ceil(sector as usize).saturating_sub(1) * sector as usize;
    if limit == 0 || choice == CompressionChoice::Off {
        return None;
    }
    if choice != CompressionChoice::Lz4 && looks_random(input) {
        scratch.lz4(input, limit)?;
    }
    let len = match choice {
        CompressionChoice::Off => None,
        CompressionChoice::Lz4 => scratch.lz4(input, limit),
        CompressionChoice::Zstd(level) => scratch.zstd(level, input, limit),
        CompressionChoice::ZstdFast(factor) => scratch.zstd(0i32.saturating_sub_unsigned(factor), input, limit),
        CompressionChoice::Gzip(level) => scratch.zlib(level, input, limit),
    }?;
    Some((choice.family(), scratch.buffer[..len].to_vec()))
}

impl Compressor {
    /// A compressor without tables or contexts: each is made at its first use.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// The three methods below leave the result in `buffer`, and return its length if at most `limit`.
    fn lz4(&mut self, input: &[u8], limit: usize) -> Option<usize> {
        let buffer = output(&mut self.buffer, get_maximum_output_size(input.len()));
        let table = match input.len() < SMALL_TABLE_LIMIT {
            true => self.small_table.get_or_insert_with(CompressTable::small),
            false => self.large_table.get_or_insert_with(CompressTable::large),
        };
        compress_into_with_table(input, buffer, table).ok().filter(|len| *len <= limit)
    }

    fn zstd(&mut self, level: i32, input: &[u8], limit: usize) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        let (prepared, context) = self.zstd.as_mut()?;
        if *prepared != level {
            context.set_compression_level(level).ok()?;
            *prepared = level;
        }
        // A buffer no longer than the limit makes zstd give up as soon as the limit is passed.
        context.compress_to_buffer(input, output(&mut self.buffer, limit)).ok()
    }

    fn zlib(&mut self, level: u32, input: &[u8], limit: usize) -> Option<usize> {
        if self.zlib.as_ref().is_none_or(|(prepared, _)| *prepared != level) {
            self.zlib = Some((level, Compress::new(flate2::Compression::new(level), true)));
        }
        let (_, context) = self.zlib.as_mut()?;
        context.reset();
        match context.compress(input, output(&mut self.buffer, limit), FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(context.total_out()).ok(),
            _ => None,
        }
    }
}

/// The first `len` bytes of the buffer, which only grows.
fn output(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// How many places of a block are looked at, and how many bytes at each: 1 KiB in all.
const SAMPLES: usize = 64;
const SAMPLE: usize = 16;
/// Shorter blocks are compressed without a probe.
const PROBE_FROM: usize = 4 * SAMPLES * SAMPLE;
/// The sum of the squared counts of 1,024 random bytes is 5,116 on average, with a standard deviation of 90. Text is
/// above 50,000; any sum below this is very nearly flat.
const FLAT: u32 = 5_500;

/// Whether a sample of the block is spread over all byte values as evenly as random bytes. The samples are jittered, so
/// that they do not fall in step with records in the data.
fn looks_random(input: &[u8]) -> bool {
    if input.len() < PROBE_FROM {
        return false;
    }
    let stride = input.len() / SAMPLES;
    let mut counts = [0u32; 256];
    let mut jitter = 0x9e37_79b9u32;
    for sample in 0..SAMPLES {
        jitter = jitter.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let start = sample * stride + (jitter >> 16) as usize % (stride - SAMPLE + 1);
        for byte in &input[start..start + SAMPLE] {
            counts[usize::from(*byte)] += 1;
        }
    }
    counts.iter().map(|count| count * count).sum::<u32>() < FLAT
}

/// Decompresses a block of exactly `len` bytes.
///
/// # Errors
/// If `input` is not of this family, has another length when decompressed, or `len` exceeds the largest block.
pub fn decompress(kind: Compression, input: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    const WHAT: &str = "compressed block";
    if len > MAX_BLOCK as usize {
        return malformed("length of a compressed block");
    }
    if kind == Compression::Off {
        return if input.len() == len { Ok(input.to_vec()) } else { malformed("length of a block") };
    }
    let mut content = vec![0; len];
    let got = match kind {
        Compression::Off => None,
        Compression::Lz4 => lz4_flex::block::decompress_into(input, &mut content).ok(),
        Compression::Zstd => unzstd(input, &mut content),
        Compression::Zlib => unzlib(input, &mut content),
    };
    if got == Some(len) { Ok(content) } else { malformed(WHAT) }
}

thread_local! {
    static UNZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    static UNZLIB: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

fn unzstd(input: &[u8], content: &mut [u8]) -> Option<usize> {
    UNZSTD.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Decompressor::new().ok();
        }
        kept.as_mut()?.decompress_to_buffer(input, content).ok()
    })
}

fn unzlib(input: &[u8], content: &mut [u8]) -> Option<usize> {
    UNZLIB.with_borrow_mut(|kept| {
        let context = kept.get_or_insert_with(|| Decompress::new(true));
        context.reset(true);
        let status = context.decompress(input, content, FlushDecompress::Finish).ok()?;
        let whole = status == Status::StreamEnd && context.total_in() == input.len() as u64;
        whole.then(|| usize::try_from(context.total_out()).ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngCore, SeedableRng, rngs::StdRng};

    const SECTOR: u32 = 4096;
    const CHOICES: [CompressionChoice; 6] = [
        CompressionChoice::Lz4,
        CompressionChoice::Zstd(3),
        CompressionChoice::Zstd(9),
        CompressionChoice::ZstdFast(10),
        CompressionChoice::Gzip(1),
        CompressionChoice::Gzip(6),
    ];

    fn random(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        StdRng::seed_from_u64(len as u64).fill_bytes(&mut bytes);
        bytes
    }

    fn text(len: usize) -> Vec<u8> {
        (0..)
            .flat_map(|n: u32| format!("the same words come again and again on line {n} of a text\n").into_bytes())
            .take(len)
            .collect()
    }

    #[test]
    fn text_round_trips_in_every_choice_and_size() {
        let mut scratch = Compressor::new();
        for len in [8192, 65_534, 65_535, 131_072, 1_000_001, 5000] {
            let input = text(len);
            for choice in CHOICES {
                let compressed = compress(choice, &input, SECTOR, &mut scratch);
                let (kind, stored) = compressed.unwrap_or_else(|| panic!("{choice} of {len}"));
                assert_eq!(kind, choice.family());
                assert!(stored.len().div_ceil(4096) < len.div_ceil(4096), "{choice} of {len}");
                assert!(decompress(kind, &stored, len).unwrap() == input, "{choice} of {len}");
                assert!(decompress(kind, &stored, len + 1).is_err(), "{choice} of {len}");
                assert!(decompress(kind, &stored, len - 1).is_err(), "{choice} of {len}");
                assert!(decompress(kind, &stored[..stored.len() - 1], len).is_err(), "{choice} of {len}");
            }
        }
    }

    #[test]
    fn what_saves_no_sector_is_left_alone() {
        let mut scratch = Compressor::new();
        for choice in CHOICES {
            assert!(compress(choice, &text(4096), SECTOR, &mut scratch).is_none(), "{choice}");
            assert!(compress(choice, &[], SECTOR, &mut scratch).is_none(), "{choice}");
            assert!(compress(choice, &random(131_072), SECTOR, &mut scratch).is_none(), "{choice}");
            let mut nearly = random(8192);
            nearly[4096 + 2048..].fill(0);
            assert!(compress(choice, &nearly, SECTOR, &mut scratch).is_none(), "{choice}");
            assert!(compress(choice, &nearly, 512, &mut scratch).is_some(), "{choice}");
        }
        assert!(compress(CompressionChoice::Off, &text(8192), SECTOR, &mut scratch).is_none());
    }

    #[test]
    fn only_flat_data_looks_random() {
        assert!(looks_random(&random(131_072)));
        assert!(looks_random(&random(4096)));
        assert!(!looks_random(&text(131_072)));
        assert!(!looks_random(&[0; 131_072]));
        assert!(!looks_random(&[]));
    }

    #[test]
    fn random_bytes_that_repeat_are_found_compressible() {
        let input = random(4096).repeat(32);
        assert!(looks_random(&input));
        for choice in CHOICES {
            assert!(compress(choice, &input, SECTOR, &mut Compressor::new()).is_some(), "{choice}");
        }
    }

    #[test]
    fn a_block_that_was_not_compressed_must_have_its_length() {
        assert_eq!(decompress(Compression::Off, b"abc", 3).unwrap(), b"abc");
        assert!(decompress(Compression::Off, b"abc", 4).is_err());
        assert!(decompress(Compression::Lz4, b"abc", usize::MAX).is_err());
    }

    #[test]
    fn choices_are_spelled_as_in_openzfs() {
        for text in ["off", "lz4", "zstd", "zstd-1", "zstd-19", "zstd-fast", "zstd-fast-1000", "gzip", "gzip-9"] {
            assert_eq!(CompressionChoice::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(CompressionChoice::parse("on"), Some(CompressionChoice::Lz4));
        assert_eq!(CompressionChoice::parse("zstd-3"), CompressionChoice::parse("zstd"));
        for text in
            ["", "ON", "zstd-0", "zstd-20", "zstd-fast-11", "gzip-0", "gzip-10", "gzip-+1", "gzip-", "lz4-1", "zle"]
        {
            assert_eq!(CompressionChoice::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn anything_round_trips_or_is_left_alone(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1usize..60), 0..20),
            choice in prop::sample::select(&CHOICES[..]),
        ) {
            let input: Vec<u8> = pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect();
            if let Some((kind, stored)) = compress(choice, &input, 512, &mut Compressor::new()) {
                prop_assert!(stored.len().div_ceil(512) < input.len().div_ceil(512));
                prop_assert!(decompress(kind, &stored, input.len()).unwrap() == input);
            }
        }

        #[test]
        fn garbage_is_refused_or_has_the_length_asked_for(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
            len in 0usize..20_000,
        ) {
            let input = text(20_000);
            for choice in CHOICES {
                if let Ok(content) = decompress(choice.family(), &bytes, len) {
                    prop_assert_eq!(content.len(), len);
                }
                let (kind, mut stored) = compress(choice, &input, 512, &mut Compressor::new()).unwrap();
                for (index, mask) in &flips {
                    *index.get_mut(&mut stored) ^= mask;
                }
                let _ = decompress(kind, &stored, input.len());
            }
        }
    }
}
