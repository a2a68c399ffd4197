//! Mount options of a dataset: its properties as the kernel's flags and options.

use std::fmt::Write as _;

use dataset::property::{
    AclType, DirectIo, Effective, SnapDir,
    dataset::{ACLTYPE, ATIME, DEVICES, DIRECT, EXEC, READONLY, RELATIME, SETUID, SNAPDIR, XATTR},
};
use rustix::mount::MountFlags;

use crate::mounts::SUBTYPE;

/// The way of requests from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Read from `/dev/fuse`. Every kernel has this.
    Fuse,
    /// Through io_uring. Linux 6.14 and later have this if root switches it on.
    Uring,
}

impl Transport {
    /// All transports, the ring last.
    pub const ALL: [Transport; 2] = [Transport::Fuse, Transport::Uring];

    /// `fuse` or `uring`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Fuse => "fuse",
            Transport::Uring => "uring",
        }
    }
}

/// The owner of a mount, as a number that stays in the list of mounts after the death of the server.
///
/// Of all options of FUSE that do not change a mount, only the largest size of a read holds a number. So the number is
/// a size above every real size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// Smallest number: no read is as large as 1 GiB.
    const LEAST: u32 = 1 << 30;

    /// An owner with this hash of its identity.
    pub fn new(hash: u64) -> Owner {
        Owner(((hash as u32 ^ (hash >> 32) as u32) % Owner::LEAST) | Owner::LEAST)
    }

    /// The owner in the options of a mount; `None` for a mount without one.
    pub(crate) fn of(options: &str) -> Option<Owner> {
        let number = options.split(',').find_map(|option| option.strip_prefix(OWNER))?.parse().ok()?;
        (number >= Owner::LEAST).then_some(Owner(number))
    }

    /// The option, after a comma; empty without an owner.
    fn option(owner: Option<Owner>) -> String {
        owner.map(|Owner(number)| format!(",{OWNER}{number}")).unwrap_or_default()
    }
}

/// The option with the number of an [`Owner`].
const OWNER: &str = "max_read=";

/// The name and permissions of a mount. Fields are named after the properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The dataset's name, which the list of mounts shows as the source.
    pub name: String,
    /// All changes are refused.
    pub readonly: bool,
    /// Reading a file updates its access time.
    pub atime: bool,
    /// With `atime`: only if the access time is older than the last change, or than a day.
    pub relatime: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// Set-id bits are honoured.
    pub setuid: bool,
    /// Device nodes are honoured.
    pub devices: bool,
    /// Whether `.zfs` is listed.
    pub snapdir: SnapDir,
    /// All files bypass the kernel's cache. Fixed when the mount is made.
    pub direct: bool,
    /// Other users than the mounting user may enter. Needs root, or `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks permissions by POSIX access control lists too. Fixed when the mount is made.
    pub acl: bool,
    /// There are extended attributes. Without them the kernel asks for no capabilities before it first writes to a
    /// file, which saves a request for each file; stored attributes stay, but are hidden. Fixed when the mount is made.
    pub xattr: bool,
    /// The transport; `None`: io_uring if available, else `/dev/fuse`.
    pub transport: Option<Transport>,
    /// The owner of the mount, if the mount must be found after the death of its server.
    pub owner: Option<Owner>,
}

impl MountOptions {
    /// The defaults of every property, for the dataset `name`. Root, and ordinary users where allowed, mount for all
    /// users, whose access the modes decide as anywhere else: only below a shared mount can `fusermount3` make other
    /// mounts.
    pub fn new(name: impl Into<String>) -> MountOptions {
        MountOptions::from_properties(name, &Effective::default())
    }

    /// What the properties of the dataset `name` say.
    pub fn from_properties(name: impl Into<String>, values: &Effective) -> MountOptions {
        let acl = values.get(&ACLTYPE) == AclType::Posix;
        MountOptions {
            name: name.into(),
            readonly: values.get(&READONLY),
            atime: values.get(&ATIME),
            relatime: values.get(&RELATIME),
            exec: values.get(&EXEC),
            setuid: values.get(&SETUID),
            devices: values.get(&DEVICES),
            snapdir: values.get(&SNAPDIR),
            direct: values.get(&DIRECT) == DirectIo::Always,
            allow_other: rustix::process::geteuid().is_root() || users_may_share(),
            acl,
            // An access control list is an extended attribute.
            xattr: values.get(&XATTR) || acl,
            transport: None,
            owner: None,
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

    /// Further options of the FUSE file system type: the kernel checks permissions, by the modes.
    pub(crate) fn kernel_data(&self, fd: i32, root_mode: u32, uid: u32, gid: u32) -> String {
        let mut data = format!("fd={fd},rootmode={root_mode:o},user_id={uid},group_id={gid},default_permissions");
        if self.allow_other {
            data.push_str(",allow_other");
        }
        data + &Owner::option(self.owner)
    }

    /// The options for `fusermount3 -o`, which adds the identity itself, and always `nosuid` and `nodev`.
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
        options + &Owner::option(self.owner)
    }
}

/// Whether `fusermount3` takes `allow_other` from ordinary users.
fn users_may_share() -> bool {
    let configuration = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    configuration.lines().any(|line| line.trim() == "user_allow_other")
}

/// Escapes a value so that a comma does not end it.
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
    fn the_owner_is_read_from_the_list_of_mounts() {
        for hash in [0, 1, 1 << 30, u64::MAX] {
            let owner = Some(Owner::new(hash));
            let options = MountOptions { owner, ..options() };
            assert_eq!(Owner::of(&options.kernel_data(5, 0o40755, 0, 0)), owner);
            assert_eq!(Owner::of(&options.fusermount_options()), owner);
        }
        assert_ne!(Owner::new(1), Owner::new(1 << 33));
        for other in ["rw,user_id=0", "rw,max_read=131072", "rw,max_read=x", "rw,max_read=4294967296", ""] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }

    #[test]
    fn fusermount_gets_the_same_options() {
        let options = MountOptions { name: "tank/a,b".into(), readonly: true, exec: false, ..options() };
        assert_eq!(options.fusermount_options(), "fsname=tank/a\\,b,subtype=cenote,default_permissions,ro,noexec");
    }
}
