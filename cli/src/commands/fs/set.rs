//! `fs set`: sets properties of file systems and snapshots.

use clap::Args;
use dataset::name::Name;
use dataset::property::Property;
use protocol::{DatasetRequest, Exit, Failure};

use crate::args::common::{assignments, name};
use crate::args::dry::DryRun;
use crate::args::reference::fs_set;
use crate::context::Context;

/// Text below the options; the long help has the properties before the text.
const NOTES: &str = "Sizes take a suffix K, M, G, T, P or E, in powers of 1024.

Setting readonly=on first writes back changes of mapped files. If a program has a file open for writing, the property is still
set, the command fails, and further writes are refused.

Examples:
  fs set compression=zstd-3 tank/archive
  fs set -n mountpoint=/srv tank/srv         dry run: values and mounts that would change
  fs set quota=50G refquota=40G tank/home/ann
  fs set me:backup=daily tank/home tank/srv  a user property";

/// Arguments of `fs set`.
#[derive(Args, Debug)]
#[command(after_help = NOTES, after_long_help = fs_set(NOTES))]
pub struct Arguments {
    /// Do not mount, unmount or remount file systems
    #[arg(short = 'u')]
    no_mount: bool,
    #[command(flatten)]
    dry: DryRun,
    /// Properties, then file systems or snapshots
    #[arg(value_name = "PROPERTY=VALUE|DATASET", required = true)]
    words: Vec<String>,
}

/// Properties and values as written on the command line.
type Pairs = Vec<(String, String)>;

/// Sets properties of each named dataset.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (pairs, names) = split(&arguments.words)?;
    for text in names {
        let action = "set property for";
        let target: Name = name(action, text)?;
        let assignments = assignments(&pairs, Property::of_dataset, false, action, text)?;
        let pool = target.pool().to_owned();
        let (no_mount, dry_run) = (arguments.no_mount, arguments.dry.dry_run);
        arguments.dry.run(&pool, DatasetRequest::Set { name: target, assignments, no_mount, dry_run }, context)?;
    }
    Ok(Exit::Done)
}

/// Splits assignments from names: a name never contains `=`.
fn split(words: &[String]) -> Result<(Pairs, &[String]), Failure> {
    let first_name = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    let (pairs, names) = words.split_at(first_name);
    match (pairs.is_empty(), names.is_empty()) {
        (true, _) => Err(Failure::usage("missing property=value argument(s)")),
        (_, true) => Err(Failure::usage("missing dataset name(s)")),
        _ => Ok((pairs.iter().filter_map(|pair| pair.split_once('=')).map(owned).collect(), names)),
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
