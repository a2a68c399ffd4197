//! `pool debug`: on-disk structures of an exported pool.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use pool::inspect::Item;
use protocol::{Exit, Failure, Inspect, InspectPart, PoolSelector, location};
use serde_json::{Map, Value};

use super::import::selector;
use crate::args::common::{absolute, name};
use crate::context::Context;
use crate::output::json::output_version;

/// Arguments of `pool debug`.
#[derive(Args, Debug)]
#[command(
    after_help = "Reads on-disk structures and changes nothing. Damaged structures are marked; reading continues behind the damage where possible.
Labels and uberblocks can be read while the pool is imported. The source describes the formats in pool/FORMAT.md and
dataset/FORMAT.md. With -j the first object states the version of the output.

Examples:
  pool debug label /srv/tank.img             also while imported
  pool debug uberblocks /srv/tank.img | grep txg
  pool debug catalogue -d /srv tank
  pool debug file -d /srv tank/home:/ann/notes
  pool debug tree -d /srv -T 1234 -j tank/home | jq 'select(.key).key'"
)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What to look into.
#[derive(Subcommand, Debug)]
enum What {
    /// The four labels of a device
    Label(OfDevice),
    /// The uberblock rings of a device
    Uberblocks(OfDevice),
    /// The chunk table and the checkpoints of free space
    Space(OfPool),
    /// The space log, newest block first
    Log(OfPool),
    /// The catalogue (MOS): datasets, snapshots, properties, history
    Catalogue(OfPool),
    /// The tree of a dataset or a snapshot
    Tree(OfDataset),
    /// The inode, names, attributes and extents of a file
    File(OfFile),
}

#[derive(Args, Debug)]
struct OfDevice {
    /// Print one JSON object per line
    #[arg(short = 'j', long)]
    json: bool,
    /// An image file or a block device
    #[arg(value_name = "IMAGE")]
    device: PathBuf,
}

#[derive(Args, Debug)]
struct Where {
    /// Search this directory or device instead of /dev; may be repeated
    #[arg(short = 'd', value_name = "DIRECTORY|DEVICE")]
    search: Vec<PathBuf>,
    /// Read the state of this transaction group instead of the newest
    #[arg(short = 'T', value_name = "TXG")]
    txg: Option<u64>,
    /// Print one JSON object per line
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Args, Debug)]
struct OfPool {
    #[command(flatten)]
    place: Where,
    /// The name or GUID of the pool
    #[arg(value_name = "POOL|GUID")]
    pool: String,
}

#[derive(Args, Debug)]
struct OfDataset {
    #[command(flatten)]
    place: Where,
    /// The dataset or snapshot
    #[arg(value_name = "DATASET|SNAPSHOT")]
    name: String,
}

#[derive(Args, Debug)]
struct OfFile {
    #[command(flatten)]
    place: Where,
    /// DATASET:/PATH or DATASET@SNAPSHOT:/PATH
    #[arg(value_name = "PLACE")]
    file: OsString,
}

/// Prints a structure as the executor reads the pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    const ACTION: &str = "look into";
    let of_pool = |of: &OfPool, part| -> Result<(Inspect, bool), Failure> {
        Ok((in_pool(&of.place, selector(ACTION, &of.pool)?, part)?, of.place.json))
    };
    let (what, json) = match &arguments.what {
        What::Label(of) => (Inspect::Labels(absolute(&of.device)?), of.json),
        What::Uberblocks(of) => (Inspect::Uberblocks(absolute(&of.device)?), of.json),
        What::Space(of) => of_pool(of, InspectPart::Space)?,
        What::Log(of) => of_pool(of, InspectPart::Log)?,
        What::Catalogue(of) => of_pool(of, InspectPart::Catalogue)?,
        What::Tree(of) => {
            let name: dataset::name::Name = name(ACTION, &of.name)?;
            let pool = PoolSelector::Name(name.pool().to_owned());
            (in_pool(&of.place, pool, InspectPart::Tree(name))?, of.place.json)
        }
        What::File(of) => {
            let location = location(&of.file)?;
            let pool = PoolSelector::Name(location.name.pool().to_owned());
            (in_pool(&of.place, pool, InspectPart::File(location))?, of.place.json)
        }
    };
    let Context { executor, console, .. } = context;
    let mut begun = !json;
    let render = if json { encode } else { render };
    executor.inspect(&what, &mut |item| {
        if !begun {
            begun = true;
            console.output.write_all(format!("{}\n", output_version("pool debug")).as_bytes())?;
        }
        console.output.write_all(render(&item).as_bytes())
    })?;
    Ok(Exit::Done)
}

fn in_pool(place: &Where, pool: PoolSelector, part: InspectPart) -> Result<Inspect, Failure> {
    let search = place.search.iter().map(absolute).collect::<Result<_, _>>()?;
    Ok(Inspect::Pool { pool, search, txg: place.txg, part })
}

fn render(item: &Item) -> String {
    let fields: Vec<String> = item.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let (indent, what) = ("  ".repeat(item.depth), &item.what);
    if fields.is_empty() { format!("{indent}{what}\n") } else { format!("{indent}{what}: {}\n", fields.join(", ")) }
}

fn encode(item: &Item) -> String {
    let mut object = Map::new();
    object.insert("depth".to_owned(), item.depth.into());
    object.insert("what".to_owned(), item.what.as_str().into());
    object.extend(item.fields.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())));
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_a_line_for_people_and_for_programs() {
        let item = Item::new(1, "chunk").with("id", 7).with("class", "Data");
        insta::assert_snapshot!(render(&item), @"  chunk: id 7, class Data");
        insta::assert_snapshot!(encode(&item), @r#"{"depth":1,"what":"chunk","id":"7","class":"Data"}"#);
        assert_eq!(render(&Item::new(0, "no catalogue")), "no catalogue\n");
    }
}
