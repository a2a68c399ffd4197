//! A mounted file system for a test: unmounted in every case. Without FUSE the test is skipped, or fails if FUSE is
//! required.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dataset::fs::{Errno, FileSystem, Options};
use fuse_mount::{Mount, MountOptions, SnapshotEntry, Snapshots, Transport, Unmount, available};
use parking_lot::Mutex;
use pool::admin::{self, CreateOptions, Pool};
use pool::device::{Device, MemoryDevice};
use pool::env::SystemEnv;
use pool::format::pointer::BlockPointer;
use pool::txg::{Sync, SyncClient, Written};
use pool::units::MIB;
use tempfile::TempDir;

/// The limit on a test's duration: then its mount is cut, which fails all hanging calls.
const LIMIT: Duration = Duration::from_secs(60);

/// Snapshots made by the test itself.
#[derive(Default)]
pub(crate) struct Taken(pub(crate) Mutex<Vec<(SnapshotEntry, Arc<FileSystem>)>>);

impl Snapshots for Taken {
    fn list(&self) -> Vec<SnapshotEntry> {
        self.0.lock().iter().map(|(entry, _)| entry.clone()).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<FileSystem>, Errno> {
        let taken = self.0.lock();
        let found = taken.iter().find(|(entry, _)| entry.name == name).ok_or(Errno::NOENT)?;
        Ok(Arc::clone(&found.1))
    }
}

/// A mounted file system.
pub(crate) struct Mounted {
    pub(crate) mount: Arc<Mount>,
    pub(crate) file_system: Arc<FileSystem>,
    pub(crate) snapshots: Arc<Taken>,
    _done: mpsc::Sender<()>,
    // Removed last: the mount must be gone first.
    folder: TempDir,
    pool: Pool,
}

impl Mounted {
    /// Mounts a new file system with the usual options. `None` if FUSE is neither available nor required.
    pub(crate) fn new() -> Option<Mounted> {
        Mounted::with(|_| {})
    }

    /// Like [`Mounted::new`], with other options.
    pub(crate) fn with(adjust: impl FnOnce(&mut MountOptions)) -> Option<Mounted> {
        Mounted::prepared(|_| {}, adjust)
    }

    /// Like [`Mounted::with`], with files made before mounting.
    pub(crate) fn prepared(
        prepare: impl FnOnce(&FileSystem),
        adjust: impl FnOnce(&mut MountOptions),
    ) -> Option<Mounted> {
        if let Err(error) = available() {
            assert!(std::env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "{error}");
            return None;
        }
        let pool = new_pool();
        let file_system = new_file_system(&pool);
        prepare(&file_system);
        let snapshots = Arc::new(Taken::default());
        let folder = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new("tank/home");
        options.transport = transport();
        adjust(&mut options);
        let source: Arc<dyn Snapshots> = snapshots.clone();
        let mount = Mount::new(Arc::clone(&file_system), source, folder.path(), &options).unwrap();
        let mount = Arc::new(mount);
        let _done = watch(Arc::clone(&mount));
        Some(Mounted { mount, file_system, snapshots, _done, folder, pool })
    }

    /// The mountpoint.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = self.mount.unmount(Unmount::Force);
        assert!(thread::panicking() || unmounted.is_ok(), "{unmounted:?}");
    }
}

/// The transport that `CENOTE_TRANSPORT` names; `None` for the default choice.
fn transport() -> Option<Transport> {
    let name = std::env::var("CENOTE_TRANSPORT").ok()?;
    let transport = Transport::ALL.into_iter().find(|transport| transport.name() == name);
    Some(transport.unwrap_or_else(|| panic!("CENOTE_TRANSPORT={name} is no transport")))
}

/// Cuts the mount of a test that hangs.
fn watch(mount: Arc<Mount>) -> mpsc::Sender<()> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::error!("the test takes too long: its mount is cut");
            let _ = mount.unmount(Unmount::Force);
        }
    });
    done
}

/// A pool in memory with one tree. No block is ever freed, so every earlier root stays readable.
struct KeepAll;

impl SyncClient for KeepAll {
    fn sync(&self, _sync: &mut Sync<'_>, _written: Vec<Written>) -> pool::error::Result<()> {
        Ok(())
    }
}

fn options() -> Options {
    Options { attributes: true, accounts: true, ..Options::default() }
}

fn new_pool() -> Pool {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 256 * MIB));
    let pool = admin::create(vec![device], &CreateOptions::new("tank"), Arc::new(SystemEnv)).unwrap();
    pool.engine().set_client(Arc::new(KeepAll));
    pool
}

fn new_file_system(pool: &Pool) -> Arc<FileSystem> {
    let head = pool.engine().open_head(1, None);
    FileSystem::format(&head, (0, 0)).unwrap();
    FileSystem::open(head, options()).unwrap()
}

impl Mounted {
    /// The committed root, for a later [`Mounted::roll_back`].
    pub(crate) fn remember(&self) -> (BlockPointer, u8) {
        self.pool.engine().commit().unwrap();
        self.file_system.head().clean_root().expect("all is committed and nobody changes anything")
    }

    /// Replaces the tree by an earlier root.
    pub(crate) fn roll_back(&self, (root, level): (BlockPointer, u8)) {
        self.pool.engine().commit().unwrap();
        self.file_system.head().replace(root, level);
    }

    /// Takes a snapshot.
    pub(crate) fn snapshot(&self, name: &str, creation: i64) {
        let (root, level) = self.remember();
        let id = 1000 + creation as u64;
        let frozen = self.pool.engine().open_frozen(id, root, level);
        let files = FileSystem::open(frozen, Options { readonly: true, ..options() }).unwrap();
        self.snapshots.0.lock().push((SnapshotEntry { name: name.to_owned(), creation }, files));
    }
}
