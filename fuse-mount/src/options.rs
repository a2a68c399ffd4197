//! How a dataset is mounted: its properties as the kernel's flags and options.

use std::fmt::Write as _;

use rustix::mount::MountFlags;

use crate::mounts::SUBTYPE;

/// Whether a listing of the mount's root shows `.zfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapDir {
    /// It can be entered, but is not listed.
    #[default]
    Hidden,
    /// It is listed.
    Visible,
    /// It is empty. Then opening and closing files need no request, which may be what matters to a build. What is so when the
    /// mount is made stays so.
    Disabled,
}

/// How a mount's requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Read from `/dev/fuse`. Every kernel has it.
    Fuse,
    /// Through io_uring. Linux 6.14 and later have it where root has switched it on.
    Uring,
}

impl Transport {
    /// Both.
    pub const ALL: [Transport; 2] = [Transport::Fuse, Transport::Uring];

    /// Its name, `fuse` or `uring`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Fuse => "fuse",
            Transport::Uring => "uring",
        }
    }
}

/// What a mount is called and what it allows. The names are the properties'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The dataset's name, which the list of mounts shows as the source.
    pub name: String,
    /// Nothing can be changed.
    pub readonly: bool,
    /// Reading a file changes its access time.
    pub atime: bool,
    /// It does so only when the access time is older than the last change, or than a day.
    pub relatime: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Set-id bits are honoured.
    pub setuid: bool,
    /// Device nodes are honoured.
    pub devices: bool,
    /// Whether `.zfs` is listed.
    pub snapdir: SnapDir,
    /// Users other than the one who mounts may enter. Others than root need `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// There are POSIX access control lists, by which the kernel checks permissions. What is so when the mount is made
    /// stays so.
    pub acl: bool,
    /// There are extended attributes. Without them the kernel does not ask for capabilities before it first writes to a file,
    /// which is a request less for each; what attributes are stored stay, and are not seen. What is so when the mount is
    /// made stays so.
    pub xattr: bool,
    /// How requests come. The faster one that is to be had if this is `None`.
    pub transport: Option<Transport>,
}

impl MountOptions {
    /// The defaults of every property, for the dataset `name`. Mounts are shared with all users, whom modes keep out as
    /// anywhere else, by root and wherever ordinary users may: only mounts that are shared can have others below them
    /// that `fusermount3` makes.
    pub fn new(name: impl Into<String>) -> MountOptions {
        MountOptions {
            name: name.into(),
            readonly: false,
            atime: true,
            relatime: true,
            exec: true,
            setuid: true,
            devices: true,
            snapdir: SnapDir::Hidden,
            allow_other: rustix::process::geteuid().is_root() || users_may_share(),
            acl: false,
            xattr: true,
            transport: None,
        }
    }

    /// The flags of mount(2).
    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.readonly);
        flags.set(MountFlags::NOATIME, !self.atime);
        flags.set(MountFlags::RELATIME, self.atime && self.relatime);
        flags.set(MountFlags::STRICTATIME, self.atime && !self.relatime);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::NOSUID, !self.setuid);
        flags.set(MountFlags::NODEV, !self.devices);
        flags
    }

    /// What the FUSE file system type wants to know besides: the kernel checks permissions, from the modes it is given.
    pub(crate) fn kernel_data(&self, fd: i32, root_mode: u32, uid: u32, gid: u32) -> String {
        let mut data = format!("fd={fd},rootmode={root_mode:o},user_id={uid},group_id={gid},default_permissions");
        if self.allow_other {
            data.push_str(",allow_other");
        }
        data
    }

    /// The same for `fusermount3 -o`, which adds the identity itself, and `nosuid` and `nodev` whatever we say.
    pub(crate) fn fusermount_options(&self) -> String {
        let mut options = format!("fsname={},subtype={SUBTYPE},default_permissions", escaped(&self.name));
        let switches = [
            (self.allow_other, "allow_other"),
            (self.readonly, "ro"),
            (!self.atime, "noatime"),
            (!self.exec, "noexec"),
            (!self.setuid, "nosuid"),
            (!self.devices, "nodev"),
        ];
        for (_, name) in switches.into_iter().filter(|(on, _)| *on) {
            write!(options, ",{name}").expect("writing to a string does not fail");
        }
        options
    }
}

/// Whether `fusermount3` takes `allow_other` from ordinary users.
fn users_may_share() -> bool {
    let configuration = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    configuration.lines().any(|line| line.trim() == "user_allow_other")
}

/// A value in which a comma does not end it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MountOptions {
        MountOptions { allow_other: false, ..MountOptions::new("tank/home") }
    }

    #[test]
    fn properties_become_flags() {
        assert_eq!(options().flags(), MountFlags::RELATIME);
        let locked =
            MountOptions { readonly: true, atime: false, exec: false, setuid: false, devices: false, ..options() };
        let all =
            MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(locked.flags(), all);
        assert_eq!(MountOptions { relatime: false, ..options() }.flags(), MountFlags::STRICTATIME);
    }

    #[test]
    fn the_kernel_checks_permissions() {
        assert_eq!(
            MountOptions { allow_other: true, ..options() }.kernel_data(5, 0o40755, 0, 0),
            "fd=5,rootmode=40755,user_id=0,group_id=0,default_permissions,allow_other"
        );
    }

    #[test]
    fn fusermount_is_told_the_same() {
        let options = MountOptions { name: "tank/a,b".into(), readonly: true, exec: false, ..options() };
        assert_eq!(options.fusermount_options(), "fsname=tank/a\\,b,subtype=cenote,default_permissions,ro,noexec");
    }
}
