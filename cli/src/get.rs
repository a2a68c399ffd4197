//! `get` of both programs: a line per owner and property, or a JSON object per owner.

use dataset::property::dataset::{NAME, TYPE};
use dataset::property::{Property, Source};
use protocol::{Failure, PropertyRecord};
use serde_json::{Map, Value};

use crate::args::common::{Format, Lookup};
use crate::context::Context;
use crate::output::json::Encoder;
use crate::output::table::{Column, Table};
use crate::output::value::Style;

/// A column of `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Field {
    /// Name of the pool or dataset
    Name,
    /// Name of the property
    Property,
    /// Value in effect
    Value,
    /// Value received with a stream
    Received,
    /// Source of the value: see -s
    Source,
    /// All columns
    All,
}

/// The columns to print, in order.
fn fields(asked: &[Field]) -> Vec<Field> {
    match asked {
        [] => vec![Field::Name, Field::Property, Field::Value, Field::Source],
        asked if asked.contains(&Field::All) => {
            vec![Field::Name, Field::Property, Field::Value, Field::Received, Field::Source]
        }
        asked => asked.to_vec(),
    }
}

/// A source to filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SourceFilter {
    /// Set on the pool or dataset itself
    Local,
    /// Built-in default
    Default,
    /// Inherited from an ancestor
    Inherited,
    /// Received with a stream
    Received,
    /// Set by mount options, until unmount
    Temporary,
    /// Read-only properties
    None,
}

impl SourceFilter {
    fn admits(self, source: &Source) -> bool {
        matches!(
            (self, source),
            (SourceFilter::Local, Source::Local)
                | (SourceFilter::Default, Source::Default)
                | (SourceFilter::Inherited, Source::Inherited(_))
                | (SourceFilter::Received, Source::Received)
                | (SourceFilter::Temporary, Source::Temporary)
                | (SourceFilter::None, Source::None)
        )
    }
}

/// The requested properties of an owner.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// All properties of the owner.
    All,
    /// The listed properties.
    Some(Vec<Property>),
}

impl Wanted {
    /// Parses `all`, or a list of properties.
    pub fn parse(text: &str, lookup: Lookup) -> Result<Wanted, Failure> {
        match text {
            "all" => Ok(Wanted::All),
            list => crate::args::common::property_list(list, lookup).map(Wanted::Some),
        }
    }

    /// As [`Wanted::parse`], in a command without names behind the properties. A name of a pool or dataset in place of
    /// the properties is refused with the right order; `command` is such as `fs get`.
    pub fn parse_alone(
        text: &str,
        lookup: Lookup,
        command: &str,
        context: &mut Context<'_>,
    ) -> Result<Wanted, Failure> {
        let wanted = Wanted::parse(text, lookup);
        let pool = text.split(['/', '@', '#']).next().unwrap_or_default();
        if wanted.is_err() && context.executor.visible_pools()?.iter().any(|known| known == pool) {
            let failure = Failure::usage(format!("missing properties in front of '{text}'"));
            return Err(failure.hint(format!("to show all properties: {command} all {text}")));
        }
        wanted
    }

    /// The property names for a request; empty for all.
    pub fn names(&self) -> Vec<String> {
        match self {
            Wanted::All => Vec::new(),
            Wanted::Some(list) if list.iter().all(|property| NAME.is(property.name())) => vec![TYPE.name.to_owned()],
            Wanted::Some(list) => crate::records::names_of(list),
        }
    }

    /// The requested properties of an owner, each with its record.
    pub fn select(
        &self,
        owner: &str,
        records: &[PropertyRecord],
        lookup: Lookup,
        sources: &[SourceFilter],
    ) -> Vec<(Property, PropertyRecord)> {
        let mut list = match self {
            Wanted::All => crate::records::all(records, lookup),
            Wanted::Some(wanted) => crate::records::select(owner, records, wanted),
        };
        list.retain(|(_, record)| sources.is_empty() || sources.iter().any(|filter| filter.admits(&record.source)));
        list
    }
}

/// An owner's name, and the properties to show.
pub type Shown = (String, Vec<(Property, PropertyRecord)>);

/// Output options of `get`.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Table or JSON, rounded or exact.
    pub format: &'a Format,
    /// The requested columns.
    pub fields: &'a [Field],
    /// The key above all owners in JSON.
    pub owners: &'static str,
}

impl Layout<'_> {
    /// Prints the properties in `shown` for each record; `encode` turns a record into JSON.
    pub fn print<R>(
        self,
        context: &mut Context<'_>,
        records: &[R],
        shown: impl Fn(&R) -> Shown,
        encode: impl Fn(&Encoder, &R, &[(Property, PropertyRecord)]) -> Value,
    ) -> Result<(), Failure> {
        let shown = records.iter().map(shown);
        if self.format.json {
            let encoder = context.encoder(self.format);
            let entry = |(record, (name, properties)): (&R, Shown)| (name, encode(&encoder, record, &properties));
            let content: Map<String, Value> = records.iter().zip(shown).map(entry).collect();
            return context.print_json("get", self.owners, Value::Object(content));
        }
        let style = context.style(self.format);
        context.print(&render(&shown.collect::<Vec<_>>(), &fields(self.fields), &style, self.format.scripted))
    }
}

/// The table for all owners.
fn render(owners: &[Shown], fields: &[Field], style: &Style, scripted: bool) -> String {
    let title = |field: &Field| Column::left(format!("{field:?}").to_ascii_uppercase());
    let mut table = Table::new(fields.iter().map(title).collect());
    for (owner, properties) in owners {
        for (property, record) in properties {
            table.push(fields.iter().map(|field| cell(*field, owner, property, record, style)).collect());
        }
    }
    table.render(scripted)
}

fn cell(field: Field, owner: &str, property: &Property, record: &PropertyRecord, style: &Style) -> String {
    match field {
        Field::Name => owner.to_owned(),
        Field::Property => property.name().to_owned(),
        Field::Value => style.show(property, &record.value),
        Field::Received => record.received.as_deref().map_or_else(|| "-".to_owned(), |v| style.show(property, v)),
        Field::Source => record.source.to_string(),
        Field::All => unreachable!("`fields` replaced it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::property::Precision;
    use jiff::tz::TimeZone;

    fn record(name: &str, value: &str, source: Source) -> PropertyRecord {
        PropertyRecord { name: name.into(), value: value.into(), source, received: None }
    }

    #[test]
    fn all_means_every_column() {
        assert_eq!(fields(&[Field::Name, Field::All]).len(), 5);
    }

    #[test]
    fn every_property_has_its_line() {
        let records = [
            record("used", "1610612736", Source::None),
            record("quota", "0", Source::Default),
            record("compression", "zstd", Source::Inherited("tank".into())),
        ];
        let style = Style { precision: Precision::Human, zone: || TimeZone::UTC };
        let print = |wanted: &str, sources: &[SourceFilter]| {
            let wanted = Wanted::parse(wanted, Property::of_dataset).unwrap();
            let list = wanted.select("tank/home", &records, Property::of_dataset, sources);
            render(&[("tank/home".into(), list)], &fields(&[]), &style, false)
        };
        insta::assert_snapshot!(print("all", &[]), @r"
        NAME       PROPERTY     VALUE  SOURCE
        tank/home  used         1.50G  -
        tank/home  quota        none   default
        tank/home  compression  zstd   inherited from tank
        ");
        insta::assert_snapshot!(print("refer,compress,name", &[]), @r"
        NAME       PROPERTY     VALUE      SOURCE
        tank/home  referenced   -          -
        tank/home  compression  zstd       inherited from tank
        tank/home  name         tank/home  -
        ");
        insta::assert_snapshot!(print("all", &[SourceFilter::Inherited]), @r"
        NAME       PROPERTY     VALUE  SOURCE
        tank/home  compression  zstd   inherited from tank
        ");
    }
}
