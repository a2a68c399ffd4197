//! Disks that can be pulled out and plugged in again while in use.
//!
//! A disk is an image on the mount of a pool of its own. Killing that pool's service pulls the disk out: for every
//! process with the image open the disk is gone, as in a real machine, and unflushed data is lost. An import plugs it
//! in again.

use std::path::PathBuf;

use super::{Lab, can_mount};

impl Lab {
    /// Disks of these names and this size, not yet created; `None` if mounting is impossible here.
    pub(crate) fn disks(&self, names: &[&str], size: &str) -> Option<Vec<String>> {
        can_mount().then(|| names.iter().map(|name| self.disk(name, size)).collect())
    }

    fn disk(&self, name: &str, size: &str) -> String {
        let (mountpoint, vdev) =
            (self.at(&format!("disk/{name}")), format!("400M:{}", self.at(&format!("{name}.case"))));
        self.pool(&["create", "-m", &mountpoint, &format!("disk-{name}"), &vdev]);
        format!("{size}:{}", self.disk_path(name).display())
    }

    /// The path of a disk's image.
    pub(crate) fn disk_path(&self, name: &str) -> PathBuf {
        self.path(&format!("disk/{name}/image"))
    }

    /// Pulls a disk out.
    #[track_caller]
    pub(crate) fn pull(&self, name: &str) {
        self.damages();
        self.kill(&format!("disk-{name}"));
    }

    /// Plugs a disk in again.
    #[track_caller]
    pub(crate) fn plug(&self, name: &str) {
        self.pool(&["import", "-d", &self.at(&format!("{name}.case")), &format!("disk-{name}")]);
    }
}
