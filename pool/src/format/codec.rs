//! Reading and writing bytes: the primitives of every structure.

use std::fmt;

/// Invalid bytes. `what` names the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field or structure being decoded.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}", self.what)
    }
}

impl std::error::Error for Malformed {}

/// Shorthand for the error of a field.
pub fn malformed<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { what })
}

/// Takes fields off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The remaining bytes, without taking them.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed { what })?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed { what })?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes one byte; `what` names the field in errors.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Takes two bytes, little-endian.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Takes four bytes, little-endian.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Takes eight bytes, little-endian.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A variable-length number: seven bits a byte, least first, the high bit set on all but the last byte.
    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return malformed(what);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        malformed(what)
    }

    /// A variable-length number of at most 32 bits.
    pub fn varint32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        u32::try_from(self.varint(what)?).map_err(|_| Malformed { what })
    }

    /// A variable-length number, then as many bytes.
    pub fn prefixed(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint(what)?).map_err(|_| Malformed { what })?;
        self.bytes(len, what)
    }

    /// A length-prefixed UTF-8 string.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.prefixed(what)?).map_err(|_| Malformed { what })
    }

    /// Succeeds if nothing is left over.
    pub fn finish(self, what: &'static str) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { malformed(what) }
    }
}

/// Appends fields to a buffer; the mirror image of [`Reader`].
pub trait Writer {
    /// Appends bytes unchanged.
    fn put_bytes(&mut self, bytes: &[u8]);

    /// Appends a single byte.
    fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }

    /// Appends two bytes, little-endian.
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Appends four bytes, little-endian.
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// Appends eight bytes, little-endian.
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }

    /// A variable-length number.
    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    /// A length, then the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
}

/// How many bytes [`Writer::put_varint`] takes for `value`.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varint_round_trips(value: u64) {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint("value"), Ok(value));
            prop_assert_eq!(reader.remaining(), 0);
        }

        #[test]
        fn varint_of_garbage_never_panics(bytes: Vec<u8>) {
            let _ = Reader::new(&bytes).varint("value");
        }
    }

    #[test]
    fn a_varint_longer_than_64_bits_is_refused() {
        let eleven = [0xff; 11];
        assert!(Reader::new(&eleven).varint("value").is_err());
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Reader::new(&too_large).varint("value").is_err());
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert_eq!(Reader::new(&[5, 1, 2]).prefixed("name"), malformed("name"));
    }
}
