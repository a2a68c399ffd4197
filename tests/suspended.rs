//! Failing devices under a mounted pool: it is suspended, reports that, answers, and resumes without loss.
//!
//! Two kinds of device fail here as real devices do, on every machine with FUSE: an image on a full file system, and an
//! image on the mount of another pool, whose service is killed or stopped.

mod lab;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use insta::{Settings, assert_snapshot};
use lab::{Lab, Run, Stopped, can_mount, noise, small_file_system, wait_until};

/// An answer takes less than a second; a machine busy with other tests may take longer.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_paths();
    // The error counts before the suspension depend on timing.
    settings.add_filter(r"(FAULTED|UNAVAIL)  +\d+  +\d+  +0", "$1  [READ]  [WRITE]  0");
    // The error after a service is killed: before or after the kernel has noticed.
    settings.add_filter(
        r"(Transport endpoint is not connected|Software caused connection abort|Operation canceled)( \(os error \d+\))?",
        "[GONE]",
    );
    settings.add_filter(r"cannot (write|flush|read)[^:]*", "cannot [DO]");
    // The transport depends on the machine.
    settings.add_filter(r"mounts: \d+ through \S+\n", "");
    settings
}

/// Runs a command line, which must be answered at once; prints the time taken.
fn at_once(lab: &Lab, line: &str) -> Run {
    let begun = Instant::now();
    let run = lab.enter(line);
    let took = begun.elapsed();
    #[expect(clippy::print_stdout, reason = "the measured time is part of the test's report")]
    {
        println!("{:>6.3} s  {line}", took.as_secs_f64());
    }
    assert!(took < AT_ONCE, "{line} took {took:?}");
    run
}

/// The output of a command line that is answered at once.
fn shown(lab: &Lab, line: &str) -> String {
    at_once(lab, line).at_prompt()
}

fn is_suspended(lab: &Lab, pool: &str) -> bool {
    at_once(lab, &format!("pool status {pool}")).text().contains("state: SUSPENDED")
}

/// A program that writes and syncs a file: it succeeds when the sync was acknowledged.
fn write_durably(path: &Path, bytes: &[u8]) -> Child {
    let of = format!("of={}", path.display());
    let mut command = Command::new("dd");
    command.args(["bs=64k", "iflag=fullblock", "conv=fsync", "status=none", &of]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
    // A failing writer stops reading.
    std::thread::spawn(move || drop(input.write_all(&bytes)));
    child
}

/// A lab with a pool `tank` whose image lies on a file system that has just run full.
fn full_below() -> Option<Lab> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    lab.damages();
    if !small_file_system(&lab.path("small"), "90m") {
        return None;
    }
    lab.pool(&["create", "-m", &lab.at("mnt/tank"), "tank", &format!("80M:{}", lab.at("small/tank.img"))]);
    fs::write(lab.mount("tank/before"), "written before").unwrap();
    lab.pool(&["sync", "tank"]);
    let mut filler = fs::File::create(lab.path("small/filler")).unwrap();
    while filler.write_all(&[1; 1 << 16]).is_ok() {}
    Some(lab)
}

#[test]
fn a_pool_without_room_below_stands_still_and_goes_on() {
    let (Some(lab), _filters) = (full_below(), filters().bind_to_scope()) else { return };
    let content = noise(6 << 20, 1);
    let mut writer = write_durably(&lab.mount("tank/file"), &content);
    wait_until("the pool is suspended", || is_suspended(&lab, "tank"));
    assert_snapshot!(shown(&lab, "pool status tank"), @r"
    $ pool status tank
      pool: tank
     state: SUSPENDED
    status: One or more devices are faulted in response to I/O failures.
    	[LAB]/small/tank.img: cannot [DO]: No space left on device
    action: Make sure the affected devices are connected, then run 'pool clear tank'.
    	To discard unwritten data, run 'pool export --abandon tank'.
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  SUSPENDED  0  0  0
    	  [LAB]/small/tank.img  FAULTED  [READ]  [WRITE]  0

    errors: List of errors unavailable: pool I/O is currently suspended
    [exit 0]
    ");
    let refused: String = [
        "fs create tank/new",
        "fs snapshot tank@now",
        "pool sync tank",
        "pool set failmode=continue tank",
        "pool export tank",
        "pool destroy tank",
    ]
    .iter()
    .map(|line| shown(&lab, line))
    .collect();
    assert_snapshot!(refused, @r"
    $ fs create tank/new
    fs: cannot use 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ fs snapshot tank@now
    fs: cannot use 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ pool sync tank
    pool: cannot use 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ pool set failmode=continue tank
    pool: cannot use 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ pool export tank
    pool: cannot export 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    $ pool destroy tank
    pool: cannot use 'tank': pool I/O is currently suspended
      [LAB]/small/tank.img: cannot [DO]: No space left on device
      to see the devices: pool status tank; to resume when the devices are back: pool clear tank
      to discard unwritten data: pool export --abandon tank
    [exit 1]
    ");
    assert_snapshot!(shown(&lab, "pool list -H -o name,health tank"), @r"
    $ pool list -H -o name,health tank
    tank	SUSPENDED
    [exit 0]
    ");
    assert_snapshot!(shown(&lab, "pool clear tank"), @r"
    $ pool clear tank
    pool: cannot clear errors for 'tank': [LAB]/small/tank.img: cannot [DO]: No space left on device
      check the path, the permissions and the device; for a pool: pool status
    [exit 1]
    ");
    assert!(writer.try_wait().unwrap().is_none(), "the writer waits");

    fs::remove_file(lab.path("small/filler")).unwrap();
    assert_snapshot!(shown(&lab, "pool clear tank"), @r"
    $ pool clear tank
    [exit 0]
    ");
    assert!(writer.wait().unwrap().success());
    assert_snapshot!(shown(&lab, "pool status tank"), @r"
    $ pool status tank
      pool: tank
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	tank  ONLINE  0  0  0
    	  [LAB]/small/tank.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    lab.pool(&["export", "tank"]);
    let folder = lab.at("small");
    lab.pool(&["check", "-d", &folder, "tank"]);
    lab.pool(&["import", "-d", &folder, "tank"]);
    assert!(fs::read(lab.mount("tank/file")).unwrap() == content);
    assert_eq!(fs::read_to_string(lab.mount("tank/before")).unwrap(), "written before");
}

#[test]
fn a_pool_that_stands_still_can_be_given_up() {
    let (Some(lab), _filters) = (full_below(), filters().bind_to_scope()) else { return };
    let mut writer = write_durably(&lab.mount("tank/file"), &noise(6 << 20, 1));
    wait_until("the pool is suspended", || is_suspended(&lab, "tank"));
    assert_snapshot!(shown(&lab, "pool export --abandon tank"), @r"
    $ pool export --abandon tank
    note: 'tank' keeps the state of transaction group [TXG]; later changes were discarded
    [exit 0]
    ");
    assert!(!writer.wait().unwrap().success(), "nobody was told that it is written");
    wait_until("the service has ended", || lab.service("tank").is_none());
    assert_snapshot!(shown(&lab, "pool status"), @r"
    $ pool status
    no pools available
    [exit 0]
    ");
    fs::remove_file(lab.path("small/filler")).unwrap();
    lab.pool(&["import", "-d", &lab.at("small"), "tank"]);
    assert_eq!(fs::read_to_string(lab.mount("tank/before")).unwrap(), "written before");
}

/// A lab with a pool `inner` whose image lies on the mount of a pool `outer`. Importing a pool, even in another lab,
/// detaches dead mounts of the same name: so tests that kill theirs use different names.
fn nested(outer: &str, failmode: &str) -> Option<Lab> {
    if !can_mount() {
        return None;
    }
    let lab = Lab::new();
    lab.damages();
    lab.create(outer, "400M");
    let image = format!("100M:{}", lab.at(&format!("mnt/{outer}/inner.img")));
    let failmode = format!("failmode={failmode}");
    let mut create = lab.command("pool", &["create", "-o", &failmode, "-m", &lab.at("mnt/inner"), "inner", &image]);
    assert!(create.env("CENOTE_IO_DEADLINE", "3").status().unwrap().success());
    fs::write(lab.mount("inner/before"), "written before").unwrap();
    lab.pool(&["sync", "inner"]);
    Some(lab)
}

#[test]
fn a_device_that_vanishes_and_is_back_loses_nothing() {
    let (Some(lab), _filters) = (nested("outer", "continue"), filters().bind_to_scope()) else { return };
    let content = noise(3 << 20, 2);
    fs::write(lab.mount("inner/accepted"), &content).unwrap();
    lab.kill("outer");
    assert!(!write_durably(&lab.mount("inner/late"), b"not acknowledged").wait().unwrap().success());
    wait_until("the pool is suspended", || is_suspended(&lab, "inner"));
    assert_snapshot!(shown(&lab, "pool status inner"), @r"
    $ pool status inner
      pool: inner
     state: SUSPENDED
    status: One or more devices are faulted in response to I/O failures.
    	[LAB]/mnt/outer/inner.img: cannot [DO]: [GONE]
    action: Make sure the affected devices are connected, then run 'pool clear inner'.
    	To discard unwritten data, run 'pool export --abandon inner'.
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	inner  SUSPENDED  0  0  0
    	  [LAB]/mnt/outer/inner.img  UNAVAIL  [READ]  [WRITE]  0

    errors: List of errors unavailable: pool I/O is currently suspended
    [exit 0]
    ");
    assert_eq!(fs::read_to_string(lab.mount("inner/before")).unwrap(), "written before");
    assert!(fs::write(lab.mount("inner/more"), "refused").is_err());
    assert_snapshot!(shown(&lab, "pool clear inner"), @r"
    $ pool clear inner
    pool: cannot clear errors for 'inner': [LAB]/mnt/outer/inner.img: cannot open: [GONE]
      check the path, the permissions and the device; for a pool: pool status
    [exit 1]
    ");

    lab.pool(&["import", "outer"]);
    assert_snapshot!(shown(&lab, "pool clear inner"), @r"
    $ pool clear inner
    [exit 0]
    ");
    assert_snapshot!(shown(&lab, "pool status inner"), @r"
    $ pool status inner
      pool: inner
     state: ONLINE
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	inner  ONLINE  0  0  0
    	  [LAB]/mnt/outer/inner.img  ONLINE  0  0  0

    errors: No known data errors
    [exit 0]
    ");
    let events = lab.pool(&["events", "-v", "inner"]);
    for what in ["ereport.fs.zfs.io_failure", "ereport.fs.zfs.io\n", "pool_state = \"ONLINE\""] {
        assert!(events.contains(what), "{what} is not in {events}");
    }
    lab.pool(&["export", "inner"]);
    let folder = lab.at("mnt/outer");
    lab.pool(&["check", "-d", &folder, "inner"]);
    lab.pool(&["import", "-d", &folder, "inner"]);
    assert!(fs::read(lab.mount("inner/accepted")).unwrap() == content);
    lab.pool(&["export", "inner"]);
}

#[test]
fn a_device_that_is_older_than_it_was_is_refused() {
    let (Some(lab), _filters) = (nested("attic", "continue"), filters().bind_to_scope()) else { return };
    let (image, copy) = (lab.mount("attic/inner.img"), lab.mount("attic/copy.img"));
    fs::copy(&image, &copy).unwrap();
    fs::write(lab.mount("inner/later"), noise(1 << 20, 3)).unwrap();
    lab.pool(&["sync", "inner"]);
    lab.kill("attic");
    assert!(!write_durably(&lab.mount("inner/late"), b"not acknowledged").wait().unwrap().success());
    wait_until("the pool is suspended", || is_suspended(&lab, "inner"));
    lab.pool(&["import", "attic"]);
    let aside = lab.mount("attic/aside.img");
    fs::rename(&image, &aside).unwrap();
    fs::rename(&copy, &image).unwrap();
    assert_snapshot!(shown(&lab, "pool clear inner"), @r"
    $ pool clear inner
    pool: cannot clear errors for 'inner': [LAB]/mnt/attic/inner.img is older than the last write to it
    [exit 1]
    ");
    fs::rename(&aside, &image).unwrap();
    assert_snapshot!(shown(&lab, "pool clear inner"), @r"
    $ pool clear inner
    [exit 0]
    ");
    assert_eq!(fs::read(lab.mount("inner/later")).unwrap().len(), 1 << 20);
    lab.pool(&["export", "inner"]);
}

#[test]
fn a_hanging_device_keeps_no_command_waiting() {
    let (Some(lab), _filters) = (nested("cellar", "wait"), filters().bind_to_scope()) else { return };
    let cellar = lab.service("cellar").unwrap();
    let stopped = Stopped::new(cellar);
    let mut writer = write_durably(&lab.mount("inner/late"), b"acknowledged late");
    wait_until("the pool is suspended", || is_suspended(&lab, "inner"));
    assert_snapshot!(shown(&lab, "pool status inner"), @r"
    $ pool status inner
      pool: inner
     state: SUSPENDED
    status: One or more devices are faulted in response to I/O failures.
    	[LAB]/mnt/cellar/inner.img: cannot [DO]: it has not answered for 3 seconds
    action: Make sure the affected devices are connected, then run 'pool clear inner'.
    	To discard unwritten data, run 'pool export --abandon inner'.
    config:

    	NAME  STATE  READ  WRITE  CKSUM
    	inner  SUSPENDED  0  0  0
    	  [LAB]/mnt/cellar/inner.img  FAULTED  [READ]  [WRITE]  0

    errors: List of errors unavailable: pool I/O is currently suspended
    [exit 0]
    ");
    assert_snapshot!(shown(&lab, "fs create inner/new"), @r"
    $ fs create inner/new
    fs: cannot use 'inner': pool I/O is currently suspended
      [LAB]/mnt/cellar/inner.img: cannot [DO]: it has not answered for 3 seconds
      to see the devices: pool status inner; to resume when the devices are back: pool clear inner
      to discard unwritten data: pool export --abandon inner
    [exit 1]
    ");
    assert!(writer.try_wait().unwrap().is_none(), "the writer waits");
    drop(stopped);
    wait_until("the device answers again", || at_once(&lab, "pool clear inner").code == Some(0));
    assert!(writer.wait().unwrap().success());
    assert_eq!(fs::read_to_string(lab.mount("inner/late")).unwrap(), "acknowledged late");
    let stopped = Stopped::new(cellar);
    let mut writer = write_durably(&lab.mount("inner/lost"), b"never acknowledged");
    wait_until("the pool is suspended", || is_suspended(&lab, "inner"));
    assert_snapshot!(shown(&lab, "pool export --abandon inner"), @r"
    $ pool export --abandon inner
    note: 'inner' keeps the state of transaction group [TXG]; later changes were discarded
    [exit 0]
    ");
    drop(stopped);
    assert!(!writer.wait().unwrap().success());
}
