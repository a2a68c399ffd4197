//! Another user of the machine: the programs of a lab, run under a uid that owns nothing.

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::{Lab, Run};

/// A uid and a gid otherwise unused.
pub(crate) const UID: u32 = 64_321;

/// The other user, with copies of the programs for that user to run.
pub(crate) struct Stranger {
    programs: PathBuf,
    state: PathBuf,
    run: PathBuf,
}

impl Stranger {
    /// A user with access to the lab's folder; `None`, after printing why, if the test cannot switch users.
    pub(crate) fn of(lab: &Lab) -> Option<Stranger> {
        let uid = UID.to_string();
        let try_out =
            Command::new("setpriv").args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "true"]).status();
        if !try_out.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CENOTE_REQUIRE_USERS").is_none(), "these tests cannot become another user");
            let _ = writeln!(std::io::stderr(), "skipped: these tests cannot become another user");
            return None;
        }
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o755)).unwrap();
        let programs = lab.path("programs");
        fs::create_dir(&programs).unwrap();
        fs::set_permissions(&programs, Permissions::from_mode(0o755)).unwrap();
        // The build folder may be closed to other users.
        fs::copy(env!("CARGO_BIN_EXE_pool"), programs.join("pool")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_fs"), programs.join("fs")).unwrap();
        Some(Stranger { programs, state: lab.path("state"), run: lab.path("run") })
    }

    /// Whether this user has Perl, to speak to a socket without our programs; prints a note if not.
    pub(crate) fn has_perl(&self) -> bool {
        let is_there = self.sh("perl -MIO::Socket::UNIX -e 1").code == Some(0);
        if !is_there {
            assert!(std::env::var_os("CENOTE_REQUIRE_USERS").is_none(), "Perl is not installed");
            let _ = writeln!(std::io::stderr(), "skipped: Perl is not installed");
        }
        is_there
    }

    /// A shell script of this user, ready to be started. Its programs see the lab's pools.
    pub(crate) fn command(&self, script: &str) -> Command {
        let uid = UID.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "sh", "-c", script]).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", self.programs.display())).env("TZ", "UTC").env("HOME", "/");
        command.env("CENOTE_STATE", &self.state).env("CENOTE_RUN", &self.run).current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a shell script to its end.
    pub(crate) fn sh(&self, script: &str) -> Run {
        Run::of("sh", &["-c", script], self.command(script).output().unwrap())
    }

    /// Starts a shell script and returns after its first printed line.
    pub(crate) fn start(&self, script: &str) -> Started {
        let mut child = self.command(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        assert!(!line.is_empty(), "{script}");
        Started(child)
    }
}

/// A process of the other user, killed when dropped.
pub(crate) struct Started(pub(crate) Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
