//! `fs ls`: the files of a data set or snapshot, without a mount.

use std::ffi::OsString;

use clap::Args;
use dataset::property::size::format_bytes;
use serde_json::{Map, Value, json};

use crate::args::common::location;
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::output::names::{lossy, put, visible};
use crate::output::table::{Column, Table};
use crate::output::time::{self, Zone};
use crate::protocol::{EntryRecord, FileKind, Request, Response};

/// Arguments of `fs ls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs ls tank/home
  fs ls -l tank/home:/ann
  fs ls -lR tank/home@monday:/ann            as it was on monday")]
pub struct Arguments {
    /// With permissions, owner, size and time
    #[arg(short = 'l')]
    long: bool,
    /// A directory itself, not what is in it
    #[arg(short = 'd')]
    directory_itself: bool,
    /// With everything below
    #[arg(short = 'R', short_alias = 'r')]
    recursive: bool,
    /// Exact sizes and times
    #[arg(short = 'p')]
    exact: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// DATASET:/PATH or DATASET@SNAPSHOT:/PATH
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// Lists.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for place in &arguments.places {
        let location = location(place)?;
        let pool = location.name.pool().to_owned();
        let request =
            Request::Entries { location, directory_itself: arguments.directory_itself, recursive: arguments.recursive };
        let Response::Entries(entries) = context.call(&pool, request)? else {
            return Err(unexpected_answer());
        };
        all.push((place.to_string_lossy().into_owned(), entries));
    }
    if arguments.json {
        let content: Map<_, _> = all.iter().map(|(place, list)| (place.clone(), encode(list))).collect();
        context.print_json("ls", "files", Value::Object(content))?;
        return Ok(Exit::Done);
    }
    for (index, (place, entries)) in all.iter().enumerate() {
        if all.len() > 1 {
            context.print(&format!("{}{place}:\n", if index > 0 { "\n" } else { "" }))?;
        }
        print(entries, arguments, context)?;
    }
    Ok(Exit::Done)
}

/// Names alone are printed byte for byte, whatever they are, but to a terminal.
fn print(entries: &[EntryRecord], arguments: &Arguments, context: &mut Context<'_>) -> Result<(), Failure> {
    if arguments.long {
        let shown = if context.console.terminals.output { visible } else { lossy };
        let text = long(entries, arguments.exact, context.zone, shown);
        return context.print(&text);
    }
    for entry in entries {
        if context.console.terminals.output {
            context.print(&(visible(&entry.name.0) + "\n"))?;
            continue;
        }
        context.console.output.write_all(&entry.name.0)?;
        context.console.output.write_all(b"\n")?;
    }
    Ok(())
}

fn long(entries: &[EntryRecord], exact: bool, zone: Zone, shown: fn(&[u8]) -> String) -> String {
    let head = ["", "", "", "", "", "", ""];
    let right = |index: usize| matches!(index, 1..=4);
    let column =
        |(index, title): (usize, &&str)| if right(index) { Column::right(*title) } else { Column::left(*title) };
    let mut table = Table::new(head.iter().enumerate().map(column).collect());
    for entry in entries {
        let size = match entry.device {
            Some((major, minor)) => format!("{major}, {minor}"),
            None if exact => entry.size.to_string(),
            None => format_bytes(entry.size),
        };
        let target = entry.target.as_ref().map(|target| format!(" -> {}", shown(&target.0))).unwrap_or_default();
        let modified = match exact {
            true => format!("{}.{:09}", entry.modified.0, entry.modified.1),
            false => time::listing(entry.modified.0, zone),
        };
        table.push(vec![
            mode(entry),
            entry.links.to_string(),
            entry.uid.to_string(),
            entry.gid.to_string(),
            size,
            modified,
            shown(&entry.name.0) + &target,
        ]);
    }
    // There is no head: the first line is empty.
    table.render(false).lines().skip(1).map(|line| format!("{line}\n")).collect()
}

/// `drwxr-sr-t`, as ls(1) writes it.
fn mode(entry: &EntryRecord) -> String {
    let kind = match entry.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Character => 'c',
        FileKind::Block => 'b',
    };
    let class = |shift: u32, special: u32, letter: char| {
        let bits = entry.mode >> shift;
        let flag = |bit: u32, letter: char| if bits & bit != 0 { letter } else { '-' };
        let execute = match (entry.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, _) => flag(1, 'x'),
        };
        [flag(4, 'r'), flag(2, 'w'), execute]
    };
    let classes = [class(6, 0o4000, 's'), class(3, 0o2000, 's'), class(0, 0o1000, 't')];
    std::iter::once(kind).chain(classes.into_iter().flatten()).collect()
}

fn encode(entries: &[EntryRecord]) -> Value {
    let entry = |entry: &EntryRecord| {
        let mut object = Map::new();
        put(&mut object, "name", &entry.name.0);
        object.insert("type".into(), json!(mode(entry)[..1].to_owned()));
        object.insert("mode".into(), json!(format!("{:04o}", entry.mode)));
        object.insert("links".into(), json!(entry.links));
        object.insert("uid".into(), json!(entry.uid));
        object.insert("gid".into(), json!(entry.gid));
        object.insert("size".into(), json!(entry.size));
        object.insert("stored".into(), json!(entry.stored));
        object.insert("inode".into(), json!(entry.inode));
        object.insert("modified".into(), json!(format!("{}.{:09}", entry.modified.0, entry.modified.1)));
        object.insert("target".into(), Value::Null);
        if let Some(target) = &entry.target {
            put(&mut object, "target", &target.0);
        }
        object.insert("device".into(), json!(entry.device.map(|(major, minor)| format!("{major}:{minor}"))));
        Value::Object(object)
    };
    Value::Array(entries.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn entry(name: &str, kind: FileKind, mode: u32, size: u64) -> EntryRecord {
        EntryRecord {
            name: name.into(),
            kind,
            mode,
            links: 1,
            uid: 0,
            gid: 1000,
            size,
            stored: 4096,
            inode: 7,
            modified: (1_762_506_330, 5),
            target: (kind == FileKind::Symlink).then(|| "target".into()),
            device: (kind == FileKind::Block).then_some((8, 1)),
        }
    }

    #[test]
    fn the_long_form_reads_like_that_of_ls() {
        let entries = [
            entry("dir", FileKind::Directory, 0o1777, 3),
            entry("file", FileKind::File, 0o4755, 1536),
            entry("secret", FileKind::File, 0o2640, 0),
            entry("link", FileKind::Symlink, 0o777, 6),
            entry("sda1", FileKind::Block, 0o660, 0),
        ];
        insta::assert_snapshot!(long(&entries, false, || TimeZone::UTC, visible), @r"
        drwxrwxrwt  1  0  1000     3B  2025-11-07 09:05  dir
        -rwsr-xr-x  1  0  1000  1.50K  2025-11-07 09:05  file
        -rw-r-S---  1  0  1000     0B  2025-11-07 09:05  secret
        lrwxrwxrwx  1  0  1000     6B  2025-11-07 09:05  link -> target
        brw-rw----  1  0  1000   8, 1  2025-11-07 09:05  sda1
        ");
    }
}
