//! `pool offline`: devices of mirrors and RAID-Zs are put out of use.

use clap::Args;
use protocol::{Exit, Failure, Request};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool offline`.
#[derive(Args, Debug)]
#[command(
    after_help = "Nothing is read from the device or written to it until 'pool online' takes it back, also after the pool was exported and imported.

If devices are lost: until the device is back and has got what it missed, its vdev can lose one device less; a \
mirror of two can lose none, and with the other device the whole pool is lost. A device that the others cannot do \
without is refused.

Examples:
  pool offline tank /dev/sdb
  pool offline -t tank /dev/sdb              until the pool is imported again"
)]
pub struct Arguments {
    /// Only until the next import
    #[arg(short = 't')]
    temporary: bool,
    /// The pool
    pool: String,
    /// The devices, by their paths or numbers
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Puts out of use.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("offline", &arguments.pool)?;
    for device in &arguments.devices {
        let device = device_name(device)?;
        context.run(&pool, Request::Offline { device, temporary: arguments.temporary })?;
    }
    Ok(Exit::Done)
}
