//! Names of commands in help and messages: `zpool` and `zfs` instead of `pool` and `fs`, if the user typed a name of
//! ZFS.

use crate::args::related::is_subcommand;
use crate::program::Program;

/// Each program with its name, and with its name in ZFS.
const NAMES: [(Program, &str, &str); 2] = [(Program::Pool, "pool", "zpool"), (Program::Fs, "fs", "zfs")];

/// Renames each `pool SUBCOMMAND` and `fs SUBCOMMAND` in `text` for a user of `program`.
pub fn called(text: &str, program: &str) -> String {
    if !matches!(program, "zpool" | "zfs" | "zstream" | "zstreamdump") {
        return text.to_owned();
    }
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, (known, name, name_in_zfs))) = next(rest) {
        let (before, found) = rest.split_at(at);
        named.push_str(before);
        let word = found[name.len() + 1..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let is_apart = !before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || "/@#._-".contains(c));
        named.push_str(if is_apart && is_subcommand(known, word) { name_in_zfs } else { name });
        rest = &found[name.len()..];
    }
    named + rest
}

/// Position of the next `pool` or `fs` with a blank after the name.
fn next(text: &str) -> Option<(usize, (Program, &'static str, &'static str))> {
    let found = NAMES.into_iter().filter_map(|names| Some((text.find(&format!("{} ", names.1))?, names)));
    found.min_by_key(|(at, _)| *at)
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
        assert_eq!(called("fs stream dump, zstream dump", "zstream"), "zfs stream dump, zstream dump");
    }
}
