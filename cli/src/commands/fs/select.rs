//! Selection of datasets for `list` and `get`.
//!
//! As in ZFS: without a name, everything; with a name, only the named dataset, or with `-r` and `-d` its descendants
//! too. For a file system with only snapshots or bookmarks as types, the selection is the file system's own snapshots
//! or bookmarks.

use std::path::Path;

use dataset::name::Name;
use dataset::property::Kinds;
use protocol::{DatasetRecord, DatasetRequest, Exit, Failure, MountRecord, MountRequest, Response};

use crate::args::common::{Recursion, name};
use crate::context::Context;

/// A selection of datasets.
pub(super) struct Selection<'a> {
    /// Names, or absolute paths below a mount point.
    pub(super) names: &'a [String],
    /// Number of levels below the names.
    pub(super) recursion: &'a Recursion,
    /// Kinds requested by `-t`.
    pub(super) kinds: Option<Kinds>,
    /// Kinds without `-t`, for recursion below a name.
    pub(super) default_kinds: Kinds,
    /// Properties to request; empty for all.
    pub(super) properties: Vec<String>,
}

/// The selected datasets in order of name, and the exit status; a dataset that cannot be opened is reported.
pub(super) fn collect(
    selection: &Selection<'_>,
    context: &mut Context<'_>,
) -> Result<(Vec<DatasetRecord>, Exit), Failure> {
    let mut records = Vec::new();
    let mut exit = Exit::Done;
    for (pool, request) in requests(selection, context, &mut exit)? {
        let mut found = Vec::new();
        let listed = context.call_for_each(&pool, request, &mut |record, _| {
            found.push(record);
            Ok(())
        });
        match listed {
            Ok(()) => records.append(&mut found),
            // `pool list` has a row for the unavailable pool; here the remaining pools are listed.
            Err(failure) if failure.is_unavailable() && selection.names.is_empty() => {}
            Err(failure) => exit = report(context, &failure)?,
        }
    }
    in_order(&mut records);
    Ok((records, exit))
}

fn report(context: &mut Context<'_>, failure: &Failure) -> Result<Exit, Failure> {
    context.report(failure)?;
    Ok(Exit::Failed)
}

fn requests(
    selection: &Selection<'_>,
    context: &mut Context<'_>,
    exit: &mut Exit,
) -> Result<Vec<(String, DatasetRequest)>, Failure> {
    let known = context.executor.visible_pools()?;
    let request = |root: Option<Name>, depth, kinds| DatasetRequest::List {
        root,
        depth,
        kinds,
        properties: selection.properties.clone(),
        range: None,
    };
    if selection.names.is_empty() {
        let kinds = selection.kinds.unwrap_or(selection.default_kinds);
        return Ok(known.into_iter().map(|pool| (pool, request(None, selection.recursion.depth, kinds))).collect());
    }
    let mut requests = Vec::new();
    for text in selection.names {
        match resolve(text, &known, context) {
            Ok(root) => {
                let (depth, kinds) = reach(selection, &root);
                requests.push((root.pool().to_owned(), request(Some(root), depth, kinds)));
            }
            Err(failure) => *exit = report(context, &failure)?,
        }
    }
    Ok(requests)
}

/// Number of levels below `root`, and kinds to list.
fn reach(selection: &Selection<'_>, root: &Name) -> (Option<u32>, Kinds) {
    let is_recursive = selection.recursion.recursive || selection.recursion.depth.is_some();
    let leaves = Kinds::SNAPSHOT.with(Kinds::BOOKMARK);
    match (selection.kinds, root) {
        (kinds, _) if is_recursive => (selection.recursion.depth, kinds.unwrap_or(selection.default_kinds)),
        (Some(kinds), Name::Dataset(_)) if leaves.contains(kinds) => (Some(1), kinds),
        (kinds, _) => (Some(0), kinds.unwrap_or(Kinds::ALL_DATASETS)),
    }
}

/// The dataset, snapshot or bookmark for a name or a path.
pub(super) fn named(text: &str, context: &mut Context<'_>) -> Result<Name, Failure> {
    let known = context.executor.visible_pools()?;
    resolve(text, &known, context)
}

/// A name, or the file system mounted at or above a path.
fn resolve(text: &str, known: &[String], context: &mut Context<'_>) -> Result<Name, Failure> {
    if text.starts_with(['/', '.']) {
        return mounted_at(text, known, context);
    }
    let name: Name = name("open", text)?;
    match known.iter().any(|pool| pool == name.pool()) {
        true => Ok(name),
        false => Err(Failure::no_dataset(text).hint(format!("no pool '{}' is known here: pool list", name.pool()))),
    }
}

fn mounted_at(path: &str, known: &[String], context: &mut Context<'_>) -> Result<Name, Failure> {
    let real = std::fs::canonicalize(path).map_err(|error| Failure::cannot("open", path, error))?;
    let nearest = mount_above(&real, known, context).map(|mount| mount.dataset);
    nearest.ok_or_else(|| Failure::cannot("open", path, "no Cenote file system is mounted there"))
}

/// The mount that contains an absolute path without symbolic links.
pub(super) fn mount_above(real: &Path, known: &[String], context: &mut Context<'_>) -> Option<MountRecord> {
    let mut mounts = Vec::new();
    for pool in known {
        if let Ok(Response::Mounts(found)) = context.call(pool, MountRequest::Mounts) {
            mounts.extend(found);
        }
    }
    let above = mounts.into_iter().filter(|mount| real.starts_with(mount.mountpoint.as_os_str()));
    above.max_by_key(|mount| mount.mountpoint.0.len())
}

/// Sorts datasets by name, parents first, each followed by its snapshots in order of creation and its bookmarks.
/// Duplicates are removed.
fn in_order(records: &mut Vec<DatasetRecord>) {
    let rank = |name: &Name| match name {
        Name::Dataset(_) => 0,
        Name::Snapshot(_) => 1,
        Name::Bookmark(_) => 2,
    };
    records.sort_by_cached_key(|record| {
        let dataset = record.name.dataset();
        let components: Vec<String> = dataset.components().map(str::to_owned).collect();
        (components, rank(&record.name), record.createtxg, record.name.to_string())
    });
    records.dedup_by(|a, b| a.name == b.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_follow_their_data_set_by_age() {
        let record =
            |name: &str, createtxg| DatasetRecord { name: name.parse().unwrap(), createtxg, properties: vec![] };
        let mut records = vec![
            record("tank/b-c", 7),
            record("tank/b/c", 6),
            record("tank@a", 9),
            record("tank@z", 5),
            record("tank#z", 5),
            record("tank/b", 4),
            record("tank", 1),
            record("tank", 1),
        ];
        in_order(&mut records);
        let names: Vec<&str> = records.iter().map(|record| record.name.as_str()).collect();
        assert_eq!(names, ["tank", "tank@z", "tank@a", "tank#z", "tank/b", "tank/b/c", "tank/b-c"]);
    }

    #[test]
    fn asking_for_snapshots_of_a_file_system_means_its_own() {
        let reach_of = |recursion: Recursion, kinds, root: &str| {
            let selection = Selection {
                names: &[],
                recursion: &recursion,
                kinds,
                default_kinds: Kinds::FILESYSTEM,
                properties: vec![],
            };
            reach(&selection, &root.parse().unwrap())
        };
        let flat = Recursion::default;
        assert_eq!(reach_of(flat(), Some(Kinds::SNAPSHOT), "tank"), (Some(1), Kinds::SNAPSHOT));
        assert_eq!(reach_of(flat(), Some(Kinds::SNAPSHOT), "tank@a"), (Some(0), Kinds::SNAPSHOT));
        assert_eq!(reach_of(flat(), None, "tank@a"), (Some(0), Kinds::ALL_DATASETS));
        let deep = Recursion { recursive: true, depth: None };
        assert_eq!(reach_of(deep, None, "tank"), (None, Kinds::FILESYSTEM));
    }
}
