//! Shared by the unit tests of this crate: a file system in memory, and whether the machine has what a test needs.
//!
//! A test that lacks something is skipped, unless `CENOTE_REQUIRE_FUSE` (for mounts) or `CENOTE_TRANSPORT=uring` (for
//! io_uring) demands it: then the test fails.

use std::env;
use std::fs;
use std::sync::Arc;

use dataset::fs::{Errno, FileSystem, Options};
use pool::admin::{self, CreateOptions, Pool};
use pool::device::MemoryDevice;
use pool::env::SystemEnv;
use pool::txg::{Sync, SyncClient, Written};
use pool::units::MIB;

use crate::control::{SnapshotEntry, Snapshots};
use crate::device;
use crate::ring::SWITCH;

fn options() -> Options {
    Options { attributes: true, accounts: true, ..Options::default() }
}

/// No snapshots, and no work at commits.
pub(crate) struct Nothing;

impl Snapshots for Nothing {
    fn list(&self) -> Vec<SnapshotEntry> {
        Vec::new()
    }

    fn open(&self, _name: &str) -> Result<Arc<FileSystem>, Errno> {
        Err(Errno::NOENT)
    }
}

impl SyncClient for Nothing {
    fn sync(&self, _sync: &mut Sync<'_>, _written: Vec<Written>) -> pool::error::Result<()> {
        Ok(())
    }
}

/// An empty file system, and its pool.
pub(crate) fn file_system() -> (Arc<FileSystem>, Pool) {
    let device = Arc::new(MemoryDevice::new("disk", 256 * MIB));
    let pool = admin::create(vec![device], &CreateOptions::new("tank"), Arc::new(SystemEnv)).unwrap();
    pool.engine().set_client(Arc::new(Nothing));
    let head = pool.engine().open_head(1, None);
    FileSystem::format(&head, (0, 0)).unwrap();
    (FileSystem::open(head, options()).unwrap(), pool)
}

/// Whether file systems can be mounted.
pub(crate) fn can_mount() -> bool {
    let available = device::available();
    assert!(available.is_ok() || env::var_os("CENOTE_REQUIRE_FUSE").is_none(), "{available:?}");
    available.is_ok()
}

/// Whether mounts can be served through io_uring.
pub(crate) fn has_ring() -> bool {
    require_ring(can_mount() && fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y"))
}

/// Returns `is_there`, whether io_uring works. If false, says so, and fails where io_uring is required.
pub(crate) fn require_ring(is_there: bool) -> bool {
    let is_required = env::var_os("CENOTE_TRANSPORT").is_some_and(|name| name == "uring");
    assert!(is_there || !is_required, "there is no FUSE over io_uring here");
    if !is_there {
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("skipped: no FUSE over io_uring here");
        }
    }
    is_there
}
