//! Loop devices, which take a user who may set them up.

use std::{fs, path::Path, process::Command};

/// A loop device over a file, until it is dropped.
pub(crate) struct Loop {
    /// Its path.
    pub(crate) device: String,
}

impl Loop {
    /// One over a new file of so many MiB, which it opens as `direct_io` says; none if there are no loop devices here.
    pub(crate) fn over(file: &Path, size: u64, direct_io: bool) -> Option<Loop> {
        let may = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
        if !may {
            assert!(std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "no loop devices here");
            #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
            {
                eprintln!("skipped: this user cannot set up loop devices");
            }
            return None;
        }
        fs::File::create(file).unwrap().set_len(size << 20).unwrap();
        Loop::on(file, direct_io)
    }

    /// One over what is there.
    pub(crate) fn on(file: &Path, direct_io: bool) -> Option<Loop> {
        let direct_io = if direct_io { "--direct-io=on" } else { "--direct-io=off" };
        let made = Command::new("losetup").args(["--find", "--show", direct_io]).arg(file).output();
        match made {
            Ok(made) if made.status.success() => {
                Some(Loop { device: String::from_utf8(made.stdout).unwrap().trim().to_owned() })
            }
            refused => {
                assert!(std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "losetup: {refused:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A loop device that stays is in nobody's way.
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}
