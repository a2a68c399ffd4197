//! What a service keeps of the command that has started it, which is next to nothing.
//!
//! A service lives long and owns a pool; what it would inherit belongs to the command's caller: descriptors, whose locks and
//! pipes would never end, a umask, a session, variables of the environment. So the environment is trimmed before the
//! service is started, and the rest is given up as the first thing that it does.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io,
};

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};

/// The variables that a service goes by, beside those that begin with `CENOTE_` or `RUST_`.
const KEPT: &[&str] = &["HOME", "PATH", "TZ", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// How unwilling the kernel is to end a service when memory runs out: every file system of the pool would die with it. The
/// lowest value, -1000, would have the machine die in its place.
const OOM_SCORE: &str = "-900";

/// Directories on the way to a mount point must be passable for all users. What is for this user alone is made with its own
/// mode, whatever the umask is.
const UMASK: u32 = 0o022;

/// What a service is given of an environment.
pub(super) fn trimmed(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    environment.filter(|(name, _)| is_kept(name))
}

fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KEPT.contains(&name) || name.starts_with("CENOTE_") || name.starts_with("RUST_")
}

/// Gives up what this process has inherited. Only as the first thing that a process does: it closes every descriptor but
/// the standard ones, whoever has opened it. Standard input is the pool's lock, which is kept until the service is ready.
pub(super) fn settle() {
    close_inherited();
    // Without a terminal of its own; fails harmlessly for a process that has none already.
    let _ = rustix::process::setsid();
    umask(Mode::from_raw_mode(UMASK));
    allow_descriptors();
    // Only root may; for other users the kernel decides as for any process of theirs.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
}

fn close_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // Collected first: the listing has a descriptor of its own, which is closed by then.
    for number in numbers.collect::<Vec<_>>() {
        if number > 2 {
            let _ = nix::unistd::close(number);
        }
    }
}

/// Gives up what stood at standard input.
pub(super) fn close_input() -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)
}

/// Says nothing more on standard output, whose reader may wait for its end.
pub(super) fn close_output() -> io::Result<()> {
    let null: File = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null).map_err(io::Error::from)
}

/// Takes as many descriptors as this process may have. The usual limit is there for programs that cannot deal with numbers
/// beyond a thousand; a service with many devices, mounts and threads that serve them may need more.
fn allow_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // With fewer it does what it can.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_trimmed_to_what_a_service_goes_by() {
        let all = ["PATH", "CENOTE_STATE", "SSH_AUTH_SOCK", "RUST_BACKTRACE", "LD_PRELOAD", "AWS_SECRET", "HOME"];
        let pairs = all.map(|name| (OsString::from(name), OsString::from("x")));
        let kept: Vec<_> = trimmed(pairs.into_iter()).map(|(name, _)| name).collect();
        assert_eq!(kept, ["PATH", "CENOTE_STATE", "RUST_BACKTRACE", "HOME"]);
    }
}
