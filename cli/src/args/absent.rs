//! Subcommands and options that ZFS users know and this version does not have, with the reason each is refused.
//!
//! What nobody has ever heard of is the parser's affair.

use crate::run::Program;

const NO_VOLUMES: &str = "this version of Cenote has file systems, and no block volumes";
const NO_ENCRYPTION: &str = "this version of Cenote does not encrypt; put the pool's image on an encrypted device";
const NO_RESUMING: &str = "a stream that was cut off leaves nothing, and is sent again from its beginning";
const NO_SHARING: &str = "share the mounted directory with the tools of your NFS or SMB server";
const NO_DELEGATION: &str = "a pool is administered by the user whose service has it, and by root";
const NO_ZONES: &str = "file systems are not handed to containers; mount them and bind the directory";

const POOL: &[(&[&str], &str)] = &[
    (&["checkpoint"], "snapshots of all file systems together serve instead: fs snapshot -r POOL@NAME"),
    (&["initialize"], "free space is left as it is; it is given back by: pool trim"),
    (&["upgrade"], "there is one version of the format, and nothing to upgrade"),
    (&["prefetch", "ddtprune"], "this version of Cenote does not deduplicate; clones and snapshots share blocks"),
];

const FS: &[(&[&str], &str)] = &[
    (&["allow", "unallow"], NO_DELEGATION),
    (&["load-key", "unload-key", "change-key"], NO_ENCRYPTION),
    (&["share", "unshare"], NO_SHARING),
    (&["jail", "unjail", "zone", "unzone"], NO_ZONES),
    (&["upgrade"], "there is one version of the format, and nothing to upgrade"),
    (&["redact"], "streams are of whole snapshots"),
    (&["program"], "scripts run commands of 'fs' and 'pool', which print JSON with -j"),
    (&["wait"], "what is under way is shown by: pool status"),
];

const FS_OPTIONS: &[(&str, &[&str], &str)] = &[
    ("create", &["-V", "-s", "-b"], NO_VOLUMES),
    ("send", &["-t", "--saved", "-S"], NO_RESUMING),
    ("receive", &["-s", "-A"], NO_RESUMING),
    ("send", &["-d", "--redact", "-X"], "what is sent is chosen by name"),
    ("mount", &["-l"], NO_ENCRYPTION),
    ("receive", &["-M"], "use -u, or unmount what is in use: fs unmount -f"),
];

/// Why a subcommand that ZFS has is not here; `None` if ZFS has none of this name either.
pub fn subcommand(program: Program, name: &str) -> Option<&'static str> {
    let table = if program == Program::Pool { POOL } else { FS };
    table.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

/// Why an option that ZFS has for a subcommand is not here.
pub fn option(program: Program, subcommand: &str, option: &str) -> Option<&'static str> {
    let subcommand = if subcommand == "recv" { "receive" } else { subcommand };
    let is_it = |(of, options, _): &&(&str, &[&str], &str)| *of == subcommand && options.contains(&option);
    FS_OPTIONS.iter().filter(|_| program == Program::Fs).find(is_it).map(|(_, _, reason)| *reason)
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
        let known = command(Program::Fs, "fs");
        for (of, options, _) in FS_OPTIONS {
            let found = known.get_subcommands().find(|s| s.get_name() == *of).unwrap();
            for option in *options {
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
