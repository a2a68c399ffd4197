//! The description at the head of a package: datasets with their snapshots and properties.

use crate::property::dataset::ORIGIN;
use crate::zfs::{
    nvlist::{List, Value},
    property,
};

use super::Receiver;

/// What a package replicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The dataset given to the command.
    pub root: String,
    /// The last snapshot's name without the dataset.
    pub to: String,
    /// The first base's name without the dataset; `None` for a full package.
    pub from: Option<String>,
    /// Whether descendants are included.
    pub is_recursive: bool,
    /// The datasets, the topmost first.
    pub datasets: Vec<Described>,
}

/// A dataset of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The full name in the sending pool.
    pub name: String,
    /// The GUID of the last snapshot sent.
    pub guid: u64,
    /// The GUID of the parent's base, or else of the parent's last snapshot; 0 at the top.
    pub parent: u64,
    /// The GUID of the snapshot that the dataset was cloned from.
    pub origin: Option<u64>,
    /// All snapshots up to the last one: names and GUIDs.
    pub snapshots: Vec<(String, u64)>,
    /// The properties to send; `None` for none at all.
    pub properties: Option<Vec<(String, String)>>,
    /// The tags of the holds on the snapshots that have some.
    pub holds: Vec<(String, Vec<String>)>,
}

impl Package {
    pub(super) fn encode(&self, receiver: Receiver) -> Vec<u8> {
        let mut pairs = Vec::new();
        if let Some(from) = &self.from {
            pairs.push(text("fromsnap", from));
        }
        pairs.push(text("tosnap", &self.to));
        if !self.is_recursive {
            pairs.push((b"not_recursive".to_vec(), Value::Present));
        }
        let dataset = |of: &Described| (format!("{:#x}", of.guid).into_bytes(), Value::List(of.list(receiver)));
        let datasets = self.datasets.iter().map(dataset).collect();
        pairs.push((b"fss".to_vec(), Value::List(List(datasets))));
        List(pairs).encode()
    }
}

impl Described {
    fn list(&self, receiver: Receiver) -> List {
        let mut pairs = vec![text("name", &self.name), number("parentfromsnap", self.parent)];
        pairs.extend(self.origin.map(|origin| number(ORIGIN.name, origin)));
        if let Some(properties) = &self.properties {
            let value = |(name, text): &(String, String)| {
                Some((
                    name.clone().into_bytes(),
                    property::value(name, text).filter(|value| takes(receiver, name, value))?,
                ))
            };
            pairs.push((b"props".to_vec(), Value::List(List(properties.iter().filter_map(value).collect()))));
        }
        let snapshots = self.snapshots.iter().map(|(name, guid)| number(name, *guid)).collect();
        pairs.push((b"snaps".to_vec(), Value::List(List(snapshots))));
        if !self.holds.is_empty() {
            let tags = |tags: &[String]| List(tags.iter().map(|tag| number(tag, 0)).collect());
            let of = |(name, all): &(String, Vec<String>)| (name.clone().into_bytes(), Value::List(tags(all)));
            pairs.push((b"snapholds".to_vec(), Value::List(List(self.holds.iter().map(of).collect()))));
        }
        let none = |(name, _): &(String, u64)| (name.clone().into_bytes(), Value::List(List::default()));
        pairs.push((b"snapprops".to_vec(), Value::List(List(self.snapshots.iter().map(none).collect()))));
        List(pairs)
    }
}

/// Whether the receiver knows a value: zfs-fuse has fewer words, and would refuse the whole package.
fn takes(receiver: Receiver, name: &str, value: &Value) -> bool {
    receiver == Receiver::OpenZfs || matches!(value, Value::Text(_)) || property::is_limit(name)
}

fn text(name: &str, value: &str) -> (Vec<u8>, Value) {
    (name.as_bytes().to_vec(), Value::Text(value.to_owned()))
}

fn number(name: &str, value: u64) -> (Vec<u8>, Value) {
    (name.as_bytes().to_vec(), Value::Number(value))
}
