//! Devices that stay out of use over an import: members faulted for too many errors, and cache devices taken offline.
//!
//! In its vdev's configuration a member with too many errors is offline, like a member taken offline by the
//! administrator, so that no import takes it back by itself. A section of the labels records the difference: the member
//! is `FAULTED`, a spare may stand in for it, and `pool clear` takes it back. An offline cache device is recorded in
//! that section alone.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | faulting a member: before the section names it | a member in use, which returns wrong blocks again |
//! | then, before its configuration says offline | the same: an entry for a member that is not offline is ignored |
//! | later | a member out of use, with the reason |
//! | taking it back: before its configuration says so | the same |
//! | then, before the section leaves it out | a resilvering member; the next fault records a reason anew |

use std::collections::BTreeMap;

use super::pool::Pool;
use crate::{
    error::Result,
    format::label::out_of_use::{MAX_OUT_OF_USE, OutOfUse},
    units::Guid,
    vdev::{Group, Health, Leaf},
};

impl Pool {
    /// Records in the labels why a device is out of use, or removes the record.
    pub(super) fn say_why(&self, device: Guid, why: Option<OutOfUse>) -> Result<()> {
        match changed(&self.label().sections.out_of_use, device, why) {
            Change::Nothing => Ok(()),
            Change::TooMany => {
                tracing::warn!(
                    "that device {device} is out of use does not outlast an import: there are too many such"
                );
                Ok(())
            }
            // The section may have changed since.
            Change::To(_) => self.relabel(|label| {
                if let Change::To(said) = changed(&label.sections.out_of_use, device, why) {
                    label.sections.out_of_use = said;
                }
            }),
        }
    }

    /// Faults a member with too many errors; `false` if the redundancy does not allow it.
    pub(super) fn fault_for_errors(&self, group: &Group, leaf: &Leaf) -> Result<bool> {
        self.say_why(leaf.guid(), Some(OutOfUse::TooManyErrors))?;
        let is_out = group.fault_for_errors(leaf.guid());
        if is_out {
            note_errors(leaf);
            // The flush writes the labels.
            self.engine().storage().vdevs.flush()?;
        } else {
            self.say_why(leaf.guid(), None)?;
        }
        Ok(is_out)
    }
}

/// A change of the section.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// The section is up to date.
    Nothing,
    /// The section has no room for one more device.
    TooMany,
    /// The section to write.
    To(BTreeMap<Guid, OutOfUse>),
}

/// The section after recording `why` for a device, or removing its record.
fn changed(said: &BTreeMap<Guid, OutOfUse>, device: Guid, why: Option<OutOfUse>) -> Change {
    let mut changed = said.clone();
    match why {
        Some(why) => changed.insert(device, why),
        None => changed.remove(&device),
    };
    match changed.len() {
        _ if changed == *said => Change::Nothing,
        count if count > MAX_OUT_OF_USE => Change::TooMany,
        _ => Change::To(changed),
    }
}

/// Marks a device as faulted for too many errors.
pub(super) fn note_errors(leaf: &Leaf) {
    leaf.note_health(Health::Faulted);
    leaf.set_trouble(Some("too many errors".to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_devices_than_labels_have_room_for_nothing_is_said() {
        let some =
            |count: u64| (0..count).map(|guid| (Guid(guid), OutOfUse::TooManyErrors)).collect::<BTreeMap<_, _>>();
        let (most, why) = (MAX_OUT_OF_USE as u64, Some(OutOfUse::TooManyErrors));
        assert_eq!(changed(&some(most - 1), Guid(most - 1), why), Change::To(some(most)));
        assert_eq!(changed(&some(most), Guid(most), why), Change::TooMany);
        assert_eq!(changed(&some(most), Guid(most - 1), why), Change::Nothing);
        assert_eq!(changed(&some(most), Guid(most - 1), None), Change::To(some(most - 1)));
        assert_eq!(changed(&some(most), Guid(most), None), Change::Nothing);
    }
}
