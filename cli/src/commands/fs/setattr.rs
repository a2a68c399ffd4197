//! `fs setattr`: sets attributes of single files.

use std::ffi::{OsStr, OsString};

use clap::Args;
use dataset::fs::{Attribute, FileAttributes};
use dataset::property::size::parse_size;
use protocol::{Assignment, Exit, Failure, FileRequest};

use super::files::{attribute, located, split};
use crate::context::Context;

/// Arguments of `fs setattr`.
#[derive(Args, Debug)]
#[command(after_help = "  immutable=on|off     no change, rename or removal, even by root
  append=on|off        the same, but appending is allowed
  nodump=on|off        backup programs may skip the file
  noatime=on|off       reading does not update the access time
  direct=on|off        bypass the caches
  compression=VALUE    like the property, for new writes; or inherit
  recordsize=SIZE      like the property, for an empty file; or inherit

New files inherit nodump, noatime, direct, compression and recordsize from their directory. Pages of a direct file stay out of
the kernel cache only in mounts made after the first use of direct in the dataset. chattr and lsattr show immutable as i, append
as a, nodump as d, noatime as A, and compression as c or m.

Examples:
  fs setattr compression=zstd-9 recordsize=1M /tank/home/archive
  fs setattr -R immutable=on tank/home:/papers     without a mount
  fs setattr compression=inherit /tank/home/archive")]
pub struct Arguments {
    /// Recurse into directories
    #[arg(short = 'R', short_alias = 'r')]
    recursive: bool,
    /// Attributes, then files: paths in a mount, or DATASET:/PATH
    #[arg(value_name = "ATTRIBUTE=VALUE|FILE", required = true)]
    words: Vec<OsString>,
}

/// Sets attributes of files.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (given, files) = split(&arguments.words, |word| !is_assignment(word));
    if given.is_empty() {
        return Err(Failure::usage("missing an attribute, such as immutable=on"));
    }
    if files.is_empty() {
        return Err(Failure::usage("missing a file"));
    }
    let assignments = given.iter().map(|word| assignment(&word.to_string_lossy())).collect::<Result<Vec<_>, _>>()?;
    for file in files {
        let location = located(file, context)?;
        let pool = location.name.pool().to_owned();
        let recursive = arguments.recursive;
        context.run(&pool, FileRequest::SetFileAttributes { location, assignments: assignments.clone(), recursive })?;
    }
    Ok(Exit::Done)
}

/// Whether a word assigns: `=` without a slash before. For a file with `=` in its name, the user types `./` first.
fn is_assignment(word: &OsStr) -> bool {
    word.to_string_lossy().split_once('=').is_some_and(|(name, _)| !name.contains('/'))
}

fn assignment(word: &str) -> Result<Assignment, Failure> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let attribute = attribute(name)?;
    let value = match (attribute, parse_size(value)) {
        (Attribute::RecordSize, Ok(size)) => size.to_string(),
        _ => value.to_owned(),
    };
    if FileAttributes::default().set(attribute, &value).is_none() {
        let why = format!("'{name}' must be {}", attribute.values());
        return Err(Failure::usage(format!("bad value '{value}': {why}")));
    }
    Ok(Assignment { name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_before_anything_is_asked() {
        let read = |word: &str| assignment(word).map(|a| (a.name, a.value)).map_err(|failure| failure.exit);
        assert_eq!(read("recordsize=1M"), Ok(("recordsize".into(), "1048576".into())));
        assert_eq!(read("compression=zstd-9"), Ok(("compression".into(), "zstd-9".into())));
        for wrong in ["recordsize=3M", "recordsize=1K", "immutable=yes", "compression=best", "colour=red", "append="] {
            assert_eq!(read(wrong), Err(Exit::Usage), "{wrong}");
        }
        assert!(is_assignment("a=b".as_ref()) && !is_assignment("./a=b".as_ref()) && !is_assignment("file".as_ref()));
    }
}
