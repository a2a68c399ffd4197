//! The JSON schema of all commands: the schema of `zfs list -j` and `zpool list -j` in OpenZFS 2.3.
//!
//! ```text
//! { "output_version": { "command": "fs list", "vers_major": 0, "vers_minor": 1 },
//!   "datasets": { NAME: { "name", "type", "pool", "createtxg",
//!                         "properties": { PROPERTY: { "value", "source": { "type", "data" } } } } } }
//! ```
//!
//! Pools are below `"pools"`. Output that ZFS prints without JSON has the same envelope, and a key of its own. Numbers
//! are strings, as in ZFS, unless the user gives `--json-int`.

use dataset::name::Name;
use dataset::property::{Property, Source};
use protocol::{DatasetRecord, PoolRecord, PropertyRecord};
use serde_json::{Map, Value, json};

use super::value::Style;

/// The version of pools and of file systems in OpenZFS with feature flags.
pub const VERSIONS: [(&str, u64); 2] = [("spa_version", 5000), ("zpl_version", 5)];

/// The envelope around a command's content.
pub fn envelope(command: &str, key: &str, content: Value) -> Value {
    let mut object = output_version(command);
    object[key] = content;
    object
}

/// First member of an envelope; first line of output with an object per line.
pub fn output_version(command: &str) -> Value {
    json!({ "output_version": { "command": command, "vers_major": 0, "vers_minor": 1 } })
}

/// Encodes values as JSON.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Style of values that are text.
    pub style: Style,
    /// Whether exact numbers become JSON numbers.
    pub integers: bool,
}

impl Encoder {
    /// A number: a string, or with `--json-int` a number.
    pub fn number(&self, number: u64) -> Value {
        if self.integers { json!(number) } else { json!(number.to_string()) }
    }

    /// A dataset with the given properties.
    pub fn dataset(&self, record: &DatasetRecord, properties: &[(Property, PropertyRecord)]) -> Value {
        let mut object = Map::new();
        object.insert("name".into(), json!(record.name.as_str()));
        object.insert("type".into(), json!(kind(&record.name)));
        object.insert("pool".into(), json!(record.name.pool()));
        object.insert("createtxg".into(), self.number(record.createtxg));
        if let Name::Snapshot(name) = &record.name {
            object.insert("dataset".into(), json!(name.dataset().as_str()));
            object.insert("snapshot_name".into(), json!(name.snapshot()));
        }
        object.insert("properties".into(), self.properties(properties));
        Value::Object(object)
    }

    /// A pool with the given properties.
    pub fn pool(&self, record: &PoolRecord, properties: &[(Property, PropertyRecord)]) -> Value {
        let mut object = json!({
            "name": record.name,
            "type": "POOL",
            "state": record.state,
            "pool_guid": self.number(record.guid),
        });
        // An unavailable pool has no known txg.
        if record.txg > 0 {
            object["txg"] = self.number(record.txg);
        }
        for (key, version) in VERSIONS {
            object[key] = self.number(version);
        }
        object["properties"] = self.properties(properties);
        object
    }

    fn properties(&self, properties: &[(Property, PropertyRecord)]) -> Value {
        let encode = |(property, record): &(Property, PropertyRecord)| {
            let value = json!({ "value": self.value(property, &record.value), "source": source(&record.source) });
            (property.name().to_owned(), value)
        };
        Value::Object(properties.iter().map(encode).collect())
    }

    fn value(&self, property: &Property, canonical: &str) -> Value {
        match canonical.parse::<u64>() {
            Ok(number) if self.integers && property.syntax().is_numeric() => json!(number),
            _ => json!(self.style.show(property, canonical)),
        }
    }
}

fn kind(name: &Name) -> &'static str {
    match name {
        Name::Dataset(_) => "FILESYSTEM",
        Name::Snapshot(_) => "SNAPSHOT",
        Name::Bookmark(_) => "BOOKMARK",
    }
}

/// The source of a value.
pub fn source(source: &Source) -> Value {
    let data = match source {
        Source::Inherited(owner) => owner.as_str(),
        _ => "-",
    };
    json!({ "type": source.word().to_ascii_uppercase(), "data": data })
}
