//! `fs getattr`: attributes of single files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use dataset::fs::Attribute;
use dataset::property::size::format_bytes;
use protocol::{Exit, Failure, FileAttributesRecord, FileRequest};
use serde_json::Value;

use super::files::{attribute, located, split};
use crate::context::{Console, Context};
use crate::output::names::{Keys, lossy, visible};
use crate::output::nested::Nested;
use crate::output::table::{Column, Table};

/// Number of lines, or bytes of names, to align and print together.
const TOGETHER: usize = 4096;
const TOGETHER_BYTES: usize = 1 << 20;

/// Arguments of `fs getattr`.
#[derive(Args, Debug)]
#[command(
    after_help = "A value of '-' means: inherited from the dataset property. 'fs setattr --help' describes the attributes.

Examples:
  fs getattr /tank/home/archive
  fs getattr -r immutable,append tank/home:/papers
  fs getattr -Hp compression tank/home@monday:/papers"
)]
pub struct Arguments {
    /// Recurse into directories
    #[arg(short = 'r', short_alias = 'R')]
    recursive: bool,
    /// Scripted mode: no header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    exact: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Attributes, then files: paths in a mount, or DATASET:/PATH
    #[arg(value_name = "ATTRIBUTE|FILE", required = true)]
    words: Vec<OsString>,
}

/// Prints attributes of files.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (wanted, files) = wanted(&arguments.words)?;
    match arguments.json {
        true => show_as_json(arguments, &wanted, files, context)?,
        false => show(arguments, &wanted, files, context)?,
    }
    Ok(Exit::Done)
}

/// Callback with a file's name and attributes.
type Each<'a> = dyn FnMut(&[u8], &FileAttributesRecord, &mut Console<'_>) -> Result<(), Failure> + 'a;

/// Passes each file's name and attributes to `each` on arrival; `recursive` includes files below.
fn attributes(file: &OsStr, recursive: bool, context: &mut Context<'_>, each: &mut Each<'_>) -> Result<(), Failure> {
    let location = located(file, context)?;
    let pool = location.name.pool().to_owned();
    context.call_for_each(&pool, FileRequest::FileAttributes { location, recursive }, &mut |record, console| {
        let record: FileAttributesRecord = record;
        each(&joined(file.as_bytes(), &record.path.0), &record, console)
    })
}

fn show_as_json(
    arguments: &Arguments,
    wanted: &[Attribute],
    files: &[OsString],
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let mut json = Nested::object(&format!("{} getattr", context.program), "files");
    let mut keys = Keys::default();
    for file in files {
        attributes(file, arguments.recursive, context, &mut |name, record, console| {
            let mut value = encode(record, wanted);
            let key = keys.key(name, &mut value);
            json.value(Some(&key), &value);
            Ok(json.ready().map_or(Ok(()), |text| console.output.write_all(text.as_bytes()))?)
        })?;
    }
    context.print(&json.finish())
}

fn show(
    arguments: &Arguments,
    wanted: &[Attribute],
    files: &[OsString],
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    let mut table = Table::new(["NAME", "ATTRIBUTE", "VALUE"].map(Column::left).to_vec());
    let mut bytes = 0;
    let shown = shown_on(context);
    for file in files {
        attributes(file, arguments.recursive, context, &mut |name, record, console| {
            let name = shown(name);
            bytes += name.len() * wanted.len();
            add(&mut table, &name, record, wanted, arguments.exact);
            if bytes >= TOGETHER_BYTES || table.len() >= TOGETHER {
                bytes = 0;
                console.output.write_all(table.take(arguments.scripted).as_bytes())?;
            }
            Ok(())
        })?;
    }
    context.print(&table.take(arguments.scripted))
}

/// Splits the words into attributes and files. A single word is a file.
fn wanted(words: &[OsString]) -> Result<(Vec<Attribute>, &[OsString]), Failure> {
    let is_list = |word: &OsStr| {
        let text = word.to_string_lossy();
        text == "all" || text.split(',').all(|name| Attribute::named(name).is_some())
    };
    let (lists, files) = match words {
        [_] => split(words, |_| true),
        [first, rest @ ..] if is_list(first) => (&words[..1], rest),
        _ => split(words, |_| true),
    };
    match lists.first().map(|list| list.to_string_lossy()) {
        Some(list) if list != "all" => Ok((list.split(',').map(attribute).collect::<Result<_, _>>()?, files)),
        _ => Ok((Attribute::ALL.to_vec(), files)),
    }
}

/// The requested path, joined with a relative path below.
pub(super) fn joined(asked: &[u8], below: &[u8]) -> Vec<u8> {
    let end = asked.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    match below.is_empty() {
        true => asked.to_owned(),
        false => [&asked[..end], b"/", below].concat(),
    }
}

/// The form of names in output: on a terminal, control characters are escaped.
pub(super) fn shown_on(context: &Context<'_>) -> fn(&[u8]) -> String {
    if context.console.terminals.output { visible } else { lossy }
}

fn value(record: &FileAttributesRecord, attribute: Attribute) -> &str {
    let found = record.values.iter().find(|assignment| assignment.name == attribute.name());
    found.map_or("-", |assignment| assignment.value.as_str())
}

fn add(table: &mut Table, name: &str, record: &FileAttributesRecord, wanted: &[Attribute], exact: bool) {
    for attribute in wanted {
        let stored = value(record, *attribute);
        let shown = match (attribute, stored.parse()) {
            (Attribute::RecordSize, Ok(size)) if !exact => format_bytes(size),
            _ => stored.to_owned(),
        };
        table.push(vec![name.to_owned(), attribute.name().to_owned(), shown]);
    }
}

fn encode(record: &FileAttributesRecord, wanted: &[Attribute]) -> Value {
    let entry = |attribute: &Attribute| (attribute.name().to_owned(), Value::from(value(record, *attribute)));
    Value::Object(wanted.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_distinguished_from_files() {
        let read = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            wanted(&words).map(|(attributes, files)| (attributes.len(), files.len())).unwrap()
        };
        assert_eq!(read(&["append"]), (7, 1));
        assert_eq!(read(&["append", "file"]), (1, 1));
        assert_eq!(read(&["append,direct", "file", "other"]), (2, 2));
        assert_eq!(read(&["all", "file"]), (7, 1));
        assert_eq!(read(&["file", "append"]), (7, 2));
        assert_eq!(joined(b"tank:/", b"a/b"), b"tank:/a/b");
        assert_eq!(joined(b"/", b"a"), b"/a");
    }
}
