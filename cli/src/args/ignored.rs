//! Options of OpenZFS that are accepted and change nothing, so that scripts written for OpenZFS run. They are hidden
//! in help.

use clap::{Arg, ArgAction, Command};

use crate::program::Program;

/// Subcommand, name of the option, its letter, and the form.
type Options = &'static [(&'static str, &'static str, char, Form)];

/// The form of an option.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// A letter.
    Letter,
    /// A letter, or a long name.
    Long,
    /// A letter with a value.
    Valued,
}
use Form::{Letter, Long, Valued};

const POOL: Options = &[
    // A running scrub is never restarted.
    ("reopen", "no-restart", 'n', Letter),
    // The layout of a dry run has full paths.
    ("add", "full-paths", 'P', Letter),
    ("split", "full-paths", 'P', Letter),
    // The resilver copies and verifies used blocks, so no scrub has to follow.
    ("attach", "sequential", 's', Letter),
    ("replace", "sequential", 's', Letter),
    // No file system is encrypted, so no key has to be loaded.
    ("import", "load-keys", 'l', Letter),
    ("split", "load-keys", 'l', Letter),
    // The registry of known pools replaces the cache file.
    ("import", "cache-file", 'c', Valued),
    // A search always reads the devices.
    ("import", "scan", 's', Letter),
    // A rewind always tries every state that the labels hold.
    ("import", "extreme-rewind", 'X', Letter),
];

const FS: Options = &[
    // Blocks are always sent as stored.
    ("send", "large-block", 'L', Long),
    ("send", "embed", 'e', Long),
    ("send", "compressed", 'c', Long),
    ("send", "raw", 'w', Long),
    // As in OpenZFS, streams are no longer deduplicated.
    ("send", "dedup", 'D', Long),
    // No file system is encrypted or redacted, so keys and force change nothing; mounts are made without a pause.
    ("mount", "load-keys", 'l', Letter),
    ("mount", "force", 'f', Letter),
    ("mount", "verbose", 'v', Letter),
    ("unmount", "unload-keys", 'u', Letter),
    // No SIDs are stored.
    ("userspace", "translate", 'i', Letter),
    ("groupspace", "translate", 'i', Letter),
];

/// The command line with the ignored options.
pub fn with_ignored(command: Command, program: Program) -> Command {
    let table = match program {
        Program::Pool => POOL,
        Program::Fs => FS,
        Program::Zstream | Program::Mount => &[],
    };
    table.iter().fold(command, |command, (subcommand, name, letter, form)| {
        let action = if *form == Valued { ArgAction::Append } else { ArgAction::SetTrue };
        let option = Arg::new(*name).short(*letter).action(action).hide(true);
        let option = if *form == Long { option.long(*name) } else { option };
        command.mut_subcommand(subcommand, |known| known.arg(option))
    })
}
