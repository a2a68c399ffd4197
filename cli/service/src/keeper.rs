//! Keeps what the registry knows of a served pool's devices.
//!
//! Devices come and go also while no command waits: a removal ends, a replaced device leaves when its successor has
//! resilvered. So the owner of the pool looks after each call and every second whether they are others than
//! before.
//!
//! The registry changes under the pool's lock alone. The keeper waits for it only after a call; else a command that holds it
//! has the next look do the work.

use std::{collections::BTreeSet, sync::Weak, thread, time::Duration};

use protocol::Failure;

use super::{
    daemon::Owned,
    lock::PoolLock,
    registry::{DevicePath, KnownPool, Registry},
};
use crate::execute::OpenPool;

/// How often the devices are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a call waits at most for the pool's lock. It does not hold the pool meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// What commands are told that wait for the lock.
const HOLDER: &str = "the pool's service";

/// The devices of a pool that is open, spares and caches among them.
pub(super) struct Devices {
    /// The pool's GUID.
    guid: u64,
    /// The devices' paths.
    pub(super) paths: Vec<DevicePath>,
}

impl Devices {
    /// Those of this pool.
    pub(super) fn of(pool: &OpenPool) -> Devices {
        let paths = pool.device_paths().into_iter().map(|path| path.into()).collect();
        Devices { guid: pool.guid(), paths }
    }

    /// Notes them in the registry, if the pool is known still. Gives back what is known now.
    pub(super) fn note(&self, registry: &Registry, lock: &PoolLock) -> Result<Option<KnownPool>, Failure> {
        // A pool that was exported meanwhile is not known any more.
        let Some(now) = registry.get(lock.pool())?.filter(|now| now.is_numbered(self.guid)) else { return Ok(None) };
        // A device that was replaced by a new one at its path leaves nothing to note.
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
    /// Has the registry know the devices after a call. If the lock is not to be had in time, the next look does it.
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
        // The command that held the lock may have closed the pool.
        let Some(devices) = self.devices() else { return Ok(()) };
        devices.note(&Registry::of(&self.places), &lock)?;
        *self.noted.lock() = devices;
        Ok(())
    }

    /// The devices, unless the pool is closed or about to be.
    fn devices(&self) -> Option<Devices> {
        self.pool.try_read()?.as_ref().map(Devices::of)
    }
}

/// Looks every second, in a thread of its own, as long as the pool has an owner.
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
    // It ends with the process at the latest.
    drop(thread.expect("the system can start threads"));
}
