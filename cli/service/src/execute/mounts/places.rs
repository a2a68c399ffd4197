//! Mount points of datasets: the value of `mountpoint`, as seen by users of this machine.

use std::fs;

use dataset::{
    name::DatasetName,
    property::{
        CanMount, Source, Valued,
        dataset::{CANMOUNT, MOUNTPOINT},
    },
};
use protocol::{Assignment, Failure, given};

use crate::owners::is_root;

/// Prefixes of mount points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Prefix of default mount points: empty for root, else the user's home.
    pub(crate) home: String,
    /// Prefix of all mount points; empty without `altroot`.
    pub(crate) altroot: String,
}

impl Places {
    /// The prefixes for the user who runs this process.
    pub(crate) fn of_this_user(altroot: Option<&str>) -> Places {
        let home = match is_root() {
            true => String::new(),
            false => std::env::var("HOME").unwrap_or_default(),
        };
        let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
        Places { home: trimmed(&home), altroot: trimmed(altroot.unwrap_or_default()) }
    }

    /// The value of `mountpoint`, with prefixes, as seen on this machine.
    pub(crate) fn shown(&self, mountpoint: &Valued) -> String {
        let value = &mountpoint.value;
        if !value.starts_with('/') {
            return value.clone();
        }
        let home = if mountpoint.source == Source::Default { self.home.as_str() } else { "" };
        format!("{}{home}{value}", self.altroot)
    }

    /// Refuses a new pool if the root dataset, with these properties, would be mounted over a directory with content.
    pub(crate) fn check_root(&self, pool: &DatasetName, root: &[Assignment]) -> Result<(), Failure> {
        let mountpoint = match given(root, &MOUNTPOINT) {
            Some(value) => Valued { value, source: Source::Local },
            None => Valued { value: format!("/{pool}"), source: Source::Default },
        };
        let path = self.shown(&mountpoint);
        let is_mounted = path.starts_with('/') && given(root, &CANMOUNT).is_none_or(|value| value == CanMount::On);
        let holds_something = |path: &str| match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
        };
        if is_mounted && holds_something(&path) {
            let why = format!("mountpoint '{path}' exists and is not empty");
            return Err(Failure::cannot("create", pool, why).hint("choose another one: pool create -m PATH"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(home: &str, altroot: &str, value: &str, source: Source) -> String {
        let places = Places { home: home.into(), altroot: altroot.into() };
        places.shown(&Valued { value: value.into(), source })
    }

    #[test]
    fn only_defaults_lie_in_the_home() {
        assert_eq!(shown("/home/ann", "", "/tank/a", Source::Default), "/home/ann/tank/a");
        assert_eq!(shown("/home/ann", "", "/srv", Source::Local), "/srv");
        assert_eq!(shown("", "", "/tank", Source::Default), "/tank");
        assert_eq!(shown("/home/ann", "", "legacy", Source::Default), "legacy");
    }

    #[test]
    fn everything_lies_below_altroot() {
        assert_eq!(shown("", "/mnt", "/tank", Source::Default), "/mnt/tank");
        assert_eq!(shown("/home/ann", "/mnt", "/srv", Source::Inherited("tank".into())), "/mnt/srv");
        assert_eq!(shown("", "/mnt", "none", Source::Local), "none");
    }

    #[test]
    fn a_new_pool_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places { home: String::new(), altroot: folder.path().to_str().unwrap().to_owned() };
        let pool: DatasetName = "tank".parse().unwrap();
        let given = |name: &str, value: &str| Assignment { name: name.into(), value: value.into() };
        assert!(places.check_root(&pool, &[]).is_ok());
        fs::create_dir(folder.path().join("tank")).unwrap();
        assert!(places.check_root(&pool, &[]).is_ok());
        fs::write(folder.path().join("tank/file"), "").unwrap();
        let refused = places.check_root(&pool, &[]).unwrap_err();
        assert!(refused.to_string().contains("exists and is not empty"), "{}", refused.to_string());
        assert!(places.check_root(&pool, &[given("mountpoint", "/")]).is_err());
        assert!(places.check_root(&pool, &[given("mountpoint", "none")]).is_ok());
        assert!(places.check_root(&pool, &[given("canmount", "off")]).is_ok());
    }
}
