//! `fs get`: properties, their values and sources.

use clap::Args;
use dataset::property::{Kinds, Property};
use protocol::{DatasetRecord, Exit, Failure};

use super::select::{Selection, collect};
use crate::args::common::{Format, Recursion, kinds};
use crate::args::reference::fs_get;
use crate::context::Context;
use crate::get::{Field, Layout, SourceFilter, Wanted};
use crate::output::json::Encoder;

/// Text below the options; the long help has the properties before the text.
const NOTES: &str = "Examples:
  fs get all tank/home
  fs get compression,recordsize tank tank/home
  fs get -r -s local all tank                all values set explicitly
  fs get written@monday tank/home            space written since a snapshot
  fs get -Hp -o value used tank/home         for scripts";

/// Arguments of `fs get`.
#[derive(Args, Debug)]
#[command(after_help = NOTES, after_long_help = fs_get(NOTES))]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    recursion: Recursion,
    /// Types to show, separated by commas: filesystem, snapshot, bookmark, all (default: all)
    #[arg(short = 't', value_name = "TYPES", value_parser = kinds)]
    kinds: Option<Kinds>,
    /// Columns to print (default: name,property,value,source)
    #[arg(short = 'o', value_name = "FIELDS", value_delimiter = ',')]
    fields: Vec<Field>,
    /// Print only values from these sources (default: all)
    #[arg(short = 's', value_name = "SOURCES", value_delimiter = ',')]
    sources: Vec<SourceFilter>,
    /// Properties, separated by commas, or 'all'
    #[arg(value_name = "PROPERTIES")]
    properties: String,
    /// File systems, snapshots, bookmarks or mounted paths (default: all)
    #[arg(value_name = "DATASET")]
    names: Vec<String>,
}

/// Prints properties of datasets.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let wanted = match arguments.names.is_empty() {
        true => Wanted::parse_alone(&arguments.properties, Property::of_dataset, "fs get", context)?,
        false => Wanted::parse(&arguments.properties, Property::of_dataset)?,
    };
    let selection = Selection {
        names: &arguments.names,
        recursion: &arguments.recursion,
        kinds: arguments.kinds,
        default_kinds: Kinds::ALL_DATASETS,
        properties: wanted.names(),
    };
    let (records, exit) = collect(&selection, context)?;
    let shown = |record: &DatasetRecord| {
        let name = record.name.to_string();
        let properties = wanted.select(&name, &record.properties, Property::of_dataset, &arguments.sources);
        (name, properties)
    };
    let layout = Layout { format: &arguments.format, fields: &arguments.fields, owners: "datasets" };
    layout.print(context, &records, shown, Encoder::dataset)?;
    Ok(exit)
}
