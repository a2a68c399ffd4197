//! Mounts whose serving process is gone. Each access to such a mount fails until the mount is detached.
//!
//! Two users, or two state folders, may have pools of the same name. So each mount carries its owner: the folder of the
//! registry with the pool. A mount of an earlier version carries no owner; there only the name counts.

use std::{fs, os::unix::ffi::OsStrExt, path::Path};

use fuse_mount::{Owner, detach_dead, mounts};

use crate::{execute::devices::hash, registry::Registry};

/// The owner of the mounts of the pools in the registry's `folder`, however the path is spelled.
pub(crate) fn owner(folder: &Path) -> Owner {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    Owner::new(hash(folder.as_os_str().as_bytes()))
}

/// Detaches the mounts that the pool's killed service left behind.
pub(crate) fn detach_dead_mounts(registry: &Registry, pool: &str) {
    let ours = owner(registry.folder());
    let within =
        |dataset: &str| dataset.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
    let mut dead = match mounts() {
        Ok(mounts) => mounts,
        Err(error) => return tracing::warn!("{error}"),
    };
    dead.retain(|mount| within(&mount.dataset) && mount.owner.is_none_or(|owner| owner == ours));
    for mount in dead.iter().rev() {
        if let Err(error) = detach_dead(&mount.mountpoint) {
            tracing::warn!("{error}");
        }
    }
}
