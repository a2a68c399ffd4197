//! Notes: entries in a stream's list of properties, told apart by names that begin with `@`.
//!
//! A reader skips unknown notes, like every unknown property. So notes need no new version
//! of the format.

use super::records::Begin;

/// A hold on the snapshot; the tag follows. The value is the time of the hold, in nanoseconds since 1970.
const HOLD: &str = "@hold ";
/// In the first stream of a package: the approximate length of the package, in bytes.
const SIZE: &str = "@size";
/// The properties are the received values only.
const BACKUP: &str = "@backup";
/// The creation time of the base, in nanoseconds since 1970: changed files have a later change time.
const SINCE: &str = "@since";
/// The most holds of a snapshot in a stream.
const MOST_HOLDS: usize = 1000;
/// The largest believable length of a package, in bytes: 1 EiB.
const LARGEST: u64 = 1 << 60;

/// Whether a name in the list of properties is a note's.
pub fn is_note(name: &str) -> bool {
    name.starts_with('@')
}

impl Begin {
    /// The properties without notes; `None` if the sender did not send properties.
    pub fn own_properties(&self) -> Option<Vec<(String, String)>> {
        let all = self.properties.as_ref()?;
        let own: Vec<_> = all.iter().filter(|(name, _)| !is_note(name)).cloned().collect();
        (all.is_empty() || !own.is_empty() || self.is_backup()).then_some(own)
    }

    /// The tags of the holds on the snapshot.
    pub fn holds(&self) -> impl Iterator<Item = &str> {
        self.properties.iter().flatten().filter_map(|(name, _)| name.strip_prefix(HOLD))
    }

    /// The approximate length of the package, in bytes, if noted by the sender.
    pub fn package_size(&self) -> Option<u64> {
        self.properties
            .iter()
            .flatten()
            .find(|(name, _)| name == SIZE)?
            .1
            .parse()
            .ok()
            .filter(|bytes| *bytes <= LARGEST)
    }

    /// The creation time of the base, if noted by the sender, in nanoseconds since 1970.
    pub fn since(&self) -> Option<i64> {
        self.properties.iter().flatten().find(|(name, _)| name == SINCE)?.1.parse().ok()
    }

    /// Notes the creation time of the base, in nanoseconds since 1970.
    pub fn note_since(&mut self, creation: i64) {
        self.note(SINCE.to_owned(), creation.to_string());
    }

    /// Notes a hold on the snapshot.
    pub fn note_hold(&mut self, tag: &str, time: i64) {
        if self.holds().count() >= MOST_HOLDS {
            return tracing::warn!("a snapshot's holds after the first {MOST_HOLDS} do not travel");
        }
        self.note(format!("{HOLD}{tag}"), time.to_string());
    }

    /// Notes the approximate length of the package, in bytes.
    pub fn note_package_size(&mut self, bytes: u64) {
        self.note(SIZE.to_owned(), bytes.to_string());
    }

    /// Whether the properties are the received values only (`fs send -b`).
    pub fn is_backup(&self) -> bool {
        self.properties.iter().flatten().any(|(name, _)| name == BACKUP)
    }

    /// Notes that the properties are the received values only.
    pub fn note_backup(&mut self) {
        self.note(BACKUP.to_owned(), String::new());
    }

    fn note(&mut self, name: String, value: String) {
        let all = self.properties.get_or_insert_default();
        all.retain(|(other, _)| *other != name);
        all.push((name, value));
        all.sort();
    }

    /// The same head with the properties of another stream, and with its own notes on the snapshot.
    pub(super) fn with_properties_of(self, other: Option<&Begin>) -> Begin {
        let own = self.properties.into_iter().flatten().filter(|(name, _)| name.starts_with(HOLD));
        let others = other.and_then(Begin::own_properties);
        let is_sent = others.is_some();
        let mut all: Vec<_> = own.chain(others.into_iter().flatten()).collect();
        all.sort();
        let mut begin = Begin { properties: (is_sent || !all.is_empty()).then_some(all), ..self };
        if other.is_some_and(Begin::is_backup) {
            begin.note_backup();
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_no_properties() {
        let mut begin = Begin::default();
        assert_eq!((begin.own_properties(), begin.package_size()), (None, None));
        begin.note_hold("keep me", 7);
        begin.note_package_size(5);
        begin.note_package_size(6);
        assert_eq!((begin.own_properties(), begin.package_size()), (None, Some(6)));
        assert_eq!(begin.holds().collect::<Vec<_>>(), ["keep me"]);
        let base = Begin { properties: Some(vec![("atime".into(), "off".into())]), ..Begin::default() };
        let merged = begin.with_properties_of(Some(&base));
        assert_eq!((merged.own_properties(), merged.package_size()), (base.properties.clone(), None));
        assert_eq!(merged.holds().count(), 1);
        let plain = Begin { properties: Some(vec![]), ..Begin::default() };
        assert_eq!(plain.own_properties(), Some(vec![]));
    }
}
