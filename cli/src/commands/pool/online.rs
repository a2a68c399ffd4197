//! `pool online`: brings devices of mirrors and RAID-Zs online; a resilver copies the blocks missing there.

use clap::Args;
use protocol::{DeviceRequest, Exit, Failure};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool online`.
#[derive(Args, Debug)]
#[command(
    after_help = "A device that missed writes is resilvered. A device modified without the rest of the pool is refused: detach the device, then
attach it again.

With -e the pool uses space added to the devices. A mirror or RAID-Z grows up to its smallest device. A RAID-Z of devices of
different sizes uses extra space while more devices than parity have it. Devices must grow in the order of 'pool status',
because rows begin at the first device. 'pool list' shows space not used yet under EXPANDSZ. With autoexpand=on the space is
used without -e. A RAID-Z under expansion grows afterwards.

Cannot be undone: a RAID-Z does not shrink again. Single devices and mirrors do, with 'pool resize'.

Examples:
  pool online tank /dev/sdb
  pool online -e tank /dev/sdb               expand into added space"
)]
pub struct Arguments {
    /// Expand into space added to the devices
    #[arg(short = 'e')]
    expand: bool,
    /// The pool
    pool: String,
    /// The devices (paths or GUIDs)
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Brings each named device online.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("online", &arguments.pool)?;
    for device in &arguments.devices {
        context.run(&pool, DeviceRequest::Online { device: device_name(device)?, expand: arguments.expand })?;
    }
    Ok(Exit::Done)
}
