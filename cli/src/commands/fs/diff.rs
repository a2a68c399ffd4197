//! `fs diff`: paths changed since a snapshot.

use std::{collections::HashMap, fmt::Write};

use clap::Args;
use dataset::name::{Name, SnapshotName};
use dataset::property::Kinds;
use dataset::property::dataset::{MOUNTED, MOUNTPOINT};
use protocol::{
    Change, ChangeRecord, DatasetRecord, DatasetRequest, Exit, Failure, FileKind, PathBytes, StreamRequest,
};
use serde_json::{Map, Value, json};

use crate::args::common::name;
use crate::context::Context;
use crate::output::{names::put, nested::Nested};

/// Arguments of `fs diff`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "The first column shows the change: + added, - removed, M modified, R renamed.

Examples:
  fs diff tank/home@monday                   snapshot to current state
  fs diff tank/home@monday @tuesday          between two snapshots
  fs diff -FH tank/home@monday tank/home     for scripts, with file types")]
pub struct Arguments {
    /// Print the file type: / directory, F file, @ link, | pipe, = socket, C and B devices
    #[arg(short = 'F')]
    kinds: bool,
    /// Scripted mode: tabs instead of arrows
    #[arg(short = 'H')]
    scripted: bool,
    /// Print the change time of each file
    #[arg(short = 't')]
    times: bool,
    /// Print unusual characters raw instead of as \0ooo (as the only argument: help)
    #[arg(short = 'h')]
    raw: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The older snapshot
    #[arg(value_name = "SNAPSHOT")]
    from: String,
    /// A later snapshot, also as '@NAME' (default: the current file system)
    #[arg(value_name = "SNAPSHOT|FILESYSTEM")]
    to: Option<String>,
}

/// Prints each difference on arrival.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let from: SnapshotName = name("diff", &arguments.from)?;
    let to: Name = match arguments.to.as_deref() {
        None => from.dataset().into(),
        Some(short) if short.starts_with('@') => name("diff", &format!("{}{short}", from.dataset()))?,
        Some(text) => name("diff", text)?,
    };
    let pool = to.pool().to_owned();
    let top = top_of(&to, context)?;
    let request = StreamRequest::Diff { from, to };
    if !arguments.json {
        context.call_for_each(&pool, request, &mut |change, console| {
            Ok(console.output.write_all(line(&change, &top, arguments).as_bytes())?)
        })?;
        return Ok(Exit::Done);
    }
    let mut json = Nested::array(&format!("{} diff", context.program), "changes");
    context.call_for_each(&pool, request, &mut |change, console| {
        json.value(None, &encode(&change, &top));
        Ok(json.ready().map_or(Ok(()), |text| console.output.write_all(text.as_bytes()))?)
    })?;
    context.print(&json.finish())?;
    Ok(Exit::Done)
}

/// Prefix of the paths: the mount point, else the dataset's name in the form for `fs cat`.
fn top_of(name: &Name, context: &mut Context<'_>) -> Result<String, Failure> {
    let dataset = name.dataset();
    let request = DatasetRequest::List {
        root: Some(dataset.clone().into()),
        depth: Some(0),
        kinds: Kinds::FILESYSTEM,
        properties: vec![MOUNTED.name.into(), MOUNTPOINT.name.into()],
        range: None,
    };
    let mut list = HashMap::new();
    context.call_for_each(dataset.pool(), request, &mut |record: DatasetRecord, _| {
        list.extend(record.properties.into_iter().map(|property| (property.name, property.value)));
        Ok(())
    })?;
    match (list.get(MOUNTED.name).map(String::as_str), list.get(MOUNTPOINT.name)) {
        (Some("yes"), Some(mountpoint)) => Ok(mountpoint.trim_end_matches('/').to_owned()),
        _ => Ok(format!("{dataset}:")),
    }
}

fn line(record: &ChangeRecord, top: &str, arguments: &Arguments) -> String {
    let path = |path: &PathBytes| format!("{top}{}", if arguments.raw { path.to_text() } else { escaped(&path.0) });
    let mut line = String::new();
    if arguments.times {
        line += &format!("{}.{:09}\t", record.time.0, record.time.1);
    }
    line += letter(&record.change);
    line.push('\t');
    if arguments.kinds {
        line += &format!("{}\t", symbol(record.kind));
    }
    line += &path(&record.path);
    match &record.change {
        Change::Renamed(new) => line += &format!("{}{}", if arguments.scripted { "\t" } else { " -> " }, path(new)),
        Change::Modified { links } if *links != 0 => line += &format!("\t({links:+})"),
        _ => {}
    }
    line + "\n"
}

fn letter(change: &Change) -> &'static str {
    match change {
        Change::Added => "+",
        Change::Removed => "-",
        Change::Modified { .. } => "M",
        Change::Renamed(_) => "R",
    }
}

fn symbol(kind: FileKind) -> char {
    match kind {
        FileKind::File => 'F',
        FileKind::Directory => '/',
        FileKind::Symlink => '@',
        FileKind::Fifo => '|',
        FileKind::Socket => '=',
        FileKind::Character => 'C',
        FileKind::Block => 'B',
    }
}

/// Escapes as ZFS does: space, backslash and all but printable ASCII become four octal digits.
fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\\' | 0..=b' ' | 0x7f.. => write!(text, "\\{byte:04o}").expect("a string takes everything"),
            byte => text.push(char::from(*byte)),
        }
    }
    text
}

fn encode(record: &ChangeRecord, top: &str) -> Value {
    let whole = |path: &PathBytes| [top.as_bytes(), &path.0].concat();
    let mut entry = Map::new();
    entry.insert("change".into(), json!(letter(&record.change)));
    entry.insert("type".into(), json!(symbol(record.kind).to_string()));
    put(&mut entry, "path", &whole(&record.path));
    entry.insert("time".into(), json!(format!("{}.{:09}", record.time.0, record.time.1)));
    match &record.change {
        Change::Renamed(new) => put(&mut entry, "new_path", &whole(new)),
        Change::Modified { links } if *links != 0 => drop(entry.insert("links".into(), json!(links))),
        _ => {}
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<ChangeRecord> {
        let record = |change, kind, path: &str| ChangeRecord { change, kind, path: path.into(), time: (5, 7) };
        vec![
            record(Change::Modified { links: 0 }, FileKind::Directory, "/"),
            record(Change::Added, FileKind::File, "/new file\u{e9}"),
            record(Change::Removed, FileKind::Symlink, "/old"),
            record(Change::Modified { links: 1 }, FileKind::File, "/linked"),
            record(Change::Renamed("/b".into()), FileKind::File, "/a"),
        ]
    }

    fn arguments(kinds: bool, scripted: bool, times: bool, raw: bool) -> Arguments {
        let from = "tank@a".to_owned();
        Arguments { kinds, scripted, times, raw, json: false, help: None, from, to: None }
    }

    #[test]
    fn lines_look_like_those_of_zfs() {
        let print = |arguments: Arguments| changes().iter().map(|c| line(c, "/tank", &arguments)).collect::<String>();
        insta::assert_snapshot!(print(arguments(false, false, false, false)), @r"
        M	/tank/
        +	/tank/new\0040file\0303\0251
        -	/tank/old
        M	/tank/linked	(+1)
        R	/tank/a -> /tank/b
        ");
        insta::assert_snapshot!(print(arguments(true, true, true, true)), @r"
        5.000000007	M	/	/tank/
        5.000000007	+	F	/tank/new fileé
        5.000000007	-	@	/tank/old
        5.000000007	M	F	/tank/linked	(+1)
        5.000000007	R	F	/tank/a	/tank/b
        ");
    }
}
