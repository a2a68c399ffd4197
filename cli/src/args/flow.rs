//! What stands below the options in a help text, made such that it can be wrapped once more.
//!
//! Paragraphs are written in lines as long as those of the code, and the command line's parser wraps each line of them for the
//! terminal. So the lines of a paragraph are made one here. A line that begins with a blank is of a list, such as the examples,
//! and stays a line; what explains it stands in a column, and goes on there if it is longer than a terminal is wide.

/// As wide as a terminal that nobody has made wider.
const WIDTH: usize = 80;
/// In fewer columns nothing is explained.
const NARROWEST: usize = 20;

/// A command whose texts, and those of its subcommands, can be wrapped.
pub fn flowing_command(mut command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, flowing_command);
    }
    if let Some(text) = command.get_after_help().map(|text| flowing(&text.to_string())) {
        command = command.after_help(text);
    }
    match command.get_after_long_help().map(|text| flowing(&text.to_string())) {
        Some(text) => command.after_long_help(text),
        None => command,
    }
}

/// The text with each paragraph in one line.
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

/// A line of a list, whose second column goes on below itself.
fn in_columns(line: &str) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let gap = line[indent..].find("  ").map(|at| indent + at);
    let column = gap.map(|gap| line.len() - line[gap..].trim_start().len());
    let Some(column) = column.filter(|column| line.len() > WIDTH && column + NARROWEST <= WIDTH) else {
        return vec![line.to_owned()];
    };
    let mut lines = vec![line[..column].to_owned()];
    for word in line[column..].split_whitespace() {
        let last = lines.last_mut().expect("it begins with one");
        match (last.len() == column, last.len() + 1 + word.len() <= WIDTH) {
            (true, _) => last.push_str(word),
            (false, true) => *last = format!("{last} {word}"),
            (false, false) => lines.push(format!("{:column$}{word}", "")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Program, command};

    #[test]
    fn paragraphs_are_lines_and_lists_stay_lists() {
        let text = "A word about it,\nand one more.\n\nExamples:\n  pool remove tank /dev/sdd\n  \
                    pool remove --limit 20M tank /dev/sdd      copy at most so many bytes a second; also one under way";
        assert_eq!(
            flowing(text),
            "A word about it, and one more.\n\nExamples:\n  pool remove tank /dev/sdd\n  \
             pool remove --limit 20M tank /dev/sdd      copy at most so many bytes a\n\
             \x20                                            second; also one under way"
        );
    }

    #[test]
    fn no_remark_is_wrapped_by_the_parser_and_no_paragraph_has_two_lines() {
        for program in [Program::Pool, Program::Fs] {
            for known in command(program, "x").get_subcommands() {
                let help = known.get_after_help().map(ToString::to_string).unwrap_or_default();
                let lines: Vec<&str> = help.lines().collect();
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                assert!(!lines.windows(2).any(|pair| pair.iter().all(|line| is_text(line))), "{help}");
                let wide = lines.iter().find(|line| line.starts_with(' ') && in_columns(line).len() > 1);
                assert_eq!(wide, None, "{}", known.get_name());
            }
        }
    }
}
