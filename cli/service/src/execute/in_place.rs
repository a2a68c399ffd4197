//! Replacing a device by the new content at its own path, if the path is the file that the pool has open: a wiped
//! disk or an overwritten image. The file is locked while the pool uses the file, so the pool releases the device
//! first.
//!
//! The pool writes nothing before the release. If the replacement fails, the device is brought back as after an
//! offline.

use std::path::Path;

use pool::{
    device::{Access, FileDevice},
    error::ErrorKind,
    units::Guid,
    vdev::State,
};
use protocol::{Failure, VdevSpec};

use super::{devices, open_pool::OpenPool, refusal::OrRefused};

const ACTION: &str = "replace";

impl OpenPool {
    /// Releases the device `old` if `new` is the same file, opened by the pool. Returns the GUID of a released
    /// device.
    pub(super) fn let_go_in_place(&self, old: &str, new: &VdevSpec, force: bool) -> Result<Option<Guid>, Failure> {
        let (vdev, leaf) = self.pool.find_device(old).or_refused(ACTION, old)?;
        let path = Path::new(new.path.as_os_str());
        if new.create.is_some() || !devices::is_same(Path::new(leaf.name()), path) {
            return Ok(None);
        }
        match FileDevice::open(path, Access::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            // The path names another file by now. Other errors are reported when the device is taken.
            _ => return Ok(None),
        }
        devices::check_content(path, ACTION, old, force)?;
        let number = leaf.guid();
        let is_out =
            vdev.as_group().and_then(|group| group.member(number)).is_some_and(|own| own.state() == State::Out);
        if !is_out {
            self.pool.put_offline(&number.to_string(), true).or_refused(ACTION, old)?;
        } else if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(Some(number))
    }

    /// Brings a device back online after a replacement that failed.
    pub(super) fn take_back_in_place(&self, number: Guid) {
        if let Err(error) = self.pool.put_online(&number.to_string(), &|path| self.reopen(path)) {
            tracing::warn!("the device that was not replaced stays offline: {error}");
        }
        self.jobs.wake();
    }
}
