//! `pool labelclear`: erases the pool labels from a device.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::device_path;
use crate::context::Context;

/// Arguments of `pool labelclear`.
#[derive(Args, Debug)]
#[command(
    after_help = "A device of an imported pool is refused, with or without -f: detach or remove the device first, or destroy the pool.

Cannot be undone: the data on the device is lost, unless other devices hold copies.

Examples:
  pool labelclear /dev/sdb                   device of a destroyed pool
  pool labelclear -f /dev/sdb                device of an exported pool"
)]
pub struct Arguments {
    /// Erase labels of an exported pool, of a pool in use by another host, or damaged labels
    #[arg(short = 'f')]
    force: bool,
    /// The device: a path, or a name in /dev
    #[arg(value_name = "DEVICE")]
    device: std::ffi::OsString,
}

/// Erases the labels of a device.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let device = device_path(&arguments.device)?;
    match context.host(HostRequest::ClearLabels { device, force: arguments.force })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
