//! The thread that frees removed files.
//!
//! A removed file is freed when the kernel has forgotten it, which it says of each file by itself, right after the removal.
//! Freed at once, each would be a change of its own, made by one thread while the next removal waits on another for the
//! same tree. So files are left to this thread, which waits a moment and frees all that have come together. It is
//! started by the first, and ended with the mount.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use dataset::fs::FileSystem;
use parking_lot::Mutex;

use crate::courtesy;

/// How long files are gathered: here, and by the kernel before it says what it forgets, where nothing else is waited for.
/// Nobody notices that space comes back so much later.
pub(crate) const GATHERING: Duration = Duration::from_millis(2);

/// Has files freed.
#[derive(Default)]
pub(crate) struct Freer(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Unused,
    Running(Running),
    /// There is no thread any more, or none to be had.
    Ended,
}

struct Running {
    orders: Sender<()>,
    /// The thread does not gather any longer when this is dropped.
    end: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Freer {
    /// Has what was released in this file system freed soon. It is always the same one.
    pub(crate) fn order(&self, live: &Arc<FileSystem>) {
        let mut state = self.0.lock();
        if matches!(*state, State::Unused) {
            *state = start(live).map_or_else(
                |error| {
                    tracing::warn!(%error, "cannot start a thread for removed files");
                    State::Ended
                },
                State::Running,
            );
        }
        match &*state {
            // If there is an order already, the thread has not begun yet with what that was for.
            State::Running(running) => drop(running.orders.try_send(())),
            State::Unused | State::Ended => {
                drop(state);
                live.free_unused();
            }
        }
    }

    /// Waits until the thread has done what it was ordered to. From then on, orders are carried out at once.
    pub(crate) fn end(&self) {
        let state = std::mem::replace(&mut *self.0.lock(), State::Ended);
        if let State::Running(Running { orders, end, thread }) = state {
            drop((orders, end));
            if thread.join().is_err() {
                tracing::error!("the thread that frees removed files panicked");
            }
        }
    }
}

fn start(live: &Arc<FileSystem>) -> io::Result<Running> {
    let (orders, received) = bounded(1);
    let (end, ended) = bounded(0);
    let live = Arc::clone(live);
    let thread = courtesy::spawn("fuse-free", move || run(&received, &ended, &live))?;
    Ok(Running { orders, end, thread })
}

fn run(orders: &Receiver<()>, ended: &Receiver<Infallible>, live: &FileSystem) {
    for () in orders {
        select! {
            recv(ended) -> _ => {}
            default(GATHERING) => {}
        }
        live.free_unused();
    }
}
