//! The records of a stream: a header of 312 bytes, and a payload whose length follows from the header.

use pool::format::codec::{Malformed, malformed};

use super::{
    compression::MAX_BLOCK,
    fields::{Fields, Order},
};

/// The kind of dataset that a file system is, in the head of a stream.
pub(super) const FILE_SYSTEM: u32 = 2;
/// The flag of a stream whose base is a snapshot of another dataset.
pub(super) const CLONE: u32 = 1;
/// The length of a header, in bytes.
pub(super) const HEADER: usize = 312;
/// The part of a header in front of the checksum of the stream so far.
pub(super) const SUMMED: usize = 280;
/// The number that every stream begins with, in the byte order of its sender.
pub(super) const MAGIC: u64 = 0x2_f5ba_cbac;
/// Where the magic number is in the first header.
pub(super) const MAGIC_AT: usize = 8;
/// The longest description of a package, in bytes.
const MAX_DESCRIPTION: usize = 64 << 20;
/// The longest bonus buffer, in bytes.
const MAX_BONUS: usize = 16 << 10;
/// Objects have numbers below.
pub(super) const MAX_OBJECT: u64 = 1 << 48;

/// The head of a stream or of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// 1 for a stream, 2 for a package.
    pub(super) kind: u8,
    /// One bit for each feature of the stream.
    pub(super) features: u64,
    /// Seconds since 1970.
    pub(super) creation: u64,
    /// 2 for a file system, 3 for a volume.
    pub(super) type_: u32,
    pub(super) flags: u32,
    pub(super) guid: u64,
    /// The GUID of the base; 0 for a full stream.
    pub(super) from: u64,
    /// The snapshot's full name.
    pub(super) name: String,
}

/// An object's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) number: u64,
    pub(super) type_: u32,
    pub(super) bonus_type: u32,
    /// The size of its blocks, in bytes.
    pub(super) block: u32,
    /// How many numbers the object takes.
    pub(super) slots: u8,
    /// Whether the object has a spill block.
    pub(super) spills: bool,
    /// The length of the bonus buffer without its padding.
    pub(super) bonus: usize,
}

/// The decoded header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Begin(Head),
    Object(Object),
    FreeObjects {
        first: u64,
        count: u64,
    },
    /// New content; the payload is stored with the given compression.
    Write {
        object: u64,
        offset: u64,
        len: usize,
        compression: u8,
    },
    /// As `Write`; only the first `content` bytes of the block are in the payload, which has `stored` bytes.
    Embedded {
        object: u64,
        offset: u64,
        len: usize,
        compression: u8,
        content: usize,
        stored: usize,
    },
    /// `len` of all ones: to the end.
    Free {
        object: u64,
        offset: u64,
        len: u64,
    },
    Spill {
        object: u64,
        len: usize,
        compression: u8,
    },
    /// The sums of the stream before.
    End([u64; 4]),
    /// Copies content from another file of the sender.
    Copy,
    /// Content that the sender withholds.
    Redact,
    /// The encryption of a range of objects.
    Range,
}

impl Record {
    /// Decodes a header. Returns the length of the payload too.
    pub(super) fn decode(header: &[u8; HEADER], order: Order) -> Result<(Record, usize), Malformed> {
        let fields = Fields::new(header, order, "record of a stream");
        let object = || number(fields.u64(8)?);
        Ok(match fields.u32(0)? {
            0 => begin(&fields)?,
            1 => described(&fields)?,
            2 => (Record::FreeObjects { first: fields.u64(8)?, count: fields.u64(16)? }, 0),
            3 => {
                let (len, compression) = (block(fields.u64(32)?)?, fields.u8(50)?);
                let offset = placed(fields.u64(24)?, len)?;
                let payload = if compression == 0 { len } else { block(fields.u64(96)?)? };
                (Record::Write { object: object()?, offset, len, compression }, payload)
            }
            4 => (Record::Free { object: object()?, offset: fields.u64(16)?, len: fields.u64(24)? }, 0),
            5 => (Record::End(sums(&fields, 8)?), 0),
            6 => (Record::Copy, 0),
            7 => {
                let (len, compression, stored) = (block(fields.u64(16)?)?, fields.u8(33)?, block(fields.u64(40)?)?);
                let payload = if stored == 0 { len } else { stored };
                let compression = if stored == 0 { 0 } else { compression };
                (Record::Spill { object: object()?, len, compression }, payload)
            }
            8 => embedded(&fields)?,
            9 => (Record::Range, 0),
            10 => (Record::Redact, 0),
            _ => return malformed("type of a record"),
        })
    }

    /// The sums of the stream up to this record, which every record but the first has behind them; zeros if absent.
    pub(super) fn sums(header: &[u8; HEADER], order: Order) -> Result<[u64; 4], Malformed> {
        sums(&Fields::new(header, order, "checksum of a record"), SUMMED)
    }
}

fn begin(fields: &Fields<'_>) -> Result<(Record, usize), Malformed> {
    let version = fields.u64(16)?;
    let head = Head {
        kind: (version & 3) as u8,
        features: version >> 2,
        creation: fields.u64(24)?,
        type_: fields.u32(32)?,
        flags: fields.u32(36)?,
        guid: fields.u64(40)?,
        from: fields.u64(48)?,
        name: String::from_utf8(fields.text(56, 256)?.to_vec()).map_err(|_| fields.malformed())?,
    };
    let payload = fields.u32(4)? as usize;
    if fields.u64(MAGIC_AT)? != MAGIC || payload > MAX_DESCRIPTION {
        return malformed("head of a stream");
    }
    Ok((Record::Begin(head), payload))
}

fn described(fields: &Fields<'_>) -> Result<(Record, usize), Malformed> {
    const SPILLS: u8 = 4;
    let bonus = fields.u32(28)? as usize;
    let raw = fields.u32(36)? as usize;
    let payload = if raw == 0 { bonus.next_multiple_of(8) } else { raw };
    let object = Object {
        number: number(fields.u64(8)?)?,
        type_: fields.u32(16)?,
        bonus_type: fields.u32(20)?,
        block: fields.u32(24)?,
        slots: fields.u8(34)?.max(1),
        spills: fields.u8(35)? & SPILLS != 0,
        bonus,
    };
    if payload > MAX_BONUS || bonus > payload || object.block as usize > MAX_BLOCK || object.block == 0 {
        return malformed("description of an object");
    }
    Ok((Record::Object(object), payload))
}

fn embedded(fields: &Fields<'_>) -> Result<(Record, usize), Malformed> {
    const MAX_STORED: u32 = 128 << 10;
    let (object, offset) = (number(fields.u64(8)?)?, fields.u64(16)?);
    let len = block(fields.u64(24)?)?;
    let (content, stored) = (fields.u32(48)?, fields.u32(52)?);
    if fields.u8(41)? != 0 || stored > MAX_STORED || content as usize > len {
        return malformed("embedded block");
    }
    let (content, stored, compression) = (content as usize, stored as usize, fields.u8(40)?);
    // Senders write a small spill block in this way, at an offset that stands for "before the first block, twice".
    let record = match offset == (len as u64 * 2).wrapping_neg() {
        true => Record::Embedded { object, offset, len, compression, content, stored },
        false => Record::Embedded { object, offset: placed(offset, len)?, len, compression, content, stored },
    };
    Ok((record, stored.next_multiple_of(8)))
}

fn sums(fields: &Fields<'_>, at: usize) -> Result<[u64; 4], Malformed> {
    Ok([fields.u64(at)?, fields.u64(at + 8)?, fields.u64(at + 16)?, fields.u64(at + 24)?])
}

fn number(object: u64) -> Result<u64, Malformed> {
    if (1..MAX_OBJECT).contains(&object) { Ok(object) } else { malformed("number of an object") }
}

fn block(len: u64) -> Result<usize, Malformed> {
    usize::try_from(len).ok().filter(|len| *len <= MAX_BLOCK).ok_or(Malformed { what: "length of a block" })
}

fn placed(offset: u64, len: usize) -> Result<u64, Malformed> {
    let end = offset.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64);
    end.map(|_| offset).ok_or(Malformed { what: "offset of a block" })
}
