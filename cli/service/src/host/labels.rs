//! Erasing the labels of a device, so the device belongs to no pool.
//!
//! The device is locked from before the labels are read until they are erased, so no process can import its pool
//! meanwhile. A power failure in between leaves some labels; the device then still belongs to its pool, and the user
//! repeats the command.

use std::path::{Path, PathBuf};

use pool::{
    admin::probe::probe_foreign,
    device::{Access, FileDevice},
    error::{Error, ErrorKind},
    format::label::{Label, PoolState},
    vdev::labels::{clear_labels, read_label},
};
use protocol::{Failure, PathBytes, PoolSelector};

use crate::{
    client::Client,
    execute::{OrRefused, devices},
};

const ACTION: &str = "clear the labels of";

impl Client {
    /// Erases the labels of a device. A device of an imported pool is always refused. A device of another pool that
    /// is not destroyed, or a device with unreadable labels, is refused without `force`.
    pub(super) fn clear_labels(&self, device: &PathBytes, force: bool) -> Result<(), Failure> {
        let path = PathBuf::from(device.as_os_str());
        let opened = match FileDevice::open(&path, Access::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::Busy => return Err(in_use(&path, &error)),
            opened => opened.or_refused(ACTION, path.display())?,
        };
        match read_label(&opened) {
            Ok(None) => return Err(without_label(&opened, &path)),
            Ok(Some(label)) => self.check_given_up(&label, &path, force)?,
            // Unreadable labels do not name their pool.
            Err(Error::Damaged { .. } | Error::Unsupported { .. }) if force => {}
            Err(error) => {
                let failure = Failure::cannot(ACTION, path.display(), &error);
                let is_readable = error.kind() != ErrorKind::Device;
                return Err(if is_readable { failure.hint("use -f to erase the labels anyway") } else { failure });
            }
        }
        clear_labels(&opened).or_refused(ACTION, path.display())
    }

    /// Refuses a device that a pool still uses.
    fn check_given_up(&self, label: &Label, path: &Path, force: bool) -> Result<(), Failure> {
        let pool = &label.pool_name;
        let known = self.find_known(&PoolSelector::Guid(label.pool.0))?;
        let is_its = |device: &PathBuf| devices::is_same(device, path);
        if let Some(known) =
            known.filter(|known| known.devices.iter().map(|device| device.to_path()).any(|d| is_its(&d)))
        {
            let name = &known.name;
            let why = format!("it belongs to pool '{name}', which is imported");
            let hint = format!("detach the device from its mirror: pool detach {name} {}", path.display());
            return Err(Failure::cannot(ACTION, path.display(), why)
                .hint(format!("{hint}\nor destroy the pool: pool destroy {name}")));
        }
        let why = match label.state {
            PoolState::Destroyed => return Ok(()),
            _ if force => return Ok(()),
            PoolState::Exported => format!("it belongs to pool '{pool}', which is exported"),
            PoolState::Active => {
                format!("it belongs to pool '{pool}', which host '{}' may have imported", label.host_name)
            }
        };
        Err(Failure::cannot(ACTION, path.display(), why)
            .hint("use -f to erase the labels; the pool's data on the device is lost"))
    }
}

/// The refusal of a device that is open in a process.
fn in_use(path: &Path, error: &Error) -> Failure {
    let label = FileDevice::open(path, Access::Glance).and_then(|device| read_label(&device));
    let why = match (label, error) {
        (Ok(Some(label)), Error::Busy { holder, .. }) => {
            let (name, device) = (&label.pool_name, path.display().to_string());
            let why = format!("it belongs to pool '{name}', which is in use by {holder}");
            return Failure::cannot(ACTION, &device, why).hint(format!(
                "take the device out of the pool: pool detach {name} {device}, or pool remove {name} {device}\n\
                 or destroy the pool: pool destroy {name}"
            ));
        }
        _ => error.to_string(),
    };
    Failure::cannot(ACTION, path.display(), why)
}

/// The refusal of a device without labels; other content is never erased.
fn without_label(device: &FileDevice, path: &Path) -> Failure {
    let foreign = probe_foreign(device).ok().flatten().map(|what| format!(": it holds {what}"));
    Failure::cannot(ACTION, path.display(), format!("it has none{}", foreign.unwrap_or_default()))
}
