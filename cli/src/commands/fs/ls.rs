//! `fs ls`: the files of a dataset or snapshot, without a mount.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem;

use clap::Args;
use dataset::property::size::format_bytes;
use protocol::{EntryRecord, Exit, Failure, FileKind, FileRequest, location};
use serde_json::{Map, Value, json};

use crate::context::{Console, Context};
use crate::output::names::{lossy, put, visible};
use crate::output::nested::Nested;
use crate::output::table::{Column, Table};
use crate::output::time::{self, Zone};

/// Long listing: number of lines, or bytes of names, to align and print together.
const TOGETHER: usize = 4096;
const TOGETHER_BYTES: usize = 1 << 20;

/// Arguments of `fs ls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs ls tank/home
  fs ls -l tank/home:/ann
  fs ls -lR tank/home@monday:/ann            in a snapshot")]
pub struct Arguments {
    #[command(flatten)]
    listing: Listing,
    /// DATASET:/PATH or DATASET@SNAPSHOT:/PATH
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// The options of a list of files.
#[derive(Args, Debug)]
pub(super) struct Listing {
    /// Long format: permissions, owner, size and time
    #[arg(short = 'l')]
    pub(super) long: bool,
    /// List directories themselves, not their contents
    #[arg(short = 'd')]
    pub(super) directory_itself: bool,
    /// Recurse into directories
    #[arg(short = 'R', short_alias = 'r')]
    pub(super) recursive: bool,
    /// Print exact sizes and times
    #[arg(short = 'p')]
    pub(super) exact: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub(super) json: bool,
}

/// Lists files and directories.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match arguments.listing.json {
        true => list_as_json(arguments, context)?,
        false => list(arguments, context)?,
    }
    Ok(Exit::Done)
}

/// Passes the entries of a location to `each` on arrival.
fn entries(
    place: &OsStr,
    arguments: &Arguments,
    context: &mut Context<'_>,
    each: &mut dyn FnMut(EntryRecord, &mut Console<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let location = location(place)?;
    let pool = location.name.pool().to_owned();
    let (directory_itself, recursive) = (arguments.listing.directory_itself, arguments.listing.recursive);
    context.call_for_each(&pool, FileRequest::Entries { location, directory_itself, recursive }, each)
}

fn list_as_json(arguments: &Arguments, context: &mut Context<'_>) -> Result<(), Failure> {
    let mut json = Nested::object(&format!("{} ls", context.program), "files");
    let mut seen = BTreeSet::new();
    for place in arguments.places.iter().filter(|place| seen.insert(place.to_string_lossy())) {
        json.begin_array(&place.to_string_lossy());
        entries(place, arguments, context, &mut |entry, console| {
            json.value(None, &encode(&entry));
            Ok(json.ready().map_or(Ok(()), |text| console.output.write_all(text.as_bytes()))?)
        })?;
        json.end();
    }
    context.print(&json.finish())
}

fn list(arguments: &Arguments, context: &mut Context<'_>) -> Result<(), Failure> {
    let (exact, zone) = (arguments.listing.exact, context.zone);
    for (index, place) in arguments.places.iter().enumerate() {
        let mut title = match arguments.places.len() {
            1 => String::new(),
            _ => format!("{}{}:\n", if index > 0 { "\n" } else { "" }, place.to_string_lossy()),
        };
        let mut long = Long::new(exact, zone, if context.console.terminals.output { visible } else { lossy });
        entries(place, arguments, context, &mut |entry, console| {
            console.output.write_all(mem::take(&mut title).as_bytes())?;
            if !arguments.listing.long {
                return print_name(&entry.name.0, console);
            }
            long.push(&entry);
            Ok(long.ready().map_or(Ok(()), |text| console.output.write_all(text.as_bytes()))?)
        })?;
        context.print(&(title + &long.take()))?;
    }
    Ok(())
}

/// Prints a bare name byte for byte, but escaped on a terminal.
pub(super) fn print_name(name: &[u8], console: &mut Console<'_>) -> Result<(), Failure> {
    match console.terminals.output {
        true => console.output.write_all(visible(name).as_bytes())?,
        false => console.output.write_all(name)?,
    }
    Ok(console.output.write_all(b"\n")?)
}

/// The long form, with columns aligned within each batch of lines.
pub(super) struct Long {
    exact: bool,
    zone: Zone,
    shown: fn(&[u8]) -> String,
    table: Table,
    bytes: usize,
    /// No line was printed yet.
    is_new: bool,
}

impl Long {
    pub(super) fn new(exact: bool, zone: Zone, shown: fn(&[u8]) -> String) -> Long {
        let right = |index: usize| matches!(index, 1..=4);
        let column = |index: usize| if right(index) { Column::right("") } else { Column::left("") };
        Long { exact, zone, shown, table: Table::new((0..7).map(column).collect()), bytes: 0, is_new: true }
    }

    pub(super) fn push(&mut self, entry: &EntryRecord) {
        let Long { exact, zone, shown, .. } = *self;
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
        let name = shown(&entry.name.0) + &target;
        self.bytes += name.len();
        let (links, uid, gid) = (entry.links.to_string(), entry.uid.to_string(), entry.gid.to_string());
        self.table.push(vec![mode(entry), links, uid, gid, size, modified, name]);
    }

    /// The collected lines, once there are enough to print.
    pub(super) fn ready(&mut self) -> Option<String> {
        (self.bytes >= TOGETHER_BYTES || self.table.len() >= TOGETHER).then(|| self.take())
    }

    pub(super) fn take(&mut self) -> String {
        self.bytes = 0;
        let text = self.table.take(false);
        // The table has no header: its first line is empty.
        let was_new = self.is_new;
        self.is_new = was_new && text.is_empty();
        if was_new { text.trim_start_matches('\n').to_owned() } else { text }
    }
}

/// Type and mode as ls(1) prints, such as `drwxr-sr-t`.
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

/// The JSON object of a file.
pub(super) fn encode(entry: &EntryRecord) -> Value {
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
        let mut long = Long::new(false, || TimeZone::UTC, visible);
        entries.iter().for_each(|entry| long.push(entry));
        assert_eq!(long.ready(), None);
        insta::assert_snapshot!(long.take(), @r"
        drwxrwxrwt  1  0  1000     3B  2025-11-07 09:05  dir
        -rwsr-xr-x  1  0  1000  1.50K  2025-11-07 09:05  file
        -rw-r-S---  1  0  1000     0B  2025-11-07 09:05  secret
        lrwxrwxrwx  1  0  1000     6B  2025-11-07 09:05  link -> target
        brw-rw----  1  0  1000   8, 1  2025-11-07 09:05  sda1
        ");
    }
}
