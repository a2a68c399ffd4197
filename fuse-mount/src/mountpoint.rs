//! Finding, making and removing a mount point without being misled by symbolic links.
//!
//! Root mounts in directories that other users own. A user with a symbolic link at the mount point could choose the
//! directory that the mount hides. So a path is walked name by name, each looked up in the directory already open, and
//! the mount is made on the descriptor at the end.
//!
//! A symbolic link is followed if the administrator made it: root or this process's user owns both the link and its
//! directory, and no other user may write there. A sticky directory qualifies too, because other users cannot replace
//! the link. A process of an ordinary user follows every link: it has no rights that the link could borrow.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, readlinkat, statat, unlinkat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::{Error, Result};

/// How many symbolic links one path may lead through; the kernel's number.
const MAX_LINKS: usize = 40;
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A directory to mount on.
#[derive(Debug)]
pub struct MountPoint {
    dir: OwnedFd,
    path: PathBuf,
    is_new: bool,
}

/// How the walk treats a name that is not a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Otherwise {
    /// Make missing directories; follow a link of the administrator.
    Make,
    /// Follow a link of the administrator.
    Follow,
    /// Fail if a directory is missing or a link.
    Refuse,
}

impl MountPoint {
    /// The directory `path`, which is absolute; missing directories are made.
    pub fn make(path: &Path) -> Result<MountPoint> {
        walk(path, Otherwise::Make)
    }

    /// The directory `path`, which is absolute and exists.
    pub fn find(path: &Path) -> Result<MountPoint> {
        walk(path, Otherwise::Follow)
    }

    /// The directory of a path that [`MountPoint::path`] has returned. A symbolic link in the path is new since then,
    /// and an error.
    pub(crate) fn again(path: &Path) -> Result<MountPoint> {
        walk(path, Otherwise::Refuse)
    }

    /// Removes the directory of a path that [`MountPoint::path`] has returned, if it is empty and not in use.
    pub fn remove(path: &Path) -> Result<()> {
        let refused = |errno: Errno| Error::Mount { mountpoint: path.to_owned(), cause: errno.into() };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(refused(Errno::BUSY)) };
        unlinkat(&MountPoint::again(above)?.dir, name, AtFlags::REMOVEDIR).map_err(refused)
    }

    /// The absolute path without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this call made the directory.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the directory is empty.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(std::fs::read_dir(self.through_proc())?.next().is_none())
    }

    /// A path that leads to this directory even after renames.
    pub(crate) fn through_proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }

    /// The directory's type and mode.
    pub(crate) fn mode(&self) -> Result<u32, Errno> {
        Ok(rustix::fs::fstat(&self.dir)?.st_mode)
    }
}

/// Unmounts the mount at a path without symbolic links. A link made there since is not followed: it would choose
/// another mount.
pub(crate) fn unmount(path: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::BUSY) };
    let above = MountPoint::again(above).map_err(|error| match error {
        Error::Mount { cause, .. } => Errno::from_io_error(&cause).unwrap_or(Errno::IO),
        _ => Errno::LOOP,
    })?;
    // The mount's own directory must not be open, or the mount would be in use.
    rustix::mount::unmount(above.through_proc().join(name), flags | UnmountFlags::NOFOLLOW)
}

fn walk(path: &Path, otherwise: Otherwise) -> Result<MountPoint> {
    let failed = |errno: Errno| Error::Mount { mountpoint: path.to_owned(), cause: errno.into() };
    let mut names = names(path);
    let mut found = root().map_err(failed)?;
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        found.is_new = false;
        match directory(&found.dir, &name) {
            Ok(dir) => found.enter(dir, &name),
            Err(Errno::NOENT) if otherwise == Otherwise::Make => {
                // Another process may make the directory at the same time.
                let made = mkdirat(&found.dir, &name, Mode::from_raw_mode(0o777));
                let dir = made.or_else(|errno| if errno == Errno::EXIST { Ok(()) } else { Err(errno) });
                let dir = dir.and_then(|()| directory(&found.dir, &name)).map_err(failed)?;
                found.enter(dir, &name);
                found.is_new = made.is_ok();
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let target = readlinkat(&found.dir, &name, Vec::new()).map_err(|_| failed(Errno::NOTDIR))?;
                links += 1;
                if links > MAX_LINKS {
                    return Err(failed(Errno::LOOP));
                }
                if otherwise == Otherwise::Refuse || !is_trusted(&found.dir, &name).map_err(failed)? {
                    return Err(Error::Link { mountpoint: path.to_owned(), link: found.path.join(&name) });
                }
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    found = root().map_err(failed)?;
                }
                self::names(&target).into_iter().rev().for_each(|name| names.push_front(name));
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(found)
}

impl MountPoint {
    fn enter(&mut self, dir: OwnedFd, name: &OsStr) {
        self.dir = dir;
        if name == ".." {
            self.path.pop();
        } else {
            self.path.push(name);
        }
    }
}

fn root() -> Result<MountPoint, Errno> {
    Ok(MountPoint { dir: directory(CWD, OsStr::new("/"))?, path: PathBuf::from("/"), is_new: false })
}

/// The names in a path, from the root or from the place of a link.
fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.map(OsStr::to_owned).collect()
}

/// Opens a directory without a request to its file system, whose server may be gone.
fn directory(at: impl std::os::fd::AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Whether the administrator made this link in this directory.
fn is_trusted(dir: &OwnedFd, link: &OsStr) -> Result<bool, Errno> {
    let user = rustix::process::geteuid();
    let (dir, link) = (rustix::fs::fstat(dir)?, statat(dir, link, AtFlags::SYMLINK_NOFOLLOW)?);
    Ok(!user.is_root() || leads_where_root_wants((dir.st_uid, dir.st_mode), link.st_uid))
}

fn leads_where_root_wants((dir_owner, dir_mode): (u32, u32), link_owner: u32) -> bool {
    dir_owner == 0 && link_owner == 0 && (dir_mode & GROUP_OR_OTHERS_WRITE == 0 || dir_mode & STICKY != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn what_is_missing_is_made_and_removed_again() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let made = MountPoint::make(&top.join("a/b")).unwrap();
        assert_eq!((made.path(), made.is_new(), made.is_empty().unwrap()), (&*top.join("a/b"), true, true));
        let again = MountPoint::make(&top.join("a")).unwrap();
        assert_eq!((again.is_new(), again.is_empty().unwrap()), (false, false));
        assert!(MountPoint::remove(&top.join("a")).is_err());
        MountPoint::remove(made.path()).unwrap();
        assert!(MountPoint::find(&top.join("a/b")).is_err());
        fs::write(top.join("file"), "").unwrap();
        let refused = MountPoint::make(&top.join("file/b")).unwrap_err();
        assert!(refused.to_string().contains("Not a directory"), "{refused}");
    }

    #[test]
    fn links_of_the_administrator_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/deep")).unwrap();
        symlink("real/deep/../deep", top.join("relative")).unwrap();
        symlink(top.join("relative"), top.join("absolute")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        assert_eq!(MountPoint::find(&top.join("absolute")).unwrap().path(), top.join("real/deep"));
        assert_eq!(MountPoint::make(&top.join("absolute/new")).unwrap().path(), top.join("real/deep/new"));
        assert!(MountPoint::make(&top.join("loop")).unwrap_err().to_string().contains("symbolic links"));
        // The path returned before had no links, so a link in it is new.
        assert!(matches!(MountPoint::again(&top.join("relative")), Err(Error::Link { .. })));
        assert!(matches!(MountPoint::remove(&top.join("relative/new")), Err(Error::Link { .. })));
    }

    #[test]
    fn links_that_another_user_controls_are_refused() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (folder.path().join("home"), folder.path().join("elsewhere"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, home.join("link")).unwrap();
        let find = || MountPoint::make(&home.join("link")).map(|found| found.path().to_owned());
        assert_eq!(find().unwrap(), elsewhere.canonicalize().unwrap());
        // The directory's owner is another user, who may have moved root's link there.
        chown(&home, Some(65534), None).unwrap();
        assert!(matches!(find(), Err(Error::Link { link, .. }) if link.ends_with("home/link")));
        chown(&home, Some(0), None).unwrap();
        lchown(home.join("link"), Some(65534), None).unwrap();
        assert!(matches!(find(), Err(Error::Link { .. })));
        lchown(home.join("link"), Some(0), None).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(find(), Err(Error::Link { .. })));
        fs::set_permissions(&home, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(find().unwrap(), elsewhere.canonicalize().unwrap());
    }
}
