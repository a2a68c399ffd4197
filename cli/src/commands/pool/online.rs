//! `pool online`: devices of mirrors and RAID-Zs are taken back, and get what they have missed.

use clap::Args;
use protocol::{Exit, Failure, Request};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool online`.
#[derive(Args, Debug)]
#[command(after_help = "A device that was changed without the others is refused: detach it, and attach it again.

With -e the pool becomes larger by what the devices have grown. A mirror or a raidz grows as far as the smallest of its
devices; a raidz that was made of devices of different sizes uses each as far as enough others go on with it, and as far as
those that 'pool status' names before it. -e makes one of devices of one size such a raidz if those that are named first have
grown, and they are more than its parity; what others have grown is not used until those before them have, too, because rows
begin with the first device. The service notices by itself that a device has grown, 'pool list' shows under EXPANDSZ what comes
of it without that, and with the property autoexpand=on it is used without -e. A raidz that is being expanded by a device grows
when that is done.

Cannot be undone: a raidz that has taken into use what its devices have grown does not become smaller again. Other \
devices do, with 'pool resize'.

Examples:
  pool online tank /dev/sdb
  pool online -e tank /dev/sdb               the pool uses what it has grown, while it is mounted")]
pub struct Arguments {
    /// Use what the devices have grown
    #[arg(short = 'e')]
    expand: bool,
    /// The pool
    pool: String,
    /// The devices, by their paths or numbers
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Takes back.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("online", &arguments.pool)?;
    for device in &arguments.devices {
        context.run(&pool, Request::Online { device: device_name(device)?, expand: arguments.expand })?;
    }
    Ok(Exit::Done)
}
