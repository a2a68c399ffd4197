//! Numbers at fixed offsets of a structure, in the byte order of the machine that sent it.

use pool::format::codec::Malformed;

/// The byte order of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The bytes of one structure. Reading behind the end is an error, which names the structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    order: Order,
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], order: Order, what: &'static str) -> Fields<'a> {
        Fields { bytes, order, what }
    }

    /// The error for a structure that contradicts itself.
    pub(super) fn malformed(&self) -> Malformed {
        Malformed { what: self.what }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> Result<&'a [u8], Malformed> {
        let end = at.checked_add(len).ok_or(self.malformed())?;
        self.bytes.get(at..end).ok_or(self.malformed())
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(at, N)?;
        bytes.try_into().map_err(|_| self.malformed())
    }

    pub(super) fn u8(&self, at: usize) -> Result<u8, Malformed> {
        self.array(at).map(|[byte]| byte)
    }

    pub(super) fn u16(&self, at: usize) -> Result<u16, Malformed> {
        self.array(at).map(|bytes| match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, Malformed> {
        self.array(at).map(|bytes| match self.order {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, Malformed> {
        self.array(at).map(|bytes| match self.order {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        })
    }

    /// The bytes before the first NUL of a field of `len` bytes.
    pub(super) fn text(&self, at: usize, len: usize) -> Result<&'a [u8], Malformed> {
        let field = self.bytes(at, len)?;
        let end = field.iter().position(|byte| *byte == 0).ok_or(self.malformed())?;
        Ok(&field[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_order_and_end_with_the_structure() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, b'a', 0];
        let fields = |order| Fields::new(&bytes, order, "test");
        assert_eq!(fields(Order::Little).u32(0), Ok(0x0403_0201));
        assert_eq!(fields(Order::Big).u64(0), Ok(0x0102_0304_0506_0708));
        assert_eq!(fields(Order::Big).text(8, 2), Ok(&b"a"[..]));
        assert!(fields(Order::Big).u32(8).is_err());
        assert!(fields(Order::Big).u8(usize::MAX).is_err());
        assert!(fields(Order::Big).text(0, 8).is_err());
    }
}
