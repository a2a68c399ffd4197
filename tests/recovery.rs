//! What is left when something is broken, and who may touch it: going back to an older state, reading without writing,
//! verifying, and two owners for one pool.
//!
//! The images are damaged here by the engine's own knowledge of where things lie.

mod lab;

use std::{fs, path::Path};

use insta::{Settings, assert_snapshot};
use lab::Lab;
use pool::{
    admin::{OpenOptions, Pool, open},
    device::{Access, Device, FileDevice},
    env::SystemEnv,
    format::{label::DATA_START, pointer::BlockPointer, uberblock::Uberblock},
    vdev::{labels::read_label, uberblocks::read_uberblocks},
};

/// Replaces what differs from run to run.
fn filters() -> Settings {
    let mut settings = lab::told::filters_for_paths();
    settings.add_filter(r"\b\d+ seconds?", "[TIME]");
    settings.add_filter(r"process \d+", "process [PID]");
    settings.add_filter(r"-T \d+", "-T [TXG]");
    settings.add_filter(r"from \d+ to \d+", "from [TXG] to [TXG]");
    settings.add_filter(r"chunk \d+ sector \d+, born in \d+", "chunk [C] sector [S], born in [TXG]");
    settings.add_filter(r"\b\d+ blocks, [\d.]+[KM]", "[N] blocks, [SIZE]");
    settings
}

/// A pool `tank` with a file of each of three days, exported.
fn three_days() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    for day in ["monday", "tuesday", "wednesday"] {
        fs::write(lab.path("text"), day.repeat(1000)).unwrap();
        lab.fs(&["cp", "text", &format!("tank:/{day}")]);
    }
    lab.pool(&["export", "tank"]);
    lab
}

/// The image of `tank`, as nobody's.
fn image(lab: &Lab) -> FileDevice {
    FileDevice::open(&lab.path("tank.img"), Access::ReadWrite).unwrap()
}

/// The states that the image of `tank` keeps, newest first.
fn states(lab: &Lab) -> Vec<Uberblock> {
    let device = image(lab);
    let label = read_label(&device).unwrap().unwrap();
    read_uberblocks(&device, label.pool).unwrap()
}

/// `tank`, opened behind the back of all commands.
fn opened(lab: &Lab) -> Pool {
    let device = FileDevice::open(&lab.path("tank.img"), Access::ReadOnly).unwrap();
    let options = OpenOptions { read_only: true, force: true, ..OpenOptions::default() };
    open(vec![std::sync::Arc::new(device)], &options, std::sync::Arc::new(SystemEnv)).unwrap()
}

/// Overwrites all copies of a block of `tank`.
fn wreck(lab: &Lab, block: &BlockPointer) {
    let pool = opened(lab);
    let places: Vec<u64> = block
        .addresses()
        .iter()
        .map(|at| pool.engine().storage().space.resolve(*at, block.stored).unwrap().1)
        .collect();
    drop(pool);
    let device = image(lab);
    for place in places {
        device.write_at(DATA_START + place, &[0xee; 64]).unwrap();
    }
}

fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&fs::read(path).unwrap())
}

#[test]
fn a_newest_state_that_cannot_be_read_is_named_and_gone_back_from_only_when_told_to() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let before = states(&lab);
    wreck(&lab, &before[0].catalogue);
    let damaged = hash(&lab.path("tank.img"));
    assert_snapshot!(lab.session(&["pool import -d . tank", "pool import -d . -F -n tank"]), @r"
    $ pool import -d . tank
    pool: cannot open 'tank': transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      what going back to an older state would lose: pool import -F -n tank
    [exit 1]
    $ pool import -d . -F -n tank
    pool 'tank' would go back [TIME]
      newest: transaction group [TXG], of [DATE]
      damaged: transaction group [TXG], of [DATE]: transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      would take: transaction group [TXG], of [DATE]
    What was done in the [TIME] after that would be lost. Nothing was written.
    to do it: pool import -F tank
    [exit 0]
    ");
    assert_eq!(hash(&lab.path("tank.img")), damaged);
    assert_snapshot!(lab.session(&["pool import -d . -F tank", "fs ls tank:/", "pool export tank"]), @r"
    $ pool import -d . -F tank
    pool 'tank' has gone back [TIME]
      newest: transaction group [TXG], of [DATE]
      damaged: transaction group [TXG], of [DATE]: transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      took: transaction group [TXG], of [DATE]
    What was done in the [TIME] after that is lost.
    [exit 0]
    $ fs ls tank:/
    monday
    tuesday
    wednesday
    [exit 0]
    $ pool export tank
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool check -d . tank", "pool import -d . -F -n tank"]), @r"
    $ pool check -d . tank
    checked pool 'tank' at transaction group [TXG]: 1 data sets and snapshots, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    $ pool import -d . -F -n tank
    the newest state of pool 'tank' can be read: transaction group [TXG], of [DATE]
    Nothing would be lost. Nothing was written.
    [exit 0]
    ");
    assert!(states(&lab).iter().all(|state| state.txg != before[0].txg || state.epoch == before[0].epoch));
}

#[test]
fn an_older_state_is_looked_at_without_writing_anything() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let before = hash(&lab.path("tank.img"));
    let monday = states(&lab).into_iter().map(|state| state.txg.0).find(|txg| {
        let at = txg.to_string();
        lab.pool(&["import", "-d", ".", "-F", "-T", &at, "-o", "readonly=on", "tank"]);
        let shown = lab.fs(&["ls", "tank:/"]);
        lab.pool(&["export", "tank"]);
        shown == "monday\n"
    });
    assert_eq!(hash(&lab.path("tank.img")), before);
    let monday = monday.expect("the state of monday is kept").to_string();
    assert_snapshot!(lab.session(&[
        &format!("pool import -d . -F -n -T {monday} tank"),
        &format!("pool import -d . -F -T {monday} tank"),
        "fs ls tank:/",
        "pool export tank",
        "pool check -d . tank",
        "pool import -d . -F -n -T 99999 tank",
        "pool import -d . -T 5 tank",
        "pool import -d . -F",
    ]), @r"
    $ pool import -d . -F -n -T [TXG] tank
    pool 'tank' would go back [TIME]
      newest: transaction group [TXG], of [DATE]
      would take: transaction group [TXG], of [DATE]
    What was done in the [TIME] after that would be lost. Nothing was written.
    to do it: pool import -F -T [TXG] tank
    [exit 0]
    $ pool import -d . -F -T [TXG] tank
    pool 'tank' has gone back [TIME]
      newest: transaction group [TXG], of [DATE]
      took: transaction group [TXG], of [DATE]
    What was done in the [TIME] after that is lost.
    [exit 0]
    $ fs ls tank:/
    monday
    [exit 0]
    $ pool export tank
    [exit 0]
    $ pool check -d . tank
    checked pool 'tank' at transaction group [TXG]: 1 data sets and snapshots, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    $ pool import -d . -F -n -T [TXG] tank
    pool: cannot rewind 'tank': it has no state of transaction group [TXG]: its devices keep states from [TXG] to [TXG]
    [exit 1]
    $ pool import -d . -T [TXG] tank
    error: the following required arguments were not provided:
      -F

    Usage: pool import -F -d <DIRECTORY|DEVICE> -T <TXG> <POOL|GUID> [NEWNAME]

    For more information, try '--help'.
    [exit 2]
    $ pool import -d . -F
    error: the following required arguments were not provided:
      <POOL|GUID>

    Usage: pool import -d <DIRECTORY|DEVICE> -F <POOL|GUID> [NEWNAME]

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn a_state_whose_data_sets_cannot_be_read_is_passed_over() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let pool = opened(&lab);
    let datasets = dataset::admin::Datasets::open(pool.engine().clone(), "tank".parse().unwrap()).unwrap();
    let head = datasets.open_dataset(&"tank".parse().unwrap()).unwrap().head().clone();
    let (root, _) = head.clean_root().unwrap();
    drop((head, datasets, pool));
    wreck(&lab, &root);
    lab.pool(&["import", "-d", ".", "-F", "tank"]);
    assert_eq!(lab.fs(&["ls", "tank:/"]), "monday\ntuesday\n");
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", ".", "tank"]);
}

#[test]
fn a_pool_without_any_readable_state_says_what_is_wrong_with_each() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let device = image(&lab);
    device.write_at(DATA_START, &vec![0xee; 32 << 20]).unwrap();
    drop(device);
    let refused = lab.run("pool", &["import", "-d", ".", "-F", "-n", "tank"]).fails(1);
    assert!(refused.starts_with("pool: cannot rewind 'tank': none of the states can be read\n"), "{refused}");
    assert_eq!(refused.lines().count(), 1 + states(&lab).len(), "{refused}");
}

/// Uses everything of a pool that reads.
fn read_everything(lab: &Lab, mounted: bool) {
    assert_eq!(lab.fs(&["ls", "tank/a:/"]), "file\nold\n");
    assert_eq!(lab.fs(&["cat", "tank/a:/file"]), "text");
    assert!(!lab.run("fs", &["send", "tank/a@now"]).ok().is_empty());
    for words in [&["list", "-t", "all"][..], &["get", "all", "tank/a"], &["diff", "tank/a@now", "tank/a"]] {
        lab.fs(words);
    }
    for words in [&["status"][..], &["list", "-v"], &["history"], &["get", "all"], &["sync"]] {
        lab.pool(words);
    }
    for words in [&["set", "atime=off", "tank/a"][..], &["snapshot", "tank/a@b"], &["destroy", "tank/a"]] {
        lab.run("fs", words).fails(1);
    }
    lab.run("pool", &["set", "comment=x", "tank"]).fails(1);
    if mounted {
        lab.fs(&["mount", "-a"]);
        let folder = lab.mount("tank/a");
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"text");
        assert_eq!(fs::read(folder.join(".zfs/snapshot/now/file")).unwrap(), b"text");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        assert!(fs::write(folder.join("new"), "x").is_err());
        assert!(fs::remove_file(folder.join("file")).is_err());
    }
}

/// Imports a pool to be read only, reads all, exports it, and compares the image with what it was.
fn reads_and_writes_nothing(lab: &Lab, mounted: bool) {
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-O", "atime=on", "-O", "relatime=off", "-m", &mountpoint, "tank", "64M:tank.img"]);
    lab.fs(&["create", "tank/a"]);
    fs::write(lab.path("text"), "text").unwrap();
    lab.fs(&["cp", "text", "tank/a:/file"]);
    lab.fs(&["cp", "text", "tank/a:/old"]);
    lab.fs(&["snapshot", "tank/a@now"]);
    lab.pool(&["export", "tank"]);
    let before = hash(&lab.path("tank.img"));
    lab.pool(&["import", "-d", ".", "-o", "readonly=on", "tank"]);
    read_everything(lab, mounted);
    assert_eq!(hash(&lab.path("tank.img")), before, "while it is imported");
    // The kernel tells of files that were closed a moment later.
    lab::wait_until("the pool is exported", || lab.run("pool", &["export", "tank"]).code == Some(0));
    assert_eq!(hash(&lab.path("tank.img")), before, "after it was exported");
    lab.pool(&["import", "-d", "."]);
    lab.pool(&["check", "-d", ".", "tank"]);
    assert_eq!(hash(&lab.path("tank.img")), before, "after it was looked for and checked");
}

#[test]
fn a_pool_imported_to_be_read_only_is_not_written_by_commands() {
    reads_and_writes_nothing(&Lab::mountless(), false);
}

#[test]
fn a_pool_imported_to_be_read_only_is_not_written_by_its_service() {
    if lab::can_mount() {
        reads_and_writes_nothing(&Lab::new(), true);
    }
}

/// Leaves `tank` as a crash would that happened on another host.
fn crashed_elsewhere(lab: &Lab) {
    let options = OpenOptions { host: (7, "elsewhere".into()), force: true, ..OpenOptions::default() };
    open(vec![std::sync::Arc::new(image(lab))], &options, std::sync::Arc::new(SystemEnv)).unwrap();
}

#[test]
fn a_pool_of_another_host_is_taken_only_by_force() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    crashed_elsewhere(&lab);
    assert_snapshot!(lab.session(&[
        "pool import -d .",
        "pool import -d . tank",
        "pool import -d . -F tank",
        "pool import -d . -f tank",
    ]), @r"
    $ pool import -d .
      pool: tank
      id: [GUID]
     state: ONLINE
    status: The pool was last used by host 'elsewhere'.
    action: The pool can be imported using its name or numeric identifier and the '-f' flag.
    config:

    	tank  ONLINE
    	  [LAB]/tank.img  ONLINE
    [exit 0]
    $ pool import -d . tank
    pool: cannot open 'tank': pool tank may be in use by host elsewhere; export it there, or use -f if that host is gone
    [exit 1]
    $ pool import -d . -F tank
    pool: cannot open 'tank': pool tank may be in use by host elsewhere; export it there, or use -f if that host is gone
    [exit 1]
    $ pool import -d . -f tank
    [exit 0]
    ");
    // The pool is known here, and the other host takes it behind our back.
    crashed_elsewhere(&lab);
    assert_snapshot!(lab.session(&["fs ls tank:/", "pool import -f tank", "fs ls tank:/"]), @r"
    $ fs ls tank:/
    fs: cannot open 'tank': pool tank may be in use by host elsewhere; export it there, or use -f if that host is gone
    [exit 1]
    $ pool import -f tank
    [exit 0]
    $ fs ls tank:/
    monday
    tuesday
    wednesday
    [exit 0]
    ");
}

/// A lab whose commands belong to another user of the same machine, as far as folders go.
struct Rival<'a> {
    lab: &'a Lab,
    name: String,
}

impl Rival<'_> {
    fn command(&self, program: &str, words: &[&str]) -> std::process::Command {
        let mut command = self.lab.command(program, words);
        let folder = |of: &str| self.lab.path(&format!("{}-{of}", self.name));
        command.env("CENOTE_STATE", folder("state")).env("CENOTE_RUN", folder("run"));
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> std::process::Output {
        self.command(program, words).output().unwrap()
    }
}

impl Drop for Rival<'_> {
    fn drop(&mut self) {
        // Exported already, unless the test has failed.
        let _ = self.command("pool", &["export", "-f", "tank"]).output();
    }
}

fn rivals(lab: &Lab) -> Vec<Rival<'_>> {
    (0..6).map(|number| Rival { lab, name: format!("rival{number}") }).collect()
}

/// A loop device on the image, where this process may make one.
struct Loop(String);

impl Loop {
    fn on(image: &Path) -> Option<Loop> {
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        output.status.success().then(|| Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A loop device that stays is in nobody's way.
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// The names under which the image of `tank` can be opened here.
fn names(lab: &Lab) -> (Vec<String>, Option<Loop>) {
    std::os::unix::fs::symlink(lab.path("tank.img"), lab.path("symlink")).unwrap();
    fs::hard_link(lab.path("tank.img"), lab.path("hardlink")).unwrap();
    let device = Loop::on(&lab.path("tank.img"));
    let names = ["tank.img", "symlink", "hardlink"].map(|name| lab.at(name));
    (names.into_iter().chain(device.iter().map(|device| device.0.clone())).collect(), device)
}

/// Who of many that do the same at the same time has succeeded, and what the others were told.
fn race<'a>(rivals: &'a [Rival<'a>], words: impl Fn(usize) -> Vec<String>) -> (Vec<&'a Rival<'a>>, Vec<String>) {
    use std::process::Stdio;
    let start = |(index, rival): (usize, &'a Rival<'a>)| {
        let words = words(index);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = rival.command("pool", &words);
        (rival, command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let started: Vec<_> = rivals.iter().enumerate().map(start).collect();
    let (mut winners, mut told) = (Vec::new(), Vec::new());
    for (rival, child) in started {
        let output = child.wait_with_output().unwrap();
        match output.status.success() {
            true => winners.push(rival),
            false => told.push(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
    (winners, told)
}

#[test]
fn of_many_that_import_one_image_at_once_exactly_one_gets_it() {
    if !lab::can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "64M");
    lab.pool(&["export", "tank"]);
    let (names, _device) = names(&lab);
    let rivals = rivals(&lab);
    for round in 0..3 {
        let words = |index: usize| {
            let place = &names[(index + round) % names.len()];
            ["import", "-N", "-d", place, "tank"].map(str::to_owned).to_vec()
        };
        let (winners, told) = race(&rivals, words);
        assert_eq!(winners.len(), 1, "round {round}: {told:#?}");
        assert!(told.iter().all(|told| told.contains("is in use by")), "round {round}: {told:#?}");
        for rival in &rivals {
            let listed = String::from_utf8(rival.run("pool", &["list", "-H", "-o", "name"]).stdout).unwrap();
            assert_eq!(listed.trim() == "tank", rival.name == winners[0].name, "{}: {listed}", rival.name);
        }
        // Whoever looks for it is not shown what cannot be had, and whoever asks for it is told who has it.
        let others = rivals.iter().find(|rival| rival.name != winners[0].name).unwrap();
        for name in &names {
            let shown = others.run("pool", &["import", "-d", name]);
            assert!(!shown.status.success(), "{}", String::from_utf8_lossy(&shown.stdout));
            let refused = others.run("pool", &["import", "-f", "-d", name, "tank"]);
            let refused = String::from_utf8(refused.stderr).unwrap();
            assert!(refused.contains("is in use by process") && refused.contains("service tank"), "{name}: {refused}");
        }
        assert!(winners[0].run("pool", &["export", "tank"]).status.success());
    }
    lab.pool(&["check", "-d", &names[0], "tank"]);
}

#[test]
fn commands_without_services_never_write_at_once() {
    let lab = Lab::mountless();
    lab.create("tank", "64M");
    lab.pool(&["export", "tank"]);
    let (names, _device) = names(&lab);
    let rivals = rivals(&lab);
    for (index, rival) in rivals.iter().enumerate() {
        let output = rival.run("pool", &["import", "-d", &names[index % names.len()], "tank"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (mut winners, mut told) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let work = |rival: &Rival<'_>| -> Vec<Result<String, String>> {
            (0..5)
                .map(|turn| {
                    let name = format!("tank/{}-{turn}", rival.name);
                    let output = rival.run("fs", &["create", &name]);
                    if output.status.success() { Ok(name) } else { Err(String::from_utf8(output.stderr).unwrap()) }
                })
                .collect()
        };
        let running: Vec<_> = rivals.iter().map(|rival| scope.spawn(move || work(rival))).collect();
        for result in running.into_iter().flat_map(|running| running.join().unwrap()) {
            match result {
                Ok(name) => winners.push(name),
                Err(text) => told.push(text),
            }
        }
    });
    assert!(!winners.is_empty() && told.iter().all(|told| told.contains("is in use by")), "{told:#?}");
    winners.sort();
    let listed = String::from_utf8(rivals[0].run("fs", &["list", "-H", "-o", "name", "-r", "tank"]).stdout).unwrap();
    let mut listed: Vec<&str> = listed.lines().filter(|name| *name != "tank").collect();
    listed.sort_unstable();
    assert_eq!(listed, winners);
    assert!(rivals[0].run("pool", &["export", "tank"]).status.success());
    lab.pool(&["check", "-d", &names[0], "tank"]);
}

#[test]
fn what_a_killed_service_had_is_taken_over_without_a_word() {
    if !lab::can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "64M");
    lab.kill("tank");
    let rival = Rival { lab: &lab, name: "rival".into() };
    let output = rival.run("pool", &["import", "-N", "-d", &lab.at("tank.img"), "tank"]);
    assert!(output.status.success());
    assert_eq!((output.stdout, String::from_utf8(output.stderr).unwrap()), (Vec::new(), String::new()));
    let refused = lab.run("pool", &["import", "tank"]).fails(1);
    assert!(refused.contains("is in use by process"), "{refused}");
    assert!(rival.run("pool", &["export", "tank"]).status.success());
    lab.pool(&["import", "tank"]);
}

#[test]
fn a_pool_is_verified_while_it_is_written() {
    if !lab::can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.create("tank", "256M");
    lab.fs(&["create", "tank/a"]);
    let (folder, done) = (lab.mount("tank/a"), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0u64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 0..8 {
                    fs::write(folder.join(format!("file{number}")), lab::noise(200_000, round + number)).unwrap();
                }
                round += 8;
                lab.fs(&["snapshot", &format!("tank/a@{round}")]);
                if round > 24 {
                    lab.fs(&["destroy", &format!("tank/a@{}", round - 24)]);
                }
                lab.pool(&["sync", "tank"]);
            }
        });
        for _ in 0..8 {
            let run = lab.run("pool", &["check", "tank"]);
            if run.code != Some(0) {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert!(run.ok().ends_with("no errors found\n"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    let held = fs::File::create(folder.join("unlinked")).unwrap();
    fs::remove_file(folder.join("unlinked")).unwrap();
    lab.pool(&["sync", "tank"]);
    let checked = lab.pool(&["check", "tank"]);
    assert!(checked.contains("1 file without a name still to be freed\n"), "{checked}");
    drop(held);
    lab.check("tank");
}

#[test]
fn what_a_check_finds_has_a_number() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    lab.pool(&["import", "-d", ".", "tank"]);
    assert_snapshot!(lab.session(&["pool check tank"]), @r#"
    $ pool check tank
    checked pool 'tank' at transaction group [TXG]: 1 data sets and snapshots, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    "#);
    lab.pool(&["export", "tank"]);
    wreck(&lab, &states(&lab)[0].catalogue);
    let found = lab.run("pool", &["check", "-d", ".", "tank"]);
    assert_eq!(found.code, Some(3));
    assert!(found.text().contains("\n  unreadable pool: C006 "), "{}", found.text());
    let json = lab.run("pool", &["check", "-d", ".", "-j", "tank"]).text();
    assert!(json.contains("\"code\": 6,") && json.contains("\"kind\": \"unreadable pool\""), "{json}");
}

#[test]
fn structures_are_shown_and_what_is_damaged_is_said_to_be() {
    let (lab, _filters) = (three_days(), filters_of_structures().bind_to_scope());
    assert_snapshot!(lab.session(&["pool debug file -d . tank:/monday", "pool debug file -d . -j tank:/monday"]), @r#"
    $ pool debug file -d . tank:/monday
    file: path /monday, inode 2
    inode: key (2, 16, 0x0), says Inode { file_type: Regular, mode: 420, flags: 0, nlink: 1, uid: [N], gid: [N], project: [N], rdev: 0, size: 6000, bytes: 6000, record_shift: 17, generation: [N], atime: [GUID], mtime: [GUID], ctime: [GUID], crtime: [GUID], parent: Link { dir: 1, offset: [GUID] } }
    extent: key (2, 80, 0x0), says 6000 bytes from 0 of its block, block [AT] [N]/6000 bytes, Lz4, Blake3, born [TXG]
    [exit 0]
    $ pool debug file -d . -j tank:/monday
    {"depth":0,"what":"file","path":"/monday","inode":"2"}
    {"depth":0,"what":"inode","key":"(2, 16, 0x0)","says":"Inode { file_type: Regular, mode: 420, flags: 0, nlink: 1, uid: [N], gid: [N], project: [N], rdev: 0, size: 6000, bytes: 6000, record_shift: 17, generation: [N], atime: [GUID], mtime: [GUID], ctime: [GUID], crtime: [GUID], parent: Link { dir: 1, offset: [GUID] } }"}
    {"depth":0,"what":"extent","key":"(2, 80, 0x0)","says":"6000 bytes from 0 of its block","block":"[AT] [N]/6000 bytes, Lz4, Blake3, born [TXG]"}
    [exit 0]
    "#);
    let tree = lab.pool(&["debug", "tree", "-d", ".", "tank"]);
    assert!(tree.starts_with("leaf: level 0, from (0, 0, 0x0), entries "), "{tree}");
    for name in ["monday", "tuesday", "wednesday"] {
        assert!(tree.contains(&format!("says {name} -> ")), "{tree}");
    }
    let missing = lab.run("pool", &["debug", "file", "-d", ".", "tank:/no"]).fails(1);
    assert_eq!(missing, "pool: cannot look into '/no': No such file or directory\n");
    let labels = lab.pool(&["debug", "label", "tank.img"]);
    assert_eq!(labels.matches("label: number").count(), 4, "{labels}");
    let rings = lab.pool(&["debug", "uberblocks", "tank.img"]);
    assert_eq!(rings.matches("  uberblock: slot").count(), 4 * states(&lab).len(), "{rings}");
    let catalogue = lab.pool(&["debug", "catalogue", "-d", ".", "tank"]);
    assert!(catalogue.contains("data set: key") && catalogue.contains("history: key"), "{catalogue}");
    let space = lab.pool(&["debug", "space", "-d", ".", "tank"]);
    assert_eq!(space.matches("  chunk: id").count(), 62, "{space}");
    let log = lab.pool(&["debug", "log", "-d", ".", "tank"]);
    assert!(log.matches("log block: txg").count() > 3 && !log.contains("damaged"), "{log}");
    for what in ["label", "uberblocks"] {
        for line in lab.pool(&["debug", what, "-j", "tank.img"]).lines() {
            assert!(line.starts_with("{\"depth\":") && line.ends_with('}'), "{line}");
        }
    }
    // Everything behind the labels is overwritten, then the labels themselves.
    let device = image(&lab);
    device.write_at(DATA_START, &vec![0xee; 32 << 20]).unwrap();
    device.write_at(0, &vec![0x55; 128 << 10]).unwrap();
    drop(device);
    for (what, said) in [("space", "damaged chunk table"), ("log", "damaged log block")] {
        let shown = lab.pool(&["debug", what, "-d", ".", "tank"]);
        assert!(shown.contains("space root: chunks 62") && shown.contains(said), "{shown}");
    }
    let refused = lab.run("pool", &["debug", "catalogue", "-d", ".", "tank"]).fails(1);
    assert!(refused.contains("what can be read before space is known: pool debug space tank"), "{refused}");
    assert!(lab.pool(&["debug", "label", "tank.img"]).starts_with("no label: number 0, offset 0\n"));
    fs::write(lab.path("noise"), lab::noise(4 << 20, 5)).unwrap();
    assert_eq!(lab.pool(&["debug", "label", "noise"]).matches("no label").count(), 4);
}

/// Replaces what differs in the structures from run to run.
fn filters_of_structures() -> Settings {
    let mut settings = filters();
    settings.add_filter(r"(uid|gid|generation|project): \d+", "$1: [N]");
    settings.add_filter(r"(.time|crtime): \d+", "$1: [TIME]");
    settings.add_filter(r"\d+:\d+ \d+/", "[AT] [N]/");
    settings.add_filter(r"born \d+ logically \d+", "born [TXG]");
    settings.add_filter(r"offset: \d{6,}", "offset: [HASH]");
    settings.add_filter(r"seed: \d+", "seed: [SEED]");
    settings
}

#[test]
fn a_damaged_tree_is_shown_around_the_damage() {
    let lab = three_days();
    let (newest, older) = (states(&lab)[0].clone(), states(&lab)[2].txg.0.to_string());
    wreck(&lab, &newest.catalogue);
    let shown = lab.pool(&["debug", "catalogue", "-d", ".", "tank"]);
    assert!(shown.contains("damaged node, and all under it: problem damaged block at chunk"), "{shown}");
    assert!(lab.pool(&["debug", "tree", "-d", ".", "-T", &older, "tank"]).contains("inode: key"));
    let mut command = lab.command("pool", &["debug", "uberblocks", "tank.img"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // A reader that goes away early is no error.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[test]
fn a_pool_in_use_shows_its_labels_and_nothing_that_changes() {
    if !lab::can_mount() {
        return;
    }
    let (lab, _filters) = (Lab::new(), filters().bind_to_scope());
    lab.create("tank", "64M");
    assert_snapshot!(lab.session(&["pool debug space tank", "pool debug tree tank"]), @r#"
    $ pool debug space tank
    pool: cannot look into 'tank': it is in use, and changes all the time
      export it first: pool export tank
    [exit 1]
    $ pool debug tree tank
    pool: cannot look into 'tank': it is in use, and changes all the time
      export it first: pool export tank
    [exit 1]
    "#);
    assert_eq!(lab.pool(&["debug", "label", "tank.img"]).matches("label: number").count(), 4);
}
