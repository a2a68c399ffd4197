//! Powers of files: set-uid programs and device nodes.
//!
//! A stream brings files of any owner, and only root mounts a file system. So a file that comes for a user has power
//! only where the user could set the property that gives the power. A new file system gets `off` instead; a clone or a
//! renamed file system gets no power that its files did not have.

use super::judge::{Caller, allows};
use crate::{
    admin::{
        property::{
            assign::{self, Assignment},
            values,
        },
        table::names::Names,
    },
    catalogue::Transaction,
    error::Result,
    property::{
        Typed,
        dataset::{DEVICES, SETUID},
    },
};

const POWERS: [&Typed<bool>; 2] = [&SETUID, &DEVICES];

/// Which powers the files of a dataset have, in the order of [`POWERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Powers([bool; POWERS.len()]);

impl Powers {
    pub(in crate::admin) const NONE: Powers = Powers([false; POWERS.len()]);

    /// The powers of a dataset's files.
    pub(in crate::admin) fn of(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Powers> {
        let values = values::effective(tx, names, id)?;
        Ok(Powers(POWERS.map(|power| values.get(power))))
    }

    /// The properties of the powers in `self` that `before` lacks and the user may not give.
    fn beyond(
        self,
        before: Powers,
        tx: &Transaction<'_>,
        names: &Names,
        caller: &Caller,
        id: u64,
    ) -> Result<Vec<&'static str>> {
        let name = names.of_dataset(tx, id)?.into();
        let mut beyond = Vec::new();
        for (index, power) in POWERS.into_iter().enumerate() {
            if self.0[index] && !before.0[index] && !allows(tx, names, caller, &name, power.name)? {
                beyond.push(power.name);
            }
        }
        Ok(beyond)
    }
}

/// The properties of the powers that files from a stream would have in a dataset, and that the user may not give.
pub(in crate::admin) fn given(
    tx: &Transaction<'_>,
    names: &Names,
    caller: &Caller,
    id: u64,
) -> Result<Vec<&'static str>> {
    Powers::of(tx, names, id)?.beyond(Powers::NONE, tx, names, caller, id)
}

/// Takes from the files of a dataset the powers that a request has given without the user's permission. `before` are
/// the powers of the same files before the request; `room` is the space available, in bytes.
pub(in crate::admin) fn withhold(
    tx: &mut Transaction<'_>,
    names: &Names,
    caller: Option<&Caller>,
    id: u64,
    before: Powers,
    room: u64,
) -> Result<()> {
    let Some(caller) = caller else { return Ok(()) };
    let beyond = Powers::of(tx, names, id)?.beyond(before, tx, names, caller, id)?;
    let off = |power: &'static str| Assignment { property: power.to_owned(), value: "off".to_owned() };
    assign::assign_all(tx, names, id, &beyond.into_iter().map(off).collect::<Vec<_>>(), false, room)
}
