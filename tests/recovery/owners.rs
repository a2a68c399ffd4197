//! Several candidates for one pool: another host that may still have the pool open, and rivals on the same machine with
//! different names for its image. Exactly one gets the pool, and the rest are told the owner.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use insta::assert_snapshot;
use pool::{
    admin::{OpenOptions, open},
    env::SystemEnv,
};

use crate::{
    filters, image,
    lab::{self, Lab, loops::Loop},
    three_days,
};

/// Leaves `tank` as after a crash on another host.
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
    action: The pool can be imported using its name or numeric identifier and
    	the '-f' flag.
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
    // The pool is registered here, and another host takes over unnoticed.
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

/// A lab of another user of the same machine, with folders of its own.
struct Rival<'a> {
    lab: &'a Lab,
    name: String,
}

impl Rival<'_> {
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = self.lab.command(program, words);
        let folder = |of: &str| self.lab.path(&format!("{}-{of}", self.name));
        command.env("CENOTE_STATE", folder("state")).env("CENOTE_RUN", folder("run"));
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> Output {
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

/// The names of `tank`'s image that can be opened here.
fn names(lab: &Lab) -> (Vec<String>, Option<Loop>) {
    std::os::unix::fs::symlink(lab.path("tank.img"), lab.path("symlink")).unwrap();
    fs::hard_link(lab.path("tank.img"), lab.path("hardlink")).unwrap();
    let device = Loop::on(&lab.path("tank.img"), false);
    let names = ["tank.img", "symlink", "hardlink"].map(|name| lab.at(name));
    (names.into_iter().chain(device.iter().map(|device| device.device.clone())).collect(), device)
}

/// Runs a command by all rivals at once. Returns the successful rivals, and the messages to the rest.
fn race<'a>(rivals: &'a [Rival<'a>], words: impl Fn(usize) -> Vec<String>) -> (Vec<&'a Rival<'a>>, Vec<String>) {
    let start = |(index, rival): (usize, &'a Rival<'a>)| {
        let words = words(index);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = rival.command("pool", &words);
        (rival, command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let started: Vec<_> = rivals.iter().enumerate().map(start).collect();
    let (mut winners, mut refused) = (Vec::new(), Vec::new());
    for (rival, child) in started {
        let output = child.wait_with_output().unwrap();
        match output.status.success() {
            true => winners.push(rival),
            false => refused.push(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
    (winners, refused)
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
        let (winners, refused) = race(&rivals, words);
        assert_eq!(winners.len(), 1, "round {round}: {refused:#?}");
        assert!(refused.iter().all(|refused| refused.contains("is in use by")), "round {round}: {refused:#?}");
        for rival in &rivals {
            let listed = String::from_utf8(rival.run("pool", &["list", "-H", "-o", "name"]).stdout).unwrap();
            assert_eq!(listed.trim() == "tank", rival.name == winners[0].name, "{}: {listed}", rival.name);
        }
        // A listing does not show pools in use by another process, and an import names the owner.
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
    let (mut winners, mut refused) = (Vec::new(), Vec::new());
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
                Err(text) => refused.push(text),
            }
        }
    });
    assert!(!winners.is_empty() && refused.iter().all(|refused| refused.contains("is in use by")), "{refused:#?}");
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
