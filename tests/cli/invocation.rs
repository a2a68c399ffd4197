//! Invocation of the programs: invalid command lines, and the programs' other names.

use insta::assert_snapshot;

use crate::{
    filters, furnished,
    lab::{Lab, Run},
};

#[test]
fn wrong_command_lines_end_with_two() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool frobnicate",
        "pool create",
        "pool list -Z",
        "fs send",
        "fs list -t dog",
        "fs clone a",
        "pool export",
    ]), @r"
    $ pool frobnicate
    error: unrecognized subcommand 'frobnicate'

      tip: a similar subcommand exists: 'rebalance'

    Usage: pool <COMMAND>

    For more information, try '--help'.
    [exit 2]
    $ pool create
    error: the following required arguments were not provided:
      <NAME>
      <VDEV>...

    Usage: pool create [OPTIONS] <NAME> <VDEV>...

    For more information, try '--help'.
    [exit 2]
    $ pool list -Z
    error: unexpected argument '-Z' found

    Usage: pool list [OPTIONS] [POOL]... [INTERVAL [COUNT]]

    For more information, try '--help'.
    [exit 2]
    $ fs send
    error: the following required arguments were not provided:
      <SNAPSHOT>

    Usage: fs send [OPTIONS] [SNAPSHOT] [FILE]

    For more information, try '--help'.
    [exit 2]
    $ fs list -t dog
    error: invalid value 'dog' for '-t <TYPES>': 'dog' is none of filesystem, snapshot, bookmark, all

    For more information, try '--help'.
    [exit 2]
    $ fs clone a
    error: the following required arguments were not provided:
      <FILESYSTEM>

    Usage: fs clone [OPTIONS] <SNAPSHOT> <FILESYSTEM>

    For more information, try '--help'.
    [exit 2]
    $ pool export
    error: the following required arguments were not provided:
      <POOL>...

    Usage: pool export [OPTIONS] [POOL]...

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn under_their_other_names_the_programs_speak_as_those() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    let other = |program: &str, name: &str, words: &[&str]| {
        let binary = lab.command(program, &[]).get_program().to_owned();
        let link = lab.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(binary, &link).unwrap();
        }
        let mut command = std::process::Command::new(&link);
        for (name, value) in lab.command(program, &[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Run::of(name, words, command.args(words).output().unwrap()).at_prompt()
    };
    let said = [
        other("pool", "zpool", &["list", "-H", "-o", "name,health"]),
        other("pool", "zpool", &["list", "vault"]),
        other("fs", "zfs", &["list", "-H", "-o", "name"]),
        other("fs", "zfs", &["list", "tank/none"]),
        other("fs", "zfs", &["create", "tank/home"]),
        other("fs", "zfs", &["frobnicate"]),
        other("fs", "zstream", &["redup", "home.stream"]),
        other("fs", "zstream", &["token", "1-2"]),
        other("pool", "zstreamdump", &["-C", "none"]),
    ];
    assert_snapshot!(said.concat(), @r"
    $ zpool list -H -o name,health
    tank	ONLINE
    [exit 0]
    $ zpool list vault
    cannot open 'vault': no such pool
      known pools: zpool list; others: zpool import
    [exit 1]
    $ zfs list -H -o name
    tank
    tank/home
    [exit 0]
    $ zfs list tank/none
    cannot open 'tank/none': dataset does not exist
    [exit 1]
    $ zfs create tank/home
    cannot create 'tank/home': dataset already exists
    [exit 1]
    $ zfs frobnicate
    error: unrecognized subcommand 'frobnicate'

    Usage: zfs <COMMAND>

    For more information, try '--help'.
    [exit 2]
    $ zstream redup home.stream
    zstream: 'redup' is not supported: streams are never deduplicated, so every stream can be received as it is
    [exit 2]
    $ zstream token 1-2
    zstream: cannot read the token: it is no token: a token is like 1-CHECKSUM-LENGTH-PAYLOAD, in hexadecimal digits
      to print a token: zfs get -H -o value receive_resume_token FILESYSTEM
    [exit 1]
    $ zstreamdump -C none
    zstreamdump: cannot open 'none': No such file or directory
    [exit 1]
    ");
}

#[test]
fn zstream_dumps_a_stream_from_a_file_and_from_a_pipe() {
    let lab = furnished();
    for name in ["zstream", "zstreamdump"] {
        std::os::unix::fs::symlink(lab.command("fs", &[]).get_program(), lab.path(name)).unwrap();
    }
    let stream = lab.fs_bytes(&["send", "tank/home@monday"]);
    std::fs::write(lab.path("home.stream"), &stream).unwrap();
    let shell = |line: &str| {
        let output = std::process::Command::new("sh").args(["-c", line]).current_dir(lab.path(".")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let expected = lab.fs(&["stream", "dump", "-v", "home.stream"]);
    assert!(expected.contains("BEGIN   tank/home@monday"), "{expected}");
    for line in
        ["./zstream dump -v home.stream", "./zstreamdump -d <home.stream", "cat home.stream | ./zstreamdump -C -v"]
    {
        assert_eq!(shell(line), (Some(0), expected.clone()), "{line}");
    }
    std::fs::write(lab.path("home.zsend"), lab.fs_bytes(&["send", "--format", "zfs", "tank/home@monday"])).unwrap();
    let (code, said) = shell("cat home.zsend | ./zstreamdump");
    assert_eq!(code, Some(0));
    assert!(
        said.starts_with("BEGIN record\n\thdrtype = 1\n") && said.contains("\ttoname = tank/home@monday\n"),
        "{said}"
    );
    assert!(said.contains("\tTotal DRR_END records = 1 (0 bytes)\n"), "{said}");
    let size = std::fs::metadata(lab.path("home.zsend")).unwrap().len();
    assert!(said.ends_with(&format!("\tTotal stream length = {size} ({size:#x})\n")), "{said}");
    let (code, verbose) = shell("./zstream dump -v home.zsend");
    assert_eq!(code, Some(0));
    assert!(
        verbose.contains("WRITE object = ") && verbose.ends_with(said.split_once("SUMMARY").unwrap().1),
        "{verbose}"
    );
    assert_eq!(shell("head -c 9000 home.zsend | ./zstreamdump").0, Some(1));
    let (code, said) = shell("head -c 100 home.stream | ./zstreamdump -v");
    assert_eq!(code, Some(1));
    assert!(expected.starts_with(&said) && said.len() < expected.len(), "{said}");
}

#[test]
fn what_zfs_has_and_cenote_does_not_is_refused_by_name() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool checkpoint tank",
        "fs load-key tank",
        "fs create -V 1G tank/volume",
        "fs send -t token",
    ]), @r"
    $ pool checkpoint tank
    pool: 'checkpoint' is not supported: pool checkpoints do not exist in this version; recursive snapshots (fs snapshot -r POOL@NAME) keep files, but neither vdevs, features nor destroyed datasets
    [exit 2]
    $ fs load-key tank
    fs: 'load-key' is not supported: native encryption does not exist in this version; use encrypted devices (LUKS)
    [exit 2]
    $ fs create -V 1G tank/volume
    fs: 'create -V' is not supported: volumes (zvols) do not exist in this version
    [exit 2]
    $ fs send -t token
    fs: cannot resume send: it is no token: a token is like 1-CHECKSUM-LENGTH-PAYLOAD, in hexadecimal digits
      to print the token: fs get -H -o value receive_resume_token FILESYSTEM
    [exit 1]
    ");
}

#[test]
fn ways_out_lead_out() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    let stream = lab.fs_bytes(&["send", "tank/home@monday"]);
    assert_snapshot!(lab.feed("fs", &["receive", "tank/no/home"], &stream).output(), @r"
    fs: cannot receive into 'tank/no/home': parent does not exist
      to create it: fs create -p tank/no
    [exit 1]
    ");
    lab.fs(&["snapshot", "tank/home@tuesday"]);
    lab.fs(&["hold", "keep", "tank/home@tuesday"]);
    assert_snapshot!(lab.session(&[
        "fs rollback -r tank/home@monday",
        "fs inherit canmount tank/home",
        "fs inherit quota tank/home",
    ]), @r"
    $ fs rollback -r tank/home@monday
    fs: cannot rollback to 'tank/home@monday': 'tank/home@tuesday' is held: keep
      to list and release holds: fs holds, fs release
    [exit 1]
    $ fs inherit canmount tank/home
    fs: 'canmount' property cannot be inherited
      to restore the default: fs set canmount=on DATASET
    [exit 2]
    $ fs inherit quota tank/home
    fs: 'quota' property cannot be inherited
      to restore the default: fs set quota=none DATASET
    [exit 2]
    ");
    lab.fs(&["release", "keep", "tank/home@tuesday"]);
}

#[test]
fn a_search_without_a_pool_says_what_it_found() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    let image = std::fs::File::create(lab.path("other.img")).unwrap();
    image.set_len(64 << 20).unwrap();
    // The magic number of an ext4 file system.
    std::os::unix::fs::FileExt::write_all_at(&image, &[0x53, 0xef], 1024 + 56).unwrap();
    assert_snapshot!(lab.session(&["pool import -d .", "pool import -d other.img"]), @r"
    $ pool import -d .
    pool: no pools available to import
      [LAB]/other.img holds an ext2, ext3 or ext4 file system
      searched: [LAB]
      to search another directory: pool import -d DIR
    [exit 1]
    $ pool import -d other.img
    pool: no pools available to import
      [LAB]/other.img holds an ext2, ext3 or ext4 file system
      searched: [LAB]/other.img
      to search another directory: pool import -d DIR
    [exit 1]
    ");
}

#[test]
fn what_is_set_stays_in_its_line() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    let output = |program: &str, words: &[&str]| lab.run(program, words).output();
    assert_snapshot!(output("pool", &["set", "comment=a\nb", "tank"]), @r"
    pool: cannot set property for 'tank': bad value 'a\nb' for 'comment': must be without control characters
    [exit 1]
    ");
    assert_snapshot!(output("fs", &["set", "me:note=a\tb", "tank/home"]), @r"
    fs: cannot set property for 'tank/home': the value of 'me:note' contains the control character '\t'
    [exit 1]
    ");
    let _ = output("fs", &["snapshot", "-o", "me:note=fine", "tank/home@x"]);
    let _ = output("fs", &["create", "-o", "mountpoint=/a\nb", "tank/odd"]);
    let history = lab.pool(&["history", "tank"]);
    assert!(history.lines().skip(1).all(|line| line.is_empty() || line.starts_with("20")), "{history}");
}

#[test]
fn help_fits_into_eighty_columns() {
    let lab = Lab::mountless();
    for program in ["pool", "fs"] {
        let text = lab.run(program, &["--help"]).ok();
        let names =
            text.lines().skip_while(|line| *line != "Commands:").skip(1).map_while(|line| line.strip_prefix("  "));
        let names: Vec<&str> =
            names.filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names.into_iter().filter(|name| *name != "help") {
            let output = lab.command(program, &[name, "--help"]).env("COLUMNS", "80").output().unwrap();
            let help = Run::of(program, &[name, "--help"], output).ok();
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{program} {name}");
        }
    }
}

#[test]
fn bash_completes_names_properties_and_values() {
    let lab = Lab::mountless();
    lab.create("tank", "64M");
    lab.fs(&["create", "tank/home"]);
    lab.fs(&["snapshot", "tank/home@monday"]);
    // The words as bash splits them: also at `@` and `=`.
    let complete = |program: &str, line: &str, words: &[&str]| {
        let names: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (pool, fs) = (env!("CARGO_BIN_EXE_pool"), env!("CARGO_BIN_EXE_fs"));
        let ask = format!(
            "pool() {{ {pool} \"$@\"; }}; fs() {{ {fs} \"$@\"; }}\n{}\n\
             COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}\n_{program}_named\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            lab.run(program, &["completions", "bash"]).ok(),
            names.join(" "),
            words.len() - 1,
            line.len()
        );
        let mut bash = std::process::Command::new("bash");
        for (name, value) in lab.command(program, &[]).get_envs() {
            value.map(|value| bash.env(name, value));
        }
        String::from_utf8(bash.args(["-c", &ask]).output().unwrap().stdout).unwrap()
    };
    let has = |shown: &str, word: &str| shown.lines().any(|line| line == word);
    assert!(has(&complete("pool", "pool status t", &["pool", "status", "t"]), "tank"));
    assert_eq!(complete("fs", "fs list tank/h", &["fs", "list", "tank/h"]), "tank/home\n");
    assert_eq!(complete("fs", "fs destroy tank/home@", &["fs", "destroy", "tank/home", "@"]), "monday\n");
    assert_eq!(complete("fs", "fs set atime=o", &["fs", "set", "atime", "=", "o"]), "on\noff\n");
    assert!(has(&complete("fs", "fs get compressi", &["fs", "get", "compressi"]), "compression"));
}
