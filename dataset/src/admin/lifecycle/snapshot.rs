//! Taking snapshots, in one txg for all named datasets.

use std::collections::BTreeSet;

use pool::{error::Error as PoolError, units::Guid};

use crate::{
    admin::{
        property::assign::{self, Assignment},
        table::{
            counts::{self, Added},
            datasets::Datasets,
            history, limits,
            names::{self, Names},
        },
    },
    catalogue::{DatasetRow, Transaction, dataset_key},
    error::{Error, Result},
    lineage::{dataset, snapshot},
    name::SnapshotName,
};

impl Datasets {
    /// Takes snapshots, all in the same txg; with `recursive` also of all descendants, with the same name. Returns the
    /// names of all snapshots taken. A dataset can have only one snapshot per txg.
    pub fn snapshot(
        &self,
        snapshots: Vec<SnapshotName>,
        recursive: bool,
        properties: Vec<Assignment>,
    ) -> Result<Vec<SnapshotName>> {
        let names = self.names();
        let seed = self.new_guid();
        let room = self.engine().available();
        self.run(move |tx| {
            let (mut taken, mut seen) = (Vec::new(), BTreeSet::new());
            for name in &snapshots {
                let top = names.dataset(tx, &name.dataset())?;
                let ids = if recursive { names::subtree(tx, top)? } else { vec![top] };
                for id in ids {
                    if tx.row::<DatasetRow>(dataset_key(id))?.hidden && id != top {
                        continue;
                    }
                    names.check_whole(tx, id)?;
                    if !seen.insert(id) {
                        return Err(Error::SnapshotTwice { name: names.of_dataset(tx, id)?.to_string() });
                    }
                    taken.push(take(tx, &names, id, name.snapshot(), &properties, seed, room)?);
                }
            }
            let ids: Vec<u64> = seen.into_iter().collect();
            counts::check(tx, &names, &ids, None, Added::Snapshots)?;
            history::log_each(tx, "snapshot", &taken)?;
            Ok(taken)
        })
    }
}

fn take(
    tx: &mut Transaction<'_>,
    names: &Names,
    dataset: u64,
    name: &str,
    properties: &[Assignment],
    seed: Guid,
    room: u64,
) -> Result<SnapshotName> {
    let full = names.of_dataset(tx, dataset)?.snapshot(name)?;
    if dataset::snapshot_named(tx, dataset, name)?.is_some() {
        return Err(Error::snapshot_exists(full));
    }
    check_refreservation(tx, dataset, room)?;
    // One random seed serves all snapshots: the id mixed in is never reused.
    let next = tx.master()?.next_id;
    let id = snapshot::take(tx, dataset, name, Guid(mix(seed.0, next)))?;
    assign::assign_all(tx, names, id, properties, true, room)?;
    Ok(full)
}

/// After a snapshot the whole content is shared, so the refreservation needs its full space again.
fn check_refreservation(tx: &Transaction<'_>, dataset: u64, room: u64) -> Result<()> {
    let row: DatasetRow = tx.row(dataset_key(dataset))?;
    let needed = row.unique().allocated.min(row.refreservation);
    if needed > 0 && needed > limits::available(tx, dataset, room)? {
        return Err(PoolError::OutOfSpace.into());
    }
    Ok(())
}

/// Maps a random number and a unique number to a unique, random-looking number (the finalizer of SplitMix64).
pub(in crate::admin) fn mix(seed: u64, unique: u64) -> u64 {
    let mut mixed = seed ^ unique.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
