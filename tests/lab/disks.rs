//! Disks that can be pulled out and plugged in again while they are used.
//!
//! A disk is an image on the mount of a pool of its own. Whoever kills that pool's service pulls it out: to everybody who has
//! the image open it is gone, as the disk of a machine is, and what was not flushed is lost. Imported again it is back.

use std::path::PathBuf;

use super::{Lab, can_mount};

impl Lab {
    /// Disks of these names, each of so many bytes, which are not made yet; none if nothing can be mounted here.
    pub(crate) fn disks(&self, names: &[&str], size: &str) -> Option<Vec<String>> {
        can_mount().then(|| names.iter().map(|name| self.disk(name, size)).collect())
    }

    fn disk(&self, name: &str, size: &str) -> String {
        let (mountpoint, vdev) =
            (self.at(&format!("disk/{name}")), format!("400M:{}", self.at(&format!("{name}.case"))));
        self.pool(&["create", "-m", &mountpoint, &format!("disk-{name}"), &vdev]);
        format!("{size}:{}", self.disk_path(name).display())
    }

    /// Where the image of a disk is.
    pub(crate) fn disk_path(&self, name: &str) -> PathBuf {
        self.path(&format!("disk/{name}/image"))
    }

    /// Pulls a disk out.
    #[track_caller]
    pub(crate) fn pull(&self, name: &str) {
        self.damages();
        self.kill(&format!("disk-{name}"));
    }

    /// Plugs it in again.
    #[track_caller]
    pub(crate) fn plug(&self, name: &str) {
        self.pool(&["import", "-d", &self.at(&format!("{name}.case")), &format!("disk-{name}")]);
    }
}
