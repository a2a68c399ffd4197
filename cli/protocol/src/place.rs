//! Places of files as typed: within a dataset or snapshot, as `tank/home:/ann`, or on this machine.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use dataset::name::Name;

use crate::{Failure, Location, PathBytes};

/// Source or destination of a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A file in a dataset or snapshot.
    Inside(Location),
    /// A file of this machine; the path as written.
    Outside(PathBytes),
}

/// Parses `dataset[@snapshot]:/path`, or a path of this machine: any word without `:/`, or with `/` or `.` first. A part
/// of a name may end with `:`; then `://` ends the name.
pub fn place(text: &OsStr) -> Result<Place, Failure> {
    let bytes = text.as_bytes();
    let first = |end: &[u8]| bytes.windows(end.len()).position(|found| found == end);
    let colon = first(b"://").or_else(|| first(b":/")).filter(|_| !matches!(bytes[0], b'/' | b'.'));
    let Some(colon) = colon else {
        return Ok(Place::Outside(PathBytes(bytes.to_vec())));
    };
    let dataset = String::from_utf8_lossy(&bytes[..colon]);
    let name = dataset.parse().map_err(|error| Failure::name("open", &error))?;
    match name {
        Name::Bookmark(_) => Err(Failure::cannot("open", dataset, "a bookmark has no files")),
        name => Ok(Place::Inside(Location { name, path: PathBytes(bytes[colon + 1..].to_vec()) })),
    }
}

/// Parses a place within a dataset; a dataset alone means its root directory.
pub fn location(text: &OsStr) -> Result<Location, Failure> {
    if let Place::Inside(location) = place(text)? {
        return Ok(location);
    }
    let whole = text.to_string_lossy();
    let dataset = whole.strip_suffix(':').unwrap_or(&whole);
    match dataset.parse() {
        Ok(Name::Bookmark(_)) => Err(Failure::cannot("open", dataset, "a bookmark has no files")),
        Ok(name) => Ok(Location { name, path: "/".into() }),
        Err(error) => Err(Failure::name("open", &error).hint("expected DATASET:/PATH or DATASET@SNAPSHOT:/PATH")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinguished() {
        let inside = |text: &str| match place(text.as_ref()).unwrap() {
            Place::Inside(location) => Some((location.name.to_string(), location.path.to_text())),
            Place::Outside(_) => None,
        };
        assert_eq!(inside("tank/home:/a:/b"), Some(("tank/home".into(), "/a:/b".into())));
        assert_eq!(inside("tank/a::/b"), Some(("tank/a:".into(), "/b".into())));
        assert_eq!(inside("tank/a:/b@c://d:/e"), Some(("tank/a:/b@c".into(), "//d:/e".into())));
        assert_eq!(inside("tank@a:/"), Some(("tank@a".into(), "/".into())));
        for text in ["dir/file", "/abs/x:/y", "./tank:/x", "a:b", "", ".."] {
            assert_eq!(inside(text), None, "{text}");
        }
        assert!(place("tank#a:/x".as_ref()).is_err());
        assert_eq!(location("tank/home".as_ref()).unwrap().path.to_text(), "/");
        assert!(location("/etc".as_ref()).is_err());
    }
}
