//! `pool split`: splits one device off each mirror into a new pool.

use clap::Args;
use dataset::name::check_new_pool;
use protocol::{
    Assignment, DeviceRequest, Exit, Failure, HostRequest, HostResponse, ImportPool, PathBytes, PoolSelector, Response,
    SplitRecord, Wanted, unexpected_answer,
};

use crate::args::altroot::with_altroot;
use crate::args::common::{device_name, pool_name, split_assignment};
use crate::context::Context;

const ACTION: &str = "split";

/// Arguments of `pool split`.
#[derive(Args, Debug)]
#[command(
    after_help = "All vdevs must be mirrors without a resilver in progress. From each mirror the named device is split off, by default the last
complete device. The new pool has all committed data and a new GUID, and stays exported unless -R is given.

Cannot be undone: the two pools cannot be merged. A device returns to the old pool only by 'pool attach', which destroys its
content.

If devices are lost: the vdevs of the new pool have no redundancy, and the mirrors of the old pool tolerate one failure less,
until 'pool attach' adds devices.

Examples:
  pool split -n tank copy                    show the devices that would be split off
  pool split tank copy
  pool split tank copy /dev/sdb /dev/sdd     choose the devices
  pool split -R /mnt/copy tank copy          import below /mnt/copy"
)]
pub struct Arguments {
    /// Dry run: show the layout of the new pool
    #[arg(short = 'n')]
    dry_run: bool,
    /// Import the new pool with ROOT as altroot
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<String>,
    /// Set a property of the new pool
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// The pool
    pool: String,
    /// The name of the new pool
    #[arg(value_name = "NEWPOOL")]
    new: String,
    /// The devices to split off (paths or GUIDs)
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

/// Splits a pool, and imports the new pool on request.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name(ACTION, &arguments.pool)?;
    let new = check_new_pool(&arguments.new).map_err(|error| Failure::name("split off", &error))?;
    let given = with_altroot(&arguments.properties, arguments.altroot.as_deref(), ACTION, &pool)?;
    context.note_ignored(&arguments.properties)?;
    if context.executor.known_pools()?.iter().any(|known| known == new.as_str()) {
        return Err(Failure::cannot(ACTION, &pool, format!("a pool named '{new}' exists already")));
    }
    let devices = arguments.devices.iter().map(|device| device_name(device)).collect::<Result<_, _>>()?;
    let request = DeviceRequest::Split { name: new.to_string(), devices, dry_run: arguments.dry_run };
    let Response::Split(split) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.dry_run {
        context.print(&render(new.as_str(), &split))?;
    } else if !given.is_empty() {
        let imported = import(&split, given, arguments.altroot.is_some(), new.as_str(), context);
        // The split cannot be undone.
        imported.map_err(|failure| failure.hint(format!("'{new}' was split off; to import: pool import {new}")))?;
    }
    Ok(Exit::Done)
}

/// Imports the new pool, to remain imported or only to set properties.
fn import(
    split: &SplitRecord,
    assignments: Vec<Assignment>,
    stays: bool,
    name: &str,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let request = ImportPool {
        which: Some(PoolSelector::Guid(split.guid)),
        new_name: None,
        search: split.leaving.iter().map(|(_, path)| PathBytes::from(path.as_str())).collect(),
        wanted: Wanted::Living,
        force: false,
        without_log: false,
        no_mount: !stays,
        assignments,
        rewind: None,
    };
    let HostResponse::Imported(_) = context.host(HostRequest::Import(request))? else {
        return Err(unexpected_answer());
    };
    if !stays {
        context.host(HostRequest::Export { pools: vec![name.to_owned()], force: false, abandon: false })?;
    }
    Ok(())
}

fn render(name: &str, split: &SplitRecord) -> String {
    let lines: String = split.leaving.iter().map(|(mirror, path)| format!("\t  {path}  (from {mirror})\n")).collect();
    format!("would create '{name}' with the following layout:\n\n\t{name}\n{lines}")
}

#[cfg(test)]
mod tests {
    use protocol::Layout;

    use super::*;

    #[test]
    fn a_dry_run_says_what_leaves_which_mirror() {
        let layout = Layout { pool: "tank".into(), vdevs: Vec::new(), spares: Vec::new(), size: 0 };
        let leaving = vec![("mirror-0".into(), "/b.img".into()), ("mirror-1".into(), "/d.img".into())];
        insta::assert_snapshot!(render("copy", &SplitRecord { guid: 7, leaving, layout }), @r"
        would create 'copy' with the following layout:

        	copy
        	  /b.img  (from mirror-0)
        	  /d.img  (from mirror-1)
        ");
    }
}
