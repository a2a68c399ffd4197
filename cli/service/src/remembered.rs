//! Mounts that the pool's properties alone would not make again, in a file beside the registry entry of the pool:
//! `STATE/pools/NAME.mounts`. Such mounts are those by mount(8), those with temporary options, overlays, and datasets
//! with `canmount=noauto`.
//!
//! The file is replaced as a whole, like the entry. An unreadable file is reported by its path; then only these
//! mounts are not restored. Programs that know only mounts by mount(8) read the file too: they find the mount point of
//! any other mount in its properties.

use std::{io, path::Path, sync::LazyLock};

use dataset::name::Name;
use protocol::{Assignment, Failure};
use serde::{Deserialize, Serialize};

use super::{
    places::prepare_closed,
    registry::{DevicePath, FILE_MODE, read_bounded, replace},
};

/// Format version of the files; files of any other version are refused.
const VERSION: u32 = 1;

/// A mounted file system or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The name at the time of the mount.
    pub name: Name,
    /// The id in the pool, of the file system or the snapshot.
    pub id: u64,
    /// The id of the file system; for a snapshot, of its file system.
    pub dataset: u64,
    /// The directory of the mount, an absolute path.
    pub directory: DevicePath,
    /// Temporary property values of this mount.
    pub options: Vec<Assignment>,
    /// For a mount by `fs mount`, which ends with the boot of the machine. `None` for a mount by mount(8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

/// How `fs mount` was asked for a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Whether the mount hides the content of the directory.
    pub overlay: bool,
    /// The boot of the machine, as the kernel identifies it.
    pub boot: String,
}

/// Identifies the boot of this machine; empty if the kernel does not say. Read once: every remembered mount has it.
pub fn boot() -> String {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    });
    BOOT.clone()
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    mounts: Vec<Remembered>,
}

/// The mounts in a file; none if the file is missing.
pub fn read(file: &Path) -> Result<Vec<Remembered>, Failure> {
    let failed = |why: String| {
        Failure::cannot("read", file.display(), why).hint("mount again what was mounted by mount(8), or with options")
    };
    match read_bounded(file) {
        Ok(bytes) => match serde_json::from_slice::<Document>(&bytes) {
            Ok(Document { version: VERSION, mounts }) => Ok(mounts),
            Ok(Document { version, .. }) => {
                Err(failed(format!("it has version {version}, this program knows {VERSION}")))
            }
            Err(error) => Err(failed(error.to_string())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Replaces the mounts in a file.
pub fn write(file: &Path, mounts: &[Remembered]) -> Result<(), Failure> {
    prepare_closed(file)?;
    let document = Document { version: VERSION, mounts: mounts.to_vec() };
    let text = serde_json::to_vec_pretty(&document).expect("a remembered mount is plain data");
    replace(file, &text, FILE_MODE).map_err(|error| Failure::cannot("write", file.display(), error))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    #[test]
    fn what_is_written_is_read_and_garbage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pools/tank.mounts");
        assert_eq!(read(&file), Ok(Vec::new()));
        let mounts = ["tank/a", "tank/a@monday"].map(|name| Remembered {
            name: name.parse().unwrap(),
            id: 7,
            dataset: 5,
            directory: PathBuf::from("/mnt").into(),
            options: vec![Assignment { name: "readonly".into(), value: "on".into() }],
            asked: (name == "tank/a").then(|| Asked { overlay: true, boot: boot() }),
        });
        assert!(!boot().is_empty());
        write(&file, &mounts).unwrap();
        assert_eq!(read(&file).unwrap(), mounts);
        for garbage in
            ["", "{", "[1]", r#"{"version": 9, "mounts": []}"#, r#"{"version": 1, "mounts": [{"name": "/"}]}"#]
        {
            fs::write(&file, garbage).unwrap();
            assert!(read(&file).unwrap_err().to_string().contains("tank.mounts"));
        }
    }
}
