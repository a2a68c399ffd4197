//! The thread that commits every few seconds, at once when much is dirty, and on request.
//!
//! When nothing changes any more, the thread makes the few commits after which the space freed last can be allocated.
//! Then the thread is idle.
//!
//! While it runs, no other thread commits. If a device hangs during a commit, only this thread waits for the device;
//! all others can be told why they wait.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::txg::engine::state::Engine;

/// Commits in the background until dropped.
pub struct Committer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread. It commits at least every `interval` if anything has changed or freed space waits for
    /// commits.
    pub fn spawn(engine: Arc<Engine>, interval: Duration) -> Committer {
        let (stop, stopped) = bounded(0);
        let kicks = engine.attend();
        engine.set_committer(true);
        let body = move || {
            let _released = Released(&engine);
            run(&engine, interval, &stopped, &kicks);
        };
        let thread =
            thread::Builder::new().name("cenote-committer".into()).spawn(body).expect("the system can start threads");
        Committer { stop: Some(stop), thread: Some(thread) }
    }
}

fn run(engine: &Engine, interval: Duration, stopped: &Receiver<()>, kicks: &Receiver<()>) {
    loop {
        let serve = crossbeam_channel::select! {
            recv(stopped) -> _ => return,
            recv(kicks) -> _ => Engine::serve,
            default(interval) => Engine::tick,
        };
        if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(Duration::ZERO) {
            return;
        }
        // A failure closes the pool to changes, and every waiting caller gets the error.
        if let Err(error) = serve(engine) {
            tracing::error!("cannot commit: {error}");
            return;
        }
    }
}

/// However the thread ends, callers commit on their own threads from then on.
struct Released<'a>(&'a Engine);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_defect("committer");
        }
        self.0.unattended();
        self.0.set_committer(false);
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
