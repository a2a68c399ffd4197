//! Cloning and promoting.

use super::create::CreateRequest;
use crate::{
    admin::{
        delegation::{
            judge::{self, Caller},
            powers::{self, Powers},
        },
        property::assign::{self, Assignment},
        table::{
            counts::{self, Added},
            datasets::Datasets,
            history, limits,
        },
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    lineage::branch,
    name::{DatasetName, SnapshotName},
};

impl Datasets {
    /// Creates a clone of `snapshot`. With `parents`, missing parents are created and owned by `owner`.
    pub fn clone_snapshot(
        &self,
        snapshot: &SnapshotName,
        name: &DatasetName,
        parents: bool,
        properties: Vec<Assignment>,
        owner: (u32, u32),
    ) -> Result<()> {
        if let Some(parent) = name.parent().filter(|_| parents) {
            self.create(CreateRequest { name: parent, parents, properties: Vec::new(), owner })?;
        }
        let (names, guid, room) = (self.names(), self.new_guid(), self.engine().available());
        let (snapshot, name, caller) = (snapshot.clone(), name.clone(), Caller::current());
        let properties = self.with_vdevs_named(&properties)?;
        self.run(move |tx| {
            let origin = names.snapshot(tx, &snapshot)?;
            names.vacant(tx, &name)?;
            let parent = names.parent(tx, &name, "cloned")?;
            let id = branch::clone(tx, origin, parent, name.leaf(), guid)?;
            judge::give_creator(tx, id, owner.0)?;
            assign::assign_all(tx, &names, id, &properties, true, room)?;
            let before = Powers::of(tx, &names, tx.row::<SnapshotRow>(snapshot_key(origin))?.dataset)?;
            powers::withhold(tx, &names, caller.as_ref(), id, before, room)?;
            counts::check(tx, &names, &[parent], None, Added::Filesystems)?;
            history::log(tx, &format!("clone {snapshot} as {name}"))
        })
    }

    /// Makes a clone the owner of its origin and of all earlier snapshots. Returns the new names of these snapshots.
    pub fn promote(&self, name: &DatasetName) -> Result<Vec<SnapshotName>> {
        let (names, name) = (self.names(), name.clone());
        let request = move |tx: &mut Transaction<'_>| {
            let id = names.dataset(tx, &name)?;
            names.check_whole(tx, id)?;
            let origin = tx.row::<DatasetRow>(dataset_key(id))?.origin;
            if origin == 0 {
                return Err(Error::NotClone { name: name.to_string() });
            }
            let promotion = branch::promote(tx, id).map_err(|error| match error {
                Error::Exists { what, name: snapshot } => Error::Exists { what, name: format!("{name}@{snapshot}") },
                other => other,
            })?;
            limits::check_moved(tx, &names, promotion.former, id)?;
            counts::check(tx, &names, &[id], Some(promotion.former), Added::Snapshots)?;
            history::log(tx, &format!("promote {name}"))?;
            let moved = promotion.snapshots.iter().map(|(_, snapshot)| Ok(name.snapshot(snapshot)?));
            moved.collect()
        };
        self.scrub().going_back_with(request)
    }
}
