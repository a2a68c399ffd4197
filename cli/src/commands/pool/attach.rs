//! `pool attach`: a device becomes a mirror, a mirror gets another device, or a raidz.

use clap::Args;

use crate::args::common::{pool_name, vdev, vdev_name};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, Response};

/// Arguments of `pool attach`.
#[derive(Args, Debug)]
#[command(
    after_help = "The new device is filled with all that the other one holds, in the background: 'pool status' shows how far that has come.
Until it is done, the new device does not protect against a failure of the other one.

A raidz gets wider: its space is given to rows of one device more, as far as what lies there finds room elsewhere on it,
and as many devices may be lost as before. That cannot be undone.

Examples:
  pool attach tank /dev/sdb /dev/sdc
  pool attach tank raidz1-0 /dev/sdd
  pool attach -w tank /srv/tank.img 10G:/mnt/usb/tank.img"
)]
pub struct Arguments {
    /// Take the device although it holds something; what it holds is lost
    #[arg(short = 'f')]
    force: bool,
    /// Wait until it is filled, or the raidz is as wide as there is room
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// A device of the pool, by its path or number, or the name of a raidz
    device: String,
    /// The new device
    #[arg(value_name = "NEW")]
    new: String,
}

/// Attaches.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "attach to";
    let pool = pool_name(action, &arguments.pool)?;
    let new = vdev(action, &pool, &arguments.new)?;
    let request = Request::Attach {
        device: vdev_name(&arguments.device)?,
        new: new.clone(),
        replace: false,
        force: arguments.force,
    };
    let Response::Layout(_) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.wait && is_raidz(&arguments.device) {
        match context.call(&pool, Request::WaitForExpansion)? {
            Response::Layout(_) => {}
            _ => return Err(unexpected_answer()),
        }
    } else if arguments.wait {
        context.run(&pool, Request::WaitForResilver { device: new.path.to_text() })?;
    }
    Ok(Exit::Done)
}

/// Whether this names a raidz, such as raidz1-0.
fn is_raidz(name: &str) -> bool {
    name.starts_with("raidz") && !name.contains('/')
}
