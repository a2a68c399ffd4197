//! Subcommands and options that OpenZFS has and this version lacks, each with the reason for the refusal.
//!
//! The parser itself refuses all remaining unknown names.

use crate::program::Program;

const NO_VOLUMES: &str = "volumes (zvols) do not exist in this version";
const NO_ENCRYPTION: &str = "native encryption does not exist in this version; use encrypted devices (LUKS)";
const NO_SHARING: &str = "share the mount point with the NFS or SMB server's own tools";
const NO_ZONES: &str = "delegation to containers does not exist; bind-mount the file system";

const NO_TEMPORARY_NAMES: &str =
    "temporary pool names do not exist in this version; to rename: pool import POOL NEWNAME";
const FULL_PATHS: &str = "the layout shows the paths of devices; for GUIDs and resolved links: pool status -g, -L";
const NO_DEVICE_SCRIPTS: &str =
    "scripts for each device do not exist in this version; 'pool status -j' gives the devices to scripts";
const NO_POWER: &str = "control of enclosure slot power does not exist in this version";

const POOL: &[(&[&str], &str)] = &[
    (
        &["checkpoint"],
        "pool checkpoints do not exist in this version; recursive snapshots (fs snapshot -r POOL@NAME) keep files, \
         but neither vdevs, features nor destroyed datasets",
    ),
    (&["ddtprune"], "deduplication does not exist in this version; clones, snapshots and file copies share blocks"),
    (&["condense"], "space maps are condensed automatically"),
];

const FS: &[(&[&str], &str)] = &[
    (&["load-key", "unload-key", "change-key"], NO_ENCRYPTION),
    (&["share", "unshare"], NO_SHARING),
    (&["jail", "unjail", "zone", "unzone"], NO_ZONES),
    (&["redact"], "redacted streams do not exist in this version"),
    (&["program"], "channel programs do not exist; use scripts, with JSON output (-j)"),
    (&["rewrite"], "to spread blocks over new vdevs: pool rebalance; to apply new properties, copy the files"),
];

/// Subcommand, options, reason for the refusal.
type Options = &'static [(&'static str, &'static [&'static str], &'static str)];

const POOL_OPTIONS: Options = &[
    ("create", &["-t"], NO_TEMPORARY_NAMES),
    ("add", &["-g", "-L"], FULL_PATHS),
    (
        "add",
        &["--allow-in-use", "--allow-replication-mismatch", "--allow-ashift-mismatch"],
        "use -f, which allows devices with data and vdevs of different redundancy",
    ),
    ("split", &["-g", "-L"], FULL_PATHS),
    ("import", &["-t"], NO_TEMPORARY_NAMES),
    ("import", &["--rewind-to-checkpoint"], "pool checkpoints do not exist in this version; to rewind: -F"),
    ("upgrade", &["-V"], "pools have feature flags instead of versions; to enable all features: pool upgrade POOL"),
    ("status", &["-d"], "Direct I/O has no error counter of its own; checksum errors are counted under CKSUM"),
    ("export", &["-F"], "to unmount busy file systems: -f; to give up a suspended pool: --abandon"),
    ("clear", &["-F", "-n", "-X"], "to rewind, export the pool, then: pool import -F"),
    ("clear", &["--power"], NO_POWER),
    ("offline", &["--power"], NO_POWER),
    ("online", &["--power"], NO_POWER),
    ("trim", &["-d"], "secure discard does not exist in this version; to discard without a promise: pool trim"),
    ("status", &["-c"], NO_DEVICE_SCRIPTS),
    ("status", &["--power"], NO_POWER),
    ("iostat", &["-c"], NO_DEVICE_SCRIPTS),
    ("sync", &["-f"], "a sync always commits all pending writes"),
];

const FS_OPTIONS: Options = &[
    ("create", &["-V", "-s", "-b"], NO_VOLUMES),
    ("send", &["-d", "--redact"], "redacted streams do not exist in this version"),
    ("receive", &["-M"], "use -u, or unmount busy file systems first: fs unmount -f"),
];

const ZSTREAM: &[(&[&str], &str)] = &[
    (
        &["decompress"],
        "each block of a stream tells its compression; 'fs stream cat' and 'fs stream cp' decompress files",
    ),
    (
        &["recompress"],
        "a stream has its blocks as stored, with their checksums; copies of files get another compression",
    ),
    (&["redup"], "streams are never deduplicated, so every stream can be received as it is"),
];

/// Why Cenote lacks a subcommand of OpenZFS; `None` if OpenZFS has no subcommand `name` either.
pub fn subcommand(program: Program, name: &str) -> Option<&'static str> {
    let table = match program {
        Program::Pool => POOL,
        Program::Zstream => ZSTREAM,
        Program::Fs | Program::Mount => FS,
    };
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

    /// The options in the synopses of zpool-*(8) of OpenZFS 2.4: letters, then long names.
    const OF_ZPOOL: &[(&str, &str, &[&str])] = &[
        ("add", "fgLnPo", &["allow-in-use", "allow-replication-mismatch", "allow-ashift-mismatch"]),
        ("attach", "fswo", &[]),
        ("checkpoint", "dw", &[]),
        ("clear", "", &["power"]),
        ("create", "dfnmoORt", &[]),
        ("ddtprune", "dp", &[]),
        ("destroy", "f", &[]),
        ("detach", "", &[]),
        ("events", "vHfc", &[]),
        ("export", "fa", &[]),
        ("get", "Hpjo", &["json-int", "json-pool-key-guid"]),
        ("history", "il", &[]),
        ("import", "DdaflmNFnTXcoRts", &["rewind-to-checkpoint"]),
        ("initialize", "csuwa", &[]),
        ("iostat", "clqrwTghHLnpPvy", &[]),
        ("labelclear", "f", &[]),
        ("list", "HgLpPvjoT", &["json-int", "json-pool-key-guid"]),
        ("offline", "ft", &["power"]),
        ("online", "e", &["power"]),
        ("prefetch", "t", &[]),
        ("reguid", "g", &[]),
        ("remove", "npws", &[]),
        ("reopen", "n", &[]),
        ("replace", "fswo", &[]),
        ("resilver", "", &[]),
        ("scrub", "epsCwSEa", &[]),
        ("set", "", &[]),
        ("split", "gLlnPoR", &[]),
        ("status", "DdegiLPpstvxcjT", &["json", "json-flat-vdevs", "json-int", "json-pool-key-guid", "power"]),
        ("sync", "", &[]),
        ("trim", "dwrcsa", &[]),
        ("upgrade", "vVa", &[]),
        ("wait", "HpTt", &[]),
    ];

    /// The same of zfs-*(8).
    const OF_ZFS: &[(&str, &str, &[&str])] = &[
        ("allow", "dgluecs", &[]),
        ("bookmark", "", &[]),
        ("change-key", "loi", &[]),
        ("clone", "puo", &[]),
        ("create", "PnpuvosbV", &[]),
        ("destroy", "Rfnprvd", &[]),
        ("diff", "FHth", &[]),
        ("get", "rdHpjost", &["json-int"]),
        ("groupspace", "HinposSt", &[]),
        ("hold", "r", &[]),
        ("holds", "rHp", &[]),
        ("inherit", "rS", &[]),
        ("jail", "", &[]),
        ("list", "rdHpjosSt", &["json-int"]),
        ("load-key", "nrLa", &[]),
        ("mount", "jOflvoaR", &[]),
        ("program", "jntm", &[]),
        ("project", "drCkc0ps", &[]),
        ("projectspace", "HposS", &[]),
        ("promote", "", &[]),
        ("receive", "FhMnsuvoxdeAc", &[]),
        ("redact", "", &[]),
        ("release", "r", &[]),
        ("rename", "fpur", &[]),
        ("rewrite", "Prvxlo", &[]),
        ("rollback", "Rfr", &[]),
        ("send", "DLPVbcehnpsvwRXIitS", &["redact"]),
        ("set", "u", &[]),
        ("share", "la", &[]),
        ("snapshot", "ro", &[]),
        ("unallow", "dglruecs", &[]),
        ("unjail", "", &[]),
        ("unload-key", "ra", &[]),
        ("unmount", "fua", &[]),
        ("unshare", "a", &[]),
        ("unzone", "", &[]),
        ("upgrade", "vrVa", &[]),
        ("userspace", "HinposSt", &[]),
        ("wait", "t", &[]),
        ("zone", "", &[]),
    ];

    #[test]
    fn every_option_of_openzfs_is_accepted_or_refused_by_name() {
        for (program, synopses) in [(Program::Pool, OF_ZPOOL), (Program::Fs, OF_ZFS)] {
            let known = command(program, "x");
            for (name, letters, longs) in synopses {
                let Some(found) = known.find_subcommand(name) else {
                    assert!(subcommand(program, name).is_some(), "{name}");
                    continue;
                };
                for letter in letters.chars() {
                    let is_known = letter == 'h' || found.get_arguments().any(|arg| arg.get_short() == Some(letter));
                    let is_refused = option(program, name, &format!("-{letter}")).is_some();
                    assert!(is_known || is_refused, "{name} -{letter}");
                }
                for long in *longs {
                    let is_known = found.get_arguments().any(|arg| arg.get_long() == Some(long));
                    assert!(is_known || option(program, name, &format!("--{long}")).is_some(), "{name} --{long}");
                }
            }
        }
    }

    /// The page of the guide with the refused options and commands.
    const PAGE: &str = include_str!("../../../docs/src/openzfs.md");

    /// The rows of the page's table of refused options: names of subcommands, and the options.
    fn refused_rows(program: Program) -> Vec<(Vec<&'static str>, &'static str)> {
        let name = if program == Program::Pool { "`zpool " } else { "`zfs " };
        let table = PAGE.split("| command | refused |").nth(1).unwrap().split("\n\n").next().unwrap();
        let cells = table.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
        let of_program = cells.filter(|(names, _)| names.starts_with(name));
        let words =
            |names: &'static str| names.split(['`', ' ', ',']).filter(|word| !word.is_empty()).skip(1).collect();
        of_program.map(|(names, options)| (words(names), options)).collect()
    }

    #[test]
    fn the_guide_lists_what_is_refused() {
        let absent = PAGE.split("Absent subcommands:\n\n").nth(1).unwrap().split("\n\n").next().unwrap();
        for (program, table, options) in [(Program::Pool, POOL, POOL_OPTIONS), (Program::Fs, FS, FS_OPTIONS)] {
            for name in table.iter().flat_map(|(names, _)| *names) {
                assert!(absent.contains(&format!("`{name}`")) || absent.contains(&format!(" {name}`")), "{name}");
            }
            let rows = refused_rows(program);
            for (of, wanted) in options.iter().flat_map(|(of, options, _)| options.iter().map(move |it| (of, *it))) {
                let text = if wanted.starts_with("--allow-") { "--allow-" } else { wanted };
                let is_long_form = option(program, of, wanted).is_some() && wanted.starts_with("--") && *of == "send";
                let is_listed = rows.iter().any(|(names, options)| names.contains(of) && options.contains(text));
                assert!(is_listed || is_long_form, "{of} {wanted}");
            }
            for (names, options) in &rows {
                let words = options.split(['`', ' ', ',', ';']).filter(|word| word.starts_with('-') && *word != "-o");
                for word in words.filter(|word| !word.starts_with("--allow-")) {
                    assert!(names.iter().any(|of| option(program, of, word).is_some()), "{names:?} {word}");
                }
            }
        }
    }

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
