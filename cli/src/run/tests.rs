//! Whole programs on a machine that has no pools: what is printed, and the exit code.

use super::*;
use crate::execute::NoPools;

/// Standard output, standard error and exit status of one command line.
fn output_of(line: &str) -> String {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let program =
        if line.split(' ').next().is_some_and(|name| name.ends_with("pool")) { Program::Pool } else { Program::Fs };
    let (mut input, mut output, mut error) = (io::empty(), Vec::new(), Vec::new());
    let console =
        Console { input: &mut input, output: &mut output, error: &mut error, terminals: Terminals::default() };
    let exit = run(program, &words, &mut NoPools, console, TimeZone::UTC);
    format!("{}{}[exit {}]", String::from_utf8_lossy(&output), String::from_utf8_lossy(&error), exit.code())
}

#[test]
fn the_definitions_are_consistent() {
    for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
        command(program, name).debug_assert();
    }
}

#[test]
fn every_subcommand_has_examples_of_itself() {
    for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
        for subcommand in command(program, name).get_subcommands() {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("{name} {}", subcommand.get_name());
            assert!(help.contains("Examples:\n") && help.contains(&example), "{example}: {help}");
        }
    }
}

#[test]
fn examples_parse() {
    for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
        for subcommand in command(program, name).get_subcommands() {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.split("Examples:\n").nth(1).unwrap_or_default().lines();
            for example in examples.filter_map(|line| example_words(line, name)) {
                let parsed = command(program, name).try_get_matches_from(&example);
                assert!(parsed.is_ok(), "{example:?}: {}", parsed.unwrap_err());
            }
        }
    }
}

/// The words of an example for this program, up to where the shell or a remark begins.
fn example_words(line: &str, name: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    let end = ["  ", " |", " >", " <", ";", " &&"].iter().filter_map(|stop| line.find(stop)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let is_ours = line.split(' ').next() == Some(name);
    is_ours.then(|| quoted_words(line))
}

/// Splits at blanks outside of single quotes, and drops those.
fn quoted_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().expect("there is one").push(other),
        }
    }
    words
}

#[test]
fn without_pools_there_is_nothing_to_see() {
    insta::assert_snapshot!(output_of("fs list"), @"");
    insta::assert_snapshot!(output_of("fs list -H"), @"");
    insta::assert_snapshot!(output_of("pool list"), @"");
    insta::assert_snapshot!(output_of("pool status -x"), @"");
    insta::assert_snapshot!(output_of("zfs list -j"), @"");
}

#[test]
fn unknown_names_are_refused() {
    insta::assert_snapshot!(output_of("fs list tank/home"), @"");
    insta::assert_snapshot!(output_of("zfs list tank/home"), @"");
    insta::assert_snapshot!(output_of("pool destroy tank"), @"");
    insta::assert_snapshot!(output_of("zfs snapshot tank/home@a"), @"");
}

#[test]
fn wrong_names_and_values_change_nothing() {
    insta::assert_snapshot!(output_of("fs create tank/a!b"), @"");
    insta::assert_snapshot!(output_of("fs create -o compression=fast tank/a"), @"");
    insta::assert_snapshot!(output_of("fs set encryption=on tank"), @"");
    insta::assert_snapshot!(output_of("fs set recordsize=100K tank"), @"");
    insta::assert_snapshot!(output_of("pool create mirror /a.img"), @"");
    insta::assert_snapshot!(output_of("pool create tank raidz2 /a.img"), @"");
    insta::assert_snapshot!(output_of("pool create tank 10Q:/a.img"), @"");
    insta::assert_snapshot!(output_of("fs rename tank/a tank/a/b"), @"");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    insta::assert_snapshot!(output_of("fs list -o nosuch"), @"");
    insta::assert_snapshot!(output_of("fs get"), @"");
    insta::assert_snapshot!(output_of("fs set tank"), @"");
    insta::assert_snapshot!(output_of("pool iostat 0"), @"");
    insta::assert_snapshot!(output_of("fs frob"), @"");
}

#[test]
fn help_is_no_error_and_ends_with_examples() {
    insta::assert_snapshot!(output_of("fs rollback --help"), @"");
    assert!(output_of("zfs send --help").ends_with("[exit 0]"));
    assert!(output_of("pool").ends_with("[exit 2]"));
    insta::assert_snapshot!(output_of("zpool version"), @"");
}

#[test]
fn arguments_of_programs_written_for_zfs_are_understood() {
    let lines = [
        "zfs list -o name -t filesystem,volume -Hr",
        "zfs get -Hpd 1 -t snapshot guid,creation tank/home",
        "zfs get -H -p used tank",
        "zfs get -H name tank/home",
        "zfs send -nvP tank/home@a",
        "zfs send -w -R -I tank/home@a tank/home@b",
        "zfs receive -u -F tank/x",
        "zfs destroy -d tank/home@a,b",
        "zfs list -s creation -t snap -Ho name tank",
        "zpool get -o value -H feature@extensible_dataset tank",
        "zpool list -Hp -o name,free",
        "zpool status -P tank",
    ];
    for line in lines {
        let program = if line.starts_with("zpool") { Program::Pool } else { Program::Fs };
        let parsed = command(program, "x").try_get_matches_from(line.split(' '));
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

#[test]
fn manual_pages_and_completions_are_written() {
    let page = output_of("fs man");
    assert!(page.starts_with(".ie") && page.contains("fs\\-snapshot"), "{page}");
    assert!(output_of("pool completions bash").contains("_pool()"));
}
