//! Coming to terms with the kernel when a mount is made, whichever transport serves it afterwards. `fuser` makes the
//! handshake; nothing else is asked of it here.

use std::io;
use std::sync::{Arc, OnceLock};

use fuser::{Filesystem, InitFlags, KernelConfig, Request, Version};
use parking_lot::Mutex;

use crate::options::MountOptions;
use crate::ring::Team;

/// The largest read or write the kernel may send: its own limit, 256 pages.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
/// Read-ahead and asynchronous requests in flight; twelve is the kernel's default.
const MAX_BACKGROUND: u16 = 64;

/// What is said to the kernel.
pub(crate) struct Adapter {
    acl: bool,
    /// Those who are ready to serve the mount through io_uring, if anybody is.
    team: Arc<Mutex<Option<Team>>>,
    /// The version of the protocol that the kernel speaks.
    kernel: Arc<OnceLock<Version>>,
}

impl Adapter {
    /// An adapter that comes to terms with the kernel as the options say, and notes the version that it speaks. If the
    /// kernel does not offer what `team` needs,
    /// it is gone afterwards.
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
        // Nobody else sets it.
        let _ = self.kernel.set(config.kernel_abi());
        let offered = config.capabilities();
        let mut team = self.team.lock();
        team.take_if(|_| !offered.contains(InitFlags::FUSE_OVER_IO_URING));
        wanted.set(InitFlags::FUSE_OVER_IO_URING, team.is_some());
        // A limit the kernel does not take is replaced by the nearest it does.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
