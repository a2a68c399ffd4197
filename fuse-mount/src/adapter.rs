//! The handshake with the kernel when a mount is made, for every transport. `fuser` makes the handshake, and has no
//! other part here.

use std::io;
use std::sync::{Arc, OnceLock};

use fuser::{Filesystem, InitFlags, KernelConfig, Request, Version};
use parking_lot::Mutex;

use crate::options::MountOptions;
use crate::ring::Team;

/// The largest read or write in bytes that the kernel may send: its own limit, 256 pages.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
/// The limit on read-ahead and asynchronous requests under way; the kernel's default is twelve.
const MAX_BACKGROUND: u16 = 64;

/// Our side of the handshake.
pub(crate) struct Adapter {
    acl: bool,
    /// The threads that are ready to serve the mount through io_uring, if any.
    team: Arc<Mutex<Option<Team>>>,
    /// The version of the kernel's protocol.
    kernel: Arc<OnceLock<Version>>,
}

impl Adapter {
    /// An adapter that negotiates by these options and notes the kernel's version. If the kernel lacks io_uring, `team`
    /// is `None` afterwards.
    pub(crate) fn new(
        options: &MountOptions,
        team: Arc<Mutex<Option<Team>>>,
        kernel: Arc<OnceLock<Version>>,
    ) -> Adapter {
        Adapter { acl: options.acl, team, kernel }
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // Set here only, once.
        let _ = self.kernel.set(config.kernel_abi());
        let offered = config.capabilities();
        let mut team = self.team.lock();
        team.take_if(|_| !offered.contains(InitFlags::FUSE_OVER_IO_URING));
        wanted.set(InitFlags::FUSE_OVER_IO_URING, team.is_some());
        // A refused limit is replaced by the nearest limit allowed by the kernel.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
