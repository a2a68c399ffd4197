//! `fs setattr`: attributes of single files.

use std::ffi::{OsStr, OsString};

use clap::Args;
use dataset::fs::{Attribute, FileAttributes};
use dataset::property::size::parse_size;
use protocol::{Assignment, Exit, Failure, Request};

use super::files::{attribute, located, split};
use crate::context::Context;

/// Arguments of `fs setattr`.
#[derive(Args, Debug)]
#[command(override_usage = "fs setattr [OPTIONS] <ATTRIBUTE=VALUE>... <FILE>...")]
#[command(after_help = "Attributes:
  immutable=on|off     nobody changes, renames or removes the file, root neither
  append=on|off        the same, but it may grow at its end
  nodump=on|off        backup programs that ask leave it out
  noatime=on|off       reading it does not change its access time
  direct=on|off        its content goes past the caches
  compression=VALUE    as the property, for what is written from now on; or inherit
  recordsize=SIZE      as the property, from the file's first block on; or inherit

What is made in a directory gets nodump, noatime, direct, compression and
recordsize from it. The pages of a direct file stay out of the kernel's cache
only in mounts that are made after the first file of the dataset became direct.
chattr and lsattr know i, a, d, A, and for compression c and m.

Examples:
  fs setattr compression=zstd-9 recordsize=1M /tank/home/archive
  fs setattr -R immutable=on tank/home:/papers     without a mount
  fs setattr compression=inherit /tank/home/archive")]
pub struct Arguments {
    /// Directories with everything below
    #[arg(short = 'R', short_alias = 'r')]
    recursive: bool,
    /// What to set, and then the files: their paths where they are mounted, or DATASET:/PATH
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<OsString>,
}

/// Sets attributes.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let (given, files) = split(&arguments.words, |word| !is_assignment(word));
    if given.is_empty() {
        return Err(Failure::usage("missing what to set, as immutable=on"));
    }
    if files.is_empty() {
        return Err(Failure::usage("missing the files whose attributes to set"));
    }
    let assignments = given.iter().map(|word| assignment(&word.to_string_lossy())).collect::<Result<Vec<_>, _>>()?;
    for file in files {
        let location = located(file, context)?;
        let pool = location.name.pool().to_owned();
        let recursive = arguments.recursive;
        context.run(&pool, Request::SetFileAttributes { location, assignments: assignments.clone(), recursive })?;
    }
    Ok(Exit::Done)
}

/// What has a `=` and no slash before it is one: a file whose name has one is written with `./` before it.
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
