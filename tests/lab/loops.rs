//! Loop devices, for a user who may set up loop devices.

use std::{fs, path::Path, process::Command};

/// A loop device over a file, detached when dropped.
pub(crate) struct Loop {
    /// The path of the device.
    pub(crate) device: String,
}

impl Loop {
    /// A loop device over a new file of `size` MiB, opened with O_DIRECT if `direct_io`; `None` without loop devices
    /// here.
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

    /// A loop device over an existing file.
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
        // A remaining loop device harms no other test.
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}
