//! Sends the partial state of an interrupted receive (`fs send -S`), so that another pool continues the receive.
//!
//! The stream has the head of the snapshot being received, and everything below the position of the receive. It has no
//! END, so its receiver keeps a partial state with the same token, which the original sender continues. The increment
//! starts at the local base, whose content is the original base's.

use std::{io::Write, sync::Arc};

use super::{
    receive::partial::{Occupied, Partial},
    send::{Planned, base_of},
};
use crate::{
    admin::table::datasets::Datasets,
    catalogue::{SnapshotRow, snapshot_key},
    error::{Error, Result},
    name::DatasetName,
    stream::{self, Begin, Package, Position, Sent, Source, Watched},
};

impl Datasets {
    /// The stream that [`Datasets::send_saved`] would write, without reading data.
    ///
    /// # Errors
    /// As [`Datasets::send_saved`].
    pub fn plan_send_saved(self: &Arc<Self>, name: &DatasetName) -> Result<Planned> {
        let (source, _occupied) = self.saved(name)?;
        let Begin { dataset, snapshot, base, .. } = &source.begin;
        let from = base.as_ref().map(|base| base.name.clone());
        Ok(Planned { snapshot: format!("{dataset}@{snapshot}"), from, bytes: stream::estimate(&source)? })
    }

    /// Sends what an interrupted receive into a dataset has stored, with `readers` threads that read ahead. Meanwhile
    /// the receive can be neither continued nor discarded. `progress` is called with the number of bytes written so far.
    ///
    /// # Errors
    /// If the dataset has no partial state, a receive fills it, a block cannot be read, or `out` cannot be written.
    pub fn send_saved(
        self: &Arc<Self>,
        name: &DatasetName,
        out: &mut dyn Write,
        readers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Sent> {
        let (source, _occupied) = self.saved(name)?;
        let root = source.begin.dataset.clone();
        let (sources, watched) = (vec![source], Watched::default());
        let package = Package { root, replicate: false, census: None, sources, watched };
        Ok(stream::send(package, out, readers, progress)?)
    }

    fn saved(self: &Arc<Self>, name: &DatasetName) -> Result<(Source, Occupied)> {
        let names = self.names();
        let target = self.read(|tx| names.dataset(tx, name))?;
        let none = || Error::NotSent {
            problem: format!("'{name}' has no partial state of an interrupted receive"),
            remedy: "to list partial states: fs get receive_resume_token",
        };
        let hidden = self.partial(target)?.ok_or_else(none)?.hidden;
        let occupied = self.occupy(hidden, name)?;
        // The last receive may have ended since the first look.
        let again = self.partial(target)?.filter(|partial| partial.hidden == hidden);
        let Partial { head, token, origin, is_new, .. } = again.ok_or_else(none)?;
        if token.position == Position::START {
            return Err(none());
        }
        let base = match token.base {
            Some(_) => Some(base_of(&self.read(|tx| tx.row::<SnapshotRow>(snapshot_key(origin)))?)),
            None => None,
        };
        let mut begin = Begin {
            dataset: token.snapshot.dataset().to_string(),
            snapshot: token.snapshot.snapshot().to_owned(),
            guid: token.guid,
            createtxg: self.engine().committed(),
            creation: self.now(),
            layout: self.layout(),
            clone: base.is_some() && is_new,
            base,
            properties: token.properties.then(Vec::new),
            resumed: None,
        };
        if token.backup {
            begin.note_backup();
        }
        Ok((Source { begin, tree: head, until: Some(token.position.key), held: None }, occupied))
    }
}
