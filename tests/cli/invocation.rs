//! How the programs are called: command lines they do not understand, and the other names they go by.

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
    ]), @r"
    $ pool frobnicate
    error: unrecognized subcommand 'frobnicate'

    Usage: pool <COMMAND>

    For more information, try '--help'.
    [exit 2]
    $ pool create
    error: the following required arguments were not provided:
      <NAME>
      <VDEV>...

    Usage: pool create <NAME> <VDEV>...

    For more information, try '--help'.
    [exit 2]
    $ pool list -Z
    error: unexpected argument '-Z' found

      tip: to pass '-Z' as a value, use '-- -Z'

    Usage: pool list [OPTIONS] [POOL]...

    For more information, try '--help'.
    [exit 2]
    $ fs send
    error: the following required arguments were not provided:
      <SNAPSHOT>

    Usage: fs send <SNAPSHOT>

    For more information, try '--help'.
    [exit 2]
    $ fs list -t dog
    error: invalid value 'dog' for '-t <TYPES>': 'dog' is none of filesystem, snapshot, bookmark, all

    For more information, try '--help'.
    [exit 2]
    $ fs clone a
    error: the following required arguments were not provided:
      <FILESYSTEM>

    Usage: fs clone <SNAPSHOT> <FILESYSTEM>

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
    ];
    assert_snapshot!(said.concat(), @r"
    $ zpool list -H -o name,health
    tank	ONLINE
    [exit 0]
    $ zpool list vault
    cannot open 'vault': no such pool
      known pools: pool list; others: pool import
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
    ");
}
