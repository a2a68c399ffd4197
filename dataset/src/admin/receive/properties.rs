//! The properties of what was received: those that came along, and what the user wants instead.
//!
//! As OpenZFS has it, `-o` sets a property of the topmost dataset of a package, and those below it inherit it; one that
//! cannot be inherited, such as a quota, stays below what the stream says. `-x` takes no value from the stream: what was
//! received earlier does not count any more, and what was set here does.

use super::{ReceiveRequest, judge::Judge};
use crate::{
    admin::{Result, property},
    catalogue::Transaction,
    property::Property,
};

/// What becomes of the properties of one dataset.
pub(super) struct Wanted {
    /// What the user asked for.
    pub(super) request: ReceiveRequest,
    /// Whether it is the topmost dataset of its package.
    pub(super) topmost: bool,
    /// How much room there is for reservations.
    pub(super) room: u64,
}

impl Wanted {
    /// Keeps the properties that came with a stream as received, and sets those that the user gave. Returns the limits
    /// that came along and cannot be kept here.
    pub(super) fn put(&self, tx: &mut Transaction<'_>, judge: &Judge, dataset: u64) -> Result<Vec<String>> {
        let left_out = self.take(tx, judge, dataset)?;
        for name in &self.request.exclude {
            let property = Property::of_dataset(name)?;
            if property.is_inheritable() && !property::is_local(tx, dataset, &property)? {
                property::inherit(tx, dataset, property.name(), false)?;
            }
        }
        let own = &self.request.properties;
        if self.topmost {
            property::assign_all(tx, &judge.names, dataset, own, true, self.room)?;
            return Ok(left_out);
        }
        for assignment in own {
            let property = Property::of_dataset(&assignment.property)?;
            if property.is_inheritable() {
                property::inherit(tx, dataset, property.name(), false)?;
            }
        }
        Ok(left_out)
    }

    /// A property that this program does not know is left out.
    fn take(&self, tx: &mut Transaction<'_>, judge: &Judge, dataset: u64) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for (name, value) in judge.begin.properties.iter().flatten() {
            let Ok(property) = Property::of_dataset(name) else { continue };
            let Ok(canonical) = property.parse_value(value, true) else { continue };
            if self.request.exclude.iter().any(|excluded| excluded == name) {
                continue;
            }
            if !property::take_received(tx, &judge.names, dataset, &property, canonical.clone(), self.room)? {
                waiting.push((property, canonical));
            }
        }
        // What a limit was until now may have stood in the way of another that comes with it.
        let mut left_out = Vec::new();
        for (property, canonical) in waiting {
            if !property::take_received(tx, &judge.names, dataset, &property, canonical, self.room)? {
                left_out.push(property.name().to_owned());
            }
        }
        Ok(left_out)
    }
}
