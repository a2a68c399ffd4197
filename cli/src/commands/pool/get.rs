//! `pool get`: properties of pools.

use clap::Args;
use dataset::property::Property;
use dataset::property::{dataset::TYPE, pool::GUID};
use protocol::{Exit, Failure, PoolRecord};

use super::list::records;
use crate::args::common::{Format, PoolKey};
use crate::args::reference::pool_get;
use crate::context::Context;
use crate::get::{Field, Layout, SourceFilter, Wanted};
use crate::output::json::Encoder;

/// Text below the options; the long help has the properties before the text.
const NOTES: &str = "Examples:
  pool get all tank
  pool get size,free,capacity
  pool get -Hp -o value free tank            for scripts";

/// Arguments of `pool get`.
#[derive(Args, Debug)]
#[command(after_help = NOTES, after_long_help = pool_get(NOTES))]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    key: PoolKey,
    /// Columns to print (default: name,property,value,source)
    #[arg(short = 'o', value_name = "FIELDS", value_delimiter = ',')]
    fields: Vec<Field>,
    /// Print only values from these sources (default: all)
    #[arg(short = 's', value_name = "SOURCES", value_delimiter = ',')]
    sources: Vec<SourceFilter>,
    /// Properties, separated by commas, or 'all'
    #[arg(value_name = "PROPERTIES")]
    properties: String,
    /// The pools (default: all)
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Prints properties of pools.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let wanted = match arguments.pools.is_empty() {
        true => Wanted::parse_alone(&arguments.properties, Property::of_pool, "pool get", context)?,
        false => Wanted::parse(&arguments.properties, Property::of_pool)?,
    };
    let mut names = wanted.names();
    // A pool has no type. Request the GUID instead: an empty list would request all properties.
    names.iter_mut().filter(|name| TYPE.is(name)).for_each(|name| *name = GUID.name.to_owned());
    let (records, exit) = records(&arguments.pools, &names, false, context)?;
    let shown = |record: &PoolRecord| {
        let properties = wanted.select(&record.name, &record.properties, Property::of_pool, &arguments.sources);
        let is_json = arguments.format.json;
        let owner = if is_json { arguments.key.of(&record.name, record.guid) } else { record.name.clone() };
        (owner, properties)
    };
    let layout = Layout { format: &arguments.format, fields: &arguments.fields, owners: "pools" };
    layout.print(context, &records, shown, Encoder::pool)?;
    Ok(exit)
}
