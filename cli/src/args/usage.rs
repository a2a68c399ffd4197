//! Usage lines that the parser cannot generate, because words of several kinds follow each other.

use clap::Command;

use crate::program::Program;

const POOL: &[(&str, &str)] = &[
    ("iostat", "[OPTIONS] [POOL]... [INTERVAL [COUNT]]"),
    ("list", "[OPTIONS] [POOL]... [INTERVAL [COUNT]]"),
    ("stat", "[OPTIONS] [INTERVAL [COUNT]] [POOL]..."),
    ("status", "[OPTIONS] [POOL]... [INTERVAL [COUNT]]"),
];

const FS: &[(&str, &str)] = &[
    ("cp", "[OPTIONS] <FROM>... <TO>"),
    ("getattr", "[OPTIONS] [ATTRIBUTE,...|all] <FILE>..."),
    ("set", "[OPTIONS] <PROPERTY=VALUE>... <DATASET>..."),
    ("stat", "[OPTIONS] [INTERVAL [COUNT]] [DATASET]..."),
    ("setattr", "[OPTIONS] <ATTRIBUTE=VALUE>... <FILE>..."),
];

/// The arguments of a subcommand behind its options; `None` if the parser generates the line.
pub fn operands(program: Program, subcommand: &str) -> Option<&'static str> {
    let (_, usage) = table(program).iter().find(|(name, _)| *name == subcommand)?;
    usage.strip_prefix("[OPTIONS] ")
}

fn table(program: Program) -> &'static [(&'static str, &'static str)] {
    match program {
        Program::Pool => POOL,
        Program::Fs => FS,
        Program::Zstream | Program::Mount => &[],
    }
}

/// The command line of a program named `name`, with the usage lines.
pub fn with_usage(command: Command, program: Program, name: &str) -> Command {
    table(program).iter().fold(command, |command, (subcommand, usage)| {
        command.mut_subcommand(subcommand, |known| known.override_usage(format!("{name} {subcommand} {usage}")))
    })
}
