//! Images that other users can read. Whoever reads one can import a copy of it, and then read every file of the pool; whoever
//! can open one can lock it, and keep the pool from being imported. New images are closed; for those that exist, the
//! command that puts them to use says how to close them.

use std::{
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// What a group and all others may do with a file: read or write it.
const OPEN_TO_OTHERS: u32 = 0o066;
/// Pass through a directory.
const PASSABLE: u32 = 0o011;

/// Whether other users can open an image: its mode and every directory above let them.
fn is_exposed(path: &Path) -> bool {
    let mode = |path: &Path| path.metadata().map(|metadata| metadata.permissions().mode());
    let Ok(path) = path.canonicalize() else { return false };
    let is_open = path.metadata().is_ok_and(|image| image.is_file() && image.mode() & OPEN_TO_OTHERS != 0);
    is_open && path.ancestors().skip(1).all(|folder| mode(folder).is_ok_and(|mode| mode & PASSABLE != 0))
}

/// Warns of those images among devices that other users can read or lock.
pub(super) fn warn(paths: impl Iterator<Item = PathBuf>) {
    for path in paths.filter(|path| is_exposed(path)) {
        let path = path.display();
        // Without standard error there is no one to warn.
        let _ = writeln!(
            io::stderr(),
            "warning: other users can read the image {path} and every file in the pool; to prevent this: chmod 600 {path}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn an_image_is_exposed_if_its_mode_and_all_folders_let_others_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        set(&path, 0o644);
        set(folder.path(), 0o700);
        assert!(!is_exposed(&path), "the folder is closed");
        set(folder.path(), 0o755);
        for (mode, exposed) in [(0o644, true), (0o640, true), (0o606, true), (0o600, false), (0o611, false)] {
            set(&path, mode);
            assert_eq!(is_exposed(&path), exposed, "{mode:o}");
        }
        assert!(!is_exposed(folder.path()) && !is_exposed(Path::new("/dev/null")));
    }
}
