//! Options of OpenZFS that are accepted and change nothing, so that scripts written for OpenZFS run. They are hidden
//! in help.

use clap::{Arg, ArgAction, Command};

use crate::program::Program;

/// Subcommand, name of the option, its letter, and whether the name is a long option.
type Options = &'static [(&'static str, &'static str, char, bool)];

const POOL: Options = &[
    // A running scrub is never restarted.
    ("reopen", "no-restart", 'n', false),
    // Paths are always printed in full.
    ("status", "full-paths", 'P', false),
];

const FS: Options = &[
    // Blocks are always sent as stored.
    ("send", "large-block", 'L', true),
    ("send", "embed", 'e', true),
    ("send", "compressed", 'c', true),
    ("send", "raw", 'w', true),
    // Streams carry no holds.
    ("receive", "skip-holds", 'h', false),
    // No SIDs are stored.
    ("userspace", "translate", 'i', false),
    ("groupspace", "translate", 'i', false),
];

/// The command line with the ignored options.
pub fn with_ignored(command: Command, program: Program) -> Command {
    let table = match program {
        Program::Pool => POOL,
        Program::Fs => FS,
        Program::Mount => &[],
    };
    table.iter().fold(command, |command, (subcommand, name, letter, is_long)| {
        let option = Arg::new(*name).short(*letter).action(ArgAction::SetTrue).hide(true);
        let option = if *is_long { option.long(*name) } else { option };
        command.mut_subcommand(subcommand, |known| known.arg(option))
    })
}
