//! The properties of received datasets: the stream's, and the user's replacements.
//!
//! As in OpenZFS, `-o` sets a property of the topmost dataset of a package, and descendants inherit the value; for a
//! property that is not inheritable, such as a quota, descendants keep the stream's value. `-x` ignores the stream's
//! value: values received earlier no longer count, and local values do.

use super::{judge::Judge, request::ReceiveRequest};
use crate::{
    admin::{
        delegation::{self, judge::Caller},
        property::assign,
    },
    catalogue::Transaction,
    error::{Error, Result},
    name::Name,
    property::Property,
};

/// The properties to set on one dataset.
pub(super) struct Wanted {
    /// The user's request.
    pub(super) request: ReceiveRequest,
    /// The user for whom the stream is received, if not the pool's owner.
    pub(super) caller: Option<Caller>,
    /// Whether the dataset is the topmost of its package.
    pub(super) topmost: bool,
    /// The space available for reservations, in bytes.
    pub(super) room: u64,
}

impl Wanted {
    /// Stores the stream's properties as received, and sets the user's. Returns the received limits that cannot be kept
    /// in this pool.
    pub(super) fn put(&self, tx: &mut Transaction<'_>, judge: &Judge, dataset: u64) -> Result<Vec<String>> {
        self.check(tx, judge)?;
        let left_out = self.take(tx, judge, dataset)?;
        for name in &self.request.exclude {
            let property = Property::of_dataset(name)?;
            if property.is_inheritable() && !assign::is_local(tx, dataset, &property)? {
                assign::inherit(tx, dataset, property.name(), false)?;
            }
        }
        let own = &self.request.properties;
        if self.topmost {
            assign::assign_all(tx, &judge.names, dataset, own, true, self.room)?;
            return Ok(left_out);
        }
        for assignment in own {
            let property = Property::of_dataset(&assignment.property)?;
            if property.is_inheritable() {
                assign::inherit(tx, dataset, property.name(), false)?;
            }
        }
        Ok(left_out)
    }

    /// Fails if the request sets or excludes a property that the user may not set on the dataset.
    fn check(&self, tx: &Transaction<'_>, judge: &Judge) -> Result<()> {
        let own = self.request.properties.iter().map(|assignment| &assignment.property);
        for name in own.chain(&self.request.exclude) {
            let property = Property::of_dataset(name)?;
            if !self.permits(tx, judge, &property)? {
                let (name, permission) = (judge.name.dataset().to_string(), property.permission());
                return Err(Error::NotAllowed { name, permission: permission.to_owned() });
            }
        }
        Ok(())
    }

    /// Whether the user for whom the stream is received may set a property of the dataset.
    fn permits(&self, tx: &Transaction<'_>, judge: &Judge, property: &Property) -> Result<bool> {
        let name = Name::Dataset(judge.name.dataset());
        let allows = |caller| delegation::judge::allows(tx, &judge.names, caller, &name, property.permission());
        self.caller.as_ref().map_or(Ok(true), allows)
    }

    /// Stores the stream's properties; unknown properties are skipped.
    fn take(&self, tx: &mut Transaction<'_>, judge: &Judge, dataset: u64) -> Result<Vec<String>> {
        let mut waiting = Vec::new();
        for (name, value) in judge.begin.properties.iter().flatten() {
            let Ok(property) = Property::of_dataset(name) else { continue };
            let Ok(canonical) = property.parse_value(value, true) else { continue };
            if property.is_constant() {
                continue;
            }
            if self.request.exclude.iter().any(|excluded| excluded == name) || !self.permits(tx, judge, &property)? {
                continue;
            }
            if !assign::take_received(tx, &judge.names, dataset, &property, canonical.clone(), self.room)? {
                waiting.push((property, canonical));
            }
        }
        // The previous value of one limit may prevent the new value of another, so limits are retried.
        let mut left_out = Vec::new();
        for (property, canonical) in waiting {
            if !assign::take_received(tx, &judge.names, dataset, &property, canonical, self.room)? {
                left_out.push(property.name().to_owned());
            }
        }
        Ok(left_out)
    }
}
