//! What a dataset's properties and the pool's features say about its file system.

use pool::{
    space::Placement,
    tree::Policy,
    txg::{Caching, Redundancy},
};

use super::inode::{Inode, MAX_RECORD_SHIFT, MIN_RECORD_SHIFT};
use crate::property::{
    AclType, DirectIo, Durability, Effective, Spread,
    dataset::{
        ACLTYPE, ALLOC, ATIME, CHECKSUM, COMPRESSION, COPIES, DIRECT, PREFETCH, PRIMARYCACHE, READONLY, RECORDSIZE,
        REDUNDANT_METADATA, RELATIME, SECONDARYCACHE, SPECIAL_SMALL_BLOCKS, SYNC, VDEVS,
    },
};

/// The properties of a dataset that its file system obeys. They may change while the file system is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Changes fail with EROFS.
    pub readonly: bool,
    /// Access times are kept.
    pub atime: bool,
    /// The access time is updated only if older than the last change, or than a day.
    pub relatime: bool,
    /// The record size for files without a block yet, in bytes: a power of two, 4 KiB to 16 MiB.
    pub recordsize: u32,
    /// Compression, checksum, copies and placement of new blocks.
    pub policy: Policy,
    /// Whether all blocks of a file go to the same vdev, instead of being spread over all vdevs.
    pub whole_files: bool,
    /// When changes become durable.
    pub sync: Durability,
    /// Whether files may get attributes of their own: the pool's feature `file_attributes` is enabled.
    pub attributes: bool,
    /// Whether accounts, quotas and projects may exist: the pool's feature `project_quota` is enabled.
    pub accounts: bool,
    /// Whether access control lists apply. If not, lists are hidden, and new files get none.
    pub acl: bool,
    /// The content kept in the cache in memory: data and metadata, metadata, or none.
    pub primary_cache: Caching,
    /// The content kept on cache devices: data and metadata, metadata, or none.
    pub secondary_cache: Caching,
    /// What is read ahead of sequential readers: data and metadata, metadata, or nothing.
    pub prefetch: Caching,
    /// Which reads bypass the cache.
    pub direct: DirectIo,
    /// Which nodes are stored twice.
    pub redundancy: Redundancy,
    /// Whether copies may share blocks: the pool's feature `block_cloning` is enabled.
    pub sharing: bool,
}

/// The defaults of all properties, in a pool without features.
impl Default for Options {
    fn default() -> Options {
        Options::from_properties(&Effective::default())
    }
}

impl Options {
    /// What properties say, in a pool without features.
    pub fn from_properties(values: &Effective) -> Options {
        Options {
            readonly: values.get(&READONLY),
            atime: values.get(&ATIME),
            relatime: values.get(&RELATIME),
            recordsize: values.get(&RECORDSIZE),
            policy: Policy {
                compression: values.get(&COMPRESSION),
                checksum: values.get(&CHECKSUM),
                copies: values.get(&COPIES),
                small_blocks: values.get(&SPECIAL_SMALL_BLOCKS),
                placement: Placement { file: None, preferred: values.get(&VDEVS) },
            },
            whole_files: values.get(&ALLOC) == Spread::RoundRobin,
            sync: values.get(&SYNC),
            acl: values.get(&ACLTYPE) == AclType::Posix,
            primary_cache: values.get(&PRIMARYCACHE),
            secondary_cache: values.get(&SECONDARYCACHE),
            prefetch: values.get(&PREFETCH),
            direct: values.get(&DIRECT),
            redundancy: values.get(&REDUNDANT_METADATA),
            attributes: false,
            accounts: false,
            sharing: false,
        }
    }

    pub(super) fn record_shift(&self) -> u8 {
        let shift = self.recordsize.max(1).ilog2() as u8;
        shift.clamp(MIN_RECORD_SHIFT, MAX_RECORD_SHIFT)
    }
}

/// The file's record size as a power of two: the current size, or for a file without blocks the size from the options.
pub(super) fn effective_shift(inode: &Inode, options: &Options) -> u8 {
    if inode.record_shift == 0 { options.of(inode).record_shift() } else { inode.record_shift }
}

#[cfg(test)]
mod tests {
    use pool::{block::compression::CompressionChoice, format::pointer::Checksum};

    use super::*;
    use crate::property::Source;

    #[test]
    fn options_are_the_defaults_of_the_table() {
        let options = Options::default();
        assert_eq!((options.readonly, options.atime, options.relatime, options.acl), (false, true, true, false));
        assert_eq!((options.recordsize, options.policy.copies, options.policy.small_blocks), (128 << 10, 1, 0));
        assert_eq!((options.policy.compression, options.policy.checksum), (CompressionChoice::Lz4, Checksum::Blake3));
        assert_eq!((options.sync, options.whole_files), (Durability::Standard, false));
        assert_eq!((options.primary_cache, options.secondary_cache), (Caching::All, Caching::All));
        assert_eq!(options.policy.placement, Placement::ANYWHERE);
        assert_eq!((options.prefetch, options.direct), (Caching::All, DirectIo::Standard));
        assert_eq!(options.redundancy, Redundancy::All);
    }

    #[test]
    fn options_follow_properties() {
        let mut values = Effective::default();
        let set = [("alloc", "roundrobin"), ("acltype", "posix"), ("sync", "always"), ("primarycache", "none")];
        set.into_iter().for_each(|(name, value)| values.insert(name, value, Source::Local));
        let options = Options::from_properties(&values);
        assert_eq!((options.whole_files, options.acl, options.sync), (true, true, Durability::Always));
        assert_eq!((options.primary_cache, options.secondary_cache), (Caching::None, Caching::All));
    }
}
