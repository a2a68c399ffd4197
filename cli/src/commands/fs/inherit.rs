//! `fs inherit`: drops the local value of a property.

use clap::Args;
use dataset::name::Name;
use dataset::property::{Precision, Property};
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::name;
use crate::args::dry::DryRun;
use crate::context::Context;

/// Arguments of `fs inherit`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs inherit compression tank/archive
  fs inherit -r mountpoint tank/srv          also in all descendants
  fs inherit -n compression tank/archive     dry run: show what would change
  fs inherit -S quota backup/home            revert to the received value")]
pub struct Arguments {
    /// Include all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// Revert to the received value, if any
    #[arg(short = 'S')]
    received: bool,
    #[command(flatten)]
    dry: DryRun,
    /// The property
    property: String,
    /// File systems or snapshots
    #[arg(value_name = "DATASET", required = true)]
    names: Vec<String>,
}

/// Drops local values of a property.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let property = checked(&arguments.property, arguments.received)?;
    for text in &arguments.names {
        let target: Name = name("inherit property for", text)?;
        let pool = target.pool().to_owned();
        let request = DatasetRequest::Inherit {
            name: target,
            property: property.clone(),
            recursive: arguments.recursive,
            received: arguments.received,
            dry_run: arguments.dry.dry_run,
        };
        arguments.dry.run(&pool, request, context)?;
    }
    Ok(Exit::Done)
}

/// As in ZFS, quotas and reservations of a dataset are not inherited; with `-S` the received value can return.
fn checked(text: &str, received: bool) -> Result<String, Failure> {
    let property = Property::of_dataset(text).map_err(|error| Failure::usage(error.to_string()))?;
    let settable = !matches!(&property, Property::Native(definition) if !definition.is_settable());
    match property.is_inheritable() || received && settable {
        true => Ok(property.name().to_owned()),
        false if !settable => Err(Failure::usage(format!("'{property}' is readonly"))),
        false => {
            let default = match &property {
                Property::Native(definition) => definition.default.unwrap_or("none"),
                _ => "none",
            };
            let default = property.syntax().print(default, Precision::Human);
            Err(Failure::usage(format!("'{property}' property cannot be inherited"))
                .hint(format!("to restore the default: fs set {property}={default} DATASET")))
        }
    }
}
