//! `fs rename`: renames a file system or a snapshot.

use clap::Args;
use dataset::name::Name;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::name;
use crate::args::dry::DryRun;
use crate::context::Context;

/// Arguments of `fs rename`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs rename tank/home tank/users
  fs rename -nv tank/home tank/users         dry run: names and mounts that would change
  fs rename -p tank/a tank/archive/2025/a    create missing parents
  fs rename tank/home@a @monday
  fs rename -r tank@a @monday                also in all descendants")]
pub struct Arguments {
    /// Create missing parents of the new name
    #[arg(short = 'p')]
    parents: bool,
    /// Rename same-named snapshots of all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// Do not remount
    #[arg(short = 'u')]
    no_mount: bool,
    /// Unmount busy file systems
    #[arg(short = 'f')]
    force: bool,
    #[command(flatten)]
    dry: DryRun,
    /// The old name
    from: String,
    /// The new name; for a snapshot also '@NAME' or 'NAME'
    to: String,
}

/// Renames a file system or a snapshot.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (from, to) = names(&arguments.from, &arguments.to)?;
    if arguments.recursive && !matches!(from, Name::Snapshot(_)) {
        return Err(Failure::usage("-r is for snapshots; renaming a file system always renames its descendants"));
    }
    let pool = from.pool().to_owned();
    let request = DatasetRequest::Rename {
        from,
        to,
        parents: arguments.parents,
        recursive: arguments.recursive,
        no_mount: arguments.no_mount,
        force: arguments.force,
        dry_run: arguments.dry.dry_run,
    };
    arguments.dry.run(&pool, request, context)?;
    Ok(Exit::Done)
}

/// Parses both names, and checks that both are of the same kind.
fn names(from: &str, to: &str) -> Result<(Name, Name), Failure> {
    let old: Name = name("rename", from)?;
    let new: Name = match &old {
        _ if to.starts_with('@') => name("rename to", &format!("{}{to}", old.dataset()))?,
        // Unambiguous: a full snapshot name has an `@`, so a word without a separator is the part after `@`.
        Name::Snapshot(_) if !to.contains(['@', '/', '#']) => name("rename to", &format!("{}@{to}", old.dataset()))?,
        _ => name("rename to", to)?,
    };
    let refuse = |why: &str| Err(Failure::cannot("rename", from, why));
    match (&old, &new) {
        (Name::Dataset(a), Name::Dataset(b)) if a.pool() != b.pool() => refuse("file systems cannot leave their pool")
            .map_err(|f| f.hint("to copy the file system: fs send | fs receive")),
        (Name::Dataset(a), _) if a.is_pool() => refuse("that is a pool")
            .map_err(|f| f.hint("to rename a pool, export it and import it under the new name: pool import OLD NEW")),
        (Name::Dataset(a), Name::Dataset(b)) if b != a && b.is_within(a) => refuse("the new name is below the old one"),
        (Name::Dataset(_), Name::Dataset(_)) => Ok((old, new)),
        (Name::Snapshot(a), Name::Snapshot(b)) if a.dataset() == b.dataset() => Ok((old, new)),
        (Name::Snapshot(_), Name::Snapshot(_)) => refuse("snapshots must be part of same dataset"),
        (Name::Bookmark(_), _) => refuse("a bookmark keeps its name"),
        _ => refuse("a file system stays a file system, a snapshot a snapshot"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_fit_each_other() {
        let renamed = |from, to| names(from, to).map(|(_, to)| to.to_string()).map_err(|failure| failure.to_string());
        assert_eq!(renamed("tank/a", "tank/b/c").as_deref(), Ok("tank/b/c"));
        for short in ["@y", "y", "tank/a@y"] {
            assert_eq!(renamed("tank/a@x", short).as_deref(), Ok("tank/a@y"));
        }
        for (from, to) in [
            ("tank/a", "tank/a/b"),
            ("tank/a", "pond/a"),
            ("tank", "pond"),
            ("tank/a@x", "tank/b@x"),
            ("tank/a@x", "tank/b"),
            ("tank/a#x", "tank/a#y"),
            ("tank/a", "@y"),
        ] {
            assert!(renamed(from, to).is_err(), "{from} {to}");
        }
    }
}
