//! Images readable by users besides the owner. A reader of an image can import a copy and then read every file of the
//! pool. A user able to open an image can lock the image, and so prevent the import of its pool. New images are
//! closed. If a command uses an existing open image, the command prints how to close the image.

use std::{
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Mode bits for access by group and others: read or write a file.
const OPEN_TO_OTHERS: u32 = 0o066;
/// Mode bits for access by others: traverse a directory.
const PASSABLE: u32 = 0o011;

/// Whether other users can open an image: its mode and every parent directory allow access.
fn is_exposed(path: &Path) -> bool {
    let mode = |path: &Path| path.metadata().map(|metadata| metadata.permissions().mode());
    let Ok(path) = path.canonicalize() else { return false };
    let is_open = path.metadata().is_ok_and(|image| image.is_file() && image.mode() & OPEN_TO_OTHERS != 0);
    is_open && path.ancestors().skip(1).all(|folder| mode(folder).is_ok_and(|mode| mode & PASSABLE != 0))
}

/// Warns of each image among devices with read or lock access for non-owners.
pub(super) fn warn(paths: impl Iterator<Item = PathBuf>) {
    for path in paths.filter(|path| is_exposed(path)) {
        let path = path.display();
        // Without standard error the warning is lost.
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
    fn an_image_is_exposed_if_mode_and_folders_let_others_in() {
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
