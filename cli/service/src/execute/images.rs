//! What is found under the names of a pool's devices while it is open: an image may be removed, renamed, replaced or cut by
//! anybody who may write to its directory, and whoever has it open does not notice by reading and writing.
//!
//! A thread looks every few seconds, and whenever `pool status` or `pool list` asks. It waits for the file systems that the
//! images are on; who asks does not wait for long, and gets what was found last if one of these hangs.

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

use crate::health::{self, State};

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long is waited at most for who looks.
const PATIENCE: Duration = Duration::from_millis(500);

/// What was found of each device that is not in its place, by guid.
type Found = BTreeMap<u64, Whereabouts>;

/// The thread; it ends when this is dropped, unless it hangs in a file system: then it ends with that.
pub(crate) struct Images {
    found: Arc<Mutex<Found>>,
    orders: Option<Sender<Sender<()>>>,
    /// Closed by the thread when it ends.
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Images {
    /// Starts the thread.
    pub(crate) fn start(datasets: Arc<Datasets>) -> Images {
        let found = Arc::new(Mutex::new(Found::new()));
        let (orders, received) = unbounded();
        let looking = found.clone();
        let (ends, ended) = bounded(1);
        let work = move || {
            run(&datasets, &looking, &received);
            // Whoever closes the pool may open its devices again at once.
            drop((datasets, ends));
        };
        let thread = thread::Builder::new().name("cenote-images".into());
        let thread = thread.spawn(work).expect("the system can start threads");
        Images { found, orders: Some(orders), ended, thread: Some(thread) }
    }

    /// Has the thread look now, and waits a moment for it.
    pub(super) fn look(&self) {
        let (tell, told) = bounded(1);
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        if orders.send(tell).is_ok() {
            // What was found last stands if it takes too long.
            let _ = told.recv_timeout(PATIENCE);
        }
    }

    /// What was found last.
    pub(super) fn sight(&self) -> Sight {
        Sight(self.found.clone())
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        drop(self.orders.take());
        let has_ended = self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What was found last.
#[derive(Clone, Default)]
pub(super) struct Sight(Arc<Mutex<Found>>);

impl Sight {
    /// What was found under a device's name.
    pub(super) fn of(&self, leaf: &Leaf) -> Whereabouts {
        self.0.lock().get(&leaf.guid().0).copied().unwrap_or_default()
    }

    /// The state of a device, and what is to be known beside it.
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
            // Who asked may have lost patience.
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
