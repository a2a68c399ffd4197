//! Correcting cached pages that differ from the stored file.
//!
//! After a failed write-back the kernel keeps the page as if written: readers see what a program stored through a
//! mapping, though the file is immutable or the pool is full. Also, a page read during a write past the cache keeps the
//! old bytes if the write is asynchronous: the kernel drops its pages when such a write begins, but not when it ends.
//! So pages of the first kind are *restored* to the stored bytes, and pages of the second kind *dropped*, in both cases
//! before the request is answered. Until then the program's call (`munmap`, `msync`, `fsync`, `close`, a completion)
//! does not return.
//!
//! The kernel may hold a page's lock while it waits for just this answer, or for an answer of another thread of the
//! mount. So a separate thread talks to the kernel, and a request waits no longer than [`PATIENCE`]. A page that is
//! still wrong then is corrected when the thread gets its lock, a moment after the answer.
//!
//! Not here: which requests need a recall; the dispatcher knows.

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

/// Corrects the cached pages of one mount. The thread starts at the first use, and ends when this is dropped.
pub(crate) struct Recall {
    server: Arc<Server>,
    notifier: Arc<OnceLock<Notifier>>,
    jobs: OnceLock<Sender<Job>>,
}

/// A range of a file with wrong cached pages.
struct Job {
    node: INodeNo,
    offset: u64,
    length: u64,
    way: Way,
    /// The request was answered without further waiting: the range may have changed since.
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
    /// For a mount whose kernel can be reached as soon as `notifier` is set.
    pub(crate) fn new(server: Arc<Server>, notifier: Arc<OnceLock<Notifier>>) -> Recall {
        Recall { server, notifier, jobs: OnceLock::new() }
    }

    /// Makes the kernel drop its cached pages of a range.
    pub(crate) fn drop_range(&self, node: INodeNo, offset: u64, length: u64) {
        self.ask(node, offset, length, Way::Drop);
    }

    /// Replaces the kernel's cached pages of a range by the stored bytes.
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
        // The channel only closes, when the job is done; otherwise the wait times out.
        let _ = ended.recv_timeout(PATIENCE);
        is_answered.store(true, Ordering::Release);
    }

    /// Starts the thread. If that fails, the channel has no receiver, and sending fails.
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
        let notified = match stored {
            // Until the answer the kernel lets no program change the range. After it, these bytes may be older than the
            // file's.
            Ok(data) if !is_answered.load(Ordering::Acquire) => notifier.store(node, offset, &data),
            Ok(_) | Err(_) => {
                // The kernel drops a page under write-back only after the answer.
                let done = (way == Way::Drop).then_some(done);
                let notified = notifier.inval_inode(node, offset.cast_signed(), length.cast_signed());
                drop(done);
                notified
            }
        };
        if let Err(error) = notified {
            tracing::debug!(%error, node = node.0, "the kernel may show what is not stored");
        }
    }
}

/// The stored bytes of a range, with zeros behind the end of the file.
fn stored(server: &Server, node: INodeNo, offset: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
    let (view, ino) = server.resolve(node)?.ok_or(Errno::STALE)?;
    let mut data = Vec::with_capacity(length);
    view.read(ino, offset, length, &mut data)?;
    data.resize(length, 0);
    Ok(data)
}
