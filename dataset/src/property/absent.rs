//! Properties that ZFS users know and this version does not have, with the reason each is refused.

const ENCRYPTION: &str = "this version of Cenote does not encrypt; put the pool's image on an encrypted device";
const FIXED_NAMES: &str = "file names are stored and compared as the bytes they are";
const VOLUMES: &str = "this version of Cenote has file systems, and no block volumes";
const SHARING: &str = "share the mounted directory with the tools of your NFS or SMB server";
const ONE_LOG: &str = "what must be durable goes to the intent log, which lies on a log vdev if there is one";
const CACHING: &str = "what is kept of what is read is up to primarycache and secondarycache; of a file, to its attribute direct: fs setattr";
const METADATA: &str = "the catalogue has three copies, other metadata two, or one in a pool of one vdev";
const ACL: &str =
    "it is about NFSv4 ACLs; those of POSIX (acltype=posix) are inherited and follow the mode by POSIX's rules";
const LIMITS: &str = "counts of datasets are not limited in this version; 'quota' limits their space";
const VERSIONS: &str = "a pool names the features it needs one by one, as feature@...";
const ALWAYS: &str = "it is not adjustable in this version";

const ABSENT: &[(&[&str], &str)] = &[
    (&["encryption", "keyformat", "keylocation", "pbkdf2iters", "keystatus", "encryptionroot"], ENCRYPTION),
    (&["dedup", "dedup_table_quota"], "this version of Cenote does not deduplicate; clones and snapshots share blocks"),
    (&["normalization", "utf8only", "casesensitivity"], FIXED_NAMES),
    (&["volsize", "volblocksize", "volmode", "volthreading", "snapdev"], VOLUMES),
    (&["sharenfs", "sharesmb"], SHARING),
    (&["logbias"], ONE_LOG),
    (&["prefetch", "direct"], CACHING),
    (&["redundant_metadata"], METADATA),
    (&["aclinherit", "aclmode"], ACL),
    (&["filesystem_limit", "snapshot_limit", "filesystem_count", "snapshot_count"], LIMITS),
    (&["dnodesize", "nbmand", "vscan", "zoned", "mlslabel", "longname", "defaultuserquota"], ALWAYS),
    (&["overlay"], "a directory that holds something is hidden only on request: fs mount -O"),
    (&["context", "fscontext", "defcontext", "rootcontext"], "SELinux contexts are not set by mounts of this version"),
    (&["multihost", "delegation", "bootfs", "listsnapshots"], ALWAYS),
    (&["cachefile"], "known pools are kept in Cenote's registry; see 'pool import'"),
    (&["compatibility", "load_guid"], VERSIONS),
];

/// Why a property that ZFS has is not here; `None` if ZFS has none of this name either, or it is here.
pub fn reason_for_absence(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}
