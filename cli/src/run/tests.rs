//! Whole programs on a machine without pools: output and exit code.

use service::execute::NoPools;

use super::*;

/// Standard output, standard error and exit status of a command line.
fn output_of(line: &str) -> String {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let program =
        if line.split(' ').next().is_some_and(|name| name.ends_with("pool")) { Program::Pool } else { Program::Fs };
    let (mut input, mut output, mut error) = (io::empty(), Vec::new(), Vec::new());
    let console =
        Console { input: &mut input, output: &mut output, error: &mut error, terminals: Terminals::default() };
    let exit = run(program, &words, &mut NoPools, console, || TimeZone::UTC);
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
fn what_cannot_be_undone_is_said() {
    let known = command(Program::Pool, "pool");
    let changing = [
        "add",
        "attach",
        "detach",
        "replace",
        "remove",
        "resize",
        "split",
        "reguid",
        "labelclear",
        "destroy",
        "import",
    ];
    for name in changing.into_iter().chain(["export", "online", "rebalance", "defragment", "trim", "clear"]) {
        let text = known.find_subcommand(name).unwrap().get_before_help().unwrap().to_string();
        assert!(text.lines().any(|line| line.starts_with("Cannot be undone: ")), "{name}: {text}");
    }
    for name in ["add", "offline", "split", "simulate", "remove", "replace", "resize", "rebalance"] {
        let text = known.find_subcommand(name).unwrap().get_before_help().unwrap().to_string();
        assert!(text.lines().any(|line| line.starts_with("If devices are lost: ")), "{name}: {text}");
    }
}

#[test]
fn examples_parse() {
    for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
        for subcommand in command(program, name).get_subcommands() {
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples =
                help.split("Examples:\n").nth(1).unwrap_or_default().split("See also:").next().unwrap_or_default();
            let examples = examples.lines();
            for example in examples.filter_map(|line| example_words(line, name)) {
                let parsed = command(program, name).try_get_matches_from(&example);
                assert!(parsed.is_ok(), "{example:?}: {}", parsed.unwrap_err());
            }
        }
    }
}

/// The words of an example of the program, up to the shell's part or a remark.
fn example_words(line: &str, name: &str) -> Option<Vec<String>> {
    // A continued remark is not an example.
    let line = line.strip_prefix("  ")?;
    let end = ["  ", " |", " >", " <", ";", " &&"].iter().filter_map(|stop| line.find(stop)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let is_ours = line.split(' ').next() == Some(name);
    is_ours.then(|| quoted_words(line))
}

/// Splits at blanks outside single quotes, and removes the quotes.
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
    insta::assert_snapshot!(output_of("fs list"), @r"
    no datasets available
    [exit 0]
    ");
    insta::assert_snapshot!(output_of("fs list -H"), @"[exit 0]");
    insta::assert_snapshot!(output_of("pool list"), @r"
    no pools available
    [exit 0]
    ");
    insta::assert_snapshot!(output_of("pool status -x"), @r"
    no pools available
    [exit 0]
    ");
    insta::assert_snapshot!(output_of("zfs list -j"), @r#"
    {
      "output_version": {
        "command": "zfs list",
        "vers_major": 0,
        "vers_minor": 1
      },
      "datasets": {}
    }
    [exit 0]
    "#);
}

#[test]
fn unknown_names_are_refused() {
    insta::assert_snapshot!(output_of("fs list tank/home"), @r"
    fs: cannot open 'tank/home': dataset does not exist
      no pool 'tank' is known here: pool list
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("zfs list tank/home"), @r"
    cannot open 'tank/home': dataset does not exist
      no pool 'tank' is known here: zpool list
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("pool destroy tank"), @r"
    pool: cannot open 'tank': no such pool
      known pools: pool list; others: pool import
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("zfs snapshot tank/home@a"), @r"
    cannot create snapshot 'tank/home@a': dataset does not exist
      no pool 'tank' is known here: zpool list
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("zfs destroy tank/home@a"), @r"
    cannot open 'tank/home': dataset does not exist
      no pool 'tank' is known here: zpool list
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("zfs create tank/home"), @r"
    cannot create 'tank/home': no such pool 'tank'
      no pool 'tank' is known here: zpool list
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("zfs mount tank/home"), @r"
    cannot open 'tank/home': dataset does not exist
      no pool 'tank' is known here: zpool list
    [exit 1]
    ");
}

#[test]
fn wrong_names_and_values_change_nothing() {
    insta::assert_snapshot!(output_of("fs create tank/a!b"), @r"
    fs: cannot create 'tank/a!b': invalid character '!' in name (at character 7 of 'tank/a!b')
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("fs create -o compression=fast tank/a"), @r"
    fs: cannot create 'tank/a': bad value 'fast' for 'compression': unknown algorithm
      values: on | off | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,...,100,500,1000] | gzip | gzip-[1-9]
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("fs set encryption=on tank"), @r"
    fs: cannot set property for 'tank': property 'encryption' is not supported: native encryption does not exist in this version; use encrypted devices (LUKS)
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("fs set recordsize=100K tank"), @r"
    fs: cannot set property for 'tank': bad value '100K' for 'recordsize': must be a power of two from 4K to 16M
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("pool create mirror /a.img"), @r"
    pool: cannot create 'mirror': the name is reserved (at character 1 of 'mirror')
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("pool create tank draid /a.img"), @r"
    pool: cannot create 'tank': vdevs of the kind 'draid' are not supported by this version of Cenote
      use single devices, 'mirror DEVICE DEVICE', or 'raidz1' to 'raidz3' with 2 to 32 devices
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("pool create tank raidz2 /a.img /b.img"), @r"
    pool: cannot create 'tank': a raidz2 has 3 to 32 devices
      name devices after the word: raidz2 DEVICE DEVICE DEVICE
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("pool create tank 10Q:/a.img"), @r"
    pool: cannot create 'tank': 'Q' is not a unit of size (B, K, M, G, T, P, E; also KB or KiB)
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("fs send tank/d"), @"
    fs: cannot send 'tank/d': only a snapshot can be sent, DATASET@SNAPSHOT
      to list snapshots: fs list -t snapshot tank/d; to take one: fs snapshot tank/d@NAME
    [exit 1]
    ");
    insta::assert_snapshot!(output_of("fs rename tank/a tank/a/b"), @r"
    fs: cannot rename 'tank/a': the new name is below the old one
    [exit 1]
    ");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    insta::assert_snapshot!(output_of("fs list -o nosuch"), @r"
    fs: bad property list: invalid property 'nosuch'
      to list the properties: fs get --help
      user properties have a colon in their name, as in 'me:backup'
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("fs get"), @r"
    error: the following required arguments were not provided:
      <PROPERTIES>

    Usage: fs get [OPTIONS] <PROPERTIES> [DATASET]...

    For more information, try '--help'.
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("fs set tank"), @r"
    fs: missing property=value argument(s)
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("fs cp"), @r"
    error: the following required arguments were not provided:
      <FROM|TO>...

    Usage: fs cp [OPTIONS] <FROM>... <TO>

    For more information, try '--help'.
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("pool iostat 0"), @r"
    pool: interval '0' is not a number above 0
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("fs frob"), @r"
    error: unrecognized subcommand 'frob'

      tip: a similar subcommand exists: 'rollback'

    Usage: fs <COMMAND>

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn help_is_no_error_and_has_the_order_of_manual_pages() {
    insta::assert_snapshot!(output_of("fs rollback --help"), @r"
    Usage: fs rollback [OPTIONS] <SNAPSHOT>

    Roll a file system back to a snapshot

    Discards all changes since the snapshot. If newer snapshots or bookmarks exist, the rollback is
    refused without -r or -R. Open files and mappings show the content of the snapshot; files created
    since return ESTALE.

    Arguments:
      <SNAPSHOT>  The snapshot

    Options:
      -r          Destroy newer snapshots and bookmarks
      -R          Destroy newer snapshots and bookmarks, and their clones
      -f          With -R: unmount busy clones
      -n          Dry run: show what would change
      -v          Verbose: with -n, list every descendant and mount
      -h, --help  Print help

    Examples:
      fs rollback tank/home@monday
      fs rollback -nv -r tank/home@monday        dry run: what would be destroyed
      fs rollback -r tank/home@monday            destroy newer snapshots first

    See also:
      fs snapshot, fs clone, fs diff
    [exit 0]
    ");
    assert!(output_of("zfs send --help").ends_with("[exit 0]"));
    assert!(output_of("pool").ends_with("[exit 2]"));
    insta::assert_snapshot!(output_of("zpool version"), @r"
    cenote-0.1.0
    [exit 0]
    ");
}

#[test]
fn a_single_h_asks_every_subcommand_for_help() {
    for line in ["fs send -h", "fs receive -h", "fs diff -h", "pool status -h"] {
        let help = output_of(line);
        assert!(help.starts_with("Usage: ") && help.ends_with("[exit 0]"), "{line}: {help}");
    }
    let [summary, whole] = ["fs get -h", "fs get --help"].map(output_of);
    assert!(!summary.contains("\nInheritable properties:") && whole.contains("\nInheritable properties:"), "{summary}");
}

#[test]
fn help_names_the_program_that_was_called() {
    for (program, name) in [(Program::Pool, "zpool"), (Program::Fs, "zfs")] {
        for subcommand in command(program, name).get_subcommands_mut() {
            let name = subcommand.get_name().to_owned();
            let help = subcommand.render_long_help().to_string();
            let ours = [" pool list", " pool status", " fs list", " fs set", "'pool ", "'fs "];
            assert_eq!(ours.iter().find(|ours| help.contains(**ours)), None, "{name}: {help}");
        }
    }
    assert!(output_of("zfs set --help").contains("Usage: zfs set [OPTIONS] <PROPERTY=VALUE>... <DATASET>..."));
    assert!(output_of("zpool iostat --help").contains("\n  zpool iostat -v tank 5 "));
}

/// Words that stand for a noun: in OpenZFS's manual pages 2.5 in 100.
const PRONOUNS: &str = "it that one ones who whom whose whoever what which nobody somebody anybody everybody they them those \
                        these this he him other others such";

#[test]
fn help_names_things_instead_of_pronouns() {
    let (mut words, mut pronouns) = (0_usize, 0_usize);
    for (program, name) in [(Program::Pool, "pool"), (Program::Fs, "fs")] {
        for subcommand in command(program, name).get_subcommands_mut() {
            let help = subcommand.render_long_help().to_string().to_lowercase();
            for word in help.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
                words += 1;
                pronouns += usize::from(PRONOUNS.split(' ').any(|pronoun| pronoun == word));
            }
        }
    }
    assert!(pronouns * 50 < words, "{pronouns} of {words} words");
}

#[test]
fn absent_options_of_openzfs_are_named() {
    insta::assert_snapshot!(output_of("zpool import -t tank copy"), @"
    'import -t' is not supported: temporary pool names do not exist in this version; to rename: zpool import POOL NEWNAME
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("zpool iostat -c"), @"
    'iostat -c' is not supported: scripts for each device do not exist in this version; 'zpool status -j' gives the devices to scripts
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("fs rewrite tank"), @"
    fs: 'rewrite' is not supported: to spread blocks over new vdevs: pool rebalance; to apply new properties, copy the files
    [exit 2]
    ");
    insta::assert_snapshot!(output_of("pool upgrade -V 28 tank"), @"
    pool: 'upgrade -V' is not supported: pools have feature flags instead of versions; to enable all features: pool upgrade POOL
    [exit 2]
    ");
}

#[test]
fn an_unknown_option_is_not_advised_as_a_value() {
    insta::assert_snapshot!(output_of("pool status -Z"), @r"
    error: unexpected argument '-Z' found

    Usage: pool status [OPTIONS] [POOL]... [INTERVAL [COUNT]]

    For more information, try '--help'.
    [exit 2]
    ");
    for line in
        ["zpool status -d", "zpool status -vc", "zfs create -b 8K -V 1G x", "zpool iostat -c x", "zpool trim -d x"]
    {
        let refused = output_of(line);
        assert!(refused.contains("' is not supported: ") && !refused.contains("-- -"), "{line}: {refused}");
    }
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
        "zpool status -gLPpDeix",
        "zpool status -T d -T u --json --json-int --json-flat-vdevs --json-pool-key-guid",
        "zpool list -HHvv -g -L -P -T u",
        "zpool iostat -ngLPyv -T d tank 1 2",
        "zpool import -c /etc/zfs/zpool.cache -aN -s -X -l",
        "zpool import -R /mnt -o cachefile=none tank",
        "zpool create -d -R /mnt -o ashift=12 -o feature@raidz=disabled tank /a.img",
        "zpool add -P -o ashift=12 tank /b.img",
        "zpool replace -s -f -f tank /a.img /b.img",
        "zpool scrub -a -C",
        "zpool trim -a",
        "zfs mount -f -l -v -R tank/home",
        "zfs umount -u tank/home",
        "zfs create -p -p tank/home",
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
