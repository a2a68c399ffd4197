//! Keeping the registry's list of a served pool's devices up to date.
//!
//! The devices change even while no command runs: a removal ends, or a replaced device leaves when its successor has
//! resilvered. So the owner of the pool compares the devices with the registry after each call and every second.
//!
//! The registry changes only under the pool's lock. The keeper waits for the lock only after a call. If a command
//! holds the lock, the next check does the update.

use std::{collections::BTreeSet, sync::Weak, thread, time::Duration};

use protocol::Failure;

use super::{
    daemon::Owned,
    lock::PoolLock,
    registry::{DevicePath, KnownPool, Registry},
};
use crate::execute::OpenPool;

/// Interval between two checks of the devices.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum wait of a call for the pool's lock. The call does not hold the pool meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// The holder of the lock, as shown to waiting commands.
const HOLDER: &str = "the pool's service";

/// The devices of an open pool, including spares and cache devices.
pub(super) struct Devices {
    guid: u64,
    /// Absolute paths of the devices.
    pub(super) paths: Vec<DevicePath>,
}

impl Devices {
    /// The current devices of a pool.
    pub(super) fn of(pool: &OpenPool) -> Devices {
        let paths = pool.device_paths().into_iter().map(|path| path.into()).collect();
        Devices { guid: pool.guid(), paths }
    }

    /// Updates the devices in the registry, if the pool is still known. Returns the current entry.
    pub(super) fn note(&self, registry: &Registry, lock: &PoolLock) -> Result<Option<KnownPool>, Failure> {
        // The pool may have been exported meanwhile.
        let Some(now) = registry.get(lock.pool())?.filter(|now| now.is_numbered(self.guid)) else { return Ok(None) };
        // Compared as sets of paths: a device replaced at its own path changes nothing.
        let set = |paths: &[DevicePath]| paths.iter().map(DevicePath::to_path).collect::<BTreeSet<_>>();
        if set(&now.devices) == set(&self.paths) {
            return Ok(Some(now));
        }
        let known = KnownPool { devices: self.paths.clone(), ..now };
        registry.put(lock, &known)?;
        Ok(Some(known))
    }
}

impl Owned {
    /// Updates the registry after a call. If the lock is not free in time, the next check does the update.
    pub(super) fn note_after_call(&self) {
        self.note_within(PATIENCE);
    }

    fn note_within(&self, patience: Duration) {
        let Some(devices) = self.devices() else { return };
        if self.noted.lock().paths == devices.paths {
            return;
        }
        if let Err(failure) = self.note(patience) {
            tracing::debug!("the registry does not know the devices yet: {failure}");
        }
    }

    fn note(&self, patience: Duration) -> Result<(), Failure> {
        let lock = PoolLock::take(&self.places.lock(&self.name), &self.name, HOLDER, patience)?;
        // The previous holder of the lock may have closed the pool.
        let Some(devices) = self.devices() else { return Ok(()) };
        devices.note(&Registry::of(&self.places), &lock)?;
        *self.noted.lock() = devices;
        Ok(())
    }

    /// The devices; `None` if the pool is closed or being closed.
    fn devices(&self) -> Option<Devices> {
        self.pool.try_read()?.as_ref().map(Devices::of)
    }
}

/// Checks every second, in a separate thread, until the owner of the pool is gone.
pub(super) fn start(owner: Weak<Owned>) {
    let work = move || {
        loop {
            thread::sleep(INTERVAL);
            match owner.upgrade() {
                Some(owner) => owner.note_within(Duration::ZERO),
                None => return,
            }
        }
    };
    let thread = thread::Builder::new().name("cenote-registry".into()).spawn(work);
    // The thread ends with the process at the latest.
    drop(thread.expect("the system can start threads"));
}
