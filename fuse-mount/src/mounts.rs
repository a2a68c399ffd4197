//! The mounts of datasets that exist on this machine, whoever made them, as `/proc/self/mountinfo` lists them.
//!
//! A service that was killed leaves its mounts behind: every access fails with "transport endpoint is not connected"
//! until somebody detaches them. [`detach_dead`] does, and touches no mount that still answers.

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

/// The part of the type after `fuse.`.
pub(crate) const SUBTYPE: &str = "cenote";
/// The type under which datasets are mounted, as `df -T` shows it.
pub const FS_TYPE: &str = "fuse.cenote";

/// How long a server may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(3);

const MOUNT_INFO: &str = "/proc/self/mountinfo";

/// A mounted dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub mountpoint: PathBuf,
    /// The dataset's name.
    pub dataset: String,
    /// The device number, major and minor: files of this mount and no other carry it.
    pub device: (u32, u32),
    /// The mount's flags, as in `ro,nosuid,relatime`.
    pub flags: String,
}

/// Notices changes of the list of mounts. The list is that of the mount namespace in which this process lives: a copy
/// of a mount in another namespace is not in it.
#[derive(Default)]
pub struct Watch(Mutex<Option<File>>);

impl Watch {
    /// The devices of all datasets that are mounted, if the list may have changed since this was asked last.
    pub fn changed(&self) -> Option<HashSet<(u32, u32)>> {
        let mut watched = self.0.lock();
        // The kernel notes for each open file of the list whether it has reported the newest change. A file that has just
        // been opened is up to date, so the list is read after that.
        match &*watched {
            Some(file) if !has_changed(file) => return None,
            Some(_) => {}
            None => *watched = File::open(MOUNT_INFO).ok(),
        }
        let mounts = mounts().inspect_err(|error| tracing::warn!(%error, "mounts that have gone are not noticed"));
        mounts.ok().map(|mounts| mounts.into_iter().map(|mounted| mounted.device).collect())
    }

    /// Has the next question answered from the list, whether it has changed or not.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

fn has_changed(list: &File) -> bool {
    let mut waiting = [PollFd::new(list, PollFlags::PRI)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut waiting, Some(&at_once)).map_or(true, |events| events > 0)
}

/// Anything mounted, by whomever.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    mountpoint: PathBuf,
    device: (u32, u32),
    flags: String,
    fs_type: String,
    source: String,
}

/// Every mounted dataset, in the order they were mounted.
pub fn mounts() -> Result<Vec<Mounted>> {
    Ok(all()?.into_iter().filter_map(Place::dataset).collect())
}

/// Every mount, in the order they were made.
fn all() -> Result<Vec<Place>> {
    let table = fs::read(MOUNT_INFO).map_err(Error::List)?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// Where anything at all is mounted, by whomever, below the directory `top`: the paths from there.
pub(crate) fn mountpoints_below(top: &Path) -> Result<Vec<PathBuf>> {
    let places = all()?.into_iter().map(|place| place.mountpoint);
    let below = places.filter_map(|place| place.strip_prefix(top).ok().map(Path::to_owned));
    Ok(below.filter(|path| !path.as_os_str().is_empty()).collect())
}

/// The device of what is mounted on a directory, without asking whoever serves it; `None` if nothing is mounted there.
/// Kernels before 5.8 do not tell, which is an error, as is a directory that cannot be reached.
fn device_mounted_on(directory: &Path) -> io::Result<Option<(u32, u32)>> {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, directory, how, StatxFlags::empty())?;
    if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::NOSYS.into());
    }
    let is_mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_mounted.then_some((found.stx_dev_major, found.stx_dev_minor)))
}

/// The dataset whose mount is what a look at the directory `mountpoint` shows.
pub fn mounted_at(mountpoint: &Path) -> Result<Option<Mounted>> {
    // The list is long where much is mounted, and each of many mounts asks.
    if matches!(device_mounted_on(mountpoint), Ok(None)) {
        return Ok(None);
    }
    Ok(all()?.into_iter().rfind(|place| place.mountpoint == mountpoint).and_then(Place::dataset))
}

/// How one mount stands in the tree of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is reached by its path.
    Reached,
    /// Something else, which this describes, is mounted over it or over a directory above it.
    Covered(String),
    /// It is not in the tree.
    Gone,
}

/// How the mount of `device` on `mountpoint` stands.
pub(crate) fn standing(device: (u32, u32), mountpoint: &Path) -> Result<Standing> {
    if matches!(device_mounted_on(mountpoint), Ok(Some(found)) if found == device) {
        return Ok(Standing::Reached);
    }
    Ok(standing_in(all()?, device, mountpoint))
}

/// What is mounted later on the same directory, or on one above it, hides a mount. One that is in the tree twice, as when
/// a directory above it was bound over itself, is looked for where it came last. What is mounted on the root of the tree
/// hides nothing: looking up a path begins below it.
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

/// Detaches the mount on `mountpoint` if it is a dataset's and nobody serves it any more, and such mounts beneath it on
/// the same directory. True if it did.
pub fn detach_dead(mountpoint: &Path) -> Result<bool> {
    let mut detached = false;
    while mounted_at(mountpoint)?.is_some() && is_dead(mountpoint) {
        detach(mountpoint)?;
        detached = true;
    }
    Ok(detached)
}

/// Takes the mount out of the tree of names. What is still open in it stays usable.
pub fn detach(mountpoint: &Path) -> Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(&["-u", "-z"], mountpoint).map_err(|cause| refused(mountpoint, cause)),
        Err(errno) => Err(refused(mountpoint, errno.into())),
    }
}

/// Whether the mount's server is gone. A request that the kernel never answers from its cache tells. A server that is
/// there and does not answer is not waited for long: it is not dead.
///
/// One that can be seen to be there is not even asked. If it stands still, a request that has gone into its ring waits for
/// it whatever happens: whoever asked could not be killed, nor end by itself. So a mount counts as living while a process
/// still holds a connection that was cut: for a moment, unless that process is stuck itself.
pub fn is_dead(mountpoint: &Path) -> bool {
    if matches!(mounted_at(mountpoint), Ok(Some(mounted)) if is_served(mounted.device.1)) {
        return false;
    }
    let (tell, told) = mpsc::channel();
    let path = mountpoint.to_owned();
    let asking = thread::Builder::new().name("statfs".into()).spawn(move || {
        // Nobody listens any more if it took too long.
        let _ = tell.send(rustix::fs::statfs(path).map(drop));
    });
    let answer = asking.ok().and_then(|_| told.recv_timeout(PATIENCE).ok());
    matches!(answer, Some(Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)))
}

/// Whether a process has this connection open, among those that this one may look at. Kernels before 6.15 do not tell.
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

/// The connection that a descriptor of the device belongs to, by the kernel's description of it.
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
    /// The dataset that is mounted here, if one is.
    fn dataset(self) -> Option<Mounted> {
        let Place { mountpoint, device, flags, fs_type, source } = self;
        (fs_type == FS_TYPE).then_some(Mounted { mountpoint, dataset: source, device, flags })
    }
}

/// One line: `36 35 0:45 / /mnt rw,relatime shared:1 - fuse.cenote tank/home rw,user_id=0`.
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
        assert_eq!(mounted.flags, "rw,relatime");
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
            };
            let all = [("/", 1), ("/mnt/a", 2), ("/mnt/a", 7)];
            standing_in(all.iter().chain(later).map(place).collect(), (0, 7), Path::new("/mnt/a"))
        };
        assert_eq!(standing(&[]), Standing::Reached);
        assert_eq!(standing(&[("/mnt/a/b", 8), ("/mnt/ab", 9)]), Standing::Reached);
        assert_eq!(standing(&[("/mnt/a", 8)]), Standing::Covered("none (tmpfs)".into()));
        assert_eq!(standing(&[("/mnt", 8)]), Standing::Covered("none (tmpfs)".into()));
        // Bound over itself with all that is below: it is there twice, and the later one is reached.
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
