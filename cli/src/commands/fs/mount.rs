//! `fs mount`: mounts file systems, or lists mounts.

use clap::Args;
use dataset::name::{DatasetName, Name};
use dataset::property::dataset::{
    ACLTYPE, ATIME, CANMOUNT, DEVICES, EXEC, MOUNTED, MOUNTPOINT, READONLY, RELATIME, SETUID, XATTR,
};
use dataset::property::{Kinds, Property, Typed};
use protocol::{
    Assignment, DatasetRecord, DatasetRequest, Exit, Failure, MountRecord, MountRequest, Response, unexpected_answer,
};
use serde_json::{Map, Value, json};

use crate::args::common::name;
use crate::context::Context;
use crate::output::table::{Column, Table};

/// Arguments of `fs mount`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without arguments, lists the mounted file systems. File systems with mountpoint=legacy are mounted by mount(8): mount -t cenote
tank/home /mnt.

A mount hides the files of its directory. With the property overlay=off, a directory with files is refused unless -O is given.
Mounting over another mounted file system of a pool is always refused.

Examples:
  fs mount                                   list mounted file systems
  fs mount tank/home
  fs mount -R tank/home                      with all descendants
  fs mount -o ro,noatime tank/home           options last until unmount
  fs mount -a                                mount all"
)]
pub struct Arguments {
    /// Mount all file systems with canmount=on and a mount point
    #[arg(short = 'a', conflicts_with = "name")]
    all: bool,
    /// Temporary mount options: ro, rw, [no]atime, [no]relatime, [no]exec, [no]suid, [no]dev, [no]acl, [no]xattr
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Mount over a directory with files, also with overlay=off
    #[arg(short = 'O')]
    overlay: bool,
    /// Include descendants with canmount=on
    #[arg(short = 'R', requires = "name")]
    recursive: bool,
    /// Print JSON, with the transport and the request counts of each mount
    #[arg(short = 'j', long, conflicts_with_all = ["all", "name"])]
    json: bool,
    /// The file system
    #[arg(value_name = "FILESYSTEM")]
    name: Option<String>,
}

/// Mounts file systems; without arguments, lists mounts.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let options = arguments.options.iter().map(|option| temporary(option)).collect::<Result<Vec<_>, _>>()?;
    match &arguments.name {
        Some(text) => {
            let name: DatasetName = name("mount", text)?;
            let below = if arguments.recursive { below(&name, context)? } else { Vec::new() };
            for name in std::iter::once(name).chain(below) {
                let pool = name.pool().to_owned();
                let (options, overlay) = (options.clone(), arguments.overlay);
                context.run(&pool, MountRequest::Mount { name: Some(name), options, overlay })?;
            }
            Ok(Exit::Done)
        }
        None if arguments.all => mount_all(&options, arguments.overlay, context),
        None => show(arguments.json, context),
    }
}

/// The descendants of a file system that are mounted automatically and are not mounted yet, parents first.
fn below(name: &DatasetName, context: &mut Context<'_>) -> Result<Vec<DatasetName>, Failure> {
    let [canmount, mountpoint, mounted] = [CANMOUNT.name, MOUNTPOINT.name, MOUNTED.name];
    let request = DatasetRequest::List {
        root: Some(Name::Dataset(name.clone())),
        depth: None,
        kinds: Kinds::FILESYSTEM,
        properties: [canmount, mountpoint, mounted].map(str::to_owned).to_vec(),
        range: None,
    };
    let mut found = Vec::new();
    context.call_for_each(name.pool(), request, &mut |record: DatasetRecord, _| {
        let value = |name: &str| record.properties.iter().find(|it| it.name == name).map(|it| it.value.as_str());
        let has_place = value(mountpoint).is_some_and(|place| place.starts_with('/'));
        let is_wanted = value(canmount) == Some("on") && has_place && value(mounted) == Some("no");
        match record.name {
            Name::Dataset(dataset) if is_wanted && dataset != *name => found.push(dataset),
            _ => {}
        }
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

fn mount_all(options: &[Assignment], overlay: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for pool in context.executor.known_pools()? {
        let request = MountRequest::Mount { name: None, options: options.to_vec(), overlay };
        match context.run(&pool, request) {
            Err(failure) if !failure.is_unavailable() => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
            // An unavailable pool does not prevent mounts of the remaining pools; `pool status -x` reports the pool.
            _ => {}
        }
    }
    Ok(exit)
}

fn show(as_json: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut mounts = Vec::new();
    let mut exit = Exit::Done;
    for pool in context.executor.known_pools()? {
        match context.call(&pool, MountRequest::Mounts) {
            Ok(Response::Mounts(found)) => mounts.extend(found),
            Ok(_) => return Err(unexpected_answer()),
            Err(failure) if failure.is_unavailable() => {}
            Err(failure) => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
        }
    }
    match as_json {
        true => context.print_json("mount", "datasets", encode(&mounts))?,
        false => context.print(&render(&mounts))?,
    }
    Ok(exit)
}

/// Properties with a mount option of the same name; `no` before the name sets `off`.
const SWITCHES: [Typed<bool>; 6] = [ATIME, RELATIME, EXEC, SETUID, DEVICES, XATTR];

/// The temporary property value for a mount option.
pub(in crate::commands) fn temporary(option: &str) -> Result<Assignment, Failure> {
    let (name, value) = match option {
        "ro" => (READONLY.name, "on"),
        "rw" => (READONLY.name, "off"),
        "strictatime" => (RELATIME.name, "off"),
        "suid" => (SETUID.name, "on"),
        "nosuid" => (SETUID.name, "off"),
        "dev" => (DEVICES.name, "on"),
        "nodev" => (DEVICES.name, "off"),
        "acl" | "posixacl" => (ACLTYPE.name, "posix"),
        "noacl" => (ACLTYPE.name, "off"),
        "remount" => {
            return Err(Failure::usage(
                "'fs mount' cannot change a mount; use mount(8): mount -o remount,ro DIRECTORY",
            ));
        }
        other => match SWITCHES.iter().find(|switch| switch.is(other.strip_prefix("no").unwrap_or(other))) {
            Some(switch) => (switch.name, if switch.is(other) { "on" } else { "off" }),
            None => return assignment(other),
        },
    };
    Ok(Assignment { name: name.into(), value: value.into() })
}

fn assignment(option: &str) -> Result<Assignment, Failure> {
    let unknown = || Failure::usage(format!("unknown mount option '{option}'"));
    let (name, value) = option.split_once('=').ok_or_else(unknown)?;
    let refuse = |error| Failure::property("mount with", option, &error);
    let property = Property::of_dataset(name).map_err(refuse)?;
    let value = property.parse_value(value, false).map_err(refuse)?;
    Ok(Assignment { name: property.name().to_owned(), value })
}

fn render(mounts: &[MountRecord]) -> String {
    let mut table = Table::new(vec![Column::left(""), Column::left("")]);
    for mount in mounts {
        table.push(vec![format!("{:<30}", mount.dataset), mount.mountpoint.to_text()]);
    }
    // As in ZFS there is no header, but columns are aligned.
    table.render(false).lines().skip(1).map(|line| format!("{line}\n")).collect()
}

fn encode(mounts: &[MountRecord]) -> Value {
    let entry = |mount: &MountRecord| {
        let requests: Map<_, _> = mount.requests.iter().map(|(kind, count)| (kind.clone(), json!(count))).collect();
        let object = json!({
            "filesystem": mount.dataset.as_str(),
            "mountpoint": mount.mountpoint.to_text(),
            "transport": mount.transport,
            "requests": requests,
        });
        (mount.dataset.to_string(), object)
    };
    Value::Object(mounts.iter().map(entry).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_aligned() {
        let mount = |name: &str| MountRecord {
            dataset: name.parse().unwrap(),
            mountpoint: format!("/{name}").as_str().into(),
            transport: "fuse".into(),
            requests: vec![("lookup".into(), 1)],
        };
        insta::assert_snapshot!(render(&[mount("tank"), mount("tank/home")]), @r"
        tank                            /tank
        tank/home                       /tank/home
        ");
    }

    #[test]
    fn options_are_temporary_values() {
        let read = |option| temporary(option).map(|a| (a.name, a.value)).map_err(|failure| failure.exit);
        assert_eq!(read("noatime"), Ok(("atime".into(), "off".into())));
        assert_eq!(read("compress=zstd"), Ok(("compression".into(), "zstd".into())));
        assert_eq!(read("fast"), Err(Exit::Usage));
    }
}
