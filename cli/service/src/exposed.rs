//! Images readable by users besides the owner. A reader of an image can import a copy and then read every file of the
//! pool. A user able to open an image can lock the image, and so prevent the import of its pool. New images are
//! closed. If a command uses an existing open image, the command prints how to close the image.

use std::{
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use protocol::shell_word;

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

/// Warns of images among the devices of a pool with read or lock access for non-owners.
pub(super) fn warn(paths: impl Iterator<Item = PathBuf>) {
    if let Some(warning) = warning(paths) {
        // Without standard error the warning is lost.
        let _ = writeln!(io::stderr(), "{warning}");
    }
}

/// One line about all exposed images; `None` without any.
fn warning(paths: impl Iterator<Item = PathBuf>) -> Option<String> {
    let exposed: Vec<String> =
        paths.filter(|path| is_exposed(path)).map(|path| shell_word(&path.to_string_lossy())).collect();
    let images = match &exposed[..] {
        [] => return None,
        [image] => format!("the image {image}"),
        images => format!("{} images", images.len()),
    };
    let all = exposed.join(" ");
    Some(format!("warning: other users can read {images} and every file in the pool; to prevent this: chmod 600 {all}"))
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

    #[test]
    fn all_exposed_images_are_in_one_warning() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let image = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let (a, b, closed) = (image("a", 0o644), image("b c", 0o666), image("closed", 0o600));
        let warned = warning([a.clone(), closed.clone(), b.clone()].into_iter()).unwrap();
        assert!(warned.starts_with("warning: other users can read 2 images and every file in the pool; "), "{warned}");
        assert!(warned.ends_with(&format!(": chmod 600 {} '{}'", a.display(), b.display())), "{warned}");
        assert!(warning([a].into_iter()).unwrap().starts_with("warning: other users can read the image /"));
        assert_eq!(warning([closed].into_iter()), None);
    }
}
