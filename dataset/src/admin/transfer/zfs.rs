//! Sends in the format of ZFS: the same plan as for Cenote's own streams, with the trees of the bases.

use std::{io::Write, sync::Arc};

use pool::txg::Head;

use crate::{
    admin::{Datasets, SendFrom, SendRequest, table::long_hold::LongHold},
    catalogue::{DatasetRow, SnapshotRow, dataset_key, snapshot_key},
    error::{Error, Reader, Result},
    lineage::snapshot,
    name::Name,
    stream::{self, Sent},
    zfs::send::{self, Described, Package, Receiver, Source},
};

use super::send::Part;

impl Datasets {
    /// As [`Datasets::send`], in the format of ZFS.
    ///
    /// # Errors
    /// As [`Datasets::send`], for a bookmark as the base, and for a file that ZFS has no form for.
    pub fn send_zfs(
        &self,
        request: &SendRequest,
        receiver: Receiver,
        reader: Reader,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Sent> {
        let (package, sources) = self.zfs_sources(request, &Arc::new(reader))?;
        send::send(package.as_ref(), sources, receiver, out, progress)
    }

    fn zfs_sources(&self, request: &SendRequest, reader: &Arc<Reader>) -> Result<(Option<Package>, Vec<Source>)> {
        loop {
            let looking = self.long_holds().look();
            let (parts, _) = self.parts(request)?;
            let package = self.zfs_package(request, &parts)?;
            let trees = parts
                .iter()
                .map(|part| Ok((self.engine().open_frozen(part.id, part.root, part.level), self.base_tree(part)?)));
            let trees: Vec<_> = trees.collect::<Result<_>>()?;
            if let Some(held) = self.hold_parts(&looking, &parts, Some(reader)) {
                let source = |((part, (tree, base)), held): ((Part, _), Option<LongHold>)| {
                    let held = held.map(|held| -> Box<dyn stream::Hold> { Box::new(held) });
                    Source { begin: part.begin, tree, base, held }
                };
                let sources = parts.into_iter().zip(trees).zip(held).map(source).collect();
                return Ok((package, sources));
            }
        }
    }

    /// The description of a package; `None` if one stream says everything.
    fn zfs_package(&self, request: &SendRequest, parts: &[Part]) -> Result<Option<Package>> {
        let is_single = !matches!(request.from, Some(SendFrom::Each(_)));
        if is_single && !request.replicate && !request.properties && !request.backup && !request.holds {
            return Ok(None);
        }
        let from = match &request.from {
            Some(SendFrom::Base(Name::Snapshot(from)) | SendFrom::Each(Name::Snapshot(from))) => {
                Some(from.snapshot().to_owned())
            }
            _ => None,
        };
        let mut datasets: Vec<Described> = Vec::new();
        for part in parts {
            let begin = &part.begin;
            let at = datasets.iter().position(|described| described.name == begin.dataset);
            let guid = begin.guid.0;
            match at {
                Some(at) => datasets[at].guid = guid,
                None => datasets.push(self.described(part, request, parts)?),
            }
        }
        let (root, to) = (request.snapshot.dataset().to_string(), request.snapshot.snapshot().to_owned());
        Ok(Some(Package { root, to, from, is_recursive: request.replicate, datasets }))
    }

    fn described(&self, part: &Part, request: &SendRequest, parts: &[Part]) -> Result<Described> {
        let begin = &part.begin;
        let names = self.names();
        let (origin, snapshots) = self.read(|tx| {
            let id = names.dataset(tx, &begin.dataset.parse()?)?;
            let row: DatasetRow = tx.row(dataset_key(id))?;
            let origin = match row.origin {
                0 => None,
                origin => Some(tx.row::<SnapshotRow>(snapshot_key(origin))?.guid.0),
            };
            let rows = snapshot::line(tx, id)?.into_iter().map(|of| tx.row::<SnapshotRow>(snapshot_key(of)));
            let rows = rows.map(|row| row.map(|row| (row.name, row.guid.0)));
            Ok((origin, rows.collect::<Result<Vec<_>>>()?))
        })?;
        // The line continues behind the snapshot that is sent last.
        let last = snapshots.iter().position(|(name, _)| name == request.snapshot.snapshot());
        let snapshots = snapshots.into_iter().take(last.map_or(usize::MAX, |last| last + 1)).collect();
        let above = begin.dataset.rsplit_once('/').map(|(above, _)| above);
        let parent = parts.iter().find(|other| Some(other.begin.dataset.as_str()) == above).map_or(0, |other| {
            let base = other.begin.base.as_ref().filter(|_| request.from.is_some());
            let last = || parts.iter().rfind(|last| last.begin.dataset == other.begin.dataset);
            base.map(|base| base.guid.0).or_else(|| last().map(|last| last.begin.guid.0)).unwrap_or(0)
        });
        let own = parts.iter().map(|part| &part.begin).filter(|other| other.dataset == begin.dataset);
        let holds = own.map(|begin| (begin.snapshot.clone(), begin.holds().map(str::to_owned).collect()));
        let holds = holds.filter(|(_, tags): &(String, Vec<String>)| !tags.is_empty()).collect();
        Ok(Described {
            name: begin.dataset.clone(),
            guid: begin.guid.0,
            parent,
            origin,
            snapshots,
            properties: begin.own_properties(),
            holds,
        })
    }

    /// The tree of a part's base; `None` for a full stream.
    fn base_tree(&self, part: &Part) -> Result<Option<Arc<Head>>> {
        let Some(base) = &part.begin.base else { return Ok(None) };
        let id = part.base.ok_or_else(|| Error::NotSent {
            problem: format!(
                "'{}' is a bookmark, and the names that an increment for ZFS deletes are in its snapshot",
                base.name
            ),
            remedy: "send since a snapshot: fs send -i @SNAPSHOT",
        })?;
        let (row, root) = self.read(|tx| tx.row_and_block::<SnapshotRow>(snapshot_key(id)))?;
        let root = root.ok_or_else(|| Error::damaged(id, "a snapshot without a tree"))?;
        Ok(Some(self.engine().open_frozen(id, root, row.level)))
    }
}
