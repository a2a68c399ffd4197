//! All rows of the catalogue, by kind.

use std::collections::{BTreeMap, BTreeSet};

use pool::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    txg::Engine,
    units::Txg,
};

use super::{FindingKind, Report};
use crate::{
    catalogue::{
        Body, Bookmark, Bucket, DamageRow, DatasetRow, DefragmentRow, History, Hold, Link, Master, Named, PaceRow,
        RebalanceRow, ReceivingRow, RemovalRow, ResizeRow, Row, ScrubRow, SharedRow, SharingRow, SnapshotRow,
        Transaction, Value, Work, kind, shared_address,
    },
    error::Result,
};

/// A row and its block.
pub(super) type With<R> = (R, Option<BlockPointer>);

/// The decoded catalogue.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) master: Master,
    pub(super) datasets: BTreeMap<u64, With<DatasetRow>>,
    pub(super) snapshots: BTreeMap<u64, With<SnapshotRow>>,
    /// Parent, name, child.
    pub(super) children: Vec<(u64, String, u64)>,
    /// Dataset, name, snapshot.
    pub(super) snapshot_names: Vec<(u64, String, u64)>,
    /// The snapshots of a dataset, by txg.
    pub(super) lines: BTreeMap<u64, BTreeMap<Txg, u64>>,
    pub(super) clones: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) holds: BTreeMap<u64, u64>,
    /// The buckets of each deadlist.
    pub(super) deadlists: BTreeMap<u64, BTreeMap<Txg, Bucket>>,
    pub(super) links: BTreeMap<u64, u64>,
    pub(super) pages: BTreeMap<u64, Vec<(Key, Body)>>,
    pub(super) work: BTreeMap<u64, With<Work>>,
    /// The receives that can be resumed, by their hidden datasets.
    pub(super) receiving: BTreeMap<u64, ReceivingRow>,
    /// The blocks with several references.
    pub(super) shared: BTreeMap<Address, SharedRow>,
    pub(super) sharing: SharingRow,
}

/// Reads the whole catalogue.
pub(super) fn load(engine: &Engine, report: &mut Report) -> Result<Rows> {
    let all = engine.catalogue().read(|view| Transaction::new(*view, 0).bodies(Key::MIN..Key::MAX))?;
    let mut rows = Rows::default();
    for (key, body) in all {
        if let Err(problem) = rows.take(key, body) {
            report.find(FindingKind::Row, key.object, format!("{key}: {problem}"));
        }
    }
    Ok(rows)
}

impl Rows {
    fn take(&mut self, key: Key, body: Body) -> Result<(), String> {
        let Key { object, kind: of, offset } = key;
        let bytes = &body.bytes;
        match of {
            kind::MASTER => self.master = row(bytes)?,
            kind::DATASET => drop(self.datasets.insert(object, (row(bytes)?, body.block))),
            kind::SNAPSHOT => drop(self.snapshots.insert(object, (row(bytes)?, body.block))),
            kind::CHILD => {
                let Named { name, id } = row(bytes)?;
                self.children.push((object, name, id));
            }
            kind::SNAPSHOT_NAME => {
                let Named { name, id } = row(bytes)?;
                self.snapshot_names.push((object, name, id));
            }
            kind::SNAPSHOT_TXG => {
                let Named { id, .. } = row(bytes)?;
                self.lines.entry(object).or_default().insert(Txg(offset), id);
            }
            kind::CLONE => drop(self.clones.entry(object).or_default().insert(offset)),
            kind::HOLD => {
                row::<Hold>(bytes)?;
                *self.holds.entry(object).or_default() += 1;
            }
            kind::DEADLIST => drop(self.deadlists.entry(object).or_default().insert(Txg(offset), row(bytes)?)),
            kind::LINK => drop(self.links.insert(object, row::<Link>(bytes)?.next)),
            kind::PAGE => self.pages.entry(object).or_default().push((key, body)),
            kind::WORK => drop(self.work.insert(offset, (row(bytes)?, body.block))),
            kind::PROPERTY | kind::RECEIVED => drop(row::<Value>(bytes)?),
            kind::BOOKMARK => drop(row::<Bookmark>(bytes)?),
            kind::HISTORY => drop(row::<History>(bytes)?),
            kind::SCRUB => row::<ScrubRow>(bytes).map(|_| ())?,
            kind::DAMAGE => row::<DamageRow>(bytes).map(|_| ())?,
            kind::SHARED => drop(self.shared.insert(shared_address(key), row(bytes)?)),
            kind::SHARING => self.sharing = row(bytes)?,
            kind::REMOVAL => row::<RemovalRow>(bytes).map(|_| ())?,
            kind::REBALANCE => row::<RebalanceRow>(bytes).map(|_| ())?,
            kind::PACE => row::<PaceRow>(bytes).map(|_| ())?,
            kind::DEFRAGMENT => row::<DefragmentRow>(bytes).map(|_| ())?,
            kind::RECEIVING => drop(self.receiving.insert(offset, row(bytes)?)),
            kind::RESIZE => row::<ResizeRow>(bytes).map(|_| ())?,
            _ => return Err("unknown kind of row".into()),
        }
        Ok(())
    }
}

fn row<R: Row>(bytes: &[u8]) -> Result<R, String> {
    R::decode(bytes).map_err(|error| error.to_string())
}
