//! `fs stream info`: the snapshots in stream files.

use std::path::PathBuf;

use clap::Args;
use dataset::property::dataset::CREATION;
use dataset::property::size::format_bytes;
use dataset::stream::archive::{Archive, Stored};
use protocol::{Exit, Failure};
use serde_json::{Value, json};

use super::{ended, open};
use crate::context::Context;
use crate::output::table::{Column, Table};
use crate::output::time;

/// Nanoseconds of a second.
const NANOS: i64 = 1_000_000_000;

/// Arguments of `fs stream info`.
#[derive(Args, Debug)]
#[command(
    after_help = "SIZE is the space of the data as sent, LOGICAL before compression. A cut stream has no sizes. The exit status is 1 if a file
is damaged or cut.

Examples:
  fs stream info home.stream
  fs stream info -j *.stream"
)]
pub(super) struct Arguments {
    /// Print GUIDs, transaction groups and properties too
    #[arg(short = 'v')]
    verbose: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Stream files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (mut exit, mut documents) = (Exit::Done, Vec::new());
    for (index, file) in arguments.files.iter().enumerate() {
        let archive = match open(file) {
            Ok(archive) => archive,
            Err(failure) => {
                context.report(&failure)?;
                exit = Exit::Failed;
                continue;
            }
        };
        if arguments.json {
            documents.push(document(&file.to_string_lossy(), &archive));
        } else {
            let blank = if index > 0 { "\n" } else { "" };
            let text = text(&file.to_string_lossy(), &archive, arguments.verbose, context.zone);
            context.print(&format!("{blank}{text}"))?;
        }
        if let Some(why) = ended(&archive) {
            context.report(&Failure::cannot("read", format!("all of {}", file.display()), why))?;
            exit = Exit::Failed;
        }
    }
    if arguments.json {
        context.print_json("stream info", "files", Value::Array(documents))?;
    }
    Ok(exit)
}

fn text(file: &str, archive: &Archive, verbose: bool, zone: time::Zone) -> String {
    let streams = archive.streams();
    let count = match streams.len() {
        1 => "1 stream".to_owned(),
        count => format!("{count} streams"),
    };
    let index = if archive.is_indexed() { "with an index" } else { "without a good index" };
    let columns = [Column::left("SNAPSHOT"), Column::left("SINCE"), Column::left("CREATION")];
    let mut table = Table::new(columns.into_iter().chain(["SIZE", "LOGICAL"].map(Column::right)).collect());
    for stream in streams {
        let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), format_bytes);
        table.push(vec![
            stream.name(),
            stream.begin.base.as_ref().map_or_else(|| "-".to_owned(), |base| base.name.clone()),
            time::listing(stream.begin.creation.div_euclid(NANOS), zone),
            size(stream.totals.map(|totals| totals.stored)),
            size(stream.totals.map(|totals| totals.logical)),
        ]);
    }
    let details: String = if verbose { streams.iter().map(details).collect() } else { String::new() };
    format!("{file}: {}, {count}, {index}\n{}{details}", format_bytes(archive.size()), table.render(false))
}

fn details(stream: &Stored) -> String {
    let begin = &stream.begin;
    let mut lines = vec![
        format!("\n{}", stream.name()),
        format!("  GUID         {}", begin.guid.0),
        format!("  createtxg    {}", begin.createtxg.0),
    ];
    if let Some(base) = &begin.base {
        let kind = if begin.clone { "  origin       " } else { "  base         " };
        lines.push(format!("{kind}{} (GUID {})", base.name, base.guid.0));
    }
    if let Some(key) = begin.resumed {
        lines.push(format!("  resumed at   {key}"));
    }
    if let Some(totals) = stream.totals {
        lines.push(format!("  items        {}", totals.items));
        lines.push(format!("  blocks       {}", totals.blocks));
    }
    lines.extend(begin.holds().map(|tag| format!("  hold         {tag}")));
    for (name, value) in begin.own_properties().into_iter().flatten() {
        lines.push(format!("  {name}={value}"));
    }
    lines.join("\n") + "\n"
}

fn document(file: &str, archive: &Archive) -> Value {
    let stream = |stream: &Stored| {
        let begin = &stream.begin;
        let base = begin.base.as_ref().map(|base| json!({"name": base.name, "guid": base.guid.0}));
        let totals = stream.totals.map(|totals| {
            json!({
                "items": totals.items, "blocks": totals.blocks, "stored": totals.stored, "logical": totals.logical,
            })
        });
        json!({
            "name": stream.name(), "guid": begin.guid.0, "createtxg": begin.createtxg.0,
            CREATION.name: begin.creation.div_euclid(NANOS), "base": base, "clone": begin.clone, "totals": totals,
            "properties": begin.own_properties().map(|all| all.into_iter().collect::<std::collections::BTreeMap<_, _>>()),
            "holds": begin.holds().collect::<Vec<_>>(),
            "offset": stream.offset,
        })
    };
    json!({
        "file": file, "size": archive.size(), "indexed": archive.is_indexed(), "damage": ended(archive),
        "streams": archive.streams().iter().map(stream).collect::<Vec<_>>(),
    })
}
