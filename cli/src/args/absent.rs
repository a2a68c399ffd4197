//! Subcommands and options that OpenZFS has and this version lacks, each with the reason for the refusal.
//!
//! The parser itself refuses all remaining unknown names.

use crate::program::Program;

const NO_VOLUMES: &str = "volumes (zvols) do not exist in this version";
const NO_ENCRYPTION: &str = "native encryption does not exist in this version; use encrypted devices (LUKS)";
const NO_RESUMING: &str = "resumable receive does not exist in this version; send the stream again";
const NO_SHARING: &str = "share the mount point with the NFS or SMB server's own tools";
const NO_DELEGATION: &str = "only the owner of the pool's service, and root, administer a pool";
const NO_ZONES: &str = "delegation to containers does not exist; bind-mount the file system";

const NO_ALTROOT: &str = "only 'pool split -R' sets an alternate root in this version";
const NO_TEMPORARY_NAMES: &str = "temporary pool names do not exist in this version";
const FULL_PATHS: &str = "device paths are always printed in full; JSON output (-j) includes GUIDs";
const NO_CLOCK: &str = "this command has no time stamps in this version; 'pool wait -T' prints the time";
const NO_DEVICE_SCRIPTS: &str = "scripts for each device do not exist in this version";
const NO_POWER: &str = "control of enclosure slot power does not exist in this version";
const ONE_ASHIFT: &str = "ashift is set for the whole pool by: pool create -o ashift=N";
const NO_REBUILD: &str =
    "sequential reconstruction does not exist in this version; the resilver copies used blocks only";
const NAME_POOLS: &str = "name the pools";
const KEYED_BY_NAME: &str = "JSON output is keyed by pool name in this version, and includes each GUID as pool_guid";

const POOL: &[(&[&str], &str)] = &[
    (
        &["checkpoint"],
        "pool checkpoints do not exist in this version; recursive snapshots (fs snapshot -r POOL@NAME) keep files, \
         but neither vdevs, features nor destroyed datasets",
    ),
    (&["initialize"], "free space is not initialized; to discard free space: pool trim"),
    (&["upgrade"], "the on-disk format has a single version; for features: pool set feature@NAME=enabled POOL"),
    (&["prefetch"], "metadata is read when needed and cached; nothing is loaded in advance"),
    (&["ddtprune"], "deduplication does not exist in this version; clones, snapshots and file copies share blocks"),
    (&["condense"], "space maps are condensed automatically"),
];

const FS: &[(&[&str], &str)] = &[
    (&["allow", "unallow"], NO_DELEGATION),
    (&["load-key", "unload-key", "change-key"], NO_ENCRYPTION),
    (&["share", "unshare"], NO_SHARING),
    (&["jail", "unjail", "zone", "unzone"], NO_ZONES),
    (&["upgrade"], "the on-disk format has a single version, so no file system needs an upgrade"),
    (&["redact"], "redacted streams do not exist in this version"),
    (&["program"], "channel programs do not exist; use scripts, with JSON output (-j)"),
    (&["wait"], "to wait for background activity: pool wait"),
    (&["rewrite"], "to spread blocks over new vdevs: pool rebalance; to apply new properties, copy the files"),
];

/// Subcommand, options, reason for the refusal.
type Options = &'static [(&'static str, &'static [&'static str], &'static str)];

const POOL_OPTIONS: Options = &[
    ("create", &["-R"], NO_ALTROOT),
    (
        "create",
        &["-d"],
        "a feature is enabled at its first use; to enable further features: pool set feature@NAME=enabled",
    ),
    ("create", &["-t"], NO_TEMPORARY_NAMES),
    ("add", &["-g", "-L", "-P"], FULL_PATHS),
    ("add", &["-o"], ONE_ASHIFT),
    (
        "add",
        &["--allow-in-use", "--allow-replication-mismatch", "--allow-ashift-mismatch"],
        "use -f, which allows devices with data and vdevs of different redundancy",
    ),
    ("attach", &["-o"], ONE_ASHIFT),
    ("attach", &["-s"], NO_REBUILD),
    ("replace", &["-o"], ONE_ASHIFT),
    ("replace", &["-s"], NO_REBUILD),
    ("split", &["-g", "-L", "-P"], FULL_PATHS),
    ("split", &["-l"], NO_ENCRYPTION),
    ("import", &["-R"], NO_ALTROOT),
    ("import", &["-c"], "Cenote keeps known pools in its registry; search for others with -d"),
    ("import", &["-s"], "name the directories to search with -d"),
    ("import", &["-l"], NO_ENCRYPTION),
    ("import", &["-t"], NO_TEMPORARY_NAMES),
    ("import", &["-X"], "to rewind further: -F -T TXG"),
    ("import", &["--rewind-to-checkpoint"], "pool checkpoints do not exist in this version; to rewind: -F"),
    ("get", &["--json-pool-key-guid"], KEYED_BY_NAME),
    ("list", &["--json-pool-key-guid"], KEYED_BY_NAME),
    ("status", &["--json-pool-key-guid"], KEYED_BY_NAME),
    ("status", &["--json-flat-vdevs"], "JSON output nests devices in their vdevs in this version"),
    ("status", &["-d"], "Direct I/O has no error counter of its own; checksum errors are counted under CKSUM"),
    ("export", &["-F"], "to unmount busy file systems: -f; to give up a suspended pool: --abandon"),
    ("clear", &["-F", "-n", "-X"], "to rewind, export the pool, then: pool import -F"),
    ("clear", &["--power"], NO_POWER),
    ("offline", &["--power"], NO_POWER),
    ("offline", &["-f"], "a device cannot be marked faulted in this version; use offline without -f"),
    ("online", &["--power"], NO_POWER),
    (
        "scrub",
        &["-C", "-S", "-E"],
        "a scrub verifies all txgs; file systems, snapshots and files can be scrubbed by name",
    ),
    ("scrub", &["-a"], NAME_POOLS),
    ("trim", &["-a"], NAME_POOLS),
    ("trim", &["-d"], "secure discard does not exist in this version"),
    ("list", &["-g", "-L", "-P"], FULL_PATHS),
    ("list", &["-T"], NO_CLOCK),
    ("status", &["-g", "-L"], FULL_PATHS),
    ("status", &["-T"], NO_CLOCK),
    ("status", &["-c"], NO_DEVICE_SCRIPTS),
    ("status", &["-D"], "deduplication does not exist in this version"),
    ("status", &["-i"], "free space is not initialized in this version"),
    ("status", &["--power"], NO_POWER),
    ("status", &["-e"], "to show only pools with problems: -x"),
    ("status", &["-s"], "slow I/O operations are not counted in this version"),
    ("iostat", &["-g", "-L", "-P"], FULL_PATHS),
    ("iostat", &["-T"], NO_CLOCK),
    ("iostat", &["-c"], NO_DEVICE_SCRIPTS),
    ("iostat", &["-n"], "the header is repeated once per screen; to print rows only: -H"),
    ("sync", &["-f"], "a sync always commits all pending writes"),
    ("iostat", &["-l", "-q", "-r", "-w"], "latency, queue and request size statistics do not exist in this version"),
];

const FS_OPTIONS: Options = &[
    ("create", &["-V", "-s", "-b"], NO_VOLUMES),
    ("send", &["-t", "--resume", "-S", "--saved"], NO_RESUMING),
    (
        "send",
        &["-b", "--backup"],
        "received properties cannot be sent apart from local values in this version; to send properties: -p",
    ),
    ("send", &["-h", "--holds"], "streams carry no holds in this version; to hold a received snapshot: fs hold"),
    ("send", &["-V", "--proctitle"], "the process title shows no progress in this version; to estimate the size: -nv"),
    ("receive", &["-s", "-A"], NO_RESUMING),
    (
        "receive",
        &["-c"],
        "corrective receive does not exist in this version; 'pool scrub' repairs from copies and parity",
    ),
    ("send", &["-d", "--redact"], "redacted streams do not exist in this version"),
    ("send", &["-D", "--dedup"], "deduplicated streams do not exist in this version"),
    ("send", &["-X", "--exclude"], "datasets cannot be excluded from a replication; name the datasets to send"),
    ("mount", &["-l"], NO_ENCRYPTION),
    ("mount", &["-R"], "to mount the descendants too: fs mount -a"),
    ("mount", &["-v"], "mounting prints no progress in this version"),
    ("mount", &["-f"], "to mount over a directory with files: -O"),
    ("unmount", &["-u"], NO_ENCRYPTION),
    ("receive", &["-M"], "use -u, or unmount busy file systems first: fs unmount -f"),
];

/// Why Cenote lacks a subcommand of OpenZFS; `None` if OpenZFS has no subcommand `name` either.
pub fn subcommand(program: Program, name: &str) -> Option<&'static str> {
    let table = if program == Program::Pool { POOL } else { FS };
    table.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

/// Why Cenote lacks an option of OpenZFS's `subcommand`; `None` if OpenZFS lacks the option too.
pub fn option(program: Program, subcommand: &str, option: &str) -> Option<&'static str> {
    let subcommand = match subcommand {
        "recv" => "receive",
        "snap" => "snapshot",
        "umount" => "unmount",
        name => name,
    };
    let table = if program == Program::Pool { POOL_OPTIONS } else { FS_OPTIONS };
    let known = table.iter().find(|(of, options, _)| *of == subcommand && options.contains(&option));
    known.map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::command;

    #[test]
    fn what_is_here_is_not_said_to_be_absent() {
        for (program, table) in [(Program::Pool, POOL), (Program::Fs, FS)] {
            let known = command(program, "x");
            let has = |name: &str| known.get_subcommands().any(|s| s.get_name() == name);
            assert!(table.iter().flat_map(|(names, _)| *names).all(|name| !has(name)));
        }
        for (program, table) in [(Program::Pool, POOL_OPTIONS), (Program::Fs, FS_OPTIONS)] {
            let known = command(program, "x");
            for (of, option) in table.iter().flat_map(|(of, options, _)| options.iter().map(move |option| (of, option)))
            {
                let found = known.find_subcommand(of).unwrap();
                let is_it = |arg: &clap::Arg| {
                    let short = arg.get_short().map(|short| format!("-{short}"));
                    short.as_deref() == Some(option)
                        || arg.get_long().is_some_and(|long| format!("--{long}") == *option)
                };
                assert!(!found.get_arguments().any(is_it), "{of} {option}");
            }
        }
    }
}
