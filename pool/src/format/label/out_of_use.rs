//! Reasons in a label why devices are out of use, as far as no other field says why.
//!
//! ```text
//! out of use := count varint, devices
//! device     := guid u64, why u8
//! ```
//!
//! Guids ascend. A vdev member with too many errors in this section is also marked offline in its vdev's description.
//! If the description says otherwise, the description counts. So software that does not know this section finds such a
//! member offline; it would use only a cache device again, which does no harm. The section names no feature. Nor would
//! a later reason: an unknown reason is kept, and its device is out of use all the same.

use std::collections::BTreeMap;

use crate::{
    format::{
        codec::{Malformed, Writer},
        label::by_guid,
    },
    units::Guid,
};

/// The most devices in the section.
pub const MAX_OUT_OF_USE: usize = 1024;

const OFFLINE: u8 = 1;
const TOO_MANY_ERRORS: u8 = 2;

/// Why a device is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfUse {
    /// The operator took the device offline.
    Offline,
    /// The device had too many errors (OpenZFS: faulted).
    TooManyErrors,
    /// A reason unknown to this version: its code. The device is treated as taken offline by the operator.
    Other(u8),
}

impl OutOfUse {
    /// The reason with this code; code 0 is none.
    pub fn from_code(code: u8) -> Option<OutOfUse> {
        match code {
            0 => None,
            OFFLINE => Some(OutOfUse::Offline),
            TOO_MANY_ERRORS => Some(OutOfUse::TooManyErrors),
            code => Some(OutOfUse::Other(code)),
        }
    }

    /// The code of the reason in a label.
    pub fn code(self) -> u8 {
        match self {
            OutOfUse::Offline => OFFLINE,
            OutOfUse::TooManyErrors => TOO_MANY_ERRORS,
            OutOfUse::Other(code) => code,
        }
    }
}

/// The reason for each device in the section.
pub type AllOutOfUse = BTreeMap<Guid, OutOfUse>;

/// The coded form of some devices.
pub(super) fn encoded(devices: &AllOutOfUse) -> Vec<u8> {
    by_guid::encoded(devices, |why, out| out.put_u8(why.code()))
}

/// The devices of a section.
pub(super) fn decode(payload: &[u8]) -> Result<AllOutOfUse, Malformed> {
    const WHAT: &str = "devices out of use";
    by_guid::decode(payload, MAX_OUT_OF_USE, (WHAT, "end of devices out of use"), |reader| {
        OutOfUse::from_code(reader.u8(WHAT)?).ok_or(Malformed { what: WHAT })
    })
}
