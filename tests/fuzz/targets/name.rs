//! Names of datasets, snapshots and bookmarks, sets of snapshots, and places of files, as typed.

use std::{
    ffi::OsStr,
    fmt::{Debug, Display},
    os::unix::ffi::OsStrExt,
    str::FromStr,
};

use dataset::name::{BookmarkName, DatasetName, MAX_NAME, Name, NameError, SnapshotName, SnapshotSet, check_new_pool};
use protocol::location;

pub(super) fn run(input: &[u8]) -> bool {
    let place = location(OsStr::from_bytes(input));
    if let Ok(place) = &place {
        let mut text = place.name.as_str().as_bytes().to_vec();
        text.push(b':');
        text.extend_from_slice(&place.path.0);
        assert_eq!(location(OsStr::from_bytes(&text)).as_ref(), Ok(place));
    }
    let Ok(text) = str::from_utf8(input) else { return place.is_ok() };
    let name = comes_back::<Name>(text);
    let kinds = [
        comes_back::<DatasetName>(text).inspect(check_family).is_some(),
        comes_back::<SnapshotName>(text).is_some(),
        comes_back::<BookmarkName>(text).is_some(),
    ];
    assert_eq!(kinds.iter().filter(|is| **is).count(), usize::from(name.is_some()), "a name is of one kind");
    if let Some(name) = &name {
        assert!(name.as_str().len() <= MAX_NAME && name.as_str().starts_with(name.pool()));
    }
    let set = comes_back::<SnapshotSet>(text);
    if let Some(single) = set.as_ref().and_then(SnapshotSet::single) {
        assert_eq!(single.as_str(), text);
    }
    if let Ok(pool) = check_new_pool(text) {
        assert!(pool.is_pool());
    }
    place.is_ok() || name.is_some() || set.is_some()
}

/// Checks a name's relation to its dataset and the datasets above.
fn check_family(name: &DatasetName) {
    assert_eq!(name.components().last(), Some(name.leaf()));
    match name.parent() {
        Some(parent) => {
            assert!(name.is_within(&parent) && !name.is_pool());
            assert_eq!(parent.child(name.leaf()).as_ref(), Ok(name));
        }
        None => assert!(name.is_pool()),
    }
}

/// The value of a text, which must print as the same value; an error must point into the text.
fn comes_back<T: FromStr<Err = NameError> + Display + Debug + PartialEq>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(&value));
            Some(value)
        }
        Err(error) => {
            assert!(error.at <= text.len() && !error.to_string().is_empty());
            None
        }
    }
}
