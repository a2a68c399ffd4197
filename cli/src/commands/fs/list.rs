//! `fs list`: a table of file systems, snapshots and bookmarks.

use std::cmp::Ordering;

use clap::Args;
use dataset::property::dataset::{NAME, TYPE};
use dataset::property::{DATASET, DATASET_CONSTANTS, Kinds, Property};
use protocol::{DatasetRecord, Exit, Failure};
use serde_json::{Map, Value};

use super::select::{Selection, collect};
use crate::args::common::{Format, Recursion, column_list, kinds};
use crate::args::sort::{SortKey, SortKeys};
use crate::context::Context;
use crate::output::json::Encoder;
use crate::output::table::{Column, Table};
use crate::output::value::Style;
use crate::records::{names_of, property_of, select};

/// Columns by default, without `-o`.
const COLUMNS: &str = "name,used,available,referenced,mountpoint";

/// Columns of `-o space`.
const SPACE: &str = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

/// Arguments of `fs list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs list                                    all file systems
  fs list -r tank/home                       with descendants
  fs list -t snapshot -o name,used,creation tank/home
  fs list -t all -S used                     sorted by used space, descending
  fs list -Hp -o name,used                   for scripts
  fs list -j | jq '.datasets[].name'")]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    recursion: Recursion,
    /// Types to list, separated by commas: filesystem, snapshot, bookmark, all (default: filesystem)
    #[arg(short = 't', value_name = "TYPES", value_parser = kinds)]
    kinds: Option<Kinds>,
    /// Columns to print: property names, space for all space properties, or all
    #[arg(short = 'o', value_name = "PROPERTIES", default_value = COLUMNS)]
    columns: String,
    #[command(flatten)]
    sort: SortKeys,
    /// File systems, snapshots, bookmarks or mounted paths (default: all)
    #[arg(value_name = "DATASET")]
    names: Vec<String>,
}

/// Lists datasets, sorted.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let columns = if arguments.columns == "space" { SPACE } else { &arguments.columns };
    let columns = column_list(columns, Property::of_dataset, [DATASET, DATASET_CONSTANTS])?;
    let keys = sort_keys(&arguments.sort.0)?;
    // A request must name a property: an empty list requests all properties.
    let mut properties = names_of(columns.iter().chain(keys.iter().map(|(property, _)| property)));
    if properties.is_empty() {
        properties.push(TYPE.name.to_owned());
    }
    let selection = Selection {
        names: &arguments.names,
        recursion: &arguments.recursion,
        kinds: arguments.kinds,
        default_kinds: Kinds::FILESYSTEM,
        properties,
    };
    let (mut records, exit) = collect(&selection, context)?;
    records.sort_by(|a, b| compare(a, b, &keys));
    if arguments.format.json {
        let encoder = context.encoder(&arguments.format);
        context.print_json("list", "datasets", encode(&records, &columns, &encoder))?;
    } else if records.is_empty() && exit == Exit::Done && !arguments.format.scripted {
        context.note("no datasets available\n")?;
    } else {
        let style = context.style(&arguments.format);
        context.print(&render(&records, &columns, &style, arguments.format.scripted))?;
    }
    Ok(exit)
}

fn sort_keys(keys: &[SortKey]) -> Result<Vec<(Property, bool)>, Failure> {
    let lookup = |key: &SortKey| match Property::of_dataset(&key.property) {
        Ok(property) => Ok((property, key.descending)),
        Err(error) => Err(Failure::usage(format!("invalid sort key: {error}"))),
    };
    keys.iter().map(lookup).collect()
}

/// Compares by the first key with a difference: numbers by value, missing values last.
fn compare(a: &DatasetRecord, b: &DatasetRecord, keys: &[(Property, bool)]) -> Ordering {
    let by_key = |(property, descending): &(Property, bool)| {
        let value = |record: &DatasetRecord| property_of(record.name.as_str(), &record.properties, property).value;
        let (a, b) = (value(a), value(b));
        match (a == "-", b == "-") {
            (false, false) if *descending => compare_values(property, &b, &a),
            (false, false) => compare_values(property, &a, &b),
            (a_is_missing, b_is_missing) => a_is_missing.cmp(&b_is_missing),
        }
    };
    keys.iter().map(by_key).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn compare_values(property: &Property, a: &str, b: &str) -> Ordering {
    if property.syntax().is_numeric() {
        if let (Ok(a), Ok(b)) = (a.parse::<u64>(), b.parse::<u64>()) {
            return a.cmp(&b);
        }
        if let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) {
            return a.total_cmp(&b);
        }
    }
    a.cmp(b)
}

fn render(records: &[DatasetRecord], columns: &[Property], style: &Style, scripted: bool) -> String {
    let head = columns.iter().map(|property| Column::new(property.column(), property.align()));
    let mut table = Table::new(head.collect());
    for record in records {
        let cells = select(record.name.as_str(), &record.properties, columns);
        table.push(cells.iter().map(|(property, cell)| style.show(property, &cell.value)).collect());
    }
    table.render(scripted)
}

fn encode(records: &[DatasetRecord], columns: &[Property], encoder: &Encoder) -> Value {
    let columns: Vec<Property> = columns.iter().filter(|property| !NAME.is(property.name())).cloned().collect();
    let entry = |record: &DatasetRecord| {
        let cells = select(record.name.as_str(), &record.properties, &columns);
        (record.name.to_string(), encoder.dataset(record, &cells))
    };
    Value::Object(records.iter().map(entry).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::common::property_list;
    use dataset::property::{Precision, Source};
    use jiff::tz::TimeZone;
    use protocol::PropertyRecord;

    fn record(name: &str, createtxg: u64, values: &[(&str, &str)]) -> DatasetRecord {
        let property = |(name, value): &(&str, &str)| PropertyRecord {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            source: if *name == "mountpoint" { Source::Inherited("tank".into()) } else { Source::None },
            received: None,
        };
        DatasetRecord { name: name.parse().unwrap(), createtxg, properties: values.iter().map(property).collect() }
    }

    fn records() -> Vec<DatasetRecord> {
        vec![
            record(
                "tank",
                1,
                &[
                    ("used", "2147483648"),
                    ("available", "10737418240"),
                    ("referenced", "98304"),
                    ("mountpoint", "/tank"),
                ],
            ),
            record(
                "tank/home",
                9,
                &[
                    ("used", "1610612736"),
                    ("available", "10737418240"),
                    ("referenced", "131072"),
                    ("mountpoint", "/tank/home"),
                ],
            ),
            record("tank/home@a", 12, &[("used", "0"), ("referenced", "131072")]),
        ]
    }

    fn style(precision: Precision) -> Style {
        Style { precision, zone: || TimeZone::UTC }
    }

    #[test]
    fn the_table_looks_like_that_of_zfs() {
        let columns = property_list(COLUMNS, Property::of_dataset).unwrap();
        insta::assert_snapshot!(render(&records(), &columns, &style(Precision::Human), false), @r"
        NAME          USED  AVAIL  REFER  MOUNTPOINT
        tank            2G    10G    96K  /tank
        tank/home    1.50G    10G   128K  /tank/home
        tank/home@a     0B      -   128K  -
        ");
        assert_eq!(
            render(&records()[1..2], &columns, &style(Precision::Exact), true),
            "tank/home\t1610612736\t10737418240\t131072\t/tank/home\n"
        );
    }

    #[test]
    fn json_has_the_schema_of_zfs() {
        let columns = property_list("name,used,mountpoint", Property::of_dataset).unwrap();
        let encoder = Encoder { style: style(Precision::Human), integers: false };
        let value = encode(&records()[1..], &columns, &encoder);
        let value = crate::output::json::envelope("fs list", "datasets", value);
        insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap(), @r#"
        {
          "output_version": {
            "command": "fs list",
            "vers_major": 0,
            "vers_minor": 1
          },
          "datasets": {
            "tank/home": {
              "name": "tank/home",
              "type": "FILESYSTEM",
              "pool": "tank",
              "createtxg": "9",
              "properties": {
                "used": {
                  "value": "1.50G",
                  "source": {
                    "type": "NONE",
                    "data": "-"
                  }
                },
                "mountpoint": {
                  "value": "/tank/home",
                  "source": {
                    "type": "INHERITED",
                    "data": "tank"
                  }
                }
              }
            },
            "tank/home@a": {
              "name": "tank/home@a",
              "type": "SNAPSHOT",
              "pool": "tank",
              "createtxg": "12",
              "dataset": "tank/home",
              "snapshot_name": "a",
              "properties": {
                "used": {
                  "value": "0B",
                  "source": {
                    "type": "NONE",
                    "data": "-"
                  }
                },
                "mountpoint": {
                  "value": "-",
                  "source": {
                    "type": "NONE",
                    "data": "-"
                  }
                }
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn keys_sort_numbers_as_numbers_and_the_missing_last() {
        let order = |keys: &[(&str, bool)]| {
            let keys: Vec<_> = keys.iter().map(|(name, down)| (Property::of_dataset(name).unwrap(), *down)).collect();
            let mut records = records();
            records.sort_by(|a, b| compare(a, b, &keys));
            records.iter().map(|record| record.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&[("used", false)]), "tank/home@a tank/home tank");
        assert_eq!(order(&[("avail", true), ("used", true)]), "tank tank/home tank/home@a");
        assert_eq!(order(&[("name", true)]), "tank/home@a tank/home tank");
    }
}
