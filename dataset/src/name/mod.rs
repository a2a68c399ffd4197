//! The names of pools, datasets, snapshots and bookmarks.
//!
//! ```text
//! tank                 a pool, and its root dataset
//! tank/home/ann        a dataset
//! tank/home@monday     a snapshot
//! tank/home#monday     a bookmark
//! tank/home@a%c,x      several snapshots: from a to c, and x
//! ```
//!
//! The rules are OpenZFS's: a component consists of letters, digits, spaces and `_ . : -`, is neither `.` nor `..`, the
//! whole name has at most [`MAX_NAME`] bytes, and a pool's name begins with a letter and is not a keyword of vdev
//! specifications. Unlike in OpenZFS, a pool's name has no space, and no component begins or ends with a space, which
//! would be invisible. A value of a name type is a valid name; the named object need not exist.
//!
//! With `serde` every type is coded as its text, and validated when decoded.

mod rules;
mod set;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use self::rules::{check_dataset, check_length, check_pair};
pub use self::{
    rules::{MAX_DEPTH, MAX_NAME, NameError, NameProblem, check_component, check_new_pool},
    set::{SnapshotSet, SnapshotSpan},
};

/// The name of a dataset; a pool's name is also the name of its root dataset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatasetName(String);

impl DatasetName {
    /// The full name, from the pool on.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pool's name: the first component.
    pub fn pool(&self) -> &str {
        self.components().next().expect("a name has a component")
    }

    /// The components; the pool comes first.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The last component.
    pub fn leaf(&self) -> &str {
        self.components().last().expect("a name has a component")
    }

    /// Whether the name is a pool's root dataset.
    pub fn is_pool(&self) -> bool {
        !self.0.contains('/')
    }

    /// The parent dataset; `None` for the pool's root dataset.
    pub fn parent(&self) -> Option<DatasetName> {
        self.0.rsplit_once('/').map(|(parent, _)| DatasetName(parent.to_owned()))
    }

    /// The child with the given name.
    pub fn child(&self, component: &str) -> Result<DatasetName, NameError> {
        format!("{self}/{component}").parse()
    }

    /// Whether the dataset is `other` or a descendant of `other`.
    pub fn is_within(&self, other: &DatasetName) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The name of a snapshot of the dataset.
    pub fn snapshot(&self, snapshot: &str) -> Result<SnapshotName, NameError> {
        format!("{self}@{snapshot}").parse()
    }

    /// The name of a bookmark of the dataset.
    pub fn bookmark(&self, bookmark: &str) -> Result<BookmarkName, NameError> {
        format!("{self}#{bookmark}").parse()
    }
}

/// The name of a snapshot: `dataset@snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName {
    text: String,
    at: usize,
}

impl SnapshotName {
    /// The full name, `dataset@snapshot`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The snapshot's dataset.
    pub fn dataset(&self) -> DatasetName {
        DatasetName(self.text[..self.at].to_owned())
    }

    /// The part after the `@`.
    pub fn snapshot(&self) -> &str {
        &self.text[self.at + 1..]
    }
}

/// The name of a bookmark: `dataset#bookmark`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BookmarkName {
    text: String,
    at: usize,
}

impl BookmarkName {
    /// The full name, `dataset#bookmark`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The bookmark's dataset.
    pub fn dataset(&self) -> DatasetName {
        DatasetName(self.text[..self.at].to_owned())
    }

    /// The part after the `#`.
    pub fn bookmark(&self) -> &str {
        &self.text[self.at + 1..]
    }
}

/// The name of a dataset, snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Name {
    /// A dataset: `pool/a`.
    Dataset(DatasetName),
    /// A snapshot: `pool/a@b`.
    Snapshot(SnapshotName),
    /// A bookmark: `pool/a#b`.
    Bookmark(BookmarkName),
}

impl Name {
    /// The full name, from the pool on.
    pub fn as_str(&self) -> &str {
        match self {
            Name::Dataset(name) => name.as_str(),
            Name::Snapshot(name) => name.as_str(),
            Name::Bookmark(name) => name.as_str(),
        }
    }

    /// The dataset itself, or the snapshot's or bookmark's dataset.
    pub fn dataset(&self) -> DatasetName {
        match self {
            Name::Dataset(name) => name.clone(),
            Name::Snapshot(name) => name.dataset(),
            Name::Bookmark(name) => name.dataset(),
        }
    }

    /// The pool's name: the first component.
    pub fn pool(&self) -> &str {
        let text = self.as_str();
        &text[..text.find(['/', '@', '#']).unwrap_or(text.len())]
    }
}

impl FromStr for DatasetName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_length(text)?;
        if let Some(at) = text.find(['@', '#']) {
            let delimiter = text[at..].chars().next().expect("found there");
            return Err(NameError::new(text, at, NameProblem::NotDataset(delimiter)));
        }
        check_dataset(text, text)?;
        Ok(DatasetName(text.to_owned()))
    }
}

impl FromStr for SnapshotName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let at = check_pair(text, '@', NameProblem::NotSnapshot)?;
        Ok(SnapshotName { text: text.to_owned(), at })
    }
}

impl FromStr for BookmarkName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let at = check_pair(text, '#', NameProblem::NotBookmark)?;
        Ok(BookmarkName { text: text.to_owned(), at })
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.find(['@', '#']).map(|at| text.as_bytes()[at]) {
            None => text.parse().map(Name::Dataset),
            Some(b'@') => text.parse().map(Name::Snapshot),
            Some(_) => text.parse().map(Name::Bookmark),
        }
    }
}

/// The conversions of every name type: to and from its text.
macro_rules! text_conversions {
    ($($type:ident),*) => {$(
        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.to_string()
            }
        }
    )*};
}

text_conversions!(DatasetName, SnapshotName, BookmarkName, Name, SnapshotSet);

/// `Display` for types that are a text.
macro_rules! display_text {
    ($($type:ident),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

display_text!(DatasetName, SnapshotName, BookmarkName, Name);

impl From<DatasetName> for Name {
    fn from(name: DatasetName) -> Name {
        Name::Dataset(name)
    }
}

impl From<SnapshotName> for Name {
    fn from(name: SnapshotName) -> Name {
        Name::Snapshot(name)
    }
}

impl From<BookmarkName> for Name {
    fn from(name: BookmarkName) -> Name {
        Name::Bookmark(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem<T: FromStr<Err = NameError> + fmt::Debug>(text: &str) -> (usize, NameProblem) {
        let error = text.parse::<T>().unwrap_err();
        (error.at, error.problem)
    }

    #[test]
    fn a_dataset_knows_its_parts() {
        let name: DatasetName = "tank/home/ann".parse().unwrap();
        assert_eq!((name.pool(), name.leaf(), name.is_pool()), ("tank", "ann", false));
        assert_eq!(name.parent().unwrap().as_str(), "tank/home");
        assert_eq!(name.snapshot("a").unwrap().dataset(), name);
        let home: DatasetName = "tank/home".parse().unwrap();
        let homes: DatasetName = "tank/homes".parse().unwrap();
        assert!(name.is_within(&home) && home.is_within(&home));
        assert!(!homes.is_within(&home));
    }

    #[test]
    fn errors_name_the_problem_and_its_place() {
        assert_eq!(problem::<DatasetName>(""), (0, NameProblem::Empty));
        assert_eq!(problem::<DatasetName>("/tank"), (0, NameProblem::LeadingSlash));
        assert_eq!(problem::<DatasetName>("tank/"), (4, NameProblem::TrailingSlash));
        assert_eq!(problem::<DatasetName>("tank//a"), (5, NameProblem::EmptyComponent));
        assert_eq!(problem::<DatasetName>("tank/a\tb"), (6, NameProblem::Character('\t')));
        assert_eq!(problem::<DatasetName>("tank/ a"), (5, NameProblem::Space));
        assert_eq!(problem::<DatasetName>("tank/a /b"), (6, NameProblem::Space));
        assert_eq!(problem::<DatasetName>("my tank/a"), (2, NameProblem::Space));
        assert_eq!(problem::<SnapshotName>("tank@a "), (6, NameProblem::Space));
        assert_eq!(problem::<DatasetName>("tank/.."), (5, NameProblem::Dots));
        assert_eq!(problem::<DatasetName>("1tank"), (0, NameProblem::PoolLetter));
        assert_eq!(problem::<DatasetName>("tank@a"), (4, NameProblem::NotDataset('@')));
        assert_eq!(problem::<DatasetName>(&"a".repeat(256)), (255, NameProblem::TooLong));
        assert_eq!(problem::<SnapshotName>("tank"), (4, NameProblem::NotSnapshot));
        assert_eq!(problem::<SnapshotName>("tank#a"), (4, NameProblem::NotSnapshot));
        assert_eq!(problem::<SnapshotName>("tank@a@b"), (6, NameProblem::SecondDelimiter));
        assert_eq!(problem::<SnapshotName>("tank@a/b"), (6, NameProblem::Character('/')));
        assert_eq!(problem::<BookmarkName>("tank#"), (5, NameProblem::EmptyComponent));
        let text = "tank/a!b".parse::<DatasetName>().unwrap_err().to_string();
        assert_eq!(text, "invalid character '!' in name (at character 7 of 'tank/a!b')");
    }

    #[test]
    fn a_name_may_have_spaces_inside_its_parts() {
        let name: SnapshotName = "tank/my files/a  b@before lunch".parse().unwrap();
        assert_eq!((name.dataset().leaf().to_owned(), name.snapshot()), ("a  b".to_owned(), "before lunch"));
        assert!("tank/my files#before lunch".parse::<BookmarkName>().is_ok());
        assert_eq!("tank@a b%c d,e f".parse::<SnapshotSet>().unwrap().spans.len(), 2);
        assert!(check_component("x y").is_ok() && check_component(" ").is_err());
    }

    #[test]
    fn words_of_the_vdev_language_name_no_pool() {
        for name in ["mirror", "mirror0", "raidz2", "draid", "spares", "log", "cache", "special"] {
            assert_eq!(check_new_pool(name).unwrap_err().problem, NameProblem::PoolReserved, "{name}");
        }
        assert!(check_new_pool("logs").is_ok());
        assert_eq!(check_new_pool("tank/a").unwrap_err().at, 4);
    }

    #[test]
    fn snapshot_sets_print_as_they_were_read() {
        for text in ["tank/a@x", "tank@a%b", "tank@a%,x,%b", "tank@%"] {
            assert_eq!(text.parse::<SnapshotSet>().unwrap().to_string(), text);
        }
        assert_eq!("tank@x".parse::<SnapshotSet>().unwrap().single().unwrap().as_str(), "tank@x");
        assert_eq!("tank@x%".parse::<SnapshotSet>().unwrap().single(), None);
        assert_eq!(problem::<SnapshotSet>("tank@a,"), (7, NameProblem::EmptyComponent));
        assert_eq!(problem::<SnapshotSet>("tank@a%b%c"), (8, NameProblem::Character('%')));
    }

    proptest::proptest! {
        /// Every accepted text is displayed unchanged, and nothing panics.
        #[test]
        fn any_text_is_a_name_or_an_error(text in "[a-z/@#%,. \u{e4}!]{0,12}") {
            if let Ok(name) = text.parse::<Name>() {
                proptest::prop_assert_eq!(name.to_string(), text.clone());
                proptest::prop_assert!(name.as_str().starts_with(name.pool()));
            }
            if let Ok(set) = text.parse::<SnapshotSet>() {
                proptest::prop_assert_eq!(set.to_string(), text);
            }
        }
    }
}
