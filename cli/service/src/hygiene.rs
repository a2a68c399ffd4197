//! What a service inherits from the command that started the service: as little as possible.
//!
//! A service runs long and owns a pool. Inherited descriptors (with locks and pipes that would never be released),
//! umask, session and environment variables belong to the command's caller. So the environment is trimmed before the
//! start, and the service drops the rest first of all.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io,
};

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};

/// Environment variables that a service keeps, besides `CENOTE_*` and `RUST_*`.
const KEPT: &[&str] = &["HOME", "INVOCATION_ID", "PATH", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// The kernel's OOM score adjustment of a service. An OOM kill would end every mount of the pool, so the value is
/// low. The lowest value, -1000, would sacrifice the machine instead.
const OOM_SCORE: &str = "-900";

/// All users must be able to traverse the parents of a mount point. Private files are created with an explicit mode,
/// whatever the umask.
const UMASK: u32 = 0o022;

/// The variables of an environment that a service keeps.
pub(super) fn trimmed(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    environment.filter(|(name, _)| is_kept(name))
}

fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KEPT.contains(&name) || name.starts_with("CENOTE_") || name.starts_with("RUST_")
}

/// Drops everything that this process has inherited. Call first in a process: every descriptor except the standard
/// three is closed, no matter which code opened the descriptor. Standard input, the pool's lock, is kept until the
/// service is ready.
pub(super) fn settle() {
    close_inherited();
    // Detaches from the terminal; fails harmlessly for a process group leader.
    let _ = rustix::process::setsid();
    umask(Mode::from_raw_mode(UMASK));
    allow_descriptors();
    // Only root may lower the score; for other users the default applies.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
}

fn close_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // Collected first: the listing uses a descriptor too, which is closed by then.
    for number in numbers.collect::<Vec<_>>() {
        if number > 2 {
            let _ = nix::unistd::close(number);
        }
    }
}

/// Replaces standard input by `/dev/null`.
pub(super) fn close_input() -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)
}

/// Replaces standard output by `/dev/null`: the reader of the pipe may wait for its end.
pub(super) fn close_output() -> io::Result<()> {
    let null: File = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null).map_err(io::Error::from)
}

/// Raises the limit of descriptors to the maximum. The usual soft limit protects programs that use select(2), which
/// is limited to 1024; a service with many devices, mounts and threads may need more.
fn allow_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // With a lower limit, the service works until descriptors run out.
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
