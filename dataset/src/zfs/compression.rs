//! Decompressing blocks as OpenZFS stores them.
//!
//! A payload may have zeros behind the compressed data, up to a whole sector. The length of the content is known
//! beforehand, bounds the memory, and must come out exactly.

use pool::format::codec::{Malformed, malformed};

/// The largest block, in bytes.
pub(super) const MAX_BLOCK: usize = 16 << 20;

const WHAT: &str = "compressed block";
/// What a zstd frame begins with; OpenZFS leaves it out.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// The length of a zstd block's own header: the compressed length, and the version with the level.
const ZSTD_HEADER: usize = 8;

/// The content of a block that is stored with the given kind of compression.
pub(super) fn decompress(kind: u8, stored: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    if len > MAX_BLOCK {
        return malformed("length of a block");
    }
    let content = match kind {
        0 | 2 => stored.get(..len).ok_or(Malformed { what: WHAT })?.to_vec(),
        3 => lzjb(stored, len)?,
        4 => vec![0; len],
        5..=13 => zlib(stored, len)?,
        14 => zle(stored, len)?,
        15 => lz4_flex::block::decompress(prefixed(stored, 4)?, len).map_err(|_| Malformed { what: WHAT })?,
        16 => {
            let frame = [&ZSTD_MAGIC, prefixed(stored, ZSTD_HEADER)?].concat();
            zstd::bulk::decompress(&frame, len).map_err(|_| Malformed { what: WHAT })?
        }
        _ => return malformed("kind of compression"),
    };
    if content.len() == len { Ok(content) } else { malformed(WHAT) }
}

/// The compressed data behind a header that begins with their length, which is big-endian always.
fn prefixed(stored: &[u8], header: usize) -> Result<&[u8], Malformed> {
    let bad = Malformed { what: WHAT };
    let (len, _) = stored.split_first_chunk::<4>().ok_or(bad)?;
    let len = u32::from_be_bytes(*len) as usize;
    stored.get(header..).and_then(|data| data.get(..len)).ok_or(bad)
}

fn zlib(stored: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let mut content = vec![0; len];
    let mut inflate = flate2::Decompress::new(true);
    let done = inflate.decompress(stored, &mut content, flate2::FlushDecompress::Finish);
    match done {
        Ok(flate2::Status::StreamEnd) if inflate.total_out() == len as u64 => Ok(content),
        _ => malformed(WHAT),
    }
}

/// Runs of literal bytes and of zeros, each behind a byte with the length.
fn zle(stored: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    const LITERALS: usize = 64;
    let (mut content, mut at) = (Vec::with_capacity(len), 0);
    while content.len() < len {
        let run = usize::from(*stored.get(at).ok_or(Malformed { what: WHAT })?) + 1;
        at += 1;
        if run <= LITERALS {
            let literals = stored.get(at..at + run).ok_or(Malformed { what: WHAT })?;
            content.extend_from_slice(literals);
            at += run;
        } else {
            content.resize(content.len() + run - LITERALS, 0);
        }
    }
    Ok(content)
}

/// Literal bytes, and copies of 3 to 66 bytes from up to 1023 bytes back; eight of either behind a byte that says which.
fn lzjb(stored: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let bad = Malformed { what: WHAT };
    let mut content: Vec<u8> = Vec::with_capacity(len);
    let mut bytes = stored.iter().copied();
    let mut next = || bytes.next().ok_or(bad);
    while content.len() < len {
        let kinds = next()?;
        for item in 0..8 {
            if content.len() == len {
                break;
            }
            if kinds >> item & 1 == 0 {
                content.push(next()?);
                continue;
            }
            let pair = u16::from_be_bytes([next()?, next()?]);
            let (count, back) = (usize::from(pair >> 10) + 3, usize::from(pair & 0x3ff));
            let from = content.len().checked_sub(back).filter(|_| back > 0).ok_or(bad)?;
            for at in from..from + count.min(len - content.len()) {
                content.push(content[at]);
            }
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_and_copies_are_expanded() {
        assert_eq!(decompress(14, &[1, 7, 8, 66, 0, 9, 0, 0], 6).unwrap(), [7, 8, 0, 0, 0, 9]);
        assert_eq!(decompress(3, &[0b10, b'a', 0x04, 0x01, 0], 5).unwrap(), *b"aaaaa");
        assert_eq!(decompress(4, &[], 3).unwrap(), [0; 3]);
        assert_eq!(decompress(2, &[1, 2, 3], 2).unwrap(), [1, 2]);
    }

    #[test]
    fn blocks_with_headers_of_their_own_may_be_padded() {
        let content = vec![5; 4096];
        let packed = lz4_flex::block::compress(&content);
        let lz4 = [&(packed.len() as u32).to_be_bytes()[..], &packed, &[0; 100]].concat();
        assert_eq!(decompress(15, &lz4, 4096).unwrap(), content);
        let frame = zstd::bulk::compress(&content, 3).unwrap();
        let packed = &frame[4..];
        let zstd = [&(packed.len() as u32).to_be_bytes()[..], &[0, 0, 0, 3], packed, &[0; 9]].concat();
        assert_eq!(decompress(16, &zstd, 4096).unwrap(), content);
        assert!(decompress(16, &zstd, 4097).is_err());
        assert!(decompress(15, &lz4, 4095).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(kind in 0u8..20, bytes: Vec<u8>, len in 0usize..10_000) {
            if let Ok(content) = decompress(kind, &bytes, len) {
                prop_assert_eq!(content.len(), len);
            }
        }
    }
}
