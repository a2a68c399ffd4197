//! `pool attach`: a device becomes a mirror, a mirror gets another device, or a raidz.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure, JobTarget, Order, Request, Response, unexpected_answer};

use super::trim;
use crate::args::common::{pool_name, vdev, vdev_name};
use crate::context::Context;

/// Arguments of `pool attach`.
#[derive(Args, Debug)]
#[command(
    after_help = "The new device is filled with all that the other one holds, in the background: 'pool status' shows how far that has come.
Until it is done, the new device does not protect against a failure of the other one.

A raidz gets wider: its space is given to rows of one device more, as far as what lies there finds room elsewhere on \
it, and as many devices may be lost as before. It can be paused, and goes on when the raidz is named without a \
device. After an export or a crash the rows that were being emptied are begun anew. A removal or a rebalance that is \
begun meanwhile has it go on after that.

Cannot be undone: what the new device held is lost. 'pool detach' takes a device out of a mirror again, but none out \
of a raidz. A raidz that gets wider brings features that the pool keeps: older programs that do not know them refuse \
it. 'pool import -F' goes back to no state that has something where the wider raidz has given up the space since.

Examples:
  pool attach tank /dev/sdb /dev/sdc
  pool attach tank raidz1-0 /dev/sdd
  pool attach --limit 20M tank raidz1-0 /dev/sdd    copy at most so many bytes a second
  pool attach --limit 50M tank raidz1-0             the same of one that is under way
  pool attach -p tank                               pause it; 'pool attach tank raidz1-0' goes on
  pool attach -w tank /srv/tank.img 10G:/mnt/usb/tank.img"
)]
pub struct Arguments {
    /// Take the device although it holds something; what it holds is lost
    #[arg(short = 'f')]
    force: bool,
    /// Pause the expansion that is under way
    #[arg(short = 'p', conflicts_with_all = ["force", "wait", "limit", "new"])]
    pause: bool,
    /// While a raidz is expanded, copy at most so many bytes a second; 'none' lifts a limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// Wait until it is filled, or the raidz is as wide as there is room
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// A device of the pool, by its path or number, or the name of a raidz
    #[arg(required_unless_present = "pause")]
    device: Option<String>,
    /// The new device; without one, an expansion that is paused goes on
    #[arg(value_name = "NEW")]
    new: Option<String>,
}

/// Attaches.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "attach to";
    let pool = pool_name(action, &arguments.pool)?;
    let limit = arguments.limit.as_deref().map(trim::limit).transpose()?;
    // Without a device, it is to pause.
    let Some(device) = arguments.device.as_deref().filter(|_| !arguments.pause) else {
        return context.run(&pool, Request::job(Kind::Expand, Order::Pause)).map(|()| Exit::Done);
    };
    let Some(new) = &arguments.new else {
        if !is_raidz(device) {
            return Err(Failure::usage(format!("which device is to be attached to '{device}'?")));
        }
        context.run(&pool, Request::start(Kind::Expand, limit))?;
        return if arguments.wait { wait(&pool, context) } else { Ok(Exit::Done) };
    };
    let new = vdev(action, &pool, new)?;
    let request =
        Request::Attach { device: vdev_name(device)?, new: new.clone(), replace: false, force: arguments.force, limit };
    let Response::Layout(_) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.wait && is_raidz(device) {
        return wait(&pool, context);
    }
    if arguments.wait {
        context.run(&pool, Request::job(Kind::Resilver, Order::Wait(JobTarget::Device(new.path.to_text()))))?;
    }
    Ok(Exit::Done)
}

fn wait(pool: &str, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match context.call(pool, Request::wait(Kind::Expand))? {
        Response::Layout(_) => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}

/// Whether this names a raidz, such as raidz1-0.
fn is_raidz(name: &str) -> bool {
    name.starts_with("raidz") && !name.contains('/')
}
