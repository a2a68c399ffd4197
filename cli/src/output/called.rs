//! Names of commands in help and messages: `zpool` and `zfs` instead of `pool` and `fs`, if the user typed `zpool` or
//! `zfs`.

use std::sync::OnceLock;

use clap::CommandFactory;

use crate::args::{fs::FsCli, pool::PoolCli};

/// The subcommands of `pool` and `fs`, and their aliases.
fn subcommands(program: &str) -> &'static [String] {
    static KNOWN: OnceLock<[Vec<String>; 2]> = OnceLock::new();
    let names = |command: clap::Command| {
        let names = |known: &clap::Command| {
            let own = std::iter::once(known.get_name().to_owned());
            own.chain(known.get_all_aliases().map(str::to_owned)).collect::<Vec<_>>()
        };
        command.get_subcommands().flat_map(names).collect::<Vec<_>>()
    };
    let [pool, fs] = KNOWN.get_or_init(|| [names(PoolCli::command()), names(FsCli::command())]);
    if program == "pool" { pool } else { fs }
}

/// Renames each `pool SUBCOMMAND` and `fs SUBCOMMAND` in `text` for a user of `program`.
pub fn called(text: &str, program: &str) -> String {
    if !matches!(program, "zpool" | "zfs") {
        return text.to_owned();
    }
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, name)) = next(rest) {
        let (before, found) = rest.split_at(at);
        named.push_str(before);
        let word = found[name.len() + 1..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let is_apart = !before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || "/@#._-".contains(c));
        if is_apart && subcommands(name).iter().any(|known| known == word) {
            named.push_str(if name == "pool" { "zpool" } else { "zfs" });
        } else {
            named.push_str(name);
        }
        rest = &found[name.len()..];
    }
    named + rest
}

/// Position of the next `pool` or `fs` with a blank after the name.
fn next(text: &str) -> Option<(usize, &'static str)> {
    ["pool", "fs"].into_iter().filter_map(|name| Some((text.find(&format!("{name} "))?, name))).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_named_as_they_were_called() {
        let text =
            "cannot open 'pool list': known pools: pool list; fs send | fs receive, 'pool status -v tank', pool tank";
        assert_eq!(called(text, "pool"), text);
        assert_eq!(
            called("known pools: pool list; 'fs send' | fs recv, the pool tank, fs -x, xpool list, /pool list", "zfs"),
            "known pools: zpool list; 'zfs send' | zfs recv, the pool tank, fs -x, xpool list, /pool list"
        );
        assert_eq!(called("pool import", "zpool"), "zpool import");
    }
}
