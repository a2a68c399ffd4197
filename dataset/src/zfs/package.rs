//! What a package says of its datasets: their names, snapshots and properties.

use pool::units::Guid;

use super::{
    nvlist::{List, Value},
    property,
};
use crate::stream::{Census, Counted};

/// The description at the head of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    /// Whether the datasets below the topmost one are included; false without a description, as without `-R`.
    is_recursive: bool,
    /// Whether the package begins after an earlier snapshot.
    is_increment: bool,
    datasets: Vec<Described>,
}

/// A dataset in a package.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Described {
    name: String,
    snapshots: Vec<(Guid, String)>,
    properties: Vec<(String, String)>,
    /// The tags of the holds, by snapshot.
    holds: Vec<(String, Vec<String>)>,
}

impl Package {
    pub(super) fn of(list: &List) -> Package {
        let datasets = list.list("fss").into_iter().flat_map(|all| &all.0).filter_map(|(_, value)| match value {
            Value::List(one) => described(one),
            _ => None,
        });
        Package {
            is_recursive: !list.has("not_recursive"),
            is_increment: list.text("fromsnap").is_some(),
            datasets: datasets.collect(),
        }
    }

    /// Whether the package was sent with `-R`.
    pub(super) fn is_recursive(&self) -> bool {
        self.is_recursive
    }

    /// The name of the topmost dataset.
    pub(super) fn root(&self) -> Option<&str> {
        self.datasets.iter().map(|dataset| dataset.name.as_str()).min_by_key(|name| name.len())
    }

    /// The properties of a dataset, as text.
    pub(super) fn properties(&self, dataset: &str) -> Option<&[(String, String)]> {
        let found = self.datasets.iter().find(|described| described.name == dataset)?;
        Some(&found.properties)
    }

    /// The tags of the holds on a snapshot.
    pub(super) fn holds(&self, dataset: &str, snapshot: &str) -> impl Iterator<Item = &str> {
        let of = self.datasets.iter().filter(move |described| described.name == dataset);
        let named = of.flat_map(|described| &described.holds).filter(move |(name, _)| name == snapshot);
        named.flat_map(|(_, tags)| tags).map(String::as_str)
    }

    /// Everything that the sender has, if the package is an increment of a whole hierarchy: a receiver may then destroy
    /// and rename as the sender did.
    pub(super) fn census(&self) -> Option<Census> {
        let counted =
            |dataset: &Described| Counted { dataset: dataset.name.clone(), snapshots: dataset.snapshots.clone() };
        let is_whole = self.is_recursive && self.is_increment && !self.datasets.is_empty();
        is_whole.then(|| Census { datasets: self.datasets.iter().map(counted).collect() })
    }
}

fn described(list: &List) -> Option<Described> {
    let snapshots = list.list("snaps").into_iter().flat_map(|all| &all.0).filter_map(|(name, value)| match value {
        Value::Number(guid) => Some((Guid(*guid), String::from_utf8(name.clone()).ok()?)),
        _ => None,
    });
    let properties = list.list("props").into_iter().flat_map(|all| &all.0).filter_map(|(name, value)| {
        let name = std::str::from_utf8(name).ok()?;
        Some((name.to_owned(), property::text(name, value)?))
    });
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    let holds = list.list("snapholds").into_iter().flat_map(|all| &all.0).filter_map(|(name, value)| match value {
        Value::List(tags) => Some((text(name)?, tags.0.iter().filter_map(|(tag, _)| text(tag)).collect())),
        _ => None,
    });
    let holds = holds.collect();
    let mut properties: Vec<_> = properties.collect();
    properties.sort();
    Some(Described { name: list.text("name")?.to_owned(), snapshots: snapshots.collect(), properties, holds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: Vec<(&str, Value)>) -> Value {
        Value::List(List(pairs.into_iter().map(|(name, value)| (name.into(), value)).collect()))
    }

    #[test]
    fn a_package_describes_its_datasets() {
        let top = list(vec![
            ("name", Value::Text("tank/top".into())),
            ("snaps", list(vec![("a", Value::Number(7))])),
            ("snapholds", list(vec![("a", list(vec![("keep", Value::Number(0))]))])),
            ("props", list(vec![("quota", Value::Number(9)), ("compression", Value::Number(15))])),
        ]);
        let below = list(vec![("name", Value::Text("tank/top/below".into()))]);
        let Value::List(whole) =
            list(vec![("fromsnap", Value::Text("0".into())), ("fss", list(vec![("0x1", below), ("0x2", top)]))])
        else {
            unreachable!("it is a list")
        };
        let package = Package::of(&whole);
        assert_eq!(package.holds("tank/top", "a").collect::<Vec<_>>(), ["keep"]);
        assert_eq!(package.holds("tank/top/below", "a").count() + package.holds("tank/top", "b").count(), 0);
        assert_eq!(package.root(), Some("tank/top"));
        let expected = [("compression".to_owned(), "lz4".to_owned()), ("quota".to_owned(), "9".to_owned())];
        assert_eq!(package.properties("tank/top"), Some(&expected[..]));
        let census = package.census().unwrap();
        assert_eq!(census.datasets[1].snapshots, [(Guid(7), "a".to_owned())]);
    }
}
