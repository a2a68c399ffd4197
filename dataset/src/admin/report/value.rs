//! The value of each property, computed from counters without a walk.

use pool::env::Nanos;

use super::list::{Facts, ListRequest, Listed};
use crate::{
    admin::table::datasets::Datasets,
    catalogue::{Bookmark, DatasetRow, SnapshotRow, Space},
    error::Result,
    name::Name,
    property::{Backing, Definition, Effective, Figure, Limit, Property, Setting, Source, Typed, Valued},
};

impl Datasets {
    /// The value of a property and its source; `None` if the property does not apply.
    pub fn get(&self, target: &Name, property: &str) -> Result<Option<Valued>> {
        let property = Property::of_dataset(property)?;
        let request = ListRequest { roots: vec![target.clone()], ..Default::default() };
        let since: Vec<String> = property.written_since().into_iter().map(str::to_owned).collect();
        Ok(self.list_since(&request, &since)?.first().and_then(|listed| listed.value(&property)))
    }
}

impl Listed {
    /// The canonical value of a property and its source; `None` if the property does not apply.
    pub fn value(&self, property: &Property) -> Option<Valued> {
        match property {
            Property::Native(definition) => self.native(definition),
            Property::Written(_) => {
                let since = property.written_since()?;
                self.written_since.get(since).map(|bytes| computed(bytes.to_string()))
            }
            Property::User(name) => self.effective.valued(name).cloned(),
            Property::Feature(_) | Property::Account(_) => None,
        }
    }

    /// The value of a property as its type, if this has one.
    pub fn find<T: Setting>(&self, property: &Typed<T>) -> Option<T> {
        self.native(property).and_then(|valued| property.read(&valued.value))
    }

    fn native(&self, definition: &Definition) -> Option<Valued> {
        match definition.backing {
            Backing::Dataset(figure) => self.figure(figure).map(computed),
            Backing::Limit(limit) => self.limit(limit),
            Backing::Row => self.effective.valued(definition.name).cloned(),
            Backing::Constant => self.constant(definition),
            Backing::Pool(_) => None,
        }
    }

    /// The values of the properties that are kept in rows.
    pub fn effective(&self) -> &Effective {
        &self.effective
    }

    /// A limit of a file system. A number that no row explains was set here by an older program.
    fn limit(&self, limit: Limit) -> Option<Valued> {
        let Facts::Dataset { row, .. } = &self.facts else { return None };
        let bytes = limit.of(row);
        let unsaid = if bytes == 0 { Source::Default } else { Source::Local };
        let source = self.effective.valued(limit.row().name).map_or(unsaid, |valued| valued.source.clone());
        Some(Valued { value: bytes.to_string(), source })
    }

    fn constant(&self, definition: &Definition) -> Option<Valued> {
        let value = definition.default.filter(|_| definition.kinds.intersects(self.kind))?;
        Some(Valued { value: value.to_owned(), source: definition.source_of_constant() })
    }

    fn figure(&self, figure: Figure) -> Option<String> {
        match (figure, &self.facts) {
            (Figure::Name, _) => Some(self.name.to_string()),
            (Figure::Type, _) => Some(self.type_name().to_owned()),
            (Figure::Guid, _) => Some(self.guid().to_string()),
            (Figure::CreateTxg, _) => Some(self.createtxg().to_string()),
            (Figure::ObjsetId, Facts::Dataset { .. } | Facts::Snapshot { .. }) => Some(self.id.to_string()),
            (Figure::Available, Facts::Dataset { available, .. }) => Some(available.to_string()),
            (Figure::FilesystemCount, Facts::Dataset { counts, .. }) => {
                Some(counts.map_or(u64::MAX, |counts| counts.filesystems).to_string())
            }
            (Figure::SnapshotCount, Facts::Dataset { counts, .. }) => {
                Some(counts.map_or(u64::MAX, |counts| counts.snapshots).to_string())
            }
            (Figure::Origin, Facts::Dataset { origin, .. }) => origin.clone(),
            (Figure::ReceiveResumeToken, Facts::Dataset { token, .. }) => token.clone(),
            (Figure::Mounted, Facts::Dataset { mount, .. }) => {
                Some(if mount.is_some() { "yes" } else { "no" }.to_owned())
            }
            (Figure::Used, Facts::Snapshot { unique, .. }) => Some(unique.allocated.to_string()),
            (Figure::Written, Facts::Snapshot { written, .. }) => Some(written.allocated.to_string()),
            (Figure::Clones, Facts::Snapshot { clones, .. }) => {
                Some(clones.join(",")).filter(|clones| !clones.is_empty())
            }
            (_, Facts::Dataset { row, .. }) => of_dataset(row, figure),
            (_, Facts::Snapshot { row, .. }) => of_snapshot(row, figure),
            (_, Facts::Bookmark(row)) => of_bookmark(row, figure),
        }
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
        let own = (&self.effective).into_iter().filter(|(name, _)| name.contains(':'));
        own.map(|(name, valued)| (name.as_str(), valued))
    }

    /// The value of the property `guid`.
    pub fn guid(&self) -> u64 {
        match &self.facts {
            Facts::Dataset { row, .. } => row.guid.0,
            Facts::Snapshot { row, .. } => row.guid.0,
            Facts::Bookmark(row) => row.guid.0,
        }
    }

    /// Whether an interrupted receive creates the dataset, so it cannot be opened yet.
    pub fn is_partial(&self) -> bool {
        matches!(&self.facts, Facts::Dataset { row, .. } if row.hidden)
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

fn computed(value: String) -> Valued {
    Valued { value, source: Source::None }
}

fn of_dataset(row: &DatasetRow, figure: Figure) -> Option<String> {
    let number = match figure {
        Figure::Used => row.used().allocated,
        Figure::Referenced => row.referenced.allocated,
        Figure::UsedBySnapshots => row.used_snapshots.allocated,
        Figure::UsedByDataset => row.used_head.allocated,
        Figure::UsedByChildren => row.used_children.allocated,
        Figure::UsedByRefreservation => row.reserved_for_head(),
        Figure::Written => row.unique().allocated,
        Figure::LogicalUsed => row.used().logical,
        Figure::LogicalReferenced => row.referenced.logical,
        Figure::Creation => return Some(seconds(row.creation)),
        Figure::SnapshotsChanged if row.snapshots_changed != 0 => return Some(seconds(row.snapshots_changed)),
        Figure::SnapshotsChangedNsecs if row.snapshots_changed > 0 => return Some(row.snapshots_changed.to_string()),
        Figure::CompressRatio => return Some(ratio(row.used_head + row.used_snapshots + row.used_children)),
        Figure::RefCompressRatio => return Some(ratio(row.referenced)),
        _ => return None,
    };
    Some(number.to_string())
}

fn of_snapshot(row: &SnapshotRow, figure: Figure) -> Option<String> {
    let number = match figure {
        Figure::Referenced => row.referenced.allocated,
        Figure::LogicalReferenced => row.referenced.logical,
        Figure::UserRefs => row.holds,
        Figure::Creation => return Some(seconds(row.creation)),
        Figure::DeferDestroy => return Some(if row.deferred { "on" } else { "off" }.to_owned()),
        Figure::CompressRatio | Figure::RefCompressRatio => return Some(ratio(row.referenced)),
        _ => return None,
    };
    Some(number.to_string())
}

fn of_bookmark(row: &Bookmark, figure: Figure) -> Option<String> {
    match figure {
        Figure::Referenced => Some(row.referenced.allocated.to_string()),
        Figure::LogicalReferenced => Some(row.referenced.logical.to_string()),
        Figure::Creation => Some(seconds(row.creation)),
        _ => None,
    }
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
