//! The value of each property, computed from counters without a walk.

use pool::env::Nanos;

use super::{
    list::{Facts, Listed},
    property::{Valued, limit},
};
use crate::{
    catalogue::{Bookmark, DatasetRow, SnapshotRow, Space},
    property::{Property, Source},
};

impl Listed {
    /// The canonical value of a property and its source; `None` if the property does not apply.
    pub fn value(&self, property: &Property) -> Option<Valued> {
        let computed = |value: String| Some(Valued { value, source: Source::None });
        let name = property.name();
        match name {
            "name" => return computed(self.name.to_string()),
            "type" => return computed(self.type_name().to_owned()),
            _ => {}
        }
        if let Some(since) = property.written_since() {
            return self.written_since.get(since).and_then(|bytes| computed(bytes.to_string()));
        }
        if let Facts::Dataset { row, .. } = &self.facts
            && let Some(limit) = limit(row, name)
        {
            let unsaid = if limit == 0 { Source::Default } else { Source::Local };
            let source = self.effective.get(name).map_or(unsaid, |valued| valued.source.clone());
            return Some(Valued { value: limit.to_string(), source });
        }
        let text = match &self.facts {
            Facts::Dataset { row, available, origin, mount } => match name {
                "available" => Some(available.to_string()),
                "origin" => origin.clone(),
                "mounted" => Some(if mount.is_some() { "yes" } else { "no" }.to_owned()),
                "objsetid" => Some(self.id.to_string()),
                _ => of_dataset(row, name),
            },
            Facts::Snapshot { row, unique, written, clones } => match name {
                "used" => Some(unique.allocated.to_string()),
                "written" => Some(written.allocated.to_string()),
                "clones" => Some(clones.join(",")).filter(|clones| !clones.is_empty()),
                "objsetid" => Some(self.id.to_string()),
                _ => of_snapshot(row, name),
            },
            Facts::Bookmark(row) => of_bookmark(row, name),
        };
        text.and_then(computed).or_else(|| self.effective.get(name).cloned())
    }

    /// The canonical value received for a property, in force or not.
    pub fn received(&self, property: &Property) -> Option<&str> {
        self.received.get(property.name()).map(String::as_str)
    }

    /// `filesystem`, `snapshot` or `bookmark`.
    pub fn type_name(&self) -> &'static str {
        match &self.facts {
            Facts::Dataset { .. } => "filesystem",
            Facts::Snapshot { .. } => "snapshot",
            Facts::Bookmark(_) => "bookmark",
        }
    }

    /// The user properties with a value, by name.
    pub fn user_properties(&self) -> impl Iterator<Item = (&str, &Valued)> {
        let own = self.effective.iter().filter(|(name, _)| name.contains(':'));
        own.map(|(name, valued)| (name.as_str(), valued))
    }

    /// The GUID.
    pub fn guid(&self) -> u64 {
        match &self.facts {
            Facts::Dataset { row, .. } => row.guid.0,
            Facts::Snapshot { row, .. } => row.guid.0,
            Facts::Bookmark(row) => row.guid.0,
        }
    }

    /// The txg of the creation.
    pub fn createtxg(&self) -> u64 {
        match &self.facts {
            Facts::Dataset { row, .. } => row.createtxg.0,
            Facts::Snapshot { row, .. } => row.createtxg.0,
            Facts::Bookmark(row) => row.createtxg.0,
        }
    }
}

fn of_dataset(row: &DatasetRow, name: &str) -> Option<String> {
    let number = match name {
        "used" => row.used().allocated,
        "referenced" => row.referenced.allocated,
        "usedbysnapshots" => row.used_snapshots.allocated,
        "usedbydataset" => row.used_head.allocated,
        "usedbychildren" => row.used_children.allocated,
        "usedbyrefreservation" => row.reserved_for_head(),
        "written" => row.unique().allocated,
        "logicalused" => row.used().logical,
        "logicalreferenced" => row.referenced.logical,
        "createtxg" => row.createtxg.0,
        "guid" => row.guid.0,
        "creation" => return Some(seconds(row.creation)),
        "snapshots_changed" if row.snapshots_changed != 0 => return Some(seconds(row.snapshots_changed)),
        "compressratio" => return Some(ratio(row.used_head + row.used_snapshots + row.used_children)),
        "refcompressratio" => return Some(ratio(row.referenced)),
        _ => return None,
    };
    Some(number.to_string())
}

fn of_snapshot(row: &SnapshotRow, name: &str) -> Option<String> {
    let number = match name {
        "referenced" => row.referenced.allocated,
        "logicalreferenced" => row.referenced.logical,
        "createtxg" => row.createtxg.0,
        "guid" => row.guid.0,
        "userrefs" => row.holds,
        "creation" => return Some(seconds(row.creation)),
        "defer_destroy" => return Some(if row.deferred { "on" } else { "off" }.to_owned()),
        "compressratio" | "refcompressratio" => return Some(ratio(row.referenced)),
        _ => return None,
    };
    Some(number.to_string())
}

fn of_bookmark(row: &Bookmark, name: &str) -> Option<String> {
    let number = match name {
        "referenced" => row.referenced.allocated,
        "logicalreferenced" => row.referenced.logical,
        "createtxg" => row.createtxg.0,
        "guid" => row.guid.0,
        "creation" => return Some(seconds(row.creation)),
        _ => return None,
    };
    Some(number.to_string())
}

fn seconds(time: Nanos) -> String {
    time.div_euclid(1_000_000_000).to_string()
}

/// The compression ratio, with two decimals. If whole sectors and copies outweigh the savings, the ratio is 1.
fn ratio(space: Space) -> String {
    let hundredths = match space.allocated {
        0 => 100,
        allocated => (u128::from(space.logical) * 100 / u128::from(allocated)).max(100),
    };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_two_decimals_and_never_go_below_one() {
        let of = |logical, allocated| ratio(Space { allocated, logical });
        assert_eq!(of(0, 0), "1.00");
        assert_eq!(of(300, 200), "1.50");
        assert_eq!(of(1000, 300), "3.33");
        assert_eq!(of(10, 4096), "1.00");
        assert_eq!(of(u64::MAX, 1), format!("{}.00", u64::MAX));
    }

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(seconds(1_999_999_999), "1");
        assert_eq!(seconds(-1), "-1");
    }
}
