//! The mounted datasets of this machine, of all services, as `/proc/self/mountinfo` lists them.
//!
//! A killed service leaves its mounts behind: every access fails with "transport endpoint is not connected" until they
//! are detached. [`detach_dead`] detaches them, and touches no mount that still answers.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::device::{DEVICE, fusermount};
use crate::error::{Error, Result};
use crate::mountpoint::unmount;
use crate::options::Owner;

/// The part of the type after `fuse.`.
pub(crate) const SUBTYPE: &str = "cenote";
/// The type of mounted datasets, as `df -T` shows it.
pub const FS_TYPE: &str = "fuse.cenote";

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

const MOUNT_INFO: &str = "/proc/self/mountinfo";

/// A mounted dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The directory, as the list of mounts spells it.
    pub mountpoint: PathBuf,
    /// The dataset's name.
    pub dataset: String,
    /// The device number, major and minor: unique to this mount, and the `st_dev` of its files.
    pub device: (u32, u32),
    /// The mount's flags, as in `ro,nosuid,relatime`.
    pub flags: String,
    /// The owner; `None` for mounts of earlier versions.
    pub owner: Option<Owner>,
}

/// Notices changes of the list of mounts of this process's mount namespace. Copies of a mount in other namespaces are
/// not listed.
#[derive(Default)]
pub struct Watch(Mutex<Option<File>>);

impl Watch {
    /// The devices of all mounted datasets, if the list may have changed since the last call.
    pub fn changed(&self) -> Option<HashSet<(u32, u32)>> {
        let mut watched = self.0.lock();
        // For each open file of the list the kernel notes whether the newest change was reported. A freshly opened file
        // is up to date, so the list is read after opening.
        match &*watched {
            Some(file) if !has_changed(file) => return None,
            Some(_) => {}
            None => *watched = File::open(MOUNT_INFO).ok(),
        }
        let mounts = mounts().inspect_err(|error| tracing::warn!(%error, "mounts that have gone are not noticed"));
        mounts.ok().map(|mounts| mounts.into_iter().map(|mounted| mounted.device).collect())
    }

    /// Makes the next call read the list, changed or not.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

fn has_changed(list: &File) -> bool {
    let mut waiting = [PollFd::new(list, PollFlags::PRI)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut waiting, Some(&at_once)).map_or(true, |events| events > 0)
}

/// A mount of any kind of file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    mountpoint: PathBuf,
    device: (u32, u32),
    flags: String,
    fs_type: String,
    source: String,
    owner: Option<Owner>,
}

/// Every mounted dataset, in the order of mounting.
pub fn mounts() -> Result<Vec<Mounted>> {
    Ok(all()?.into_iter().filter_map(Place::dataset).collect())
}

/// Every mount, in the order of mounting.
fn all() -> Result<Vec<Place>> {
    let table = fs::read(MOUNT_INFO).map_err(Error::List)?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The paths of all mounts below the directory `top`, of any kind, relative to `top`.
pub fn mountpoints_below(top: &Path) -> Result<Vec<PathBuf>> {
    let places = all()?.into_iter().map(|place| place.mountpoint);
    let below = places.filter_map(|place| place.strip_prefix(top).ok().map(Path::to_owned));
    Ok(below.filter(|path| !path.as_os_str().is_empty()).collect())
}

/// The device of the mount on a directory, without a request to its server; `None` if nothing is mounted there. An
/// error on kernels before 5.8, which do not tell, and for a directory that cannot be reached.
fn device_mounted_on(directory: &Path) -> io::Result<Option<(u32, u32)>> {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, directory, how, StatxFlags::empty())?;
    if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::NOSYS.into());
    }
    let is_mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_mounted.then_some((found.stx_dev_major, found.stx_dev_minor)))
}

/// The dataset whose mount is visible at the directory `mountpoint`.
pub fn mounted_at(mountpoint: &Path) -> Result<Option<Mounted>> {
    // With many mounts the list is long, and each mount asks.
    if matches!(device_mounted_on(mountpoint), Ok(None)) {
        return Ok(None);
    }
    Ok(all()?.into_iter().rfind(|place| place.mountpoint == mountpoint).and_then(Place::dataset))
}

/// The state of one mount in the tree of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The path reaches the mount.
    Reached,
    /// Another mount, described here, covers it or a directory above it.
    Covered(String),
    /// The mount is not in the tree.
    Gone,
}

/// The state of the mount of `device` on `mountpoint`.
pub(crate) fn standing(device: (u32, u32), mountpoint: &Path) -> Result<Standing> {
    if matches!(device_mounted_on(mountpoint), Ok(Some(found)) if found == device) {
        return Ok(Standing::Reached);
    }
    Ok(standing_in(all()?, device, mountpoint))
}

/// A later mount on the same directory, or on a directory above, hides a mount. A mount can be in the tree twice, as
/// after binding a directory above over itself; then its last place counts. A mount on the root of the tree hides
/// nothing: path lookup begins below it.
fn standing_in(all: Vec<Place>, device: (u32, u32), mountpoint: &Path) -> Standing {
    let Some(at) = all.iter().rposition(|place| place.device == device && place.mountpoint == mountpoint) else {
        return Standing::Gone;
    };
    let covers = |place: &&Place| place.mountpoint != Path::new("/") && mountpoint.starts_with(&place.mountpoint);
    match all[at + 1..].iter().rfind(covers) {
        Some(place) => Standing::Covered(format!("{} ({})", place.source, place.fs_type)),
        None => Standing::Reached,
    }
}

/// Detaches the mount on `mountpoint` if it is a dataset's without a server, and such mounts beneath it on the same
/// directory. True if a mount was detached.
pub fn detach_dead(mountpoint: &Path) -> Result<bool> {
    let mut detached = false;
    while mounted_at(mountpoint)?.is_some() && is_dead(mountpoint) {
        detach(mountpoint)?;
        detached = true;
    }
    Ok(detached)
}

/// Takes the mount out of the tree of names. Files open in it stay usable.
pub fn detach(mountpoint: &Path) -> Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(&["-u", "-z"], mountpoint).map_err(|cause| refused(mountpoint, cause)),
        Err(errno) => Err(refused(mountpoint, errno.into())),
    }
}

/// Whether the mount's server is gone. A request that the kernel never answers from its cache tells. A server that
/// exists but does not answer counts as alive, after a short wait.
///
/// A server that is visible in `/proc` is not even asked. If it hangs, a request in its ring waits for it whatever
/// happens: the asking process could neither be killed nor end. So a mount counts as alive while a process still holds
/// a connection that was cut: for a moment, unless the process itself hangs.
pub fn is_dead(mountpoint: &Path) -> bool {
    if matches!(mounted_at(mountpoint), Ok(Some(mounted)) if is_served(mounted.device.1)) {
        return false;
    }
    let (sender, receiver) = mpsc::channel();
    let path = mountpoint.to_owned();
    let asking = thread::Builder::new().name("statfs".into()).spawn(move || {
        // After the deadline the receiver is gone.
        let _ = sender.send(rustix::fs::statfs(path).map(drop));
    });
    let answer = asking.ok().and_then(|_| receiver.recv_timeout(PATIENCE).ok());
    matches!(answer, Some(Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)))
}

/// Whether a process that we may inspect has this connection open. Kernels before 6.15 do not tell.
fn is_served(connection: u32) -> bool {
    let wanted = connection.to_string();
    let has_it = |process: &Path| {
        let devices =
            entries(&process.join("fd")).filter(|fd| fs::read_link(fd).is_ok_and(|to| to == Path::new(DEVICE)));
        let mut described =
            devices.filter_map(|fd| fs::read_to_string(process.join("fdinfo").join(fd.file_name()?)).ok());
        described.any(|text| connection_of(&text) == Some(&wanted))
    };
    entries(Path::new("/proc")).any(|process| has_it(&process))
}

/// The connection of a descriptor of the device, from the kernel's description of the descriptor.
fn connection_of(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix("fuse_connection:")).map(str::trim)
}

/// The device of the mount that this descriptor serves. Kernels before 6.15 do not tell.
pub(crate) fn served_by(device: impl AsFd) -> Option<(u32, u32)> {
    let description = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_fd().as_raw_fd())).ok()?;
    Some((0, connection_of(&description)?.parse().ok()?))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn refused(mountpoint: &Path, cause: std::io::Error) -> Error {
    Error::Unmount { mountpoint: mountpoint.to_owned(), cause }
}

impl Place {
    /// The mounted dataset; `None` for other file systems.
    fn dataset(self) -> Option<Mounted> {
        let Place { mountpoint, device, flags, fs_type, source, owner } = self;
        (fs_type == FS_TYPE).then_some(Mounted { mountpoint, dataset: source, device, flags, owner })
    }
}

/// Parses one line: `36 35 0:45 / /mnt rw,relatime shared:1 - fuse.cenote tank/home rw,user_id=0`.
fn parse(line: &[u8]) -> Option<Place> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let text = |at: usize| Some(String::from_utf8_lossy(&unescaped(fields.get(at)?)).into_owned());
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    Some(Place {
        mountpoint: PathBuf::from(OsString::from_vec(unescaped(fields.get(4)?))),
        device: (major.parse().ok()?, minor.parse().ok()?),
        flags: text(5)?,
        fs_type: text(separator + 1)?,
        source: text(separator + 2)?,
        owner: text(separator + 3).and_then(|options| Owner::of(&options)),
    })
}

/// The kernel writes blanks and backslashes as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        match (first, behind.first_chunk::<3>().and_then(octal)) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_by_its_description() {
        assert_eq!(connection_of("pos:\t0\nmnt_id:\t24\nfuse_connection:\t39\n"), Some("39"));
        assert_eq!(connection_of("pos:\t0\nflags:\t02100002\n"), None);
        assert!(!is_served(u32::MAX), "no connection has this number");
    }

    #[test]
    fn ours_are_recognised() {
        let line =
            br"36 35 0:45 / /mnt/my\040files\134x rw,relatime shared:1 master:2 - fuse.cenote tank/home rw,user_id=0";
        let mounted = parse(line).and_then(Place::dataset).unwrap();
        assert_eq!(mounted.mountpoint, Path::new(r"/mnt/my files\x"));
        assert_eq!(mounted.dataset, "tank/home");
        assert_eq!(mounted.device, (0, 45));
        assert_eq!((mounted.flags.as_str(), mounted.owner), ("rw,relatime", None));
        let line = b"36 35 0:45 / /mnt rw - fuse.cenote tank rw,user_id=0,max_read=1073741825";
        assert_eq!(parse(line).unwrap().owner, Some(Owner::new(1)));
    }

    #[test]
    fn others_are_not_ours() {
        for line in [
            &b"22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw"[..],
            b"40 1 0:50 / /mnt rw - fuse.sshfs host: rw",
            b"36 35 0:45 / /mnt rw -",
            b"36 35 x / /mnt rw - fuse.cenote tank rw",
            b"- fuse.cenote tank",
            b"",
        ] {
            assert_eq!(parse(line).and_then(Place::dataset), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_mount_is_covered_by_what_comes_later_and_stands_above() {
        let standing = |later: &[(&str, u32)]| {
            let place = |(path, minor): &(&str, u32)| Place {
                mountpoint: path.into(),
                device: (0, *minor),
                flags: "rw".into(),
                fs_type: "tmpfs".into(),
                source: "none".into(),
                owner: None,
            };
            let all = [("/", 1), ("/mnt/a", 2), ("/mnt/a", 7)];
            standing_in(all.iter().chain(later).map(place).collect(), (0, 7), Path::new("/mnt/a"))
        };
        assert_eq!(standing(&[]), Standing::Reached);
        assert_eq!(standing(&[("/mnt/a/b", 8), ("/mnt/ab", 9)]), Standing::Reached);
        assert_eq!(standing(&[("/mnt/a", 8)]), Standing::Covered("none (tmpfs)".into()));
        assert_eq!(standing(&[("/mnt", 8)]), Standing::Covered("none (tmpfs)".into()));
        // Bound over itself with all mounts below: the mount is listed twice, and the later one is reached.
        assert_eq!(standing(&[("/mnt", 1), ("/mnt/a", 7)]), Standing::Reached);
        assert_eq!(standing(&[("/mnt", 1), ("/mnt/a", 7), ("/mnt", 8)]), Standing::Covered("none (tmpfs)".into()));
        assert_eq!(standing(&[("/", 8)]), Standing::Reached);
        assert_eq!(standing_in(Vec::new(), (0, 7), Path::new("/mnt/a")), Standing::Gone);
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        assert_eq!(unescaped(br"a\04"), br"a\04");
        assert_eq!(unescaped(br"a\999"), br"a\999");
        assert_eq!(unescaped(br"\011"), b"\t");
    }

    #[test]
    fn whatever_is_mounted_counts_as_below() {
        let below = mountpoints_below(Path::new("/")).unwrap();
        assert!(below.contains(&PathBuf::from("proc")), "{below:?}");
        assert!(mountpoints_below(Path::new("/proc/self/status")).unwrap().is_empty());
    }

    #[test]
    fn a_list_that_has_not_changed_is_not_read_again() {
        let watch = Watch::default();
        assert!(watch.changed().is_some());
        // Other tests mount too, and each mount is a change.
        let quiet = || (0..1000).any(|_| watch.changed().is_none());
        assert!(quiet());
        watch.forget();
        assert!(watch.changed().is_some());
    }

    #[test]
    fn a_living_mount_is_not_dead() {
        assert!(!detach_dead(Path::new("/")).unwrap());
    }
}
