//! Replacing a device by what stands at its own path, where that is the file that the pool has open: a disk that was wiped, or
//! an image that was written over. It is locked as long as the pool uses it, so the pool lets go of it first.
//!
//! Nothing is written to it before. If it is not taken after all, it is taken back as a device that was offline.

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
    /// Lets go of the device `old` if `new` is the same file, which the pool has open. Returns its number then.
    pub(super) fn let_go_in_place(&self, old: &str, new: &VdevSpec, force: bool) -> Result<Option<Guid>, Failure> {
        let (vdev, leaf) = self.pool.find_device(old).or_refused(ACTION, old)?;
        let path = Path::new(new.path.as_os_str());
        if new.create.is_some() || !devices::is_same(Path::new(leaf.name()), path) {
            return Ok(None);
        }
        match FileDevice::open(path, Access::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            // It is another file by now. Whatever else is wrong is said when it is taken.
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

    /// Takes a device back that the pool has let go of for nothing.
    pub(super) fn take_back_in_place(&self, number: Guid) {
        if let Err(error) = self.pool.put_online(&number.to_string(), &|path| self.reopen(path)) {
            tracing::warn!("the device that was not replaced stays offline: {error}");
        }
        self.jobs.wake();
    }
}
