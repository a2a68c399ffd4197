//! The same random system calls on a mount and on a kernel file system, whose answers must be equal.
//!
//! The kernel's own file systems are the most exact record of what POSIX leaves open, what Linux adds, and what
//! programs expect. So a *scene* of calls, with odd arguments and by several users, is played on both sides: each call
//! must return the same result or error, and leave the same file behind.
//!
//! ```text
//! cargo test -p cli --test compare                            the dose for every change, beside tmpfs
//! cargo test -p cli --test compare -- scene SEED              replays one scene
//! cargo test -p cli --test compare -- soak [SEED]             new scenes without end, until a finding
//! cargo test -p cli --test compare -- folders ONE OTHER SEED  as many scenes as in the dose, in two folders
//!
//! call      random calls from a seed
//! perform   executing a call, and the visible result
//! ```
//!
//! Calls that FUSE makes impossible are left out, as noted in `call`. Only root can play users, so the target needs
//! root. It does not use the test harness, which would hide the seeds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program of its own, and reports")]

#[path = "../lab/mod.rs"]
mod lab;

mod call;
mod perform;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use call::Step;
use lab::Lab;
use rand::{SeedableRng, rngs::SmallRng};

/// The number of scenes that every change has to play, and of calls in each.
const SCENES: u64 = 400;
const CALLS: usize = 60;
/// A folder on a kernel file system that every machine has.
const REFERENCE: &str = "/dev/shm";

/// The two sides.
struct Stage {
    mount: PathBuf,
    reference: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        // Options and filters of the test harness.
        [.., "--list"] => Ok(()),
        [filter] if !filter.starts_with('-') && filter != "soak" && !"compare".contains(filter) => Ok(()),
        ["folders", one, other, seed] => {
            number(seed).and_then(|seed| Stage { mount: one.into(), reference: other.into() }.play(seed..seed + SCENES))
        }
        _ if !can_compare() => Ok(()),
        ["scene", seed] => number(seed).and_then(|seed| on_a_mount(seed..seed + 1)),
        ["soak"] => on_a_mount(seed_of_the_day()..u64::MAX),
        ["soak", seed] => number(seed).and_then(|seed| on_a_mount(seed..u64::MAX)),
        _ => on_a_mount(0..SCENES),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|error| format!("{word}: {error}"))
}

/// Whether there is a file system to compare with, and this user is root.
fn can_compare() -> bool {
    let is_possible = rustix::process::geteuid().is_root() && takes_attributes(Path::new(REFERENCE));
    if !is_possible {
        eprintln!("skipped: comparing needs root, and {REFERENCE} with extended attributes (Linux 6.6)");
    }
    is_possible && lab::can_mount()
}

fn takes_attributes(folder: &Path) -> bool {
    let probe = tempfile::NamedTempFile::new_in(folder);
    let flags = rustix::fs::XattrFlags::empty();
    probe.is_ok_and(|probe| rustix::fs::setxattr(probe.path(), "user.probe", b"", flags).is_ok())
}

/// Plays scenes in a new pool and beside it.
fn on_a_mount(seeds: std::ops::Range<u64>) -> Result<(), String> {
    let lab = Lab::new();
    lab.create("tank", "1G");
    let shared = fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o755));
    let reference = tempfile::Builder::new().prefix("cenote-compare-").tempdir_in(REFERENCE);
    let reference = shared.and(reference).map_err(|error| format!("{REFERENCE}: {error}"))?;
    let shared = fs::set_permissions(reference.path(), fs::Permissions::from_mode(0o755));
    shared.map_err(|error| format!("{REFERENCE}: {error}"))?;
    let stage = Stage { mount: lab.mount("tank"), reference: reference.path().to_owned() };
    stage.play(seeds)?;
    lab.check("tank");
    Ok(())
}

impl Stage {
    fn play(&self, seeds: std::ops::Range<u64>) -> Result<(), String> {
        rustix::process::umask(rustix::fs::Mode::from(0o022));
        rustix::thread::set_thread_groups(&[]).map_err(|error| format!("groups: {error}"))?;
        for seed in seeds.clone() {
            self.scene(seed)
                .map_err(|problem| format!("{problem}\nagain: cargo test -p cli --test compare -- scene {seed}"))?;
        }
        println!("compare: {} scenes of {CALLS} calls each, from seed {}", seeds.end - seeds.start, seeds.start);
        Ok(())
    }

    /// Plays one scene, in a folder that is new on both sides.
    fn scene(&self, seed: u64) -> Result<(), String> {
        let mut dice = SmallRng::seed_from_u64(seed);
        let folders = [&self.mount, &self.reference].map(|side| side.join("scene"));
        for folder in &folders {
            let made =
                fs::create_dir(folder).and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(0o777)));
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let mut history = Vec::new();
        let outcome = (0..CALLS).try_for_each(|_| {
            let step = Step::random(&mut dice);
            let [found, wanted] = [&folders[0], &folders[1]].map(|folder| perform::perform(folder, &step));
            history.push(format!("{step:?}"));
            if found == wanted {
                return Ok(());
            }
            let history = history.join("\n");
            Err(format!("scene {seed}:\n{history}\nhere:      {found}\nreference: {wanted}"))
        });
        for folder in &folders {
            fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        outcome
    }
}

/// A new seed, from the clock.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 16
}
