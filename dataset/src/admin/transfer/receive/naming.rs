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

    /// The local name of a stream's snapshot. `is_later`: the package had an earlier stream.
    pub(super) fn name(&self, start: &Start, begin: &Begin, is_later: bool) -> Result<SnapshotName> {
        let (sent, root): (DatasetName, DatasetName) = (begin.dataset.parse()?, start.root.parse()?);
        let sent_snapshot = sent.snapshot(&begin.snapshot)?;
        let refuse =
            |problem: String, remedy| Err(Error::NotReceived { name: sent_snapshot.to_string(), problem, remedy });
        let below = sent.as_str().strip_prefix(root.as_str()).unwrap_or_default();
        let outside = !sent.is_within(&root);
        if outside || matches!(self.target, Name::Bookmark(_)) {
            return refuse(
                "the stream names a dataset outside of its root".into(),
                "receive a stream made by 'fs send'",
            );
        }
        let snapshot = match &self.target {
            Name::Snapshot(target) if self.naming != Naming::Exact => {
                return refuse(
                    format!("-d and -e take the snapshot's name from the stream, and '{target}' names a snapshot"),
                    "name a file system, without @SNAPSHOT",
                );
            }
            Name::Snapshot(target) if start.may_be_single() && !is_later => target.snapshot().to_owned(),
            // As in OpenZFS: the snapshots of a package cannot all have one name.
            Name::Snapshot(_) => {
                return refuse(
                    "the target names a snapshot, and the input is a package of several".into(),
                    "receive into the file system, without @SNAPSHOT",
                );
            }
            _ => begin.snapshot.clone(),
        };
        let dataset: DatasetName = format!("{}{below}", self.top(start)?).parse()?;
        Ok(dataset.snapshot(&snapshot)?)
    }
}
