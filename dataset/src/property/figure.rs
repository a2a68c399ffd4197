//! The properties whose values are not in rows: computed, or numbers of the dataset.

/// The computed properties of a dataset, a snapshot or a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the property of its name, and the table says what that is")]
pub enum Figure {
    Name,
    Type,
    Creation,
    Used,
    Available,
    Referenced,
    CompressRatio,
    Mounted,
    Origin,
    CreateTxg,
    Guid,
    UsedBySnapshots,
    UsedByDataset,
    UsedByChildren,
    UsedByRefreservation,
    DeferDestroy,
    UserRefs,
    ObjsetId,
    RefCompressRatio,
    Written,
    LogicalUsed,
    LogicalReferenced,
    Clones,
    ReceiveResumeToken,
    SnapshotsChanged,
    SnapshotsChangedNsecs,
    FilesystemCount,
    SnapshotCount,
}

/// A limit of space: a number in the dataset's row, so that writing needs no lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The limit of a dataset with its descendants, in bytes.
    Quota,
    /// The limit of the space referenced by a dataset, in bytes.
    Refquota,
    /// The bytes reserved for a dataset with its descendants.
    Reservation,
    /// The bytes reserved for a dataset alone.
    Refreservation,
}

impl Limit {
    /// Every limit, by name.
    pub const ALL: [Limit; 4] = [Limit::Quota, Limit::Refquota, Limit::Refreservation, Limit::Reservation];
}

/// The computed properties of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the property of its name, and the table says what that is")]
pub enum PoolFigure {
    Name,
    Size,
    Capacity,
    Altroot,
    Health,
    Guid,
    Version,
    DedupRatio,
    BcloneUsed,
    BcloneSaved,
    BcloneRatio,
    Free,
    Allocated,
    ExpandSize,
    Freeing,
    Leaked,
    Checkpoint,
    Fragmentation,
    LoadGuid,
}
