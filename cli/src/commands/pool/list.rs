//! `pool list`: a table of pools.

use clap::Args;
use dataset::property::{Backing, POOL, POOL_CONSTANTS, Precision, Property, Source};
use dataset::property::{
    PoolFigure,
    pool::{GUID, NAME},
};
use protocol::{Exit, Failure, PoolRecord, PoolRequest, Response, VdevRecord, VdevRole, unexpected_answer};
use serde_json::{Map, Value, json};

use super::status::{forget_details, lines};
use super::vdev_json::{integers, listed_all};
use crate::args::clock::Stamp;
use crate::args::common::{Format, PoolKey, column_list};
use crate::args::names::DeviceNames;
use crate::commands::schedule::{Round, Schedule};
use crate::context::Context;
use crate::output::json::{Encoder, source};
use crate::output::table::{Column, Table};
use crate::output::value::Style;
use crate::records::{names_of, property_of, select};

/// Columns by default, without `-o`.
const COLUMNS: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

/// Arguments of `pool list`.
#[derive(Args, Debug)]
#[command(after_help = "A column is a property of the pool: see 'pool get --help'. Sizes omit the parity of a RAID-Z.

Examples:
  pool list
  pool list -v tank                          with devices
  pool list tank 5                           every five seconds
  pool list -Hp -o name,free                 for scripts
  pool list -j | jq '.pools.tank.properties.free.value'")]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    /// Include vdevs and devices; omit default columns without information
    #[arg(short = 'v')]
    verbose: bool,
    /// Columns to print: property names, such as name,size,free,health, or all (default: name, size, allocated, free,
    /// checkpoint, expandsize, fragmentation, capacity, dedupratio, health, altroot)
    #[arg(short = 'o', value_name = "PROPERTIES")]
    columns: Option<String>,
    #[command(flatten)]
    names: DeviceNames,
    #[command(flatten)]
    stamp: Stamp,
    #[command(flatten)]
    key: PoolKey,
    /// Pools (default: all), then an interval in seconds, then a number of reports (default: no end)
    #[arg(value_name = "POOL|INTERVAL|COUNT")]
    words: Vec<String>,
}

/// Lists pools once, or at each interval.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let schedule = Schedule::parse(&arguments.words)?.stamped(arguments.stamp);
    let columns = arguments.columns.as_deref().unwrap_or(COLUMNS);
    let columns = column_list(columns, Property::of_pool, [POOL, POOL_CONSTANTS])?;
    let mut head = String::new();
    schedule.run(context, |_, context| list(&schedule.pools, &columns, &mut head, arguments, context))
}

/// Lists once. A header equal to `head`, the last printed header, is omitted, except above rows of devices, which would
/// seem to belong to the previous table.
fn list(
    pools: &[String],
    columns: &[Property],
    head: &mut String,
    arguments: &Arguments,
    context: &mut Context<'_>,
) -> Result<Round, Failure> {
    let mut properties = names_of(columns);
    if properties.is_empty() {
        properties.push(GUID.name.to_owned());
    }
    let (mut records, exit) = records(pools, &properties, arguments.verbose, context)?;
    if arguments.format.json {
        let encoder = context.encoder(&arguments.format);
        context.print_json("list", "pools", encode(&records, columns, &encoder, arguments.names, arguments.key))?;
    } else if records.is_empty() && exit == Exit::Done && !arguments.format.scripted {
        context.note("no pools available\n")?;
    } else {
        for record in &mut records {
            let vdevs = record.vdevs.iter_mut().chain(&mut record.spares);
            vdevs.for_each(|vdev| arguments.names.apply(vdev));
        }
        let style = context.style(&arguments.format);
        let is_narrowed = arguments.verbose && arguments.columns.is_none() && !arguments.format.scripted;
        let narrowed = if is_narrowed { informative(&records, columns, &style) } else { columns.to_vec() };
        let table = render(&records, &narrowed, &style, arguments.format.scripted);
        let own = table.split_inclusive('\n').next().unwrap_or_default();
        let is_known = !arguments.format.scripted && !arguments.verbose && own == head;
        context.print(if is_known { &table[own.len()..] } else { &table })?;
        own.clone_into(head);
    }
    context.executor.rest()?;
    Ok(Round::of(records.len(), exit))
}

/// The named pools, or all; a pool that cannot be opened is reported.
pub(super) fn records(
    named: &[String],
    properties: &[String],
    vdevs: bool,
    context: &mut Context<'_>,
) -> Result<(Vec<PoolRecord>, Exit), Failure> {
    let mut records = Vec::new();
    let mut exit = Exit::Done;
    for pool in context.visible_pools(named)? {
        match context.call(&pool, PoolRequest::Pool { properties: properties.to_vec(), vdevs }) {
            Ok(Response::Pool(mut record)) => {
                record.vdevs.iter_mut().for_each(forget_details);
                records.push(record);
            }
            Ok(_) => return Err(unexpected_answer()),
            Err(failure) => {
                context.report(&failure)?;
                exit = Exit::Failed;
            }
        }
    }
    Ok((records, exit))
}

/// The default columns without the columns that have the same idle value for all pools, so that devices with usual
/// names fit into 80 columns.
fn informative(records: &[PoolRecord], columns: &[Property], style: &Style) -> Vec<Property> {
    let is_idle = |property: &Property| {
        matches!(
            figure(property),
            Some(PoolFigure::Checkpoint | PoolFigure::DedupRatio | PoolFigure::ExpandSize | PoolFigure::Altroot)
        ) && records.iter().all(|record| {
            let cell = property_of(&record.name, &record.properties, property);
            matches!(style.show(property, &cell.value).as_str(), "-" | "1.00x" | "1.00")
        })
    };
    columns.iter().filter(|property| !is_idle(property)).cloned().collect()
}

fn render(records: &[PoolRecord], columns: &[Property], style: &Style, scripted: bool) -> String {
    let head = columns.iter().map(|property| Column::new(property.column(), property.align()));
    let mut table = Table::new(head.collect());
    for record in records {
        let cells = select(&record.name, &record.properties, columns);
        table.push(cells.iter().map(|(property, cell)| style.show(property, &cell.value)).collect());
        for (role, vdevs) in VdevRole::groups(&record.vdevs, |vdev| vdev.role) {
            if let Some(heading) = role.heading() {
                let cell = |property: &&Property| if NAME.is(property.name()) { heading } else { "-" }.to_owned();
                table.push(columns.iter().map(|property| cell(&property)).collect());
            }
            for (depth, vdev) in vdevs.into_iter().flat_map(lines) {
                table.push(columns.iter().map(|property| vdev_cell(depth, vdev, property, style, scripted)).collect());
            }
        }
        if !record.spares.is_empty() {
            let cell = |property: &Property| if NAME.is(property.name()) { "spare" } else { "-" }.to_owned();
            table.push(columns.iter().map(cell).collect());
        }
        for spare in &record.spares {
            table.push(columns.iter().map(|property| spare_cell(spare, property, style, scripted)).collect());
        }
    }
    table.render(scripted)
}

/// The value of a pool's property for a vdev or device.
fn vdev_cell(depth: usize, vdev: &VdevRecord, property: &Property, style: &Style, scripted: bool) -> String {
    let Some(figure) = figure(property) else { return "-".to_owned() };
    let canonical = match figure {
        PoolFigure::Name if scripted => return vdev.path.clone(),
        PoolFigure::Name => return format!("{}{}", "  ".repeat(depth), vdev.path),
        PoolFigure::Health => return vdev.state.to_string(),
        // Space of a device in a mirror is shown for the mirror; an unavailable pool has unknown space.
        _ if depth > 1 || vdev.size == 0 => return "-".to_owned(),
        PoolFigure::Size => vdev.size,
        PoolFigure::Allocated => vdev.allocated,
        PoolFigure::Free => vdev.size.saturating_sub(vdev.allocated),
        PoolFigure::Fragmentation => vdev.fragmentation,
        PoolFigure::Capacity if style.precision == Precision::Exact => vdev.allocated * 100 / vdev.size.max(1),
        PoolFigure::Capacity => return format!("{:.1}%", vdev.allocated as f64 * 100.0 / vdev.size.max(1) as f64),
        _ => return "-".to_owned(),
    };
    style.show(property, &canonical.to_string())
}

/// The value of a pool's property for a spare, which holds no data.
fn spare_cell(spare: &VdevRecord, property: &Property, style: &Style, scripted: bool) -> String {
    match figure(property) {
        Some(PoolFigure::Name | PoolFigure::Size | PoolFigure::Health) => {
            vdev_cell(1, spare, property, style, scripted)
        }
        _ => "-".to_owned(),
    }
}

/// The computed figure in a pool's column; `None` for a stored property.
fn figure(property: &Property) -> Option<PoolFigure> {
    match property.definition()?.backing {
        Backing::Pool(figure) => Some(figure),
        _ => None,
    }
}

fn encode(records: &[PoolRecord], columns: &[Property], encoder: &Encoder, names: DeviceNames, key: PoolKey) -> Value {
    let columns: Vec<Property> = columns.iter().filter(|property| !NAME.is(property.name())).cloned().collect();
    let entry = |record: &PoolRecord| {
        let mut pool = encoder.pool(record, &select(&record.name, &record.properties, &columns));
        if !record.vdevs.is_empty() {
            let mut vdevs = listed_all(&record.vdevs, &record.spares, names, &|vdev, depth| {
                let cell = |property: &Property| {
                    let value = vdev_cell(depth, vdev, property, &encoder.style, true);
                    (property.name().to_owned(), json!({ "value": value, "source": source(&Source::None) }))
                };
                Value::Object(columns.iter().map(cell).collect())
            });
            if encoder.integers {
                integers(&mut vdevs);
            }
            pool["vdevs"] = vdevs;
        }
        (key.of(&record.name, record.guid), pool)
    };
    Value::Object(records.iter().map(entry).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::common::property_list;
    use jiff::tz::TimeZone;
    use protocol::{PropertyRecord, State, VdevKind};

    fn record() -> PoolRecord {
        let values = [
            ("size", "10200547328"),
            ("allocated", "1610612736"),
            ("free", "8589934592"),
            ("fragmentation", "3"),
            ("capacity", "15"),
            ("dedupratio", "1.00"),
            ("health", "ONLINE"),
            ("altroot", ""),
        ];
        let property = |(name, value): (&str, &str)| PropertyRecord {
            name: name.into(),
            value: value.into(),
            source: Source::None,
            received: None,
        };
        let vdev = VdevRecord {
            kind: VdevKind::Disk,
            role: VdevRole::Normal,
            members: Vec::new(),
            note: None,
            path: "/srv/tank.img".into(),
            guid: 7,
            state: State::Online,
            size: 10_200_547_328,
            allocated: 1_610_612_736,
            fragmentation: 3,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            trim: None,
            initialization: None,
            slow: None,
        };
        PoolRecord {
            name: "tank".into(),
            guid: 99,
            state: State::Online,
            txg: 42,
            properties: values.map(property).to_vec(),
            spares: vec![VdevRecord { path: "/srv/spare.img".into(), state: State::Avail, ..vdev.clone() }],
            vdevs: vec![vdev],
        }
    }

    #[test]
    fn the_table_looks_like_that_of_zfs() {
        let columns = property_list(COLUMNS, Property::of_pool).unwrap();
        let style = Style { precision: Precision::Human, zone: || TimeZone::UTC };
        insta::assert_snapshot!(render(&[record()], &columns, &style, false), @r"
        NAME               SIZE  ALLOC  FREE  CKPOINT  EXPANDSZ  FRAG    CAP  DEDUP  HEALTH  ALTROOT
        tank              9.50G  1.50G    8G        -         -    3%    15%  1.00x  ONLINE  -
          /srv/tank.img   9.50G  1.50G    8G        -         -    3%  15.8%      -  ONLINE  -
        spare                 -      -     -        -         -     -      -      -  -       -
          /srv/spare.img  9.50G      -     -        -         -     -      -      -  AVAIL   -
        ");
        let narrowed = informative(&[record()], &columns, &style);
        insta::assert_snapshot!(render(&[record()], &narrowed, &style, false), @r"
        NAME               SIZE  ALLOC  FREE  FRAG    CAP  HEALTH
        tank              9.50G  1.50G    8G    3%    15%  ONLINE
          /srv/tank.img   9.50G  1.50G    8G    3%  15.8%  ONLINE
        spare                 -      -     -     -      -  -
          /srv/spare.img  9.50G      -     -     -      -  AVAIL
        ");
        let mut grown = record();
        grown.properties.push(PropertyRecord {
            name: "expandsize".into(),
            value: "1073741824".into(),
            source: Source::None,
            received: None,
        });
        let names = informative(&[record(), grown], &columns, &style).iter().map(Property::column).collect::<Vec<_>>();
        assert!(names.contains(&"EXPANDSZ".to_owned()) && !names.contains(&"DEDUP".to_owned()), "{names:?}");
        let lone =
            render(&[record()], &property_list("name,size,free,health", Property::of_pool).unwrap(), &style, true);
        assert!(lone.ends_with("spare\t-\t-\t-\n/srv/spare.img\t9.50G\t-\tAVAIL\n"), "{lone}");
    }

    #[test]
    fn json_has_the_schema_of_zfs() {
        let columns = property_list("name,size,health", Property::of_pool).unwrap();
        let style = Style { precision: Precision::Exact, zone: || TimeZone::UTC };
        let encoder = Encoder { style, integers: true };
        let mut record = record();
        record.vdevs.clear();
        let value = encode(&[record], &columns, &encoder, DeviceNames::default(), PoolKey::default());
        insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap(), @r#"
        {
          "tank": {
            "name": "tank",
            "type": "POOL",
            "state": "ONLINE",
            "pool_guid": 99,
            "txg": 42,
            "spa_version": 5000,
            "zpl_version": 5,
            "properties": {
              "size": {
                "value": 10200547328,
                "source": {
                  "type": "NONE",
                  "data": "-"
                }
              },
              "health": {
                "value": "ONLINE",
                "source": {
                  "type": "NONE",
                  "data": "-"
                }
              }
            }
          }
        }
        "#);
    }
}
