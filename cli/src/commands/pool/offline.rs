//! `pool offline`: takes devices of mirrors and RAID-Zs, and cache devices, offline.

use clap::Args;
use protocol::{DeviceRequest, Exit, Failure};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool offline`.
#[derive(Args, Debug)]
#[command(
    after_help = "No data is read from or written to an offline device until 'pool online', even after export and import. A device without
redundant copies on other devices is refused.

If devices are lost: the vdev tolerates one failure less until the device is online and resilvered. A mirror of two then
tolerates none: if the other device fails too, the pool is lost.

Examples:
  pool offline tank /dev/sdb
  pool offline -t tank /dev/sdb              until the next import"
)]
pub struct Arguments {
    /// Temporary: only until the next import
    #[arg(short = 't')]
    temporary: bool,
    /// As in ZFS, mark the devices as faulted; they are taken offline instead
    #[arg(short = 'f', hide = true)]
    faulted: bool,
    /// The pool
    pool: String,
    /// The devices (paths or GUIDs)
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Takes each named device offline.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("offline", &arguments.pool)?;
    if arguments.faulted {
        context.note("note: the devices become OFFLINE, as without -f, and not FAULTED; to undo: pool online\n")?;
    }
    for device in &arguments.devices {
        let device = device_name(device)?;
        context.run(&pool, DeviceRequest::Offline { device, temporary: arguments.temporary })?;
    }
    Ok(Exit::Done)
}
