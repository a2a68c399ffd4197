//! Cenote used by an ordinary user, with the folders and mount points of an ordinary home.
//!
//! Root runs these tests in a mount namespace of their own: there a node of the FUSE device, open to all users or to
//! none, covers the machine's `/dev/fuse`, and the real programs run under an otherwise unused user number. The set-uid
//! program `fusermount3` makes the mounts. If any of this is impossible, the tests are skipped and print why; with
//! `CENOTE_REQUIRE_USERS` they fail.

mod lab;

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use lab::{Lab, wait_until};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// The number of an otherwise unused user and group.
fn number() -> u32 {
    100_000 + std::process::id() % 100_000
}

/// A user with a home, and the user's namespace.
struct User {
    lab: Lab,
    /// Keeps the namespace until its standard input ends.
    namespace: Child,
    home: PathBuf,
}

impl User {
    /// A user for whom the device has this mode, on a machine with this `/etc/fuse.conf`; `None`, after printing why,
    /// if the environment cannot be set up.
    fn new(device_mode: u32, fuse_conf: &str) -> Option<User> {
        match User::arrange(device_mode, fuse_conf) {
            Ok(user) => Some(user),
            Err(why) => {
                assert!(std::env::var_os("CENOTE_REQUIRE_USERS").is_none(), "{why}");
                // Past the test harness, which hides the output of passing tests.
                let _ = writeln!(std::io::stderr(), "skipped: {why}");
                None
            }
        }
    }

    fn arrange(device_mode: u32, fuse_conf: &str) -> Result<User, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root becomes another user".into());
        }
        for program in ["unshare", "nsenter", "setpriv", "fusermount3"] {
            let found = Command::new("sh").args(["-c", "command -v \"$0\" >&2", program]).output();
            if !found.is_ok_and(|output| output.status.success()) {
                return Err(format!("there is no {program}"));
            }
        }
        let lab = Lab::new();
        let (home, programs) = (lab.path("home"), lab.path("bin"));
        let (node, passwd, configuration) = (lab.path("fuse"), lab.path("passwd"), lab.path("fuse.conf"));
        let make = || {
            fs::set_permissions(lab.path(""), Permissions::from_mode(0o755))?;
            fs::create_dir(&home)?;
            chown(&home, Some(number()), Some(number()))?;
            // The build folder may be closed to other users.
            fs::create_dir(&programs)?;
            fs::copy(env!("CARGO_BIN_EXE_pool"), programs.join("pool"))?;
            fs::copy(env!("CARGO_BIN_EXE_fs"), programs.join("fs"))?;
            mknodat(CWD, &node, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(10, 229))?;
            fs::set_permissions(&node, Permissions::from_mode(device_mode))?;
            fs::write(&configuration, fuse_conf)?;
            // The helper requires the user to have a name.
            let entry = format!("somebody:x:{0}:{0}::{1}:/bin/sh\n", number(), home.display());
            fs::write(&passwd, fs::read_to_string("/etc/passwd")? + &entry)
        };
        make().map_err(|error| format!("no FUSE device for somebody else: {error}"))?;
        let script = "mount --bind \"$0\" /dev/fuse && mount --bind \"$1\" /etc/passwd && \
                      mount --bind \"$2\" /etc/fuse.conf && echo ready && exec cat";
        let mut namespace = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", script])
            .args([&node, &passwd, &configuration])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut said = String::new();
        let _ = BufReader::new(namespace.stdout.as_mut().expect("it was asked for")).read_line(&mut said);
        let user = User { lab, namespace, home };
        if said != "ready\n" {
            return Err("there are no mount namespaces, or no /dev/fuse to put another one over".into());
        }
        let opened = user.run("exec 3<>/dev/fuse").status.success();
        let permitted = device_mode & 0o006 == 0o006;
        if opened == permitted {
            Ok(user)
        } else {
            Err("device nodes do not work in the folder for temporary files".into())
        }
    }

    /// Runs a script in the home.
    fn run(&self, script: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()));
        let number = number().to_string();
        command.args(["setpriv", "--reuid", &number, "--regid", &number, "--clear-groups"]);
        command.args(["sh", "-ec", &format!("cd \"$HOME\"\n{script}")]).env_clear();
        command.env("HOME", &self.home).env("XDG_RUNTIME_DIR", self.home.join("run")).env("TZ", "UTC");
        command.env("CENOTE_RESTART", "0");
        command.env("PATH", format!("{}:/usr/bin:/bin", self.lab.at("bin")));
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a script, which must succeed.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let Output { status, stdout, stderr } = self.run(script);
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{script}\n{status}\n{stdout}{stderr}");
        stdout.into_owned()
    }

    /// The standard error of a script, which must fail.
    #[track_caller]
    fn fails(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(!output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Kills the process that serves the user's pool.
    fn kill_service(&self) {
        let program = self.lab.path("bin/pool");
        let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let serves = |pid: &u32| words(*pid).starts_with(&[program.as_os_str().as_bytes(), b"\0service\0"].concat());
        let processes =
            || fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let pid = processes().find(serves).expect("the pool has a service");
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        wait_until("the service is gone", || !serves(&pid));
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.run("for pool in $(pool list -H -o name); do pool export -f $pool; done");
        drop(self.namespace.stdin.take());
        let _ = self.namespace.wait();
    }
}

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    let Some(user) = User::new(0o666, "user_allow_other\n") else { return };
    user.sh("pool create tank 256M:tank.img; fs create tank/work");
    let mounted = user.sh("grep \" $HOME/tank/work \" /proc/self/mountinfo");
    assert!(mounted.contains("nosuid") && mounted.contains(&format!("user_id={}", number())), "{mounted}");
    assert_eq!(
        user.sh("fs list -H -o name,mountpoint").replace(&user.home.display().to_string(), "~"),
        "tank\t~/tank\ntank/work\t~/tank/work\n"
    );

    user.sh("cd tank/work; echo text > file; ln file second; ln -s file link; mkdir -m 700 folder; mkfifo pipe; chmod 4755 file");
    assert_eq!(user.sh("stat -c '%u %g %a %h' tank/work/file"), format!("{0} {0} 4755 2\n", number()));
    user.sh("fs snapshot tank/work@one; rm -r tank/work/*; echo other > tank/work/file");
    assert_eq!(user.sh("cat tank/work/.zfs/snapshot/one/second"), "text\n");
    assert_eq!(
        user.sh("fs rollback tank/work@one; cat tank/work/link; ls tank/work"),
        "text\nfile\nfolder\nlink\npipe\nsecond\n"
    );
    user.sh("fs send tank/work@one > stream; fs receive tank/copy < stream; cmp tank/work/file tank/copy/file");
    user.sh("fs clone tank/work@one tank/clone; cmp tank/work/file tank/clone/file; fs destroy tank/clone");

    // A dataset in use stays mounted; an unused one is unmounted and mounted again.
    assert!(user.fails("exec 3< tank/work/file; fs unmount tank/work").contains("in use"));
    user.sh("fs unmount tank/work; test ! -e tank/work/file; fs mount tank/work; test -e tank/work/file");
    user.sh("fs set mountpoint=$HOME/elsewhere tank/work; test -e elsewhere/file; fs inherit mountpoint tank/work");

    user.sh("pool export tank; test ! -e tank/work; ! grep \" $HOME/tank\" /proc/self/mountinfo; pool check -d . tank");
    assert_eq!(user.sh("pool import -d . tank; cat tank/work/file"), "text\n");

    // After a kill the mounts are dead; the next import repairs them.
    user.sh("echo kept > tank/work/kept; fs snapshot tank/work@two");
    user.kill_service();
    assert_eq!(user.sh("pool import tank; cat tank/work/kept"), "kept\n");
    user.sh("pool export tank; pool check -d . tank; pool import -d . tank; pool destroy -f tank");
    assert_eq!(user.sh("pool list -H; test ! -e tank"), "");
}

#[test]
fn mounts_below_mounts_need_them_shared_or_a_plain_folder() {
    let Some(user) = User::new(0o666, "") else { return };
    user.sh("pool create tank 256M:tank.img; echo text > tank/file");
    let refused = user.fails("fs create tank/work");
    assert!(refused.contains("created, but not mounted") && refused.contains("canmount=off"), "{refused}");
    user.sh("fs set canmount=off tank; fs mount -a; test ! -e tank/file; echo text > tank/work/file");
    user.sh("fs snapshot tank/work@one; pool export tank; pool import -d . tank; cmp tank/work/file tank/work/.zfs/snapshot/one/file");
    user.sh("pool export tank; pool check -d . tank");
}

#[test]
fn the_tour_takes_ordinary_users_along() {
    let Some(user) = User::new(0o666, "") else { return };
    user.sh("mkdir source; echo one > source/one; ln source/one source/two; ln -s one source/three");
    let said = user.sh("pool tour source");
    assert!(said.contains("files go through the kernel") && said.contains("All is well"), "{said}");
    assert!(said.contains("scrub repaired") && said.contains("with 0 errors"), "{said}");
    assert!(said.contains("state: DEGRADED") && said.contains("state: ONLINE"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() < 80), "{said}");
}

#[test]
fn a_user_without_fuse_works_without_mounts() {
    let Some(user) = User::new(0o600, "") else { return };
    let created = user.run("pool create tank 256M:tank.img");
    assert!(created.status.success(), "{created:?}");
    user.sh("fs create tank/work; ! grep \" $HOME/\" /proc/self/mountinfo");
    user.sh("mkdir tree; echo text > tree/file; ln tree/file tree/second; chmod 750 tree/file");
    user.sh("fs cp -r tree tank/work:/; fs snapshot tank/work@one; echo more > more; fs cp more tank/work:/tree/file");
    assert_eq!(user.sh("fs cat tank/work:/tree/file tank/work@one:/tree/file"), "more\ntext\n");
    user.sh("fs rollback tank/work@one; mkdir back; fs cp -r tank/work:/tree back; diff -r tree back/tree");
    assert_eq!(user.sh("stat -c '%a %h %u' back/tree/file"), format!("750 2 {}\n", number()));
    user.sh("fs send tank/work@one > stream; fs receive tank/copy < stream");
    let refused = user.fails("fs mount tank/work");
    assert!(refused.contains("/dev/fuse"), "{refused}");
    user.sh("pool export tank; pool check -d . tank; pool import -d . tank; fs cat tank/copy:/tree/file; pool destroy -f tank");
}

/// A container without privileges: its root is an ordinary user outside, and the only user number inside.
#[test]
fn an_unprivileged_container_mounts_given_the_device() {
    let inside = "export CENOTE_STATE=$HOME/state CENOTE_RUN=$HOME/run; mkdir $CENOTE_STATE $CENOTE_RUN; id -u;";
    let enter = |script: &str| format!("unshare --user --map-root-user --mount sh -ec '{inside}{script}'");
    let Some(user) = User::new(0o666, "") else { return };
    if !user.run("unshare --user --map-root-user --mount mount -t tmpfs none /mnt").status.success() {
        let _ = writeln!(std::io::stderr(), "skipped: this system lets no ordinary user have a container");
        return;
    }
    let said = user.sh(&enter(
        "pool create -m $HOME/tank tank 256M:$HOME/tank.img; fs create tank/work; echo text > tank/work/file;
         chmod 4755 tank/work/file; stat -c \"%u %g %a\" tank/work/file; chown 5 tank/work/file || echo nobody;
         fs snapshot tank/work@one; rm tank/work/file; cat tank/work/.zfs/snapshot/one/file;
         fs rollback tank/work@one; cat tank/work/file; pool export tank; test ! -e tank/work; pool check -d $HOME tank",
    ));
    assert!(said.starts_with("0\n0 0 4755\nnobody\ntext\ntext\n"), "{said}");
    // Outside, the same image is an ordinary user's.
    assert_eq!(user.sh("pool import -N -d . tank; fs cat tank/work:/file; pool export tank"), "text\n");

    let Some(user) = User::new(0o600, "") else { return };
    let said = user.sh(&enter(
        "pool create -m $HOME/tank tank 256M:$HOME/tank.img; fs create tank/work; echo text > file;
         fs cp file tank/work:/file; fs cat tank/work:/file; pool export tank",
    ));
    assert_eq!(said, "0\ntext\n");
}

/// A user's own namespace does not make that user root: the same pools are known.
#[test]
fn user_0_of_a_namespace_is_its_maker() {
    let Some(user) = User::new(0o666, "") else { return };
    user.sh("pool create tank 64M:tank.img");
    let within = "unshare --user --map-root-user";
    if !user.run(&format!("{within} true")).status.success() {
        return;
    }
    assert_eq!(user.sh(&format!("{within} pool list -H -o name")), "tank\n");
    assert_eq!(user.sh(&format!("{within} fs get -Ho value mounted tank")), "yes\n");
}

/// Writes a hook that appends the user who runs it to `said`, with this owner and mode.
fn plant_hook(folder: &Path, name: &str, said: &Path, (owner, mode): (u32, u32)) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\necho {name} $(id -u) $ZEVENT_POOL >>{}\n", said.display())).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
}

#[test]
fn a_pool_runs_the_hooks_of_its_user_only_and_as_that_user() {
    let Some(user) = User::new(0o666, "user_allow_other\n") else { return };
    user.sh("umask 022; mkdir -p .config/cenote/events.d");
    let (mine, said) = (user.home.join(".config/cenote/events.d"), user.home.join("said"));
    plant_hook(&mine, "scrub_finish-mine", &said, (number(), 0o755));
    plant_hook(&mine, "scrub_finish-other", &said, (number() + 1, 0o755));
    plant_hook(&mine, "scrub_finish-writable", &said, (number(), 0o775));
    // The folder of root has hooks of root and of the user.
    let (config, noted) = (user.lab.path("config/events.d"), user.lab.path("noted"));
    fs::create_dir_all(&config).unwrap();
    plant_hook(&config, "scrub_finish-root", &noted, (0, 0o755));
    plant_hook(&config, "scrub_finish-users", &noted, (number(), 0o755));

    user.sh("pool create mine 128M:mine.img; pool scrub -w mine");
    user.lab.create("tank", "128M");
    user.lab.pool(&["scrub", "-w", "tank"]);
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    wait_until("both hooks have run", || text(&said).ends_with("mine\n") && text(&noted).ends_with("tank\n"));
    assert_eq!(text(&said), format!("scrub_finish-mine {} mine\n", number()));
    assert_eq!(text(&noted), "scrub_finish-root 0 tank\n");
    let log = text(&user.lab.path("state/log/tank.log"));
    assert!(log.contains("scrub_finish-users is not run: another user owns or can write the file"), "{log}");

    // In a folder that others can write, nothing is run.
    fs::set_permissions(&mine, Permissions::from_mode(0o777)).unwrap();
    user.sh("pool scrub -w mine; sleep 1");
    assert_eq!(text(&said).lines().count(), 1);
    let log = text(&user.home.join(".local/state/cenote/log/mine.log"));
    assert!(log.contains("no hook is run: another user owns or can write"), "{log}");
}
