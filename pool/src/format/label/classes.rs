//! Classes of top-level vdevs in a label: log vdevs, special vdevs for metadata, and archives.
//!
//! ```text
//! classes := count varint, each: vdev varint, class u8
//! ```
//!
//! Vdevs ascend. Vdevs not named are normal.

use std::collections::BTreeMap;

use crate::{
    format::codec::{Malformed, Reader, Writer, malformed},
    units::VdevId,
};

/// The class of each vdev that is not normal.
pub type VdevClasses = BTreeMap<VdevId, VdevClass>;

const LOG: u8 = 1;
const SPECIAL: u8 = 2;
const ARCHIVE: u8 = 3;

/// The class of a top-level vdev that is not normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VdevClass {
    /// The intent log, and nothing else.
    Log,
    /// Metadata, and small records of datasets with `special_small_blocks`.
    Special,
    /// Copies of blocks, and blocks released from the other vdevs.
    Archive,
    /// A class unknown to this version: its code.
    Other(u8),
}

impl VdevClass {
    /// The class with this code; code 0 is none.
    pub fn from_code(code: u8) -> Option<VdevClass> {
        match code {
            0 => None,
            LOG => Some(VdevClass::Log),
            SPECIAL => Some(VdevClass::Special),
            ARCHIVE => Some(VdevClass::Archive),
            code => Some(VdevClass::Other(code)),
        }
    }

    /// The code of the class in a label.
    pub fn code(self) -> u8 {
        match self {
            VdevClass::Log => LOG,
            VdevClass::Special => SPECIAL,
            VdevClass::Archive => ARCHIVE,
            VdevClass::Other(code) => code,
        }
    }
}

/// The coded form of some classes.
pub(super) fn encoded(classes: &VdevClasses) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(classes.len() as u64);
    for (vdev, class) in classes {
        out.put_varint(u64::from(vdev.0));
        out.put_u8(class.code());
    }
    out
}

/// The classes of a section.
pub(super) fn decode(payload: &[u8]) -> Result<VdevClasses, Malformed> {
    const WHAT: &str = "classes of vdevs";
    let mut reader = Reader::new(payload);
    let count = reader.varint(WHAT)?;
    let mut classes = VdevClasses::new();
    for _ in 0..count {
        let vdev = VdevId(reader.varint32(WHAT)?);
        let code = reader.u8(WHAT)?;
        let Some(class) = VdevClass::from_code(code) else { return malformed("class of a vdev") };
        if classes.last_key_value().is_some_and(|(last, _)| *last >= vdev) {
            return malformed("order of classes");
        }
        classes.insert(vdev, class);
    }
    reader.finish("end of classes")?;
    if classes.is_empty() { malformed(WHAT) } else { Ok(classes) }
}
