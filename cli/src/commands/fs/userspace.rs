//! `fs userspace`, `fs groupspace` and `fs projectspace`: usage and quotas of a file system.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use dataset::property::OwnerKind;
use dataset::property::{Precision, Syntax};
use protocol::{AccountRecord, DatasetRequest, Exit, Failure, Response, unexpected_answer};
use serde_json::Value;
use service::owners;

use super::select::named;
use crate::args::common::Format;
use crate::args::sort::SortKeys;
use crate::context::Context;
use crate::output::json::Encoder;
use crate::output::table::{Column, Table};

/// Arguments of `fs userspace`, `fs groupspace` and `fs projectspace`.
#[derive(Args, Debug)]
#[command(
    after_help = "The space of a file is its length without holes, as shown by du; shared blocks count for every file. Extended attributes and
names are free, up to 4 KiB of attributes per file under a space quota. An object quota limits the number of files and
directories. A write at the end of a file is cut to the space left in the quota.

Quotas are set by 'fs set userquota@NAME=SIZE' or 'userobjquota@NAME=COUNT', and the same for group and project. After the first
quota (even none) the file system keeps running totals; before, each command counts all files. Streams carry quotas.
Setting a quota on a replica counts as a local change.

Examples:
  fs userspace tank/home
  fs groupspace -o name,used,quota -S used tank/home
  fs projectspace tank/home
  fs userspace -Hp tank/home@monday          for scripts, in a snapshot"
)]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
    /// Print numeric IDs instead of names
    #[arg(short = 'n')]
    numeric: bool,
    /// Columns to print: type, name, used, quota, objused, objquota (default: all)
    #[arg(short = 'o', value_name = "FIELDS", value_delimiter = ',')]
    fields: Vec<Field>,
    #[command(flatten)]
    sort: SortKeys,
    /// Types to print: posixuser, posixgroup, all (default: posixgroup for groupspace, else posixuser)
    #[arg(short = 't', value_name = "TYPES", value_delimiter = ',')]
    types: Vec<Type>,
    /// A file system, a snapshot, or a mounted path
    #[arg(value_name = "FILESYSTEM|SNAPSHOT|PATH")]
    name: String,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    /// user, group or project
    Type,
    /// name or ID
    Name,
    /// space used
    Used,
    /// space quota
    Quota,
    /// files and directories
    Objused,
    /// object quota
    Objquota,
}

impl Field {
    fn named(name: &str) -> Result<Field, Failure> {
        Field::from_str(name, true).map_err(|_| Failure::usage(format!("invalid field '{name}'")))
    }

    fn name(self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }

    fn column(self) -> Column {
        let title = self.name().to_ascii_uppercase();
        if matches!(self, Field::Type | Field::Name) { Column::left(title) } else { Column::right(title) }
    }

    fn number(self, record: &AccountRecord) -> u64 {
        match self {
            Field::Used => record.used,
            Field::Quota => record.quota,
            Field::Objused => record.objects_used,
            Field::Objquota => record.objects_quota,
            Field::Type | Field::Name => record.id.into(),
        }
    }

    fn syntax(self) -> Syntax {
        match self {
            Field::Used => Syntax::Bytes,
            Field::Quota => Syntax::Limit,
            Field::Objused => Syntax::Count,
            Field::Objquota => Syntax::CountLimit,
            Field::Type | Field::Name => Syntax::Word,
        }
    }
}

/// Whose accounts are wanted, in the words of ZFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    /// users and groups
    All,
    /// users
    Posixuser,
    /// groups
    Posixgroup,
    /// Windows users (none exist)
    Smbuser,
    /// Windows groups (none exist)
    Smbgroup,
}

impl Type {
    fn has(self, kind: OwnerKind) -> bool {
        match self {
            Type::All => kind != OwnerKind::Project,
            Type::Posixuser => kind == OwnerKind::User,
            Type::Posixgroup => kind == OwnerKind::Group,
            Type::Smbuser | Type::Smbgroup => false,
        }
    }
}

/// One row of the table.
struct Row {
    kind: OwnerKind,
    name: String,
    record: AccountRecord,
}

impl Row {
    fn kind(&self) -> &'static str {
        match self.kind {
            OwnerKind::User => "POSIX User",
            OwnerKind::Group => "POSIX Group",
            OwnerKind::Project => "Project",
        }
    }

    fn cell(&self, field: Field, precision: Precision) -> String {
        match field {
            Field::Type => self.kind().to_owned(),
            Field::Name => self.name.clone(),
            _ => field.syntax().print(&field.number(&self.record).to_string(), precision),
        }
    }

    fn compare(&self, other: &Row, field: Field) -> Ordering {
        match field {
            Field::Type => self.kind().cmp(other.kind()),
            Field::Name => compare_names(&self.name, &other.name),
            _ => field.number(&self.record).cmp(&field.number(&other.record)),
        }
    }
}

/// Prints usage and quotas of owners of `kind`, or of the requested kinds.
pub fn run(kind: OwnerKind, arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    if kind == OwnerKind::Project && (arguments.numeric || !arguments.types.is_empty()) {
        return Err(Failure::usage("-n and -t apply to users and groups, not to projects"));
    }
    let name = named(&arguments.name, context)?;
    let is_wanted = |other: &OwnerKind| match arguments.types.is_empty() {
        true => *other == kind,
        false => arguments.types.iter().any(|wanted| wanted.has(*other)),
    };
    let mut rows = Vec::new();
    for kind in OwnerKind::ALL.into_iter().filter(is_wanted) {
        let request = DatasetRequest::Accounts { name: name.clone(), kind };
        let Response::Accounts(found) = context.call(name.pool(), request)? else { return Err(unexpected_answer()) };
        let names = if arguments.numeric { BTreeMap::new() } else { owners::names(kind) };
        let called = |id: u32| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
        rows.extend(found.into_iter().map(|record| Row { kind, name: called(record.id), record }));
    }
    sort(&mut rows, &arguments.sort)?;
    let fields = fields(&arguments.fields);
    match arguments.format.json {
        true => {
            let encoder = context.encoder(&arguments.format);
            let verb = format!("{}space", kind.name());
            context.print_json(&verb, &format!("{}s", kind.name()), encode(&rows, &fields, &encoder))?;
        }
        false => context.print(&render(&rows, &fields, &arguments.format))?,
    }
    Ok(Exit::Done)
}

fn fields(asked: &[Field]) -> Vec<Field> {
    if asked.is_empty() { Field::value_variants() } else { asked }.to_vec()
}

/// Sorts by the requested keys, then by type and name.
fn sort(rows: &mut [Row], keys: &SortKeys) -> Result<(), Failure> {
    let keys = keys.0.iter().map(|key| Ok((Field::named(&key.property)?, key.descending)));
    let keys = keys.collect::<Result<Vec<_>, Failure>>()?;
    rows.sort_by(|one, two| {
        let asked = keys.iter().map(|(field, descending)| match descending {
            true => two.compare(one, *field),
            false => one.compare(two, *field),
        });
        let asked = asked.fold(Ordering::Equal, Ordering::then);
        asked.then_with(|| one.compare(two, Field::Type)).then_with(|| one.compare(two, Field::Name))
    });
    Ok(())
}

/// Compares names: numbers by value, and before all words.
fn compare_names(one: &str, two: &str) -> Ordering {
    match (one.parse::<u32>(), two.parse::<u32>()) {
        (Ok(one), Ok(two)) => one.cmp(&two),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(two),
    }
}

fn render(rows: &[Row], fields: &[Field], format: &Format) -> String {
    let mut table = Table::new(fields.iter().map(|field| field.column()).collect());
    for row in rows {
        table.push(fields.iter().map(|field| row.cell(*field, format.precision())).collect());
    }
    table.render(format.scripted)
}

fn encode(rows: &[Row], fields: &[Field], encoder: &Encoder) -> Value {
    let encode = |row: &Row| -> Value {
        let value = |field: Field| match field {
            Field::Type | Field::Name => Value::from(row.cell(field, Precision::Exact)),
            _ if encoder.integers => encoder.number(field.number(&row.record)),
            _ => Value::from(row.cell(field, encoder.style.precision)),
        };
        Value::Object(fields.iter().map(|field| (field.name(), value(*field))).collect())
    };
    Value::Array(rows.iter().map(encode).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::sort::SortKey;

    fn row(kind: OwnerKind, name: &str, used: u64, quota: u64) -> Row {
        let record = AccountRecord { id: 1, used, quota, objects_used: 3, objects_quota: 0 };
        Row { kind, name: name.to_owned(), record }
    }

    #[test]
    fn every_account_has_its_line() {
        let mut rows = vec![
            row(OwnerKind::User, "bob", 1 << 20, 10 << 20),
            row(OwnerKind::User, "ann", 3 << 20, 0),
            row(OwnerKind::Group, "staff", 5 << 20, 0),
        ];
        let mut print = |keys: &[(&str, bool)], asked: &[Field], scripted: bool| {
            let key = |(name, descending): &(&str, bool)| SortKey { property: (*name).into(), descending: *descending };
            sort(&mut rows, &SortKeys(keys.iter().map(key).collect())).unwrap();
            render(&rows, &fields(asked), &Format { scripted, exact: scripted, ..Format::default() })
        };
        insta::assert_snapshot!(print(&[], &[], false), @r"
        TYPE         NAME   USED  QUOTA  OBJUSED  OBJQUOTA
        POSIX Group  staff    5M   none        3      none
        POSIX User   ann      3M   none        3      none
        POSIX User   bob      1M    10M        3      none
        ");
        let used = print(&[("used", true)], &[Field::Name, Field::Used], true);
        assert_eq!(used, "staff\t5242880\nann\t3145728\nbob\t1048576\n");
        let mut numbered = ["10", "ann", "9"].map(|name| row(OwnerKind::User, name, 0, 0));
        sort(&mut numbered, &SortKeys(Vec::new())).unwrap();
        assert_eq!(numbered.map(|row| row.name), ["9", "10", "ann"]);
        assert!(sort(&mut rows, &SortKeys(vec![SortKey { property: "size".into(), descending: false }])).is_err());
    }
}
