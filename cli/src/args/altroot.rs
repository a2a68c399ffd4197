//! The alternate root of a pool's mount points: `-R DIRECTORY`, or `-o altroot=DIRECTORY`.
//!
//! `altroot` is no stored property: the value lasts until the pool is exported.

use std::path::{Component, Path};

use dataset::property::{Property, pool::ALTROOT};
use protocol::{Assignment, Failure};

use super::common::assignments;

/// The checked properties of a pool to create or import, with `altroot` from `root` or from `pairs`. `action` and
/// `what` begin the message of a failure.
pub fn with_altroot(
    pairs: &[(String, String)],
    root: Option<&str>,
    action: &str,
    what: &str,
) -> Result<Vec<Assignment>, Failure> {
    let (roots, others): (Vec<_>, Vec<_>) = pairs.iter().cloned().partition(|(name, _)| ALTROOT.is(name));
    let mut given = assignments(&others, Property::of_pool, true, action, what)?;
    let roots: Vec<&str> = root.into_iter().chain(roots.iter().map(|(_, value)| value.as_str())).collect();
    match roots[..] {
        [] => {}
        [directory] => given.push(altroot(directory)?),
        _ => return Err(Failure::usage("property 'altroot' specified multiple times")),
    }
    Ok(given)
}

/// The value of `altroot`: an absolute directory, created at import if missing.
fn altroot(directory: &str) -> Result<Assignment, Failure> {
    let path = Path::new(directory);
    let problem = if !path.is_absolute() {
        "is not an absolute path"
    } else if !path.components().any(|part| matches!(part, Component::Normal(_))) {
        "is the root directory"
    } else if path.exists() && !path.is_dir() {
        "is not a directory"
    } else {
        return Ok(Assignment { name: ALTROOT.name.to_owned(), value: directory.to_owned() });
    };
    Err(Failure::usage(format!("the directory '{directory}' {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternate_root_is_one_absolute_directory() {
        let pairs = |value: &str| [("altroot".to_owned(), value.to_owned())];
        let given = |pairs: &[(String, String)], root| with_altroot(pairs, root, "import", "tank");
        let expected = [Assignment { name: "altroot".into(), value: "/mnt".into() }];
        assert_eq!(given(&[], Some("/mnt")).unwrap(), expected);
        assert_eq!(given(&pairs("/mnt"), None).unwrap(), expected);
        for wrong in [given(&pairs("/mnt"), Some("/mnt")), given(&pairs("mnt"), None), given(&[], Some("/"))] {
            assert!(wrong.is_err());
        }
    }
}
