//! Bookmarks: the part of a snapshot needed as the base of an incremental send.

use crate::{
    admin::table::datasets::Datasets,
    catalogue::{Bookmark, SnapshotRow, kind, snapshot_key},
    error::{Error, Result},
    name::{BookmarkName, Name},
};

impl Datasets {
    /// Creates a bookmark of a snapshot, or a copy of another bookmark of the same dataset.
    pub fn bookmark(&self, source: &Name, name: &BookmarkName) -> Result<()> {
        let (names, source, name) = (self.names(), source.clone(), name.clone());
        self.run(move |tx| {
            let dataset = names.dataset(tx, &name.dataset())?;
            let (of, row) = match &source {
                Name::Snapshot(snapshot) => {
                    let row: SnapshotRow = tx.row(snapshot_key(names.snapshot(tx, snapshot)?))?;
                    let SnapshotRow { guid, creation, createtxg, referenced, .. } = row;
                    (row.dataset, Bookmark { name: String::new(), guid, creation, createtxg, referenced })
                }
                Name::Bookmark(bookmark) => names.bookmark(tx, bookmark)?,
                Name::Dataset(dataset) => return Err(Error::no_snapshot(dataset)),
            };
            if of != dataset {
                let (from, to) = (source.to_string(), name.to_string());
                let problem = "a bookmark belongs to the dataset of its snapshot";
                return Err(Error::Misplaced { action: "bookmark", from, to, problem });
            }
            if tx.find_named::<Bookmark>(dataset, kind::BOOKMARK, name.bookmark())?.is_some() {
                return Err(Error::bookmark_exists(&name));
            }
            tx.put_named(dataset, kind::BOOKMARK, &Bookmark { name: name.bookmark().to_owned(), ..row })
        })
    }

    /// Destroys a bookmark.
    pub fn destroy_bookmark(&self, name: &BookmarkName) -> Result<()> {
        let (names, name) = (self.names(), name.clone());
        self.run(move |tx| {
            let (dataset, _) = names.bookmark(tx, &name)?;
            tx.delete_named::<Bookmark>(dataset, kind::BOOKMARK, name.bookmark()).map(drop)
        })
    }
}
