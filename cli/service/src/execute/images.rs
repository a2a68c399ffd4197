//! Files found at the paths of a pool's devices while the pool is open. A user with write access to the directory may
//! remove, rename, replace or truncate an image, and I/O through the open descriptor does not notice.
//!
//! A thread checks every few seconds, and on each `pool status` or `pool list`. The thread waits for the file systems
//! of the images. A command waits only briefly, and gets the last result if one of the file systems hangs.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use dataset::admin::Datasets;
use parking_lot::Mutex;
use pool::{
    device::Whereabouts,
    vdev::{Health, Leaf},
};
use protocol::State;

use crate::health;

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of a command for a new check.
const PATIENCE: Duration = Duration::from_millis(500);

/// The findings about misplaced devices, by device GUID. A device in its place has no entry.
type Found = BTreeMap<u64, Whereabouts>;

/// The checking thread, which ends on drop. If the thread hangs in a file system, drop does not wait, and the thread
/// ends later.
pub(crate) struct Images {
    found: Arc<Mutex<Found>>,
    orders: Option<Sender<Sender<()>>>,
    /// Closed by the thread at its end.
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Images {
    /// Starts the checking thread.
    pub(crate) fn start(datasets: Arc<Datasets>) -> Images {
        let found = Arc::new(Mutex::new(Found::new()));
        let (orders, received) = unbounded();
        let looking = found.clone();
        let (ends, ended) = bounded(1);
        let work = move || {
            run(&datasets, &looking, &received);
            // The caller of close may open the devices again at once, so the thread releases the devices first.
            drop((datasets, ends));
        };
        let thread = thread::Builder::new().name("cenote-images".into());
        let thread = thread.spawn(work).expect("the system can start threads");
        Images { found, orders: Some(orders), ended, thread: Some(thread) }
    }

    /// Requests a check, and waits for the result up to [`PATIENCE`].
    pub(super) fn look(&self) {
        let (sender, receiver) = bounded(1);
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        if orders.send(sender).is_ok() {
            // After the time limit, the last result is used.
            let _ = receiver.recv_timeout(PATIENCE);
        }
    }

    /// A view of the last result.
    pub(super) fn sight(&self) -> Sight {
        Sight(self.found.clone())
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        drop(self.orders.take());
        let has_ended = self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            // The thread's panic was already reported.
            let _ = thread.join();
        }
    }
}

/// A view of the last result of a check.
#[derive(Clone, Default)]
pub(super) struct Sight(Arc<Mutex<Found>>);

impl Sight {
    /// The finding about a device.
    pub(super) fn of(&self, leaf: &Leaf) -> Whereabouts {
        self.0.lock().get(&leaf.guid().0).copied().unwrap_or_default()
    }

    /// The state of a device, with a note for `pool status`.
    pub(super) fn state(&self, leaf: &Leaf) -> (State, Option<String>) {
        health::of_device(leaf.health(), self.of(leaf), leaf.device().silence())
    }
}

fn run(datasets: &Datasets, found: &Mutex<Found>, orders: &Receiver<Sender<()>>) {
    loop {
        let asked = match orders.recv_timeout(INTERVAL) {
            Ok(asked) => Some(asked),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let now = look(datasets);
        let before = std::mem::replace(&mut *found.lock(), now.clone());
        for (guid, place) in now.iter().filter(|(guid, place)| before.get(guid) != Some(place)) {
            tracing::error!("device {guid} is not what is found under its name: {place:?}");
        }
        if let Some(asked) = asked {
            // The caller may have stopped waiting.
            let _ = asked.send(());
        }
    }
}

fn look(datasets: &Datasets) -> Found {
    let engine = datasets.engine();
    let vdevs = engine.storage().vdevs.all().into_iter().flat_map(|vdev| vdev.leaves());
    let all = vdevs.chain(engine.storage().vdevs.spares()).chain(engine.secondary().devices());
    let used = all.filter(|leaf| leaf.health() == Health::Online);
    let places = used.map(|leaf| (leaf.guid().0, leaf.device().whereabouts()));
    places.filter(|(_, place)| *place != Whereabouts::InPlace).collect()
}
