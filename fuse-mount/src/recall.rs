//! Taking back what the kernel shows of a file and is not stored there.
//!
//! The kernel keeps a page that it could not write back, as if it had: whoever reads the file sees what a program stored
//! through a mapping, though the file is immutable, or there is no room. And a page that was read while a write past the
//! cache was under way keeps the bytes from before it, if that write is asynchronous: the kernel drops its pages when
//! such a write begins, and not when it is done. So the first kind of page is *restored*, given the stored bytes, and the
//! second kind *dropped*, in both cases before the request is answered. Whatever the program waits for (`munmap`,
//! `msync`, `fsync`, `close`, a completion) has not returned by then.
//!
//! The kernel may hold a page's lock while it waits for that very answer, or for one that another thread of the mount has
//! yet to give. So a thread of its own tells the kernel, and no request waits for it longer than [`PATIENCE`]. A page that
//! is not right by then is right when the thread has its lock, a moment after the answer.
//!
//! Not here: which requests make it necessary, which the dispatcher knows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use dataset::fs::Errno;
use fuser::{INodeNo, Notifier};

use crate::courtesy;
use crate::server::Server;

/// How long a request waits for its pages.
const PATIENCE: Duration = Duration::from_millis(100);

/// Tells the kernel of one mount. The thread is started when it is first needed, and ends when this is dropped.
pub(crate) struct Recall {
    server: Arc<Server>,
    notifier: Arc<OnceLock<Notifier>>,
    jobs: OnceLock<Sender<Job>>,
}

/// A range of a file that the kernel shows wrongly.
struct Job {
    node: INodeNo,
    offset: u64,
    length: u64,
    way: Way,
    /// The request was answered without waiting any longer: the range may have changed since.
    is_answered: Arc<AtomicBool>,
    /// Dropped when the request need not wait any more.
    done: Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Drop,
    Restore,
}

impl Recall {
    /// For a mount that can be told of changes when `notifier` is there.
    pub(crate) fn new(server: Arc<Server>, notifier: Arc<OnceLock<Notifier>>) -> Recall {
        Recall { server, notifier, jobs: OnceLock::new() }
    }

    /// Has the kernel drop what it has of a range.
    pub(crate) fn drop_range(&self, node: INodeNo, offset: u64, length: u64) {
        self.ask(node, offset, length, Way::Drop);
    }

    /// Has the kernel show what is stored in a range.
    pub(crate) fn restore(&self, node: INodeNo, offset: u64, length: u64) {
        self.ask(node, offset, length, Way::Restore);
    }

    fn ask(&self, node: INodeNo, offset: u64, length: u64, way: Way) {
        let (done, ended) = bounded(0);
        let is_answered = Arc::<AtomicBool>::default();
        let job = Job { node, offset, length, way, is_answered: is_answered.clone(), done };
        if self.jobs.get_or_init(|| self.start()).send(job).is_err() {
            tracing::warn!(node = node.0, "the kernel may show what is not stored: there is no thread to tell it");
        }
        // Nothing is ever sent: either the job is over, or it takes too long.
        let _ = ended.recv_timeout(PATIENCE);
        is_answered.store(true, Ordering::Release);
    }

    /// Starts the thread. Without it, the channel has no receiver and refuses what it is sent.
    fn start(&self) -> Sender<Job> {
        let (sender, receiver) = unbounded();
        let (server, notifier) = (Arc::clone(&self.server), Arc::clone(&self.notifier));
        if let Err(error) = courtesy::spawn("fuse-recall", move || run(&receiver, &server, &notifier)) {
            tracing::warn!(%error, "cannot start a thread that tells the kernel what is not stored");
        }
        sender
    }
}

fn run(jobs: &Receiver<Job>, server: &Server, notifier: &OnceLock<Notifier>) {
    for Job { node, offset, length, way, is_answered, done } in jobs {
        let Some(notifier) = notifier.get() else { continue };
        let stored = if way == Way::Restore { stored(server, node, offset, length) } else { Err(Errno::NODATA) };
        let told = match stored {
            // Until the answer the kernel lets no program change the range. After it, these bytes may be older than the file's.
            Ok(data) if !is_answered.load(Ordering::Acquire) => notifier.store(node, offset, &data),
            Ok(_) | Err(_) => {
                // Of a page that is being written back the kernel lets go only after the answer.
                let done = (way == Way::Drop).then_some(done);
                let told = notifier.inval_inode(node, offset.cast_signed(), length.cast_signed());
                drop(done);
                told
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, node = node.0, "the kernel may show what is not stored");
        }
    }
}

/// The stored bytes of a range. Behind the end of a file are zeros.
fn stored(server: &Server, node: INodeNo, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
    let (view, ino) = server.resolve(node)?.ok_or(Errno::STALE)?;
    let mut data = Vec::with_capacity(length);
    view.read(ino, offset, length, &mut data)?;
    data.resize(length, 0);
    Ok(data)
}
