//! From the process's arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use jiff::tz::TimeZone;
use protocol::{Executor, Exit, Failure};

use crate::args::absent;
use crate::args::flow::flowing_command;
use crate::args::ignored::with_ignored;
use crate::args::usage::with_usage;
use crate::commands::{self, fs::FsCli, pool::PoolCli};
use crate::context::{Console, Context, Terminals};
use crate::output::time::Zone;
use crate::program::Program;

/// Runs a program on this process's streams, and returns its exit code. `executor` receives the command line for the
/// pools' histories.
pub fn main<E: Executor>(program: Program, executor: impl FnOnce(String) -> E) -> std::process::ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut executor = executor(history_line(program, &words));
    let mut input = io::stdin().lock();
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut error = io::stderr().lock();
    let console = Console {
        terminals: Terminals {
            input: io::stdin().is_terminal(),
            output: io::stdout().is_terminal(),
            error: io::stderr().is_terminal(),
        },
        input: &mut input,
        output: &mut output,
        error: &mut error,
    };
    let exit = run(program, &words, &mut executor, console, TimeZone::system);
    match program {
        Program::Mount => commands::mount_helper::code(exit).into(),
        Program::Pool | Program::Fs | Program::Zstream => exit.code().into(),
    }
}

/// Runs a program on the given streams.
pub fn run<'a>(
    program: Program,
    words: &[OsString],
    executor: &'a mut dyn Executor,
    console: Console<'a>,
    zone: Zone,
) -> Exit {
    let name = name_of(program, words);
    let mut context = Context { executor, console, program: name, zone };
    let result = run_in(program, words, &mut context);
    let result = result.and_then(|exit| Ok(context.console.output.flush().map(|()| exit)?));
    match result {
        Ok(exit) => exit,
        Err(failure) => fail(&failure, &mut context),
    }
}

fn fail(failure: &Failure, context: &mut Context<'_>) -> Exit {
    if failure.exit != Exit::Done {
        // If even the flush fails, the exit code reports the error.
        let _ = context.console.output.flush();
        let _ = context.report(failure);
    }
    failure.exit
}

fn run_in(program: Program, words: &[OsString], context: &mut Context<'_>) -> Result<Exit, Failure> {
    let command = command(program, context.program);
    let words = &with_help(words, &command);
    let matches = match command.clone().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(mut error) => {
            if let Some(failure) = absent(program, words, &error) {
                return Err(failure);
            }
            show_whole_usage(&mut error, words, command);
            return answer_of_the_parser(error, context);
        }
    };
    match program {
        Program::Pool => {
            let cli = PoolCli::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
            cli.command.run(command, context)
        }
        Program::Fs => {
            let cli = FsCli::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
            cli.command.run(command, context)
        }
        Program::Zstream => commands::zstream::run(&matches, context),
        Program::Mount => {
            let arguments = commands::mount_helper::Arguments::from_arg_matches(&matches)
                .map_err(|error| Failure::usage(error.to_string()))?;
            commands::mount_helper::run(&arguments, context)
        }
    }
}

/// Rewrites requests for help into the parser's form. As in ZFS, `-?` requests help, and so does `-h` as the only
/// argument of a subcommand with another use for `-h`.
fn with_help(words: &[OsString], command: &clap::Command) -> Vec<OsString> {
    let has_other_use =
        |name: &OsString| command.find_subcommand(name).is_some_and(|subcommand| subcommand.is_disable_help_flag_set());
    if let [program, subcommand, option] = words
        && option == "-h"
        && has_other_use(subcommand)
    {
        return vec![program.clone(), subcommand.clone(), "--help".into()];
    }
    let options = words.iter().take_while(|word| *word != "--").count();
    let word = |(at, word): (usize, &OsString)| match at < options && word == "-?" {
        true => "--help".into(),
        false => word.clone(),
    };
    words.iter().enumerate().map(word).collect()
}

/// The refusal of a subcommand or option that ZFS has and Cenote lacks.
fn absent(program: Program, words: &[OsString], error: &clap::Error) -> Option<Failure> {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (what, reason) = match error.kind() {
        _ if program == Program::Mount => return None,
        ErrorKind::InvalidSubcommand => {
            let name = given(ContextKind::InvalidSubcommand)?;
            (name.to_owned(), absent::subcommand(program, name)?)
        }
        ErrorKind::UnknownArgument => {
            let (option, of) = (given(ContextKind::InvalidArg)?, words.get(1)?.to_str()?);
            (format!("{of} {option}"), absent::option(program, of, option)?)
        }
        _ => return None,
    };
    Some(Failure::usage(format!("'{what}' is not supported: {reason}")))
}

/// Replaces the usage line of an error: the parser would show only the arguments that the wrong command line has or
/// lacks.
fn show_whole_usage(error: &mut clap::Error, words: &[OsString], mut command: clap::Command) {
    if error.get(ContextKind::Usage).is_none() {
        return;
    }
    command.build();
    let mut meant = &mut command;
    for word in words.iter().skip(1) {
        if meant.find_subcommand(word).is_none() {
            break;
        }
        meant = meant.find_subcommand_mut(word).expect("it was found");
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(meant.render_usage()));
}

/// Requested help or version goes to standard output; any other answer is an error in the command line.
fn answer_of_the_parser(mut error: clap::Error, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if error.kind() == ErrorKind::UnknownArgument {
        // The parser would advise to pass the unknown option as a value, behind `--`.
        error.remove(ContextKind::Suggested);
    }
    let is_terminal =
        if error.use_stderr() { context.console.terminals.error } else { context.console.terminals.output };
    let text = error.render();
    let text = if is_terminal { text.ansi().to_string() } else { text.to_string() };
    match error.use_stderr() {
        true => context.note(&text).map(|()| Exit::Usage),
        false => context.print(&text).map(|()| Exit::Done),
    }
}

/// The definition of the whole command line, under the program's name at the start.
pub fn command(program: Program, name: &'static str) -> clap::Command {
    let command = match program {
        Program::Pool => PoolCli::command(),
        Program::Fs => FsCli::command(),
        Program::Zstream => commands::zstream::command(name),
        Program::Mount => commands::mount_helper::Arguments::command(),
    };
    let command = with_ignored(command.name(name).bin_name(name), program);
    with_usage(flowing_command(command, program, name), program, name)
}

/// The program's name at the start, if among its names.
fn name_of(program: Program, words: &[OsString]) -> &'static str {
    let file = words.first().and_then(|word| Path::new(word).file_name()).and_then(|name| name.to_str());
    match (program, file) {
        (Program::Pool, Some("zpool")) => "zpool",
        (Program::Pool, _) => "pool",
        (Program::Fs, Some("zfs")) => "zfs",
        (Program::Fs, _) => "fs",
        (Program::Zstream, Some("zstreamdump")) => "zstreamdump",
        (Program::Zstream, _) => "zstream",
        (Program::Mount, _) => "mount.cenote",
    }
}

/// The command line for a pool's history.
fn history_line(program: Program, words: &[OsString]) -> String {
    // A history entry is one line, so control characters in words are escaped.
    let shown = |word: &OsString| word.to_string_lossy().chars().map(visible).collect::<String>();
    let arguments = words.iter().skip(1).map(shown);
    std::iter::once(name_of(program, words).to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn visible(c: char) -> String {
    if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
}

#[cfg(test)]
mod tests;
