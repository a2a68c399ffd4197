//! The thread that writes to cache devices, and reads their headers after an import.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::{device::IoPurpose, txg::engine::state::Engine};

/// Writes in the background until dropped.
pub struct Feeder {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Starts the thread.
    pub fn spawn(engine: Arc<Engine>) -> Feeder {
        let (stop, stopped) = bounded(0);
        let body = move || IoPurpose::Background.during(|| run(&engine, &stopped));
        let thread = thread::Builder::new().name("cenote-feeder".into()).spawn(body);
        Feeder { stop: Some(stop), thread: Some(thread.expect("the system can start threads")) }
    }
}

fn run(engine: &Engine, stopped: &Receiver<()>) {
    let secondary = engine.secondary();
    loop {
        let now = engine.env().uptime();
        match secondary.step(now) {
            Some(next) => match stopped.recv_timeout(next.saturating_sub(now)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            },
            None => crossbeam_channel::select! {
                recv(stopped) -> _ => return,
                recv(secondary.woken()) -> _ => {}
            },
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}
