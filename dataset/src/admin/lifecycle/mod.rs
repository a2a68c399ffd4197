//! Datasets, snapshots, bookmarks and holds: from their creation to their destruction.

pub(super) mod bookmark;
pub(super) mod clone;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod hold;
pub(super) mod rename;
pub(super) mod rollback;
pub(super) mod snapshot;
