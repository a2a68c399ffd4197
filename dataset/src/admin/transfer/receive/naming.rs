//! The names of received datasets.

use super::request::{Naming, ReceiveRequest};
use crate::{
    error::{Error, Result},
    name::{DatasetName, Name, SnapshotName},
    stream::{Begin, Start},
};

impl ReceiveRequest {
    /// The local name of the package's topmost dataset.
    pub(super) fn top(&self, start: &Start) -> Result<DatasetName> {
        let (root, target): (DatasetName, _) = (start.root.parse()?, self.target.dataset());
        Ok(match self.naming {
            Naming::Exact => target,
            Naming::WithoutPool => format!("{target}{}", &root.as_str()[root.pool().len()..]).parse()?,
            Naming::LastPart => format!("{target}/{}", root.leaf()).parse()?,
        })
    }

    /// The local name of a stream's snapshot.
    pub(super) fn name(&self, start: &Start, begin: &Begin) -> Result<SnapshotName> {
        let (sent, root): (DatasetName, DatasetName) = (begin.dataset.parse()?, start.root.parse()?);
        let sent_snapshot = sent.snapshot(&begin.snapshot)?;
        let below = sent.as_str().strip_prefix(root.as_str()).unwrap_or_default();
        let outside = !sent.is_within(&root);
        if outside || matches!(self.target, Name::Bookmark(_)) {
            return Err(Error::NotReceived {
                name: sent_snapshot.to_string(),
                problem: "the stream names a dataset outside of its root".into(),
                remedy: "receive a stream made by 'fs send'",
            });
        }
        let snapshot = match &self.target {
            Name::Snapshot(target) if start.streams == 1 && self.naming == Naming::Exact => {
                target.snapshot().to_owned()
            }
            // As in OpenZFS: the snapshots of a package cannot all have one name.
            Name::Snapshot(_) => {
                return Err(Error::NotReceived {
                    name: sent_snapshot.to_string(),
                    problem: "the target names a snapshot, and the input is a package of several".into(),
                    remedy: "receive into the file system, without @SNAPSHOT",
                });
            }
            _ => begin.snapshot.clone(),
        };
        let dataset: DatasetName = format!("{}{below}", self.top(start)?).parse()?;
        Ok(dataset.snapshot(&snapshot)?)
    }
}
