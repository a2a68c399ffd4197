//! `man`: the manual pages, generated from the definitions of `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use protocol::{Exit, Failure};

use crate::args::flow::SEE_ALSO;
use crate::args::usage::operands;
use crate::context::Context;
use crate::program::Program;

/// Arguments of `man`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs man ~/.local/share/man/man1      write fs.1, fs-create.1 and so on
  pool man | man -l -                 show the page of the program")]
pub struct Arguments {
    /// Directory for the pages of all subcommands (default: print the page of the program)
    directory: Option<PathBuf>,
}

/// Prints or writes the manual pages of the program in `command`.
pub fn run(arguments: &Arguments, command: clap::Command, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let command = built(command);
    match &arguments.directory {
        Some(directory) => write_all(&command, directory)?,
        None => context.console.output.write_all(&page(&command)?)?,
    }
    Ok(Exit::Done)
}

/// The command with all names set. Without the subcommand `help`, which has nothing of its own to say.
fn built(command: clap::Command) -> clap::Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
    let described = match text(command.get_before_help()) {
        Some(description) => {
            let about = text(command.get_about()).unwrap_or_default();
            command.clone().long_about(format!("{about}.\n\n{description}"))
        }
        None => command.clone(),
    };
    let mut page = Vec::new();
    let source = concat!("Cenote ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(described).source(source).render(&mut page)?;
    Ok(revised(&String::from_utf8_lossy(&page), command).into_bytes())
}

const EXTRA: &str = ".SH EXTRA";
const RELATED: &str = ".SH SEE ALSO";

/// The page in OpenZFS's form. The synopsis names the values of options and marks repeated arguments; properties,
/// examples and related commands have headings; examples keep their line breaks.
fn revised(page: &str, command: &clap::Command) -> String {
    let several: Vec<(String, String)> =
        command.get_positionals().filter(|arg| is_repeated(arg)).map(repeated).collect();
    let heading = if command.get_name() == "allow" { ".SH PERMISSIONS\n" } else { ".SH PROPERTIES\n" };
    let (mut revised, mut before, mut is_example) = (String::new(), "", false);
    for line in page.lines() {
        if is_example && (line.starts_with(".SH") || line == SEE_ALSO) {
            revised += ".fi\n";
            is_example = false;
        }
        let line = if line == SEE_ALSO { RELATED } else { line };
        match (before, line) {
            (".SH SYNOPSIS", _) => revised += &synopsis(command),
            (RELATED, names) => revised += &pages(names),
            (_, EXTRA) => {}
            (_, "Examples:") => {
                revised += ".SH EXAMPLES\n.nf";
                is_example = true;
            }
            (before, line) => {
                revised += if before == EXTRA { heading } else { "" };
                let header = several.iter().find(|(once, _)| before == ".TP" && line == once);
                revised += header.map_or(line, |(_, repeated)| repeated);
            }
        }
        if line != EXTRA {
            revised.push('\n');
        }
        before = line;
    }
    revised + if is_example { ".fi\n" } else { "" }
}

/// Page names for commands: `pool add, fs set` becomes `pool-add(1), fs-set(1)`.
fn pages(names: &str) -> String {
    let page = |name: &str| format!("\\fB{}\\fR(1)", escaped(&name.trim().replace(' ', "-")));
    names.split(',').map(page).collect::<Vec<_>>().join(", ")
}

fn is_repeated(arg: &clap::Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.max_values() > 1) || matches!(arg.get_action(), ArgAction::Append)
}

/// The generator's name for an argument, and the name to print if the argument repeats.
fn repeated(arg: &clap::Arg) -> (String, String) {
    let (open, close) = if arg.is_required_set() { ('<', '>') } else { ('[', ']') };
    let once = format!("{open}\\fI{}\\fR{close}", value_of(arg));
    (once.clone(), format!("{once}..."))
}

fn value_of(arg: &clap::Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    escaped(&names.join(" "))
}

fn synopsis(command: &clap::Command) -> String {
    let bold = |text: &str| format!("\\fB{}\\fR", escaped(text));
    let mut words = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let is_shown = |arg: &&clap::Arg| !arg.is_hide_set() && !arg.is_positional();
    for arg in command.get_arguments().filter(is_shown) {
        let (short, long) = (arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|long| format!("--{long}")));
        let spelled: Vec<String> = short.iter().chain(long.iter()).map(|text| bold(text)).collect();
        let takes_value = arg.get_action().takes_values();
        let value = if takes_value { format!(" \\fI{}\\fR", value_of(arg)) } else { String::new() };
        let dots = if takes_value && is_repeated(arg) { "..." } else { "" };
        let spelled = format!("{}{value}", spelled.join("|"));
        words.push(if arg.is_required_set() { spelled + dots } else { format!("[{spelled}]{dots}") });
    }
    let of_parser = |arg: &clap::Arg| {
        let (once, repeated) = repeated(arg);
        if is_repeated(arg) { repeated } else { once }
    };
    match operands(program_of(command), command.get_name()) {
        Some(operands) => words.push(escaped(operands)),
        None => words.extend(command.get_positionals().map(of_parser)),
    }
    if command.has_subcommands() {
        words.push("<\\fIcommand\\fR>".to_owned());
    }
    words.join(" ")
}

fn program_of(command: &clap::Command) -> Program {
    let program = command.get_bin_name().and_then(|name| name.split(' ').next());
    if program.is_some_and(|name| name.ends_with("pool")) { Program::Pool } else { Program::Fs }
}

/// Escapes text so that roff reads no instructions in it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-")
}

fn write_all(program: &clap::Command, directory: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure::cannot("write to", directory.display(), error);
    fs::create_dir_all(directory).map_err(cannot)?;
    for (name, command) in pages_of(program) {
        fs::write(directory.join(format!("{name}.1")), page(command)?).map_err(cannot)?;
    }
    Ok(())
}

/// The commands with a page, by name of the page: the program, its subcommands, and theirs, such as `fs-stream-ls`.
fn pages_of(command: &clap::Command) -> Vec<(String, &clap::Command)> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    std::iter::once((name, command)).chain(inner.flat_map(pages_of)).collect()
}

/// The counter of the rules about the sources.
#[cfg(test)]
#[path = "../../../tests/tidy/words.rs"]
mod words;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::command;

    fn page_of(subcommand: &str) -> String {
        let program = built(command(Program::Pool, "pool"));
        let page = page(program.find_subcommand(subcommand).unwrap()).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn a_synopsis_names_values_and_what_may_come_several_times() {
        let page = page_of("remove");
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).unwrap().lines().next().unwrap();
        insta::assert_snapshot!(synopsis.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace('\\', ""), @"pool remove [-n] [-p] [--limit RATE] [-s] [-w] [-h|--help] <POOL> [VDEV]...");
        assert!(page.contains(".TP\n[\\fIVDEV\\fR]...\n"), "{page}");
        assert!(page_of("list").contains("[POOL]... [INTERVAL [COUNT]]\n"), "the usage line counts");
    }

    #[test]
    fn sections_are_those_of_openzfs_and_examples_are_not_filled() {
        let page = page_of("remove");
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert_eq!(headings, ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"]);
        let examples = page.split(".SH EXAMPLES\n.nf\n").nth(1).unwrap();
        assert!(examples.starts_with("  pool remove tank") && examples.contains("\n.fi\n.SH"), "{page}");
        assert!(page.trim_end().ends_with("\\fBpool\\-wait\\fR(1)"), "{page}");
        let page = page_of("sync");
        assert_eq!(page.matches(".nf\n").count(), page.matches(".fi\n").count(), "{page}");
        assert!(page_of("get").contains(".SH PROPERTIES\nRead"), "{page}");
    }

    #[test]
    fn every_page_that_a_page_lists_is_written() {
        for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
            let command = built(command(program, name));
            let pages = pages_of(&command);
            let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
            assert!(!names.iter().any(|name| name.ends_with("-help")), "{names:?}");
            assert!(program == Program::Pool || names.contains(&"fs-stream-ls"), "{names:?}");
            let own = format!("{name}-");
            for (name, command) in &pages {
                let page = String::from_utf8(page(command).unwrap()).unwrap().replace('\\', "");
                let listed =
                    page.lines().filter_map(|line| line.strip_suffix("(1)").filter(|name| !name.contains(' ')));
                for listed in listed.map(|listed| listed.replace("fB", "").replace("fR", "")) {
                    assert!(
                        !listed.starts_with(&own) || names.contains(&listed.as_str()),
                        "{name}.1 lists {listed}(1)"
                    );
                }
            }
        }
    }

    #[test]
    fn help_names_what_it_means() {
        const MOST_IN_THOUSAND: u64 = 40;
        let mut count = words::Count::default();
        for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
            let command = built(command(program, name));
            pages_of(&command).into_iter().for_each(|(_, command)| {
                count.add(&command.clone().render_long_help().to_string());
            });
        }
        assert!(count.words > 10_000, "{count:?}");
        assert!(count.in_thousand() <= MOST_IN_THOUSAND, "{count:?}");
    }

    #[test]
    fn each_line_of_a_list_stays_a_line() {
        let page = page_of("check");
        assert!(page.contains("\n  C001  unreadable node\n  C002  damaged block\n"), "{page}");
    }
}
