//! Replacing a device by the new content at its own path, if the path is the file that the pool has open: a wiped
//! disk or an overwritten image. The file is locked while the pool uses the file, so the pool releases the device
//! first.
//!
//! The pool writes nothing before the release. If the replacement fails, the device is brought back as after an
//! offline.

use std::{path::Path, sync::Arc};

use pool::{
    device::{Access, FileDevice},
    error::ErrorKind,
    units::Guid,
    vdev::{Leaf, State},
};
use protocol::{Failure, VdevSpec};

use super::{devices, open_pool::OpenPool, refusal::OrRefused};

const ACTION: &str = "replace";

impl OpenPool {
    /// Releases the device `old` if `new` is the same file, opened by the pool. Returns the GUID of a released
    /// device.
    pub(super) fn let_go_in_place(&self, old: &str, new: &VdevSpec, force: bool) -> Result<Option<Guid>, Failure> {
        let Some((leaf, is_out)) = self.in_place(old, new, force)? else { return Ok(None) };
        let number = leaf.guid();
        if !is_out {
            self.pool.put_offline(&number.to_string(), true).or_refused(ACTION, old)?;
        } else if leaf.device().outstanding() == 0 {
            leaf.let_go();
        }
        Ok(Some(number))
    }

    /// The device `old`, if `new` is the same file, opened by the pool, and may take the place of `old`; and whether `old`
    /// is out of use.
    pub(super) fn in_place(
        &self,
        old: &str,
        new: &VdevSpec,
        force: bool,
    ) -> Result<Option<(Arc<Leaf>, bool)>, Failure> {
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
        let number = leaf.guid();
        let is_out =
            vdev.as_group().and_then(|group| group.member(number)).is_some_and(|own| own.state() == State::Out);
        if !force && !is_out && devices::pool_on(path) == Some(self.guid()) {
            let pool = self.name();
            return Err(Failure::cannot(ACTION, old, format!("the device is in use in pool '{pool}'")).hint(format!(
                "to use another device: pool replace {pool} {old} NEW\n\
                 to resilver the whole device in place: pool replace -f {pool} {old}"
            )));
        }
        devices::check_content(path, ACTION, old, force)?;
        Ok(Some((leaf, is_out)))
    }

    /// Refuses a new device that the pool has open already, other than the device `beside` to be replaced in place.
    pub(super) fn check_not_own(
        &self,
        beside: &str,
        new: &VdevSpec,
        action: &str,
        replace: bool,
    ) -> Result<(), Failure> {
        let path = Path::new(new.path.as_os_str());
        let is_open = || FileDevice::open(path, Access::ReadWrite).is_err_and(|error| error.kind() == ErrorKind::Busy);
        let mut own = self.device_paths().into_iter().filter(|own| devices::is_same(own, path));
        let is_in_place = || replace && devices::is_same(Path::new(beside), path);
        if new.create.is_some() || own.next().is_none() || is_in_place() || !is_open() {
            return Ok(());
        }
        let why = format!("{} is already a device of the pool", path.display());
        Err(Failure::cannot(action, beside, why).hint(format!("to list the devices: pool status {}", self.name())))
    }

    /// Brings a device back online after a replacement that failed.
    pub(super) fn take_back_in_place(&self, number: Guid) {
        if let Err(error) = self.pool.put_online(&number.to_string(), &|path| self.reopen(path)) {
            tracing::warn!("the device that was not replaced stays offline: {error}");
        }
        self.jobs.wake();
    }
}
