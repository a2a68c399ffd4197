//! `pool trim`: trims unused space of devices.

use clap::Args;
use dataset::property::size::{format_bytes, parse_size};
use protocol::{DeviceRequest, Exit, Failure, Response, TrimAction, unexpected_answer};

use crate::args::common::{pool_name, vdev_name};
use crate::context::Context;

/// Arguments of `pool trim`.
#[derive(Args, Debug)]
#[command(
    after_help = "Tells devices to discard free space; image files become sparse. Free pieces below 1M, space about to be allocated, and blocks of
the last three commits are skipped.

The service of the pool trims in steps; 'pool status -t' shows the progress. An export or a crash ends the trim; trimmed space
stays trimmed. A vdev is trimmed as a whole, even if only a single device is named. With autotrim=on, freed space of 128K or more is
trimmed continuously.

Cannot be undone: trimmed space loses its content. 'pool import -F' may be unable to rewind more than three commits.

Examples:
  pool trim tank
  pool trim -w -r 100M tank                  at most 100M per second; wait for the end
  pool trim -s tank                          suspend; 'pool trim tank' continues
  pool trim -c tank /dev/sdb                 cancel on the vdev of a device"
)]
pub struct Arguments {
    /// Limit the trim to RATE bytes per second
    #[arg(short = 'r', value_name = "RATE", conflicts_with_all = ["suspend", "cancel"])]
    rate: Option<String>,
    /// Suspend the trim
    #[arg(short = 's', conflicts_with_all = ["cancel", "wait"])]
    suspend: bool,
    /// Cancel the trim
    #[arg(short = 'c', conflicts_with = "wait")]
    cancel: bool,
    /// Wait until the trim finishes
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Devices (paths or GUIDs) whose vdevs to trim (default: all)
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

/// Starts, suspends or cancels a TRIM.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("trim", &arguments.pool)?;
    let rate = arguments.rate.as_deref().map(rate).transpose()?;
    let devices = arguments.devices.iter().map(|name| vdev_name(name)).collect::<Result<_, _>>()?;
    let action = match (arguments.suspend, arguments.cancel) {
        (true, _) => TrimAction::Suspend,
        (_, true) => TrimAction::Cancel,
        _ => TrimAction::Start,
    };
    match context.call(&pool, DeviceRequest::Trim { action, devices, rate, wait: arguments.wait })? {
        Response::Done => {}
        Response::Trimmed(bytes) => {
            context.print(&format!("{pool}: {} of free space given back\n", format_bytes(bytes)))?;
        }
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}

/// Parses a rate in bytes per second.
pub(super) fn rate(text: &str) -> Result<u64, Failure> {
    let rate = parse_size(text).map_err(|error| Failure::usage(format!("bad rate: {error}")))?;
    if rate == 0 { Err(Failure::usage("the rate must be above 0")) } else { Ok(rate) }
}

/// Parses a limit in bytes per second; `none` removes a limit, encoded as 0.
pub(super) fn limit(text: &str) -> Result<u64, Failure> {
    if matches!(text, "none" | "0") { Ok(0) } else { rate(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_can_be_lifted_and_no_trim_is_without_end() {
        assert_eq!((limit("none").unwrap(), limit("0").unwrap(), limit("20M").unwrap()), (0, 0, 20 << 20));
        assert!(limit("nine").is_err() && rate("0").is_err() && rate("none").is_err());
    }
}
