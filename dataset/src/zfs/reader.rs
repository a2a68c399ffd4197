//! Reads the records of an input, and verifies their checksums.
//!
//! A sum runs from the head of each stream to its end. Every record states the sum so far; very old senders state it
//! only at the end. The last record of a package has none.

use std::io::{self, Read};

use super::{
    fields::{Fields, Order},
    fletcher::Fletcher,
    record::{HEADER, Head, MAGIC, MAGIC_AT, Record, SUMMED},
};
use crate::stream::{Error, Result};

/// The number of bytes that show whether an input is a stream of OpenZFS.
pub(super) const PREFIX: usize = MAGIC_AT + 8;

/// The byte order of a stream that begins with the given bytes; `None` if it is no stream of OpenZFS.
pub(super) fn order_of(prefix: &[u8]) -> Option<Order> {
    [Order::Little, Order::Big].into_iter().find(|order| {
        let fields = Fields::new(prefix, *order, "start of a stream");
        fields.u32(0) == Ok(0) && fields.u64(MAGIC_AT) == Ok(MAGIC)
    })
}

/// A reader of records.
pub(super) struct Records<'a> {
    input: &'a mut dyn Read,
    order: Order,
    /// The number of bytes read.
    offset: u64,
    /// The offset of the current record, and its number, counted from 0.
    at: (u64, u64),
    count: u64,
    sum: Fletcher,
    /// Whether the current stream's records state sums.
    is_open: bool,
}

impl<'a> Records<'a> {
    pub(super) fn new(input: &'a mut dyn Read, order: Order, offset: u64) -> Records<'a> {
        Records { input, order, offset, at: (offset, 0), count: 0, sum: Fletcher::default(), is_open: false }
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The error for the current record.
    pub(super) fn damaged(&self, problem: impl ToString) -> Error {
        Error::Damaged { offset: self.at.0, record: self.at.1, problem: problem.to_string() }
    }

    /// The next record, and its payload.
    ///
    /// # Errors
    /// If the input ends, or a checksum does not match, or the record is malformed.
    pub(super) fn next(&mut self) -> Result<(Record, Vec<u8>)> {
        self.at = (self.offset, self.count);
        self.count += 1;
        let header = self.read(HEADER)?;
        let header: &[u8; HEADER] = header.as_slice().try_into().map_err(|_| self.truncated())?;
        let decoded = Record::decode(header, self.order);
        let (record, len) = decoded.map_err(|malformed| self.damaged(malformed))?;
        match &record {
            Record::Begin(_) => (self.sum, self.is_open) = (Fletcher::default(), true),
            Record::End(sums) if self.is_open && *sums != self.sum.0 => {
                return Err(self.damaged("the checksum of the stream does not match"));
            }
            _ => {}
        }
        self.sum.add(&header[..SUMMED], self.order);
        let stated = Record::sums(header, self.order).map_err(|malformed| self.damaged(malformed))?;
        let has_sum = !matches!(record, Record::Begin(_)) && self.is_open && stated != [0; 4];
        if has_sum && stated != self.sum.0 {
            return Err(self.damaged("the checksum of the record does not match"));
        }
        self.sum.add(&header[SUMMED..], self.order);
        let payload = self.read(len)?;
        self.sum.add(&payload, self.order);
        if matches!(record, Record::End(_)) {
            self.is_open = false;
        }
        Ok((record, payload))
    }

    /// The head that must come next, and its payload.
    pub(super) fn head(&mut self) -> Result<(Head, Vec<u8>)> {
        match self.next()? {
            (Record::Begin(head), payload) => Ok((head, payload)),
            _ => Err(self.damaged("a stream begins without a head")),
        }
    }

    /// Reads in parts, so that a forged length allocates no more than the input has.
    fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len.min(1 << 20));
        let read = self.input.take(len as u64).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match read {
            Ok(_) if bytes.len() == len => Ok(bytes),
            Ok(_) => Err(self.truncated()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.truncated()),
            Err(source) => Err(Error::Read { offset: self.offset, source }),
        }
    }

    fn truncated(&self) -> Error {
        Error::Truncated { offset: self.offset, record: self.at.1 }
    }
}
