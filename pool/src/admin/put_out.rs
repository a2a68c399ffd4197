//! Devices that stay out of use over an import: members of vdevs that had too many errors, and cache devices that the operator
//! does not want.
//!
//! A member that had too many errors is offline by the description of its vdev, as one is that the operator has put out of
//! use, so that no import takes it back by itself. A section of the labels says that it was not the operator: it is `FAULTED`,
//! a spare stands in for it, and `pool clear` takes it back. Of a cache device nothing but the section says that it is offline.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | putting a member out: before the section names it | a member in use, which gives wrong blocks again |
//! | after that, before its description says that it is offline | the same: what is said of a member that is not offline counts for nothing |
//! | after that | a member that is out of use, and why |
//! | taking it back: before its description says so | the same |
//! | after that, before the section leaves it out | a member that is filled; whoever puts it out of use again says why anew |

use std::collections::BTreeMap;

use super::pool::Pool;
use crate::{
    error::Result,
    format::label::put_out::{MAX_PUT_OUT, PutOut},
    units::Guid,
    vdev::{Group, Health, Leaf},
};

impl Pool {
    /// Has the labels say why a device is out of use, or nothing.
    pub(super) fn say_why(&self, device: Guid, why: Option<PutOut>) -> Result<()> {
        match changed(&self.label().sections.put_out, device, why) {
            Change::Nothing => Ok(()),
            Change::TooMany => {
                tracing::warn!(
                    "that device {device} is out of use does not outlast an import: there are too many such"
                );
                Ok(())
            }
            // Others may have said something since.
            Change::To(_) => self.relabel(|label| {
                if let Change::To(said) = changed(&label.sections.put_out, device, why) {
                    label.sections.put_out = said;
                }
            }),
        }
    }

    /// Puts a member out of use that has had too many errors; `false` if it cannot be done without.
    pub(super) fn put_out_for_errors(&self, group: &Group, leaf: &Leaf) -> Result<bool> {
        self.say_why(leaf.guid(), Some(PutOut::TooManyErrors))?;
        let is_out = group.put_out_for_errors(leaf.guid());
        if is_out {
            note_errors(leaf);
            // The labels say so.
            self.engine().storage().vdevs.flush()?;
        } else {
            self.say_why(leaf.guid(), None)?;
        }
        Ok(is_out)
    }
}

/// What becomes of the section.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// It says so already.
    Nothing,
    /// There is no room for one more in it.
    TooMany,
    /// It says this.
    To(BTreeMap<Guid, PutOut>),
}

/// The section that says of a device why it is out of use, or nothing.
fn changed(said: &BTreeMap<Guid, PutOut>, device: Guid, why: Option<PutOut>) -> Change {
    let mut changed = said.clone();
    match why {
        Some(why) => changed.insert(device, why),
        None => changed.remove(&device),
    };
    match changed.len() {
        _ if changed == *said => Change::Nothing,
        count if count > MAX_PUT_OUT => Change::TooMany,
        _ => Change::To(changed),
    }
}

/// Notes that a device is out of use because it had too many errors.
pub(super) fn note_errors(leaf: &Leaf) {
    leaf.note_health(Health::Faulted);
    leaf.set_trouble(Some("too many errors".to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_devices_than_labels_have_room_for_nothing_is_said() {
        let some = |count: u64| (0..count).map(|guid| (Guid(guid), PutOut::TooManyErrors)).collect::<BTreeMap<_, _>>();
        let (most, why) = (MAX_PUT_OUT as u64, Some(PutOut::TooManyErrors));
        assert_eq!(changed(&some(most - 1), Guid(most - 1), why), Change::To(some(most)));
        assert_eq!(changed(&some(most), Guid(most), why), Change::TooMany);
        assert_eq!(changed(&some(most), Guid(most - 1), why), Change::Nothing);
        assert_eq!(changed(&some(most), Guid(most - 1), None), Change::To(some(most - 1)));
        assert_eq!(changed(&some(most), Guid(most), None), Change::Nothing);
    }
}
