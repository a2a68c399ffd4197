//! The layers above, as the engine calls them: the one that knows what trees mean, and the one that writes labels.

use std::sync::Arc;

use super::{
    engine::state::{Engine, Still},
    head::Head,
    resilver::note::ResilverNote,
};
use crate::{error::Result, format::pointer::BlockPointer, tree::Usage, units::Txg, vdev::repair::LabelsExamined};

/// The participant in each sync: the layer that knows the meaning of the trees.
pub trait SyncClient: Send + std::marker::Sync {
    /// Called in each transaction group, after all changed trees were written, and before the catalogue is.
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()>;

    /// Called after [`SyncClient::sync`]: the progress of the resilver, if it can be resumed from there. Nothing is
    /// copied before the group is committed.
    fn resilvering(&self, _sync: &mut Sync<'_>) -> Option<ResilverNote> {
        None
    }
}

/// A changed tree, as written.
pub struct Written {
    /// The tree in memory, open for the next txg.
    pub head: Arc<Head>,
    /// The written root node.
    pub root: BlockPointer,
    /// The root's level, 0 for a leaf.
    pub level: u8,
    /// The space of the blocks born in this transaction group, dropped ones included.
    pub births: Usage,
    /// The blocks dropped by the tree.
    pub kills: Vec<BlockPointer>,
    /// The references that the tree has taken to blocks of others, and may have given up again. They do not count as
    /// births. A group takes all its references before giving up any.
    pub shares: Vec<BlockPointer>,
}

/// Syncing context: the client's operations while a transaction group is written.
pub struct Sync<'a> {
    pub(super) engine: &'a Engine,
    pub(super) txg: Txg,
}

/// The writer of labels: the layer that opened the pool.
pub(crate) trait Features: Send + std::marker::Sync {
    /// Whether the labels name a feature.
    fn is_active(&self, feature: &str) -> bool;

    /// Adds the feature to the labels of all devices, and flushes.
    fn activate(&self, engine: &Engine, feature: &'static str) -> Result<()>;

    /// Rewrites lost labels and uberblocks on vdev members: see [`crate::admin`]'s `repair`.
    fn repair(&self, still: &Still<'_>) -> LabelsExamined;

    /// The same for the labels of the devices in no vdev, while commits go on.
    fn repair_apart(&self, engine: &Engine) -> LabelsExamined;
}
