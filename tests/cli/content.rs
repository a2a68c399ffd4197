//! Putting content into a pool and getting it out without a mount: streams, and single files.

use std::fs;

use insta::assert_snapshot;

use crate::{filters, furnished};

#[test]
fn streams_are_announced_and_received() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.fs(&["snapshot", "tank/home@tuesday"]);
    assert_snapshot!(lab.session(&[
        "fs send -n -v tank/home@tuesday",
        "fs send -n -v -i @monday tank/home@tuesday",
        "fs send -n -P -I @monday tank/home@tuesday",
        "fs send tank/home@never",
        "fs send -i @never tank/home@tuesday",
        "fs send tank/home",
    ]), @r"
    $ fs send -n -v tank/home@tuesday
    full send of tank/home@tuesday estimated size is [SIZE]
    total estimated size is [SIZE]
    [exit 0]
    $ fs send -n -v -i @monday tank/home@tuesday
    send from @monday to tank/home@tuesday estimated size is [SIZE]
    total estimated size is [SIZE]
    [exit 0]
    $ fs send -n -P -I @monday tank/home@tuesday
    incremental	monday	tank/home@tuesday	[SIZE]
    size	[SIZE]
    [exit 0]
    $ fs send tank/home@never
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs send -i @never tank/home@tuesday
    fs: cannot open 'tank/home@never': dataset does not exist
    [exit 1]
    $ fs send tank/home
    fs: cannot send 'tank/home': only a snapshot can be sent, DATASET@SNAPSHOT
      to list snapshots: fs list -t snapshot tank/home; to take one: fs snapshot tank/home@NAME
    [exit 1]
    ");
    let stream = lab.run("fs", &["send", "tank/home@monday"]);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    let receive = |words: &[&str], stream: &[u8]| lab.feed("fs", words, stream).output() + "\n";
    let mut damaged = stream.stdout.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let said = [
        receive(&["receive", "tank/copy"], b""),
        receive(&["receive", "tank/copy"], b"no stream"),
        receive(&["receive", "tank/home"], &stream.stdout),
        receive(&["receive", "tank/none/copy"], &stream.stdout),
        receive(&["receive", "-n", "-v", "tank/copy"], &stream.stdout),
        receive(&["receive", "tank/copy"], &stream.stdout),
        receive(&["receive", "tank/copy"], &stream.stdout),
    ];
    assert_snapshot!(said.concat(), @r"
    fs: cannot receive into 'tank/copy': the input is empty: the sender has failed, or sent nothing
    [exit 1]
    fs: cannot receive into 'tank/copy': this is not a Cenote stream; streams are made by 'fs send'
    [exit 1]
    fs: cannot receive 'tank/home@monday': the destination already has this snapshot
      nothing to do
    [exit 1]
    fs: cannot receive into 'tank/none/copy': parent does not exist
      to create it: fs create -p tank/none
    [exit 1]
    would receive full stream of tank/home@monday into tank/copy@monday
    [exit 0]
    [exit 0]
    fs: cannot receive 'tank/copy@monday': the destination already has this snapshot
      nothing to do
    [exit 1]
    ");
    assert!(receive(&["receive", "tank/other"], &damaged).ends_with("[exit 1]\n"));
    assert_snapshot!(lab.shown("fs list -H -t all -o name -r tank"), @r"
    tank
    tank/copy
    tank/copy@monday
    tank/home
    tank/home@monday
    tank/home@tuesday
    [exit 0]
    ");
}

#[test]
fn each_member_of_a_package_is_named() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    lab.fs(&["set", "quota=20M", "tank/home"]);
    lab.fs(&["create", "tank/home/below"]);
    lab.fs(&["snapshot", "-r", "tank/home@tuesday"]);
    lab.fs(&["create", "tank/to"]);
    let package = lab.run("fs", &["send", "-R", "tank/home@tuesday"]).stdout;
    let receive = |words: &[&str], stream: &[u8]| lab.feed("fs", words, stream).output() + "\n";
    let cut = package.len() - 60;
    let said = [
        receive(&["receive", "-nv", "-d", "tank/to"], &package),
        receive(&["receive", "-nv", "-e", "tank/to"], &package),
        receive(&["receive", "-nv", "tank/to/copy"], &package[..cut]),
        receive(&["receive", "tank/to/copy"], &package[..cut]),
        receive(&["receive", "-F", "tank/to/copy"], &package),
        lab.session(&["fs get -o all quota tank/to/copy", "fs set quota=30M tank/to/copy"]),
        lab.session(&["fs get -o all quota tank/to/copy", "fs inherit -S quota tank/to/copy"]),
        lab.session(&["fs get -H -o value,source quota tank/to/copy", "fs rename tank/to/copy@tuesday friday"]),
        lab.session(&["fs get -Hp -o property,value written@monday,written@never tank/to/copy@friday"]),
    ];
    assert_snapshot!(said.concat(), @r"
    would receive full stream of tank/home@monday into tank/to/home@monday
    would receive incremental stream of tank/home@tuesday into tank/to/home@tuesday
    would receive full stream of tank/home/below@tuesday into tank/to/home/below@tuesday
    [exit 0]
    would receive full stream of tank/home@monday into tank/to/home@monday
    would receive incremental stream of tank/home@tuesday into tank/to/home@tuesday
    would receive full stream of tank/home/below@tuesday into tank/to/home/below@tuesday
    [exit 0]
    fs: cannot receive into 'tank/to/copy': the stream ends too early, at byte [N] in record 14: send it again
    [exit 1]
    fs: cannot receive into 'tank/to/copy': the stream ends too early, at byte [N] in record 14: send it again; already received, and kept: tank/to/copy@monday, tank/to/copy@tuesday
    [exit 1]
    [exit 0]
    $ fs get -o all quota tank/to/copy
    NAME          PROPERTY  VALUE  RECEIVED  SOURCE
    tank/to/copy  quota     20M    20M       received
    [exit 0]
    $ fs set quota=30M tank/to/copy
    [exit 0]
    $ fs get -o all quota tank/to/copy
    NAME          PROPERTY  VALUE  RECEIVED  SOURCE
    tank/to/copy  quota     30M    20M       local
    [exit 0]
    $ fs inherit -S quota tank/to/copy
    [exit 0]
    $ fs get -H -o value,source quota tank/to/copy
    20M	received
    [exit 0]
    $ fs rename tank/to/copy@tuesday friday
    [exit 0]
    $ fs get -Hp -o property,value written@monday,written@never tank/to/copy@friday
    written@monday	8192
    written@never	-
    [exit 0]
    ");
    // More than nothing, though such small files are stored inline in the tree.
    lab.fs(&["create", "tank/small"]);
    fs::write(lab.path("little"), "a line").unwrap();
    lab.fs(&["cp", "little", "tank/small:/little"]);
    lab.fs(&["snapshot", "tank/small@a"]);
    let small = lab.run("fs", &["send", "tank/small@a"]).stdout;
    let said = receive(&["receive", "-v", "tank/to/small"], &small);
    assert!(said.contains("receiving full stream of tank/small@a into tank/to/small@a\nreceived "), "{said}");
    assert!(!said.contains("received 0B"), "{said}");
}

#[test]
fn files_are_copied_and_read_without_a_mount() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs ls tank/home",
        "fs ls tank/home@monday:/",
        "fs ls tank/home:/none",
        "fs cat tank/home:/none",
        "fs cat tank/home:/",
        "fs cp none tank/home:/",
        "fs cp text text",
        "fs cp tank/home:/first tank/home@monday:/third",
        "fs cp -r state tank/home:/state",
        "fs ls tank/home:/state",
        "fs cat tank/none:/first",
    ]), @r"
    $ fs ls tank/home
    first
    second
    [exit 0]
    $ fs ls tank/home@monday:/
    first
    [exit 0]
    $ fs ls tank/home:/none
    fs: cannot list 'tank/home:/none': No such file or directory
    [exit 1]
    $ fs cat tank/home:/none
    fs: cannot read 'tank/home:/none': No such file or directory
    [exit 1]
    $ fs cat tank/home:/
    fs: cannot read 'tank/home:/': Is a directory
    [exit 1]
    $ fs cp none tank/home:/
    fs: cannot copy '[LAB]/none': No such file or directory
    [exit 1]
    $ fs cp text text
    fs: either source or destination must be in a pool (DATASET:/PATH)
    [exit 2]
    $ fs cp tank/home:/first tank/home@monday:/third
    fs: cannot copy to 'tank/home@monday': it is read-only
    [exit 1]
    $ fs cp -r state tank/home:/state
    [exit 0]
    $ fs ls tank/home:/state
    index
    pools
    [exit 0]
    $ fs cat tank/none:/first
    fs: cannot open 'tank/none': dataset does not exist
    [exit 1]
    ");
}
