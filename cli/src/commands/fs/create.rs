//! `fs create`: creates a file system.

use clap::Args;
use dataset::name::DatasetName;
use dataset::property::Property;
use protocol::{Assignment, DatasetRequest, Exit, Failure, Response, unexpected_answer};

use crate::args::common::{assignments, name, split_assignment};
use crate::context::Context;

/// Arguments of `fs create`.
#[derive(Args, Debug)]
#[command(after_help = "Mounts the new file system, by default in a directory below the parent's mount point.

Examples:
  fs create tank/home
  fs create -p tank/srv/www/logs             with missing parents
  fs create -o compression=zstd -o quota=10G tank/archive
  fs create -nv -o mountpoint=/srv tank/srv  dry run")]
pub struct Arguments {
    /// Create missing parents; succeed if the file system exists
    #[arg(short = 'p')]
    parents: bool,
    /// Set a property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    properties: Vec<(String, String)>,
    /// Do not mount the file system
    #[arg(short = 'u')]
    no_mount: bool,
    /// Dry run: create nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Verbose: print the file systems and properties
    #[arg(short = 'v')]
    verbose: bool,
    /// Print lines for scripts, with fields separated by one tab
    #[arg(short = 'P')]
    parsable: bool,
    /// The file system
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

/// Creates a file system.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let name: DatasetName = name("create", &arguments.name)?;
    let assignments = assignments(&arguments.properties, Property::of_dataset, true, "create", &arguments.name)?;
    // With -p, what exists is no error, and a pool that is imported exists.
    if name.is_pool() && !arguments.parents {
        return Err(Failure::cannot("create", &name, "missing dataset name").hint("to create a pool: pool create"));
    }
    let request = DatasetRequest::Create {
        name: name.clone(),
        parents: arguments.parents,
        assignments: assignments.clone(),
        no_mount: arguments.no_mount,
        dry_run: arguments.dry_run,
    };
    let Response::Created(created) = context.call(name.pool(), request)? else {
        return Err(unexpected_answer());
    };
    if arguments.verbose || arguments.parsable {
        context.print(&render(&created, &assignments, arguments.dry_run, arguments.parsable))?;
    }
    Ok(Exit::Done)
}

fn render(created: &[DatasetName], assignments: &[Assignment], dry_run: bool, parsable: bool) -> String {
    let verb = if dry_run { "would create" } else { "create" };
    let line = |name: &DatasetName| match parsable {
        true => format!("create\t{name}\n"),
        false => format!("{verb} {name}\n"),
    };
    let property = |Assignment { name, value }: &Assignment| match parsable {
        true => format!("property\t{name}\t{value}\n"),
        false => format!("\t{name}={value}\n"),
    };
    created.iter().map(line).chain(assignments.iter().map(property)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_would_be() {
        let created = ["tank/a".parse().unwrap(), "tank/a/b".parse().unwrap()];
        let assignments = [Assignment { name: "quota".into(), value: "1024".into() }];
        assert_eq!(
            render(&created, &assignments, true, false),
            "would create tank/a\nwould create tank/a/b\n\tquota=1024\n"
        );
        assert_eq!(render(&created[..1], &assignments, false, true), "create\ttank/a\nproperty\tquota\t1024\n");
    }
}
