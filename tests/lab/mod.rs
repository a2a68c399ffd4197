//! An environment for the real programs: a folder of its own for images, state, sockets and mounts, and the two
//! binaries.
//!
//! Dropping the lab ends all its processes and mounts, after a panic too. A test that damages nothing must leave READ,
//! WRITE and CKSUM of all devices at 0: the lab checks the counters before a pool is exported and when dropped. A test
//! that damages something says so: [`Lab::damages`].

#![allow(dead_code, reason = "each test target uses its part of the lab")]

pub(crate) mod crowd;
pub(crate) mod disks;
pub(crate) mod forest;
pub(crate) mod limit;
pub(crate) mod loops;
pub(crate) mod output;
pub(crate) mod stranger;

use std::{
    ffi::OsString,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// One test's environment.
pub(crate) struct Lab {
    folder: tempfile::TempDir,
    mountless: bool,
    /// Restarts crashed services. Otherwise a killed service stays dead, as most tests want.
    restarting: bool,
    /// The words before each command: a program for running it under special conditions.
    prefix: Vec<OsString>,
    /// Devices may have errors.
    damaged: AtomicBool,
    /// Errors of devices in spite of `damaged` being false.
    harm: Mutex<Vec<String>>,
}

/// A command's output and exit status.
#[derive(Debug)]
pub(crate) struct Run {
    /// The program and its arguments.
    pub(crate) line: String,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Run {
    /// The result of a program with its arguments.
    pub(crate) fn of(program: &str, words: &[&str], output: Output) -> Run {
        Run {
            line: format!("{program} {}", words.join(" ")),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    /// The standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The standard output of a successful command.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}{}", self.line, self.text(), self.stderr);
        self.text()
    }

    /// The standard error of a command with this exit code.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\n{}{}", self.line, self.text(), self.stderr);
        self.stderr
    }
}

/// Whether file systems can be mounted here. If not, and `CENOTE_REQUIRE_FUSE` is set, the test fails instead of being
/// skipped.
pub(crate) fn can_mount() -> bool {
    let usable = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    assert!(usable || std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "/dev/fuse cannot be opened");
    if !usable {
        // The test harness would hide the output of a passing test.
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("skipped: no FUSE here");
        }
    }
    usable
}

impl Lab {
    /// A lab whose pools are mounted.
    pub(crate) fn new() -> Lab {
        Lab::of_kind(false)
    }

    /// A lab without services and mounts.
    pub(crate) fn mountless() -> Lab {
        Lab::of_kind(true)
    }

    fn of_kind(mountless: bool) -> Lab {
        let folder = tempfile::Builder::new().prefix("cenote-lab-").tempdir().unwrap();
        let (damaged, harm) = (AtomicBool::new(false), Mutex::default());
        Lab { folder, mountless, restarting: false, prefix: Vec::new(), damaged, harm }
    }

    /// Declares damage: from now on devices may have errors, because the test damages, removes or fails devices.
    pub(crate) fn damages(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Makes services started from now on restart after a crash.
    pub(crate) fn restart_services(&mut self) {
        self.restarting = true;
    }

    /// Runs every command through the program in `prefix`.
    pub(crate) fn through(&mut self, prefix: Vec<String>) {
        self.prefix = prefix.into_iter().map(OsString::from).collect();
    }

    /// A path in the lab.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the lab, as text.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A command of this lab, ready to be started.
    pub(crate) fn command(&self, program: &str, words: &[&str]) -> Command {
        let binary = match program {
            "pool" => env!("CARGO_BIN_EXE_pool"),
            "fs" => env!("CARGO_BIN_EXE_fs"),
            other => panic!("no program {other}"),
        };
        let mut line = self.prefix.iter().cloned().chain([OsString::from(binary)]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).args(words).current_dir(self.folder.path());
        command.env("CENOTE_STATE", self.path("state")).env("CENOTE_RUN", self.path("run"));
        command.env("CENOTE_CONFIG", self.path("config"));
        command.env("HOME", self.path("home")).env("TZ", "UTC").env_remove("CENOTE_MOUNTLESS");
        command.env("CENOTE_RESTART", if self.restarting { "1" } else { "0" });
        if self.mountless {
            command.env("CENOTE_MOUNTLESS", "1");
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, program: &str, words: &[&str]) -> Run {
        if program == "pool" && matches!(words[..], ["export" | "destroy", ..]) {
            self.note_harm();
        }
        Run::of(program, words, self.command(program, words).output().unwrap())
    }

    /// Runs a program with these bytes on its standard input.
    pub(crate) fn feed(&self, program: &str, words: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(program, words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A program that refuses its input early closes the pipe.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run::of(program, words, output)
    }

    /// `pool …`, with success required.
    #[track_caller]
    pub(crate) fn pool(&self, words: &[&str]) -> String {
        self.run("pool", words).ok()
    }

    /// `fs …`, with success required.
    #[track_caller]
    pub(crate) fn fs(&self, words: &[&str]) -> String {
        self.run("fs", words).ok()
    }

    /// The bytes printed by `fs …`, with success required.
    #[track_caller]
    pub(crate) fn fs_bytes(&self, words: &[&str]) -> Vec<u8> {
        let run = self.run("fs", words);
        assert_eq!(run.code, Some(0), "{}\n{}", run.line, run.stderr);
        run.stdout
    }

    /// A new pool of one image, mounted in the lab.
    #[track_caller]
    pub(crate) fn create(&self, name: &str, size: &str) {
        let (mountpoint, vdev) =
            (self.at(&format!("mnt/{name}")), format!("{size}:{}", self.at(&format!("{name}.img"))));
        self.pool(&["create", "-m", &mountpoint, name, &vdev]);
    }

    /// An empty image of `bytes` bytes that only its owner can open.
    pub(crate) fn blank(&self, image: &str, bytes: u64) {
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path(image));
        options.and_then(|file| file.set_len(bytes)).unwrap();
    }

    /// The mountpoint of a dataset in a pool made by [`Lab::create`].
    pub(crate) fn mount(&self, dataset: &str) -> PathBuf {
        self.path("mnt").join(dataset)
    }

    /// Exports a pool, runs `pool check`, and imports the pool again.
    #[track_caller]
    pub(crate) fn check(&self, name: &str) {
        self.pool(&["export", name]);
        let folder = self.folder.path().display().to_string();
        self.pool(&["check", "-d", &folder, name]);
        self.pool(&["import", "-d", &folder, name]);
    }

    /// Notes devices with errors, if none are allowed. The counters end with the process that has the pool open.
    fn note_harm(&self) {
        if self.mountless || self.damaged.load(Ordering::Relaxed) {
            return;
        }
        // Without pools the output is empty.
        let status = self.command("pool", &["status", "-j"]).output().unwrap().stdout;
        let mut found = Vec::new();
        errors_in(&serde_json::from_slice(&status).unwrap_or_default(), &mut found);
        if !found.is_empty() {
            found.push(self.run("pool", &["status", "-v"]).text());
        }
        self.harm.lock().unwrap().append(&mut found);
    }

    #[track_caller]
    fn judge_harm(&self) {
        let harm = std::mem::take(&mut *self.harm.lock().unwrap());
        assert!(harm.is_empty(), "devices have errors, and nothing was damaged: {}", harm.join("\n"));
    }

    /// Asserts that undamaged devices have no errors so far.
    #[track_caller]
    pub(crate) fn unharmed(&self) {
        self.note_harm();
        self.judge_harm();
    }

    /// The process that serves a pool.
    pub(crate) fn service(&self, name: &str) -> Option<u32> {
        self.processes(&["service", name]).first().copied()
    }

    /// The supervisors, which restart crashed services.
    pub(crate) fn supervisors(&self) -> Vec<u32> {
        self.processes(&["service", "--supervise"])
    }

    /// The processes of this lab whose command lines begin with these words.
    fn processes(&self, begin: &[&str]) -> Vec<u32> {
        let state = format!("CENOTE_STATE={}", self.at("state"));
        let is_one = |pid: &u32| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (words, environment) = (read("cmdline"), read("environ"));
            let mut words = words.split(|byte| *byte == 0).skip(1);
            begin.iter().all(|word| words.next() == Some(word.as_bytes()))
                && environment.split(|byte| *byte == 0).any(|pair| pair == state.as_bytes())
        };
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        all.filter(is_one).collect()
    }

    /// Kills a pool's service, and waits for the end of the process.
    pub(crate) fn kill(&self, name: &str) {
        let pid = self.service(name).expect("the pool has a service");
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        wait_until("the service is gone", || has_ended(pid));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.note_harm();
        }
        let known = self.run("pool", &["list", "-H", "-o", "name"]).text();
        for name in known.lines() {
            let _ = self.command("pool", &["export", "--abandon", name]).output();
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = self.folder.path().display().to_string();
        for place in mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|place| place.starts_with(&folder))
        {
            // Mounts left by a failed test must not block the removal of the folder.
            let _ = Command::new("umount").args(["-l", place]).status();
        }
        if !std::thread::panicking() {
            self.judge_harm();
        }
    }
}

/// The nonzero error counters anywhere in the output of `pool status -j`.
fn errors_in(value: &serde_json::Value, found: &mut Vec<String>) {
    let Some(object) = value.as_object() else { return };
    for counter in ["read_errors", "write_errors", "checksum_errors"] {
        let count = object.get(counter).and_then(|count| count.as_str()).filter(|count| *count != "0");
        found.extend(count.map(|count| format!("{}: {counter} {count}", object["name"])));
    }
    object.values().for_each(|inner| errors_in(inner, found));
}

/// A small tmpfs at `path`; false if this user may not mount one.
pub(crate) fn small_file_system(path: &Path, size: &str) -> bool {
    fs::create_dir(path).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(path).status();
    let mounted = mounted.is_ok_and(|status| status.success());
    if !mounted {
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("skipped: this user cannot mount a tmpfs");
        }
    }
    mounted
}

/// Whether a process has ended and closed its files. Its command line disappears earlier.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may itself contain parentheses. Behind it is the state, and further on the number of
    // threads.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return true };
    let fields: Vec<&str> = rest.split(' ').collect();
    matches!(fields[0], "Z" | "X") && matches!(fields[17], "0" | "1")
}

/// A stopped process, continued on drop.
pub(crate) struct Stopped(pub(crate) u32);

impl Stopped {
    /// Stops a process, and waits until all its threads are stopped: the signal reaches one thread after another, and
    /// until then a thread may answer a request.
    #[track_caller]
    pub(crate) fn new(pid: u32) -> Stopped {
        let stopped = Stopped(pid);
        assert!(stopped.signal("-STOP"));
        wait_until("all threads stand still", || threads(pid).iter().all(|state| state == "T"));
        stopped
    }

    fn signal(&self, name: &str) -> bool {
        Command::new("kill").args([name, &self.0.to_string()]).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have been killed meanwhile.
        self.signal("-CONT");
    }
}

/// The states of a process's threads: a letter for each.
fn threads(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread that ended meanwhile is idle.
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    stats.map(|stat| stat.rsplit(") ").next().unwrap().chars().take(1).collect()).collect()
}

/// Waits for a condition, 20 seconds at most.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A figure of a process's memory, in bytes: `VmHWM` is the peak resident size, `VmRSS` the present size.
#[track_caller]
pub(crate) fn memory(pid: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap();
    kib << 10
}

/// Incompressible bytes.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// Writes a small tree with every kind of object: folders, links, modes, times, attributes, sparse files.
pub(crate) fn plant(folder: &Path) {
    use std::os::unix::fs::{PermissionsExt, symlink};
    for number in 0..40u32 {
        let sub = folder.join(format!("dir-{}", number % 5));
        fs::create_dir_all(&sub).unwrap();
        let text = format!("file {number}\n").repeat(1 + (number as usize * 173) % 4000);
        fs::write(sub.join(format!("file-{number}")), text).unwrap();
    }
    fs::set_permissions(folder.join("dir-1/file-1"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(folder.join("dir-2/file-2"), folder.join("dir-2/second-name")).unwrap();
    symlink("file-3", folder.join("dir-3/link")).unwrap();
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(5_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 2_345_678).unwrap();
}

/// Asserts that two trees are the same for `diff -r` and `stat`.
#[track_caller]
pub(crate) fn assert_same(wanted: &Path, found: &Path) {
    let list = |folder: &Path| {
        let script = "find . -mindepth 1 -path ./.zfs -prune -o -printf '%p %y %m %U %G %T@ %l ' -a \\( -type d -printf '\\n' -o -printf '%s %n\\n' \\) | sort";
        let output = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(list(wanted), list(found));
    let diff = Command::new("diff").arg("-r").arg("--no-dereference").arg(wanted).arg(found).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}
