//! A new file for a stream, at a path without symbolic links.
//!
//! The owner of a folder on the way could redirect the file with a link, and root's page writes as root. So no link is
//! followed, and the file is removed from its folder, even if another folder has taken the path.

use std::{
    ffi::OsString,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use protocol::Failure;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat, openat2, unlinkat},
    io::Errno,
};

/// A file made for a stream.
pub(crate) struct Fresh {
    folder: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Fresh {
    /// Makes an empty file that only its owner can read.
    ///
    /// # Errors
    /// If the file exists, or a folder of its path is missing or a symbolic link.
    pub(crate) fn make(path: &Path) -> Result<(Fresh, File), Failure> {
        let refused = |error: Errno| match error {
            Errno::LOOP => Failure::cannot("create", path.display(), "a folder of the path is a symbolic link")
                .hint("give the path without links, as realpath shows it"),
            error => Failure::cannot("create", path.display(), error),
        };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(refused(Errno::ISDIR)) };
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(CWD, above, way, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(refused)?;
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, name, how, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        Ok((Fresh { folder, name: name.to_owned(), path: path.to_owned() }, file.into()))
    }

    /// Removes the file. Returns the path if the file was removed.
    pub(crate) fn remove(self) -> Option<PathBuf> {
        unlinkat(&self.folder, &self.name, AtFlags::empty()).ok().map(|()| self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_file_is_made_and_removed_where_no_link_leads() {
        let lab = tempfile::tempdir().unwrap();
        let root = lab.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink(at("folder"), at("link")).unwrap();
        symlink(at("target"), at("folder/last")).unwrap();
        let why = |name: &str| Fresh::make(&at(name)).err().unwrap().to_string();
        assert!(why("link/file").ends_with("a folder of the path is a symbolic link"), "{}", why("link/file"));
        assert!(!at("folder/file").exists());
        assert!(why("folder/last").contains("File exists") && !at("target").exists());
        assert!(why("none/file").contains("No such file"));
        assert!(why("folder/..").contains("create"));
        let (made, _) = Fresh::make(&at("folder/file")).unwrap();
        assert!(why("folder/file").contains("File exists"));
        // Another folder has taken the place of the file's folder.
        fs::rename(at("folder"), at("moved")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("folder/file"), "other").unwrap();
        assert_eq!(made.remove(), Some(at("folder/file")));
        assert!(at("folder/file").exists() && !at("moved/file").exists());
    }
}
