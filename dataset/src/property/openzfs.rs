//! Properties of OpenZFS with a constant value here, so that tools and streams made for OpenZFS work.
//!
//! Each is shown when requested by name, and omitted from `get all`. Setting the constant value does nothing; any other
//! value is refused with a reason. No value is ever stored.

use super::{
    definition::{Backing, Definition, Kinds, Nature},
    source::Source,
    syntax::Syntax,
};

const FS: Kinds = Kinds::FILESYSTEM;
const FS_SNAP: Kinds = Kinds::FILESYSTEM.with(Kinds::SNAPSHOT);

const ENCRYPTION: &str = "native encryption does not exist in this version; use encrypted devices (LUKS)";
const DEDUP: &str = "deduplication does not exist in this version; clones, snapshots and file copies share blocks";
const FIXED_NAMES: &str = "file names are always stored and compared as raw bytes";
const VOLUMES: &str = "volumes (zvols) do not exist in this version";
const SHARING: &str = "share the mount point with the NFS or SMB server's own tools";
const ONE_LOG: &str = "synchronous writes always use the intent log, on a log vdev if the pool has any";
const CACHING: &str = "primarycache and secondarycache control caching; for a single file: fs setattr direct=on";
const METADATA: &str = "the catalogue (MOS) has three copies, other metadata two, or one in a pool with a single vdev";
const ACL: &str = "NFSv4 ACLs do not exist in this version; POSIX ACLs (acltype=posix) follow POSIX rules";
const LIMITS: &str = "dataset counts cannot be limited in this version; quota limits space";
const DEFAULT_QUOTAS: &str =
    "default quotas do not exist in this version; set 'userquota@NAME' and the like for each owner";
const OVERLAY: &str = "mounting over a directory with files needs: fs mount -O";
const CONTEXTS: &str = "SELinux mount contexts do not exist in this version";
const REDACTION: &str = "redacted streams do not exist in this version";
const FEATURES: &str = "pools use feature flags, feature@NAME";
const CACHEFILE: &str = "Cenote keeps known pools in its registry; see 'pool import'";
const LISTING: &str = "name the types to list: fs list -t filesystem,snapshot";
const FIXED: &str = "cannot be changed in this version";

/// The texts of OpenZFS for an unlimited count: exact, and for people.
const UNLIMITED: &[&str] = &["18446744073709551615", "none"];

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
    Definition { default: None, ..on_snapshots(read_only(own(name, column, &["-"], reason))) }
}

/// OpenZFS has the property for volumes only, and shows `-` elsewhere.
const fn of_volumes(name: &'static str, column: &'static str) -> Definition {
    constant(name, column, Kinds::NONE, Nature::Settable, &["-"], VOLUMES)
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

/// The constants of datasets, in the order of OpenZFS's `zfs get all`.
pub static DATASET_CONSTANTS: &[Definition] = &[
    inherited("sharenfs", "SHARENFS", &["off"], SHARING),
    inherited("aclmode", "ACLMODE", &["discard"], ACL),
    inherited("aclinherit", "ACLINHERIT", &["restricted"], ACL),
    inherited("zoned", "ZONED", &["off"], FIXED),
    once("version", "VERSION", &["5"], FIXED),
    once("utf8only", "UTF8ONLY", &["off"], FIXED_NAMES),
    once("normalization", "NORMALIZATION", &["none"], FIXED_NAMES),
    once("casesensitivity", "CASE", &["sensitive"], FIXED_NAMES),
    inherited("vscan", "VSCAN", &["off"], FIXED),
    on_snapshots(inherited("nbmand", "NBMAND", &["off"], FIXED)),
    inherited("sharesmb", "SHARESMB", &["off"], SHARING),
    of_volumes("volsize", "VOLSIZE"),
    of_volumes("volblocksize", "VOLBLOCK"),
    of_volumes("volthreading", "VOLTHREAD"),
    own("filesystem_limit", "FSLIMIT", UNLIMITED, LIMITS),
    own("snapshot_limit", "SSLIMIT", UNLIMITED, LIMITS),
    own("filesystem_count", "FSCOUNT", UNLIMITED, LIMITS),
    own("snapshot_count", "SSCOUNT", UNLIMITED, LIMITS),
    inherited("logbias", "LOGBIAS", &["latency"], ONE_LOG),
    inherited("dedup", "DEDUP", &["off"], DEDUP),
    on_snapshots(inherited("mlslabel", "MLSLABEL", &["none"], FIXED)),
    inherited("snapdev", "SNAPDEV", &["hidden"], VOLUMES),
    inherited("volmode", "VOLMODE", &["default"], VOLUMES),
    inherited("dnodesize", "DNSIZE", &["legacy"], FIXED),
    on_snapshots(own("context", "CONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("fscontext", "FSCONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("defcontext", "DEFCONTEXT", &["none"], CONTEXTS)),
    on_snapshots(own("rootcontext", "ROOTCONTEXT", &["none"], CONTEXTS)),
    inherited("redundant_metadata", "REDUND_MD", &["all"], METADATA),
    inherited("overlay", "OVERLAY", &["off"], OVERLAY),
    on_snapshots(own("encryption", "ENCRYPTION", &["off"], ENCRYPTION)),
    own("keylocation", "KEYLOCATION", &["none"], ENCRYPTION),
    own("keyformat", "KEYFORMAT", &["none"], ENCRYPTION),
    own("pbkdf2iters", "PBKDF2ITERS", &["0"], ENCRYPTION),
    nothing("encryptionroot", "ENCROOT", ENCRYPTION),
    nothing("keystatus", "KEYSTATUS", ENCRYPTION),
    nothing("redact_snaps", "RSNAPS", REDACTION),
    on_snapshots(inherited("prefetch", "PREFETCH", &["all"], CACHING)),
    inherited("direct", "DIRECT", &["standard"], CACHING),
    inherited("longname", "LONGNAME", &["off"], FIXED),
    default_quota("defaultuserquota", "DEFAULTUSERQUOTA"),
    default_quota("defaultgroupquota", "DEFAULTGROUPQUOTA"),
    default_quota("defaultprojectquota", "DEFAULTPROJECTQUOTA"),
    default_quota("defaultuserobjquota", "DEFAULTUSEROBJQUOTA"),
    default_quota("defaultgroupobjquota", "DEFAULTGROUPOBJQUOTA"),
    default_quota("defaultprojectobjquota", "DEFAULTPROJECTOBJQUOTA"),
];

/// The constants of pools, in the order of OpenZFS's `zpool get all`.
pub static POOL_CONSTANTS: &[Definition] = &[
    of_pool("bootfs", "BOOTFS", &["-"], FIXED),
    of_pool("delegation", "DELEGATION", &["off"], FIXED),
    of_pool("cachefile", "CACHEFILE", &["-", "-", "none"], CACHEFILE),
    of_pool("listsnapshots", "LISTSNAPS", &["off"], LISTING),
    of_pool("multihost", "MULTIHOST", &["off"], FIXED),
    of_pool("compatibility", "COMPATIBILITY", &["off"], FEATURES),
    of_pool("dedup_table_quota", "DDTQUOTA", &["auto"], DEDUP),
    read_only(of_pool("dedup_table_size", "DDTSIZE", &["0"], DEDUP)),
    read_only(of_pool("dedupused", "DEDUP_USED", &["0"], DEDUP)),
    read_only(of_pool("dedupsaved", "DEDUP_SAVED", &["0"], DEDUP)),
    read_only(of_pool("maxblocksize", "MAXBLOCKSIZE", &["16777216", "16M"], FIXED)),
];

impl Definition {
    /// The source of the constant, as shown by OpenZFS: default, or none for values that OpenZFS does not treat as
    /// settings.
    pub fn source_of_constant(&self) -> Source {
        match self.nature {
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
    (name == "cachefile" && value == "none")
        .then_some("a pool stays in the registry until its export, and is imported again at boot")
}

#[cfg(test)]
mod tests {
    use super::super::{Precision, Property, PropertyError};

    fn set(name: &str, value: &str, creating: bool) -> Result<String, PropertyError> {
        Property::of_dataset(name).and_then(|property| property.parse_value(value, creating))
    }

    #[test]
    fn a_constant_can_be_set_to_itself_and_to_nothing_else() {
        assert_eq!(set("encryption", "off", false).as_deref(), Ok("off"));
        assert_eq!(set("filesystem_limit", "none", false).as_deref(), Ok("18446744073709551615"));
        assert_eq!(set("normalization", "none", true).as_deref(), Ok("none"));
        assert!(matches!(set("normalization", "none", false), Err(PropertyError::SetOnce { .. })));
        for (name, value) in [("encryption", "on"), ("normalization", "formD"), ("volsize", "1G"), ("overlay", "on")] {
            assert!(matches!(set(name, value, false), Err(PropertyError::Absent { .. })), "{name}");
        }
        assert!(matches!(set("keystatus", "available", false), Err(PropertyError::ReadOnly { .. })));
        let cachefile = Property::of_pool("cachefile").unwrap();
        assert_eq!(cachefile.parse_value("none", true).as_deref(), Ok("-"));
        assert!(matches!(cachefile.parse_value("/etc/zfs/zpool.cache", true), Err(PropertyError::Absent { .. })));
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
