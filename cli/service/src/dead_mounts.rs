//! Mounts whose serving process is gone. Each access to such a mount fails until the mount is detached.

use fuse_mount::{detach_dead, mounts};

/// Detaches the mounts that the pool's killed service left behind.
pub(crate) fn detach_dead_mounts(pool: &str) {
    let within =
        |dataset: &str| dataset.strip_prefix(pool).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
    let mut dead = match mounts() {
        Ok(mounts) => mounts,
        Err(error) => return tracing::warn!("{error}"),
    };
    dead.retain(|mount| within(&mount.dataset));
    for mount in dead.iter().rev() {
        if let Err(error) = detach_dead(&mount.mountpoint) {
            tracing::warn!("{error}");
        }
    }
}
