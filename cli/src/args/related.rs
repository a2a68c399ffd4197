//! The subcommands by name, with the related commands in the section `See also` of their help.

use crate::program::Program;

const POOL: &[(&str, &[&str])] = &[
    ("add", &["pool create", "pool attach", "pool remove", "pool rebalance"]),
    ("attach", &["pool detach", "pool replace", "pool add", "pool status"]),
    ("check", &["pool scrub", "pool debug", "pool import"]),
    ("clear", &["pool status", "pool online", "pool reopen", "pool export"]),
    ("completions", &[]),
    ("create", &["pool plan", "pool add", "pool destroy", "pool set", "fs create"]),
    ("debug", &["pool check", "pool import"]),
    ("defragment", &["pool list", "pool rebalance", "pool status", "pool wait"]),
    ("destroy", &["pool export", "pool import", "pool labelclear"]),
    ("detach", &["pool attach", "pool replace", "pool remove", "pool split"]),
    ("events", &["pool history", "pool status"]),
    ("export", &["pool import", "pool destroy", "fs unmount"]),
    ("get", &["pool set", "pool list", "fs get"]),
    ("history", &["pool events"]),
    ("import", &["pool export", "pool check", "pool status", "fs mount"]),
    ("initialize", &["pool status", "pool trim", "pool wait"]),
    ("iostat", &["pool list", "pool status", "fs stat"]),
    ("labelclear", &["pool destroy", "pool detach", "pool remove"]),
    ("list", &["pool status", "pool get", "fs list"]),
    ("man", &[]),
    ("plan", &["pool create", "pool simulate", "pool add"]),
    ("prefetch", &[]),
    ("offline", &["pool online", "pool detach", "pool replace"]),
    ("online", &["pool offline", "pool resize", "pool reopen"]),
    ("rebalance", &["pool add", "pool defragment", "pool status", "pool wait"]),
    ("reguid", &["pool import", "pool split"]),
    ("remove", &["pool add", "pool detach", "pool resize", "pool wait"]),
    ("reopen", &["pool clear", "pool online", "pool status"]),
    ("replace", &["pool attach", "pool detach", "pool status", "pool wait"]),
    ("resilver", &["pool status", "pool scrub", "pool wait"]),
    ("resize", &["pool online", "pool remove", "pool wait"]),
    ("scrub", &["pool status", "pool check", "pool wait"]),
    ("service", &[]),
    ("set", &["pool get", "fs set"]),
    ("simulate", &["pool status", "pool offline"]),
    ("split", &["pool detach", "pool import", "pool reguid"]),
    ("stat", &["pool iostat", "pool set", "fs stat"]),
    ("status", &["pool list", "pool clear", "pool scrub", "pool events"]),
    ("sync", &["pool status"]),
    ("tour", &["pool create", "fs create"]),
    ("trim", &["pool status", "pool set", "pool wait", "pool initialize"]),
    ("upgrade", &["pool get", "pool set"]),
    ("version", &[]),
    ("wait", &["pool status", "fs wait"]),
    ("web", &["pool status", "pool iostat", "pool plan", "fs allow"]),
];

const FS: &[(&str, &[&str])] = &[
    ("allow", &["fs unallow", "fs set", "fs mount"]),
    ("bookmark", &["fs snapshot", "fs send", "fs destroy"]),
    ("cat", &["fs ls", "fs cp"]),
    ("clone", &["fs snapshot", "fs promote", "fs destroy"]),
    ("completions", &[]),
    ("cp", &["fs ls", "fs cat", "fs send"]),
    ("create", &["fs set", "fs mount", "fs destroy"]),
    ("destroy", &["fs snapshot", "fs hold", "fs promote"]),
    ("diff", &["fs snapshot", "fs ls"]),
    ("get", &["fs set", "fs inherit", "fs list"]),
    ("getattr", &["fs setattr"]),
    ("groupspace", &["fs userspace", "fs projectspace", "fs set"]),
    ("hold", &["fs holds", "fs release", "fs destroy"]),
    ("holds", &["fs hold", "fs release"]),
    ("inherit", &["fs set", "fs get"]),
    ("list", &["fs get", "pool list"]),
    ("ls", &["fs cat", "fs cp", "fs diff"]),
    ("man", &[]),
    ("mount", &["fs unmount", "fs set", "fs get"]),
    ("project", &["fs projectspace", "fs set"]),
    ("projectspace", &["fs project", "fs userspace", "fs set"]),
    ("promote", &["fs clone", "fs destroy"]),
    ("receive", &["fs send", "fs stream", "fs rollback", "fs snapshot"]),
    ("release", &["fs hold", "fs holds"]),
    ("rename", &["fs create", "fs snapshot", "pool import"]),
    ("rollback", &["fs snapshot", "fs clone", "fs diff"]),
    ("send", &["fs receive", "fs stream", "fs snapshot", "fs bookmark"]),
    ("set", &["fs get", "fs inherit"]),
    ("setattr", &["fs getattr", "fs set"]),
    ("snapshot", &["fs list", "fs rollback", "fs clone", "fs destroy"]),
    ("stat", &["fs top", "fs mount", "pool iostat"]),
    ("stream", &["fs send", "fs receive", "fs cp"]),
    ("top", &["fs stat", "fs mount"]),
    ("unallow", &["fs allow"]),
    ("unmount", &["fs mount"]),
    ("upgrade", &["pool upgrade", "fs get"]),
    ("userspace", &["fs groupspace", "fs projectspace", "fs set"]),
    ("version", &[]),
    ("wait", &["pool wait"]),
];

/// Second names of `fs receive`, `fs snapshot` and `fs unmount`.
const FS_ALIASES: [&str; 3] = ["recv", "snap", "umount"];

fn table(program: Program) -> &'static [(&'static str, &'static [&'static str])] {
    if program == Program::Pool { POOL } else { FS }
}

/// Related commands of a subcommand; none for an unknown subcommand.
pub fn related(program: Program, subcommand: &str) -> &'static [&'static str] {
    table(program).iter().find(|(name, _)| *name == subcommand).map_or(&[], |(_, related)| related)
}

/// Whether `word` is a subcommand of `program`, or the second name of a subcommand.
pub fn is_subcommand(program: Program, word: &str) -> bool {
    table(program).iter().any(|(name, _)| *name == word) || program == Program::Fs && FS_ALIASES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::command;

    #[test]
    fn subcommands_are_known_by_all_their_names() {
        for (program, table, aliases) in [(Program::Pool, POOL, &[][..]), (Program::Fs, FS, &FS_ALIASES[..])] {
            let name = if program == Program::Pool { "pool" } else { "fs" };
            let names = |known: &clap::Command| {
                let own = std::iter::once(known.get_name().to_owned());
                own.chain(known.get_all_aliases().map(str::to_owned)).collect::<Vec<_>>()
            };
            let mut defined: Vec<String> = command(program, name).get_subcommands().flat_map(names).collect();
            let mut known: Vec<&str> = table.iter().map(|(name, _)| *name).chain(aliases.iter().copied()).collect();
            defined.sort();
            known.sort_unstable();
            assert_eq!(known, defined);
            assert!(known.iter().all(|word| is_subcommand(program, word)) && !is_subcommand(program, "sail"));
        }
    }

    #[test]
    fn every_command_names_commands_that_exist() {
        let (pool, fs) = (command(Program::Pool, "pool"), command(Program::Fs, "fs"));
        for (program, table, known) in [(Program::Pool, POOL, &pool), (Program::Fs, FS, &fs)] {
            for subcommand in known.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
                let name = subcommand.get_name();
                let is_alone = matches!(name, "version" | "completions" | "man");
                assert_eq!(related(program, name).is_empty(), is_alone, "{name}");
            }
            for (name, related) in table {
                assert!(known.find_subcommand(name).is_some(), "{name}");
                for other in *related {
                    let found = match other.split_once(' ') {
                        Some(("pool", other)) => pool.find_subcommand(other),
                        Some(("fs", other)) => fs.find_subcommand(other),
                        _ => None,
                    };
                    assert!(found.is_some(), "{name}: {other}");
                }
            }
        }
    }
}
