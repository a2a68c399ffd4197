//! Properties of OpenZFS with a constant value here, so that tools and streams made for OpenZFS work.
//!
//! `get` and `list -o` know each. Setting the constant value does nothing, also where OpenZFS permits it only at
//! creation; any other value is refused with a reason. No value is ever stored.

use super::{
    definition::{Backing, Definition, Kinds, Nature},
    source::Source,
    syntax::Syntax,
    words::FEATURE,
};

const FS: Kinds = Kinds::FILESYSTEM;
const FS_SNAP: Kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);

const ENCRYPTION: &str = "native encryption does not exist in this version; use encrypted devices (LUKS)";
const DEDUP: &str = "deduplication does not exist in this version; clones, snapshots and file copies share blocks";
const FIXED_NAMES: &str = "file names are always stored and compared as raw bytes";
const VOLUMES: &str = "volumes (zvols) do not exist in this version";
const SHARING: &str = "share the mount point with the NFS or SMB server's own tools";
const ONE_LOG: &str = "synchronous writes always use the intent log, on a log vdev if the pool has any";
const ACL: &str = "NFSv4 ACLs do not exist in this version; POSIX ACLs (acltype=posix) follow POSIX rules";
const DEFAULT_QUOTAS: &str =
    "default quotas do not exist in this version; set 'userquota@NAME' and the like for each owner";
const CONTEXTS: &str = "SELinux mount contexts do not exist in this version";
const REDACTION: &str = "redacted streams do not exist in this version";
const FEATURES: &str = "it concerns OpenZFS's on-disk format only; to list the features of Cenote: pool get all";
const COMPATIBILITY: &str = "each feature can be left disabled instead: pool create -d, or -o feature@NAME=disabled";
const CHECKSUMS: &str = "this checksum does not exist in this version; use sha256 or blake3";
const DELEGATION: &str = "only the owner of the pool's service, and root, administer a pool";
const SCRUBS: &str = "a scrub records the time of its end and no txg: see 'pool status'";
const TEMPORARY_NAMES: &str = "temporary pool names do not exist in this version; to rename: pool import POOL NEWNAME";
const CACHEFILE: &str = "Cenote keeps known pools in its registry; see 'pool import'";
pub(super) const WRITTEN_SINCE_BOOKMARK: &str = "space written since a bookmark is not computed; use written@SNAPSHOT";
const LISTING: &str = "name the types to list: fs list -t filesystem,snapshot";
const ZONES: &str = "file systems are not delegated to containers; 'fs allow' gives users permissions";
const VERSIONS: &str = "the format has features in place of versions; to list the features: pool get all";
const SCANNING: &str = "Cenote calls no virus scanner; run the scanner on the mount point";
const MANDATORY: &str = "Linux has no mandatory locks";
const LABELS: &str = "sensitivity labels exist on Solaris only";
const DNODES: &str = "attributes of files are rows of a tree, and need no larger dnode";
const LONG_NAMES: &str = "the format limits a file name to 255 bytes, as Linux does";
const BOOTING: &str = "the kernel cannot boot from a pool in user space";
const MULTIHOST: &str =
    "activity checks do not exist in this version; import a pool on shared devices on one host at a time";
const BLOCK_SIZES: &str = "a constant of the format";

/// The text of OpenZFS for a property that does not apply.
const NOTHING: &[&str] = &["-"];

const fn constant(
    name: &'static str,
    column: &'static str,
    kinds: Kinds,
    nature: Nature,
    values: &'static [&'static str],
    reason: &'static str,
) -> Definition {
    let row = Definition::new(kinds, nature, Syntax::Fixed(values), Some(values[0]));
    Definition { backing: Backing::Constant, ..row }.named(name, column, reason)
}

const fn inherited(
    name: &'static str,
    column: &'static str,
    values: &'static [&'static str],
    reason: &'static str,
) -> Definition {
    constant(name, column, FS, Nature::Inheritable, values, reason)
}

const fn own(
    name: &'static str,
    column: &'static str,
    values: &'static [&'static str],
    reason: &'static str,
) -> Definition {
    constant(name, column, FS, Nature::Settable, values, reason)
}

const fn once(
    name: &'static str,
    column: &'static str,
    values: &'static [&'static str],
    reason: &'static str,
) -> Definition {
    constant(name, column, FS_SNAP, Nature::SetOnce, values, reason)
}

const fn on_snapshots(row: Definition) -> Definition {
    Definition { kinds: FS_SNAP, ..row }
}

const fn read_only(row: Definition) -> Definition {
    Definition { nature: Nature::ReadOnly, ..row }
}

/// OpenZFS shows `-` without encryption or redaction.
const fn nothing(name: &'static str, column: &'static str, reason: &'static str) -> Definition {
    on_snapshots(read_only(own(name, column, NOTHING, reason)))
}

/// OpenZFS has the property for volumes only, and shows `-` elsewhere.
const fn of_volumes(name: &'static str, column: &'static str) -> Definition {
    own(name, column, NOTHING, VOLUMES)
}

const fn default_quota(name: &'static str, column: &'static str) -> Definition {
    constant(name, column, FS_SNAP, Nature::SetOnce, &["0", "none"], DEFAULT_QUOTAS)
}

const fn of_pool(
    name: &'static str,
    column: &'static str,
    values: &'static [&'static str],
    reason: &'static str,
) -> Definition {
    constant(name, column, Kinds::POOL, Nature::Settable, values, reason)
}

/// A feature of OpenZFS that the format of every pool includes.
const fn present(name: &'static str) -> Definition {
    of_pool(name, name, &["active", "active", "enabled"], "it is part of every pool's format and cannot be disabled")
}

/// A feature of OpenZFS without a counterpart.
const fn lacking(name: &'static str, reason: &'static str) -> Definition {
    of_pool(name, name, &["disabled"], reason)
}

/// The constants of datasets, in the order of OpenZFS's `zfs get all`.
pub static DATASET_CONSTANTS: &[Definition] = &[
    inherited("sharenfs", "SHARENFS", &["off"], SHARING),
    inherited("aclmode", "ACLMODE", &["discard"], ACL),
    inherited("aclinherit", "ACLINHERIT", &["restricted"], ACL),
    inherited("zoned", "ZONED", &["off"], ZONES),
    once("version", "VERSION", &["5", "5", "current"], VERSIONS),
    once("utf8only", "UTF8ONLY", &["off"], FIXED_NAMES),
    once("normalization", "NORMALIZATION", &["none"], FIXED_NAMES),
    once("casesensitivity", "CASE", &["sensitive"], FIXED_NAMES),
    inherited("vscan", "VSCAN", &["off"], SCANNING),
    on_snapshots(inherited("nbmand", "NBMAND", &["off"], MANDATORY)),
    inherited("sharesmb", "SHARESMB", &["off"], SHARING),
    of_volumes("volsize", "VOLSIZE"),
    of_volumes("volblocksize", "VOLBLOCK"),
    of_volumes("volthreading", "VOLTHREAD"),
    inherited("logbias", "LOGBIAS", &["latency"], ONE_LOG),
    inherited("dedup", "DEDUP", &["off"], DEDUP),
    on_snapshots(inherited("mlslabel", "MLSLABEL", &["none"], LABELS)),
    inherited("snapdev", "SNAPDEV", &["hidden"], VOLUMES),
    inherited("volmode", "VOLMODE", &["default"], VOLUMES),
    inherited("dnodesize", "DNSIZE", &["legacy"], DNODES),
    on_snapshots(own("context", "CONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("fscontext", "FSCONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("defcontext", "DEFCONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("rootcontext", "ROOTCONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("encryption", "ENCRYPTION", &["off"], ENCRYPTION)),
    own("keylocation", "KEYLOCATION", &["none"], ENCRYPTION),
    own("keyformat", "KEYFORMAT", &["none"], ENCRYPTION),
    own("pbkdf2iters", "PBKDF2ITERS", &["0"], ENCRYPTION),
    nothing("encryptionroot", "ENCROOT", ENCRYPTION),
    nothing("keystatus", "KEYSTATUS", ENCRYPTION),
    nothing("redact_snaps", "RSNAPS", REDACTION),
    inherited("longname", "LONGNAME", &["off"], LONG_NAMES),
    default_quota("defaultuserquota", "DEFAULTUSERQUOTA"),
    default_quota("defaultgroupquota", "DEFAULTGROUPQUOTA"),
    default_quota("defaultprojectquota", "DEFAULTPROJECTQUOTA"),
    default_quota("defaultuserobjquota", "DEFAULTUSEROBJQUOTA"),
    default_quota("defaultgroupobjquota", "DEFAULTGROUPOBJQUOTA"),
    default_quota("defaultprojectobjquota", "DEFAULTPROJECTOBJQUOTA"),
];

/// The constants of pools, in the order of OpenZFS's `zpool get all`.
pub static POOL_CONSTANTS: &[Definition] = &[
    of_pool("bootfs", "BOOTFS", &["-"], BOOTING),
    of_pool("delegation", "DELEGATION", &["on"], DELEGATION),
    of_pool("cachefile", "CACHEFILE", &["-", "-", "none"], CACHEFILE),
    of_pool("listsnapshots", "LISTSNAPS", &["off"], LISTING),
    of_pool("multihost", "MULTIHOST", &["off"], MULTIHOST),
    of_pool("compatibility", "COMPATIBILITY", &["off"], COMPATIBILITY),
    of_pool("dedup_table_quota", "DDTQUOTA", &["auto"], DEDUP),
    read_only(of_pool("dedup_table_size", "DDTSIZE", &["0"], DEDUP)),
    read_only(of_pool("dedupused", "DEDUP_USED", &["0"], DEDUP)),
    read_only(of_pool("dedupsaved", "DEDUP_SAVED", &["0"], DEDUP)),
    read_only(of_pool("dedupcached", "DEDUPCACHED", &["0"], DEDUP)),
    of_pool("dedupditto", "DEDUPDITTO", &["0"], DEDUP),
    read_only(of_pool("last_scrubbed_txg", "LAST_SCRUBBED_TXG", &["0"], SCRUBS)),
    read_only(of_pool("maxblocksize", "MAXBLOCKSIZE", &["16777216", "16M"], BLOCK_SIZES)),
    read_only(of_pool("maxdnodesize", "MAXDNODESIZE", &["16384", "16K"], BLOCK_SIZES)),
    of_pool("tname", "TNAME", NOTHING, TEMPORARY_NAMES),
    present("feature@async_destroy"),
    present("feature@blake3"),
    present("feature@bookmarks"),
    present("feature@embedded_data"),
    present("feature@empty_bpobj"),
    present("feature@enabled_txg"),
    present("feature@filesystem_limits"),
    present("feature@hole_birth"),
    present("feature@large_blocks"),
    present("feature@large_dnode"),
    present("feature@large_microzap"),
    present("feature@log_spacemap"),
    present("feature@lz4_compress"),
    present("feature@obsolete_counts"),
    present("feature@spacemap_histogram"),
    present("feature@spacemap_v2"),
    present("feature@userobj_accounting"),
    present("feature@zilsaxattr"),
    present("feature@zstd_compress"),
    lacking("feature@block_cloning_endian", FEATURES),
    lacking("feature@bookmark_v2", ENCRYPTION),
    lacking("feature@bookmark_written", WRITTEN_SINCE_BOOKMARK),
    lacking("feature@device_rebuild", "the resilver copies used blocks only, and verifies each"),
    lacking("feature@draid", "dRAID does not exist in this version; use raidz1 to raidz3"),
    lacking("feature@dynamic_gang_header", FEATURES),
    lacking("feature@edonr", CHECKSUMS),
    lacking("feature@encryption", ENCRYPTION),
    lacking("feature@fast_dedup", DEDUP),
    lacking("feature@head_errlog", FEATURES),
    lacking("feature@livelist", FEATURES),
    lacking("feature@longname", LONG_NAMES),
    lacking("feature@multi_vdev_crash_dump", VOLUMES),
    lacking("feature@physical_rewrite", "copy the files to apply new properties; 'pool rebalance' moves blocks"),
    lacking("feature@redacted_datasets", REDACTION),
    lacking("feature@redaction_bookmarks", REDACTION),
    lacking("feature@redaction_list_spill", REDACTION),
    lacking("feature@resilver_defer", FEATURES),
    lacking("feature@sha512", CHECKSUMS),
    lacking("feature@skein", CHECKSUMS),
    lacking("feature@vdev_zaps_v2", "vdevs have no properties in this version"),
    lacking("feature@zpool_checkpoint", "pool checkpoints do not exist in this version; to rewind: pool import -F"),
];

impl Definition {
    /// The source of the constant, as shown by OpenZFS: local for features, none for values that OpenZFS does not
    /// treat as settings, and default otherwise.
    pub fn source_of_constant(&self) -> Source {
        match self.nature {
            _ if self.name.starts_with(FEATURE) => Source::Local,
            _ if self.default == Some("-") && self.kinds != Kinds::POOL => Source::None,
            Nature::Inheritable | Nature::Settable => Source::Default,
            Nature::ReadOnly | Nature::SetOnce => Source::None,
        }
    }
}

/// The reason why a property of OpenZFS cannot be set here; `None` for all other names.
pub fn reason_for_absence(name: &str) -> Option<&'static str> {
    DATASET_CONSTANTS.iter().chain(POOL_CONSTANTS).find(|row| row.name == name).map(|row| row.help)
}

/// What a value does here that OpenZFS acts on and Cenote accepts without effect; `None` for all other values.
pub fn without_effect(name: &str, value: &str) -> Option<&'static str> {
    match name {
        "cachefile" if value == "none" || value.starts_with('/') => {
            Some("a pool stays in the registry until its export, and is imported again at boot")
        }
        "compatibility" if !matches!(value, "" | "off") => Some("only Cenote reads the pools of Cenote"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kinds, Precision, Property, PropertyError};

    fn set(name: &str, value: &str, creating: bool) -> Result<String, PropertyError> {
        Property::of_dataset(name).and_then(|property| property.parse_value(value, creating))
    }

    #[test]
    fn a_constant_can_be_set_to_itself_and_to_nothing_else() {
        assert_eq!(set("encryption", "off", false).as_deref(), Ok("off"));
        assert_eq!(set("filesystem_limit", "none", false).as_deref(), Ok("18446744073709551615"));
        assert_eq!(set("version", "current", false).as_deref(), Ok("5"));
        for creating in [true, false] {
            assert_eq!(set("normalization", "none", creating).as_deref(), Ok("none"));
        }
        for (name, value) in
            [("encryption", "on"), ("normalization", "formD"), ("volsize", "1G"), ("logbias", "throughput")]
        {
            assert!(matches!(set(name, value, false), Err(PropertyError::Absent { .. })), "{name}");
        }
        assert!(matches!(set("keystatus", "available", false), Err(PropertyError::ReadOnly { .. })));
        let cachefile = Property::of_pool("cachefile").unwrap();
        assert_eq!(cachefile.parse_value("none", true).as_deref(), Ok("-"));
        assert_eq!(cachefile.parse_value("/etc/zfs/zpool.cache", true).as_deref(), Ok("-"));
        assert!(matches!(cachefile.parse_value("zpool.cache", true), Err(PropertyError::Absent { .. })));
        let compatibility = Property::of_pool("compatibility").unwrap();
        assert_eq!(compatibility.parse_value("openzfs-2.1-linux,grub2", true).as_deref(), Ok("off"));
    }

    #[test]
    fn features_of_openzfs_are_part_of_the_format_or_lacking() {
        let set = |name: &str, value: &str| Property::of_pool(name).and_then(|it| it.parse_value(value, true));
        assert_eq!(set("feature@lz4_compress", "enabled").as_deref(), Ok("active"));
        assert_eq!(set("feature@encryption", "disabled").as_deref(), Ok("disabled"));
        for (name, value) in [("feature@lz4_compress", "disabled"), ("feature@encryption", "enabled")] {
            assert!(matches!(set(name, value), Err(PropertyError::Absent { .. })), "{name}");
        }
        assert_eq!(
            set("feature@raidz", "disabled").as_deref(),
            Ok("disabled"),
            "a feature can be left out at creation"
        );
    }

    /// The names of the properties in zfsprops(7) of OpenZFS 2.4, except those with a parameter and, for `jailed`, of
    /// other systems.
    const ZFSPROPS: &str = "available compressratio createtxg creation clones defer_destroy encryptionroot \
        filesystem_count keystatus guid logicalreferenced logicalused mounted objsetid origin receive_resume_token \
        redact_snaps referenced refcompressratio snapshot_count type used usedbychildren usedbydataset \
        usedbyrefreservation usedbysnapshots userrefs snapshots_changed snapshots_changed_nsecs volblocksize written \
        aclinherit aclmode acltype atime canmount checksum compression context fscontext defcontext rootcontext copies \
        devices dedup direct dnodesize encryption keyformat keylocation pbkdf2iters exec volthreading filesystem_limit \
        special_small_blocks mountpoint nbmand overlay primarycache quota snapshot_limit defaultuserquota \
        defaultuserobjquota defaultgroupquota defaultgroupobjquota defaultprojectquota defaultprojectobjquota readonly \
        recordsize redundant_metadata refquota refreservation relatime reservation secondarycache prefetch setuid \
        sharesmb sharenfs logbias snapdev snapdir sync version volsize volmode vscan xattr zoned casesensitivity \
        normalization utf8only longname mlslabel";

    /// The names of the properties in zpoolprops(7) and of the features in zpool-features(7).
    const ZPOOLPROPS: &str = "allocated bcloneratio bclonesaved bcloneused capacity dedupcached dedup_table_size \
        expandsize fragmentation free freeing guid health last_scrubbed_txg leaked load_guid size altroot readonly \
        ashift autoexpand autoreplace autotrim bootfs cachefile comment compatibility dedup_table_quota dedupditto \
        delegation failmode listsnapshots multihost version checkpoint dedupratio dedupused dedupsaved maxblocksize \
        maxdnodesize name tname feature@allocation_classes feature@async_destroy feature@blake3 feature@block_cloning \
        feature@block_cloning_endian feature@bookmark_v2 feature@bookmark_written feature@bookmarks \
        feature@device_rebuild feature@device_removal feature@draid feature@dynamic_gang_header feature@edonr \
        feature@embedded_data feature@empty_bpobj feature@enabled_txg feature@encryption \
        feature@extensible_dataset feature@fast_dedup feature@filesystem_limits feature@head_errlog feature@hole_birth feature@large_blocks feature@large_dnode \
        feature@large_microzap feature@livelist feature@log_spacemap feature@longname feature@lz4_compress \
        feature@multi_vdev_crash_dump feature@obsolete_counts feature@physical_rewrite feature@project_quota \
        feature@raidz_expansion feature@redacted_datasets feature@redaction_bookmarks feature@redaction_list_spill \
        feature@resilver_defer feature@sha512 feature@skein feature@spacemap_histogram feature@spacemap_v2 \
        feature@userobj_accounting feature@vdev_zaps_v2 feature@zilsaxattr feature@zpool_checkpoint \
        feature@zstd_compress";

    #[test]
    fn every_property_of_openzfs_is_known() {
        let names = |text: &'static str| text.split_whitespace();
        let is_lacking = |known: Result<Property, PropertyError>, name: &str| !known.is_ok_and(|it| it.name() == name);
        let datasets = names(ZFSPROPS).filter(|name| is_lacking(Property::of_dataset(name), name));
        let pools = names(ZPOOLPROPS).filter(|name| is_lacking(Property::of_pool(name), name));
        assert_eq!(datasets.chain(pools).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn snapshots_show_the_properties_that_openzfs_shows() {
        let shown = "type creation used referenced compressratio devices exec setuid createtxg xattr version utf8only \
            normalization casesensitivity nbmand guid primarycache secondarycache prefetch defer_destroy userrefs \
            objsetid mlslabel acltype refcompressratio written logicalreferenced context fscontext defcontext \
            rootcontext encryption clones";
        let lacks = |name: &&str| !Property::of_dataset(name).unwrap().applies_to(Kinds::SNAPSHOT);
        assert_eq!(shown.split_whitespace().filter(lacks).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn constants_are_shown_as_openzfs_shows_them() {
        let limit = Property::of_dataset("snapshot_limit").unwrap();
        let exact = "18446744073709551615";
        assert_eq!(limit.syntax().print(exact, Precision::Human), "none");
        assert_eq!(limit.syntax().print(exact, Precision::Exact), exact);
        assert_eq!(Property::of_dataset("case").unwrap().name(), "casesensitivity");
    }

    #[test]
    fn a_property_of_pools_is_none_of_datasets() {
        assert!(matches!(Property::of_dataset("cachefile"), Err(PropertyError::Unknown { .. })));
        assert!(matches!(Property::of_pool("encryption"), Err(PropertyError::Unknown { .. })));
    }
}
