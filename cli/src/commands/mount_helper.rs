//! `mount.cenote`: the helper of mount(8) for the type `cenote`, on the command line and from fstab.
//!
//! mount(8) defines the arguments and exit codes of a helper, different from all further commands. mount(8) always
//! passes `rw` or `ro`, requested by the user or not. So `rw` means the value of the properties, unless the call is a
//! remount.

use std::path::PathBuf;

use clap::Parser;
use dataset::name::Name;
use protocol::{Assignment, Exit, Failure, MountRequest};
use service::execute::mount_namespace;

use super::fs::mount::temporary;
use crate::args::common::name;
use crate::context::Context;

/// Options for mount(8) itself or for fstab.
const OF_OTHERS: &[&str] = &[
    "defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "nousers", "owner", "noowner",
    "group", "nogroup", "async", "silent", "loud", "nomand",
];

/// Mount a file system or a snapshot for mount(8)
#[derive(Parser, Debug)]
#[command(
    name = "mount.cenote",
    version,
    arg_required_else_help = true,
    after_help = "mount(8) runs this program for file systems of type cenote if the program is installed in /sbin. The file system needs
mountpoint=legacy. A snapshot is mounted read-only, with the inode numbers of the file system, so that backup programs detect
unchanged files.

Examples:
  mount -t cenote tank/home /home
  mount -t cenote -o ro,noexec tank/home /mnt
  mount -o remount,ro /mnt
  mount -t cenote tank/home@monday /mnt

In /etc/fstab:
  tank/home  /home  cenote  defaults,nofail  0  0"
)]
pub struct Arguments {
    /// The file system or snapshot
    source: String,
    /// The directory
    directory: PathBuf,
    /// Ignore unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Check the arguments only
    #[arg(short = 'f')]
    fake: bool,
    /// Accepted and ignored: no mtab exists
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Accepted and ignored
    #[arg(short = 'v')]
    verbose: bool,
    /// Refused: the pool's service mounts in its own namespace
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Mount options of fs mount, and remount
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// The file system type given by mount(8)
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

/// The exit code that mount(8) expects.
pub fn code(exit: Exit) -> u8 {
    match exit {
        Exit::Done => 0,
        Exit::Usage => 1,
        Exit::Failed | Exit::Unavailable | Exit::Damage => 32,
    }
}

/// Mounts, or changes the options of a mount.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let source: Name = name("mount", &arguments.source)?;
    if arguments.namespace.is_some() {
        return Err(Failure::cannot("mount", &source, "a pool's service mounts in its own mount namespace (-N)"));
    }
    let (remount, options) = wanted(&arguments.options, arguments.sloppy)?;
    if arguments.fake {
        return Ok(Exit::Done);
    }
    let directory = arguments.directory.canonicalize();
    let directory = directory.map_err(|error| Failure::cannot("mount on", arguments.directory.display(), error))?;
    let pool = source.pool().to_owned();
    let namespace = mount_namespace();
    context
        .run(&pool, MountRequest::MountAt { name: source, directory: directory.into(), options, remount, namespace })?;
    Ok(Exit::Done)
}

/// Whether the call is a remount, and the property values for the options.
fn wanted(options: &[String], sloppy: bool) -> Result<(bool, Vec<Assignment>), Failure> {
    let remount = options.iter().any(|option| option == "remount");
    let is_ours = |option: &&String| {
        let option = option.as_str();
        let is_passed_over = option.is_empty() || option == "remount" || option == "rw" && !remount;
        !(is_passed_over || OF_OTHERS.contains(&option) || option.starts_with("x-") || option.starts_with("comment="))
    };
    let values = options.iter().filter(is_ours).map(|option| temporary(option));
    let values: Result<Vec<_>, _> = values.filter(|value| value.is_ok() || !sloppy).collect();
    Ok((remount, values?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str, sloppy: bool) -> Result<(bool, Vec<String>), Exit> {
        let options: Vec<String> = options.split(',').map(str::to_owned).collect();
        let show = |a: Assignment| format!("{}={}", a.name, a.value);
        let wanted = wanted(&options, sloppy).map_err(|failure| failure.exit)?;
        Ok((wanted.0, wanted.1.into_iter().map(show).collect()))
    }

    #[test]
    fn what_mount_always_says_is_no_wish() {
        assert_eq!(read("rw", false), Ok((false, vec![])));
        assert_eq!(
            read("ro,noexec,x-systemd.automount,nofail", false),
            Ok((false, vec!["readonly=on".into(), "exec=off".into()]))
        );
        assert_eq!(read("rw,remount", false), Ok((true, vec!["readonly=off".into()])));
        assert_eq!(read("fast", false), Err(Exit::Usage));
        assert_eq!(read("fast,ro", true), Ok((false, vec!["readonly=on".into()])));
    }
}
