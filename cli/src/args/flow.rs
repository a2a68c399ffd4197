//! The order of a help text, and its form, which the parser can wrap.
//!
//! The order is the order of OpenZFS's manual pages: synopsis, description, options, examples, see also. A command's
//! `after_help` holds the description and the examples; this module moves the description before the options and the
//! examples after.
//!
//! The source wraps paragraphs at the width of code, and the parser wraps each line again for the terminal. So this
//! module joins the lines of a paragraph into one line. A line with a leading blank belongs to a list, such as the
//! examples, and stays a line. Its explanation is a second column, continued there if longer than the terminal's width.

use super::related::related;
use crate::output::called::called;
use crate::output::wrap::wrapped;
use crate::program::Program;

/// Width in columns where the terminal's width is unknown.
const WIDTH: usize = 80;
/// Least width in columns for a second column; below, the explanation is not aligned.
const NARROWEST: usize = 20;

const TEMPLATE: &str = "{usage-heading} {usage}\n\n{about-with-newline}\n{before-help}{all-args}{after-help}";

/// Heading of the examples, which end the description.
pub const EXAMPLES: &str = "Examples:\n";

/// Heading of the related commands.
pub const SEE_ALSO: &str = "See also:";

/// Splits a help text into description and examples.
pub fn parts(help: &str) -> (&str, &str) {
    help.find(EXAMPLES).map_or((help, ""), |at| help.split_at(at))
}

/// The command line of a program named `name`, with the help of every subcommand in order.
pub fn flowing_command(command: clap::Command, program: Program, name: &str) -> clap::Command {
    in_order(command, name, &[], &|subcommand| related(program, subcommand))
}

/// One command with its help in order: description, options, examples, related commands. `inner` gives the related commands of
/// each subcommand; the subcommands of a subcommand, such as `fs stream ls`, share those of the outer one.
fn in_order(
    mut command: clap::Command,
    name: &str,
    see_also: &[&str],
    inner: &dyn Fn(&str) -> &'static [&'static str],
) -> clap::Command {
    let subcommands: Vec<String> = command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
    for subcommand in subcommands {
        let related = inner(&subcommand);
        command = command.mut_subcommand(subcommand, |known| in_order(known, name, related, &|_| related));
    }
    // As in ZFS, an option may be repeated.
    command = command.help_template(TEMPLATE).args_override_self(true);
    let Some(help) = command.get_after_help().map(ToString::to_string) else { return command };
    let see_also =
        if see_also.is_empty() { String::new() } else { format!("\n\n{SEE_ALSO}\n  {}", see_also.join(", ")) };
    let (description, examples) = parts(&help);
    let finished = |text: &str| flowing(&called(&format!("{text}{see_also}"), name));
    let long = command.get_after_long_help().map(|text| finished(&text.to_string()));
    let short = finished(examples);
    let description = flowing(&called(description.trim_end(), name));
    if !description.is_empty() {
        command = command.before_help(description);
    }
    command = command.after_help(short);
    match long {
        Some(long) => command.after_long_help(long),
        None => command,
    }
}

/// Joins the lines of each paragraph into one line.
fn flowing(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut().filter(|last| is_text(last) && is_text(line)) {
            Some(last) => *last = format!("{last} {line}"),
            None if line.starts_with(' ') => lines.extend(in_columns(line)),
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Wraps the second column of a list's line below itself.
fn in_columns(line: &str) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let gap = line[indent..].find("  ").map(|at| indent + at);
    let column = gap.map(|gap| line.len() - line[gap..].trim_start().len());
    let Some(column) = column.filter(|column| line.len() > WIDTH && column + NARROWEST <= WIDTH) else {
        return vec![line.to_owned()];
    };
    let lines = wrapped(&line[column..], WIDTH - column).into_iter();
    let beginnings = std::iter::once(line[..column].to_owned()).chain(std::iter::repeat(" ".repeat(column)));
    lines.zip(beginnings).map(|(text, beginning)| beginning + &text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::command;

    #[test]
    fn paragraphs_are_lines_and_lists_stay_lists() {
        let text = "A word about it,\nand one more.\n\nExamples:\n  pool remove tank /dev/sdd\n  \
                    pool remove --limit 20M tank /dev/sdd      copy at most so many bytes a second; also one in progress";
        assert_eq!(
            flowing(text),
            "A word about it, and one more.\n\nExamples:\n  pool remove tank /dev/sdd\n  \
             pool remove --limit 20M tank /dev/sdd      copy at most so many bytes a\n\
             \x20                                            second; also one in progress"
        );
    }

    #[test]
    fn the_parser_wraps_no_remark_and_paragraphs_are_one_line() {
        for program in [Program::Pool, Program::Fs] {
            for known in command(program, "x").get_subcommands() {
                for help in [known.get_before_help(), known.get_after_help()] {
                    let help = help.map(ToString::to_string).unwrap_or_default();
                    let lines: Vec<&str> = help.lines().collect();
                    let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                    assert!(!lines.windows(2).any(|pair| pair.iter().all(|line| is_text(line))), "{help}");
                    let wide = lines.iter().find(|line| line.starts_with(' ') && in_columns(line).len() > 1);
                    assert_eq!(wide, None, "{}", known.get_name());
                }
            }
        }
    }

    #[test]
    fn lines_of_lists_in_descriptions_fit_a_terminal() {
        for program in [Program::Pool, Program::Fs] {
            for known in command(program, "x").get_subcommands() {
                let help = known.get_before_help().map(ToString::to_string).unwrap_or_default();
                let wide = help.lines().find(|line| line.starts_with(' ') && line.len() > WIDTH);
                assert_eq!(wide, None, "{}", known.get_name());
            }
        }
    }
}
