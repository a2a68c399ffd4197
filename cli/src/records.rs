//! Shared by `list` and `get` of both programs: a record's properties, paired with their definitions.

use dataset::property::dataset::NAME;
use dataset::property::{Property, Source};
use protocol::PropertyRecord;

use crate::args::common::Lookup;

/// The record of a property; an empty record if the owner lacks the property. The name counts as a property too.
pub(crate) fn property_of(owner: &str, records: &[PropertyRecord], property: &Property) -> PropertyRecord {
    let none = |value: &str| PropertyRecord {
        name: property.name().to_owned(),
        value: value.to_owned(),
        source: Source::None,
        received: None,
    };
    if NAME.is(property.name()) {
        return none(owner);
    }
    records.iter().find(|record| record.name == property.name()).cloned().unwrap_or_else(|| none("-"))
}

/// The requested properties, each with its record.
pub(crate) fn select(owner: &str, records: &[PropertyRecord], wanted: &[Property]) -> Vec<(Property, PropertyRecord)> {
    wanted.iter().map(|property| (property.clone(), property_of(owner, records, property))).collect()
}

/// All received properties, each with its definition; properties unknown to this version are left out.
pub(crate) fn all(records: &[PropertyRecord], lookup: Lookup) -> Vec<(Property, PropertyRecord)> {
    let known = |record: &PropertyRecord| lookup(&record.name).ok().map(|property| (property, record.clone()));
    records.iter().filter(|record| !NAME.is(&record.name)).filter_map(known).collect()
}

/// The property names for a request, without duplicates; `name` needs no request.
pub(crate) fn names_of<'a>(properties: impl IntoIterator<Item = &'a Property>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for property in properties {
        if !NAME.is(property.name()) && !names.iter().any(|name| name == property.name()) {
            names.push(property.name().to_owned());
        }
    }
    names
}
