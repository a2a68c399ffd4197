//! `fs getattr`: attributes of single files, and their values.

use std::ffi::{OsStr, OsString};

use clap::Args;
use dataset::fs::Attribute;
use dataset::property::size::format_bytes;
use serde_json::{Map, Value};

use super::files::{attribute, located, split};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::output::table::{Column, Table};
use crate::protocol::{FileAttributesRecord, Request, Response};

/// Arguments of `fs getattr`.
#[derive(Args, Debug)]
#[command(override_usage = "fs getattr [OPTIONS] [ATTRIBUTE,...|all] <FILE>...")]
#[command(after_help = "A value of '-' is that of the data set's property. See 'fs setattr --help' for the attributes.

Examples:
  fs getattr /tank/home/archive
  fs getattr -r immutable,append tank/home:/papers
  fs getattr -Hp compression tank/home@monday:/papers")]
pub struct Arguments {
    /// Directories with everything below
    #[arg(short = 'r', short_alias = 'R')]
    recursive: bool,
    /// For scripts: no head, and one tab between values
    #[arg(short = 'H')]
    scripted: bool,
    /// Exact numbers instead of rounded ones
    #[arg(short = 'p')]
    exact: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// The attributes, and then the files: their paths where they are mounted, or DATASET:/PATH
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<OsString>,
}

/// Shows attributes.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (wanted, files) = wanted(&arguments.words)?;
    let mut records = Vec::new();
    for file in files {
        let location = located(file, context)?;
        let pool = location.name.pool().to_owned();
        let request = Request::FileAttributes { location, recursive: arguments.recursive };
        let Response::FileAttributes(found) = context.call(&pool, request)? else {
            return Err(unexpected_answer());
        };
        let shown = file.to_string_lossy();
        records.extend(found.into_iter().map(|record| (joined(&shown, &record.path.to_text()), record)));
    }
    match arguments.json {
        true => context.print_json("getattr", "files", encode(&records, &wanted))?,
        false => context.print(&render(&records, &wanted, arguments))?,
    }
    Ok(Exit::Done)
}

/// The attributes and the files that are asked for. One word alone is a file.
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

/// What was asked for, and the path below it.
pub(super) fn joined(asked: &str, below: &str) -> String {
    match below.is_empty() {
        true => asked.to_owned(),
        false => format!("{}/{below}", asked.trim_end_matches('/')),
    }
}

fn value(record: &FileAttributesRecord, attribute: Attribute) -> &str {
    let found = record.values.iter().find(|assignment| assignment.name == attribute.name());
    found.map_or("-", |assignment| assignment.value.as_str())
}

fn render(records: &[(String, FileAttributesRecord)], wanted: &[Attribute], arguments: &Arguments) -> String {
    let mut table = Table::new(["NAME", "ATTRIBUTE", "VALUE"].map(Column::left).to_vec());
    for (name, record) in records {
        for attribute in wanted {
            let exact = value(record, *attribute);
            let shown = match (attribute, exact.parse()) {
                (Attribute::RecordSize, Ok(size)) if !arguments.exact => format_bytes(size),
                _ => exact.to_owned(),
            };
            table.push(vec![name.clone(), attribute.name().to_owned(), shown]);
        }
    }
    table.render(arguments.scripted)
}

fn encode(records: &[(String, FileAttributesRecord)], wanted: &[Attribute]) -> Value {
    let values = |record: &FileAttributesRecord| -> Value {
        let entry = |attribute: &Attribute| (attribute.name().to_owned(), Value::from(value(record, *attribute)));
        Value::Object(wanted.iter().map(entry).collect())
    };
    Value::Object(records.iter().map(|(name, record)| (name.clone(), values(record))).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_told_from_files() {
        let read = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            wanted(&words).map(|(attributes, files)| (attributes.len(), files.len())).unwrap()
        };
        assert_eq!(read(&["append"]), (7, 1));
        assert_eq!(read(&["append", "file"]), (1, 1));
        assert_eq!(read(&["append,direct", "file", "other"]), (2, 2));
        assert_eq!(read(&["all", "file"]), (7, 1));
        assert_eq!(read(&["file", "append"]), (7, 2));
        assert_eq!(joined("tank:/", "a/b"), "tank:/a/b");
    }
}
