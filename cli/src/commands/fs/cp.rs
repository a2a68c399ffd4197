//! `fs cp`: copies into a dataset, out of a dataset or snapshot, or within a pool, without a mount.

use std::ffi::OsString;

use clap::Args;
use dataset::name::Name;
use dataset::property::size::format_bytes;
use protocol::{
    CopyRecord, Exit, Failure, FileRequest, Location, PathBytes, Place, Response, place, unexpected_answer,
};

use crate::args::common::absolute;
use crate::context::Context;

/// Arguments of `fs cp`.
#[derive(Args, Debug)]
#[command(
    after_help = "Copies between a pool (DATASET:/PATH) and the local file system, or within a pool. Copies within a pool share blocks, so they
take almost no space. Existing files are replaced. Modes, times, links and extended attributes are kept, and owners if run by
root. A local name with ':/' is written with './' in front.

Examples:
  fs cp -r project tank/home:/
  fs cp -r project/. tank/home:/ann          only the content of the directory
  fs cp tank/home@monday:/ann/notes .
  fs cp tank/home@monday:/ann/notes tank/home:/ann     within the pool
  fs cp -rv tank/home:/ann /backup"
)]
pub struct Arguments {
    /// Copy directories recursively
    #[arg(short = 'r', short_aliases = ['R', 'a'])]
    recursive: bool,
    /// Print the number of files and bytes copied
    #[arg(short = 'v')]
    verbose: bool,
    /// Refuse a destination in a dataset behind a symbolic link
    #[arg(long)]
    no_links: bool,
    /// The sources, then the destination
    #[arg(value_name = "FROM|TO", required = true)]
    places: Vec<OsString>,
}

/// Copies files and reports the totals.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let places = arguments.places.iter().map(|text| place(text)).collect::<Result<Vec<_>, _>>()?;
    let (pool, request) = request(places, arguments.recursive, arguments.no_links)?;
    let Response::Copied(record) = context.call(&pool, request)? else {
        return Err(unexpected_answer());
    };
    if arguments.verbose {
        context.print(&render(&record))?;
    }
    Ok(Exit::Done)
}

/// The request for a copy in, out or within, with its pool.
fn request(mut places: Vec<Place>, recursive: bool, no_links: bool) -> Result<(String, FileRequest), Failure> {
    let Some(to) = places.pop().filter(|_| !places.is_empty()) else {
        return Err(Failure::usage("missing the place to copy to"));
    };
    let one_side = || Failure::usage("either source or destination must be in a pool (DATASET:/PATH)");
    let mixed = || Failure::usage("sources must all be in the pool, or all be local");
    match to {
        Place::Inside(Location { name: name @ (Name::Snapshot(_) | Name::Bookmark(_)), .. }) => {
            Err(Failure::cannot("copy to", name, "it is read-only"))
        }
        Place::Inside(to) if places.iter().any(|place| matches!(place, Place::Inside(_))) => {
            let sources = places.into_iter().map(|place| inside(place).ok_or_else(mixed));
            let sources = sources.collect::<Result<Vec<Location>, _>>()?;
            let pool = to.name.pool().to_owned();
            if sources.iter().any(|source| source.name.pool() != pool) {
                return Err(Failure::usage("sources and destination must be in the same pool")
                    .hint("between pools: fs send | fs receive, or copy out and in"));
            }
            Ok((pool, FileRequest::CopyWithin { sources, to, recursive, no_links }))
        }
        Place::Inside(to) => {
            let sources = places.into_iter().map(|place| outside(place).ok_or_else(one_side));
            let sources = sources.map(|path| local(path?)).collect::<Result<Vec<_>, _>>()?;
            Ok((to.name.pool().to_owned(), FileRequest::CopyIn { sources, to, recursive, no_links }))
        }
        Place::Outside(_) if no_links => Err(Failure::usage("--no-links is for a destination in a dataset")),
        Place::Outside(path) => {
            let sources = places.into_iter().map(|place| inside(place).ok_or_else(one_side));
            let sources = sources.collect::<Result<Vec<Location>, _>>()?;
            let pool = sources[0].name.pool().to_owned();
            if sources.iter().any(|source| source.name.pool() != pool) {
                return Err(Failure::usage("all sources must be in the same pool"));
            }
            Ok((pool, FileRequest::CopyOut { sources, to: local(path)?, recursive }))
        }
    }
}

fn inside(place: Place) -> Option<Location> {
    match place {
        Place::Inside(location) => Some(location),
        Place::Outside(_) => None,
    }
}

fn outside(place: Place) -> Option<PathBytes> {
    match place {
        Place::Outside(path) => Some(path),
        Place::Inside(_) => None,
    }
}

/// The absolute path. Making a path absolute drops a final `/.`, which means the content of a directory, so the
/// function appends `/.` again.
fn local(path: PathBytes) -> Result<PathBytes, Failure> {
    let means_content = path.0 == b"." || path.0.ends_with(b"/.");
    let mut whole = absolute(path.as_os_str())?;
    if means_content {
        whole.0.extend_from_slice(if whole.0.ends_with(b"/") { b"." } else { b"/." });
    }
    Ok(whole)
}

/// The totals of a copy.
pub(super) fn render(record: &CopyRecord) -> String {
    let CopyRecord { files, directories, bytes } = *record;
    format!("copied {files} files and {directories} directories, {}\n", format_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<FileRequest, Exit> {
        let places = texts.iter().map(|text| place(text.as_ref()).unwrap()).collect();
        request(places, true, false).map(|(_, request)| request).map_err(|failure| failure.exit)
    }

    #[test]
    fn one_side_is_in_a_pool() {
        let Ok(FileRequest::CopyIn { sources, to, .. }) = read(&["/a/b/.", "/c", "tank/home:/x"]) else { panic!() };
        assert_eq!((sources, to.path.to_text().as_str()), (vec!["/a/b/.".into(), "/c".into()], "/x"));
        let Ok(FileRequest::CopyOut { sources, to, .. }) = read(&["tank@a:/x", "/b"]) else { panic!() };
        assert_eq!((sources.len(), to.to_text().as_str()), (1, "/b"));
        assert_eq!(read(&["/a", "/b"]), Err(Exit::Usage));
        let Ok(FileRequest::CopyWithin { sources, to, .. }) = read(&["tank@a:/x", "tank:/y", "tank/home:/b"]) else {
            panic!()
        };
        assert_eq!((sources.len(), to.path.to_text().as_str()), (2, "/b"));
        assert_eq!(read(&["tank:/a", "/c", "tank:/b"]), Err(Exit::Usage));
        assert_eq!(read(&["tank:/a", "pond:/b"]), Err(Exit::Usage));
        assert_eq!(read(&["tank:/a", "pond:/b", "/c"]), Err(Exit::Usage));
        assert_eq!(read(&["tank:/a"]), Err(Exit::Usage));
        assert_eq!(read(&["/a", "tank@a:/b"]), Err(Exit::Failed));
    }
}
