//! What the datasets in a stream are called here.

use super::ReceiveRequest;
use crate::{
    admin::{Error, Result},
    name::{DatasetName, Name, SnapshotName},
    stream::{Begin, Start},
};

/// How the datasets in a stream are named here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The one that was sent is called as the target; those below it keep their names below that.
    #[default]
    Exact,
    /// The names without the pool's, below the target.
    WithoutPool,
    /// From the last part of the name of the one that was sent on, below the target.
    LastPart,
}

impl ReceiveRequest {
    /// What the topmost dataset of a package is called here.
    pub(super) fn top(&self, start: &Start) -> Result<DatasetName> {
        let (root, target): (DatasetName, _) = (start.root.parse()?, self.target.dataset());
        Ok(match self.naming {
            Naming::Exact => target,
            Naming::WithoutPool => format!("{target}{}", &root.as_str()[root.pool().len()..]).parse()?,
            Naming::LastPart => format!("{target}/{}", root.leaf()).parse()?,
        })
    }

    /// What the snapshot of a stream is to be called here.
    pub(super) fn name(&self, start: &Start, begin: &Begin) -> Result<SnapshotName> {
        let (sent, root): (DatasetName, DatasetName) = (begin.dataset.parse()?, start.root.parse()?);
        let sent_snapshot = sent.snapshot(&begin.snapshot)?;
        let below = sent.as_str().strip_prefix(root.as_str()).unwrap_or_default();
        let outside = !sent.is_within(&root);
        if outside || matches!(self.target, Name::Bookmark(_)) {
            return Err(Error::NotReceived {
                name: sent_snapshot.to_string(),
                problem: "the stream names a dataset that is not below the one it was made from".into(),
                remedy: "receive a stream that 'fs send' has made into a dataset",
            });
        }
        let snapshot = match &self.target {
            Name::Snapshot(target) if start.streams == 1 && self.naming == Naming::Exact => {
                target.snapshot().to_owned()
            }
            _ => begin.snapshot.clone(),
        };
        let dataset: DatasetName = format!("{}{below}", self.top(start)?).parse()?;
        Ok(dataset.snapshot(&snapshot)?)
    }
}
