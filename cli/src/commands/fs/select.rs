//! Which datasets `list` and `get` are about.
//!
//! As in ZFS: without a name everything; with a name that alone, or with what is below it under `-r` and `-d`. Asking a
//! file system for nothing but snapshots or bookmarks means its own.

use std::path::Path;

use dataset::name::Name;
use dataset::property::Kinds;
use protocol::{DatasetRecord, Exit, Failure, MountRecord, Request, Response};

use crate::args::common::{Recursion, name};
use crate::context::Context;

/// A choice of datasets.
pub(super) struct Selection<'a> {
    /// Names, or absolute paths below a mount point.
    pub(super) names: &'a [String],
    /// How far below them.
    pub(super) recursion: &'a Recursion,
    /// Which kinds were asked for by `-t`.
    pub(super) kinds: Option<Kinds>,
    /// Which kinds there are without `-t`, when going below a name.
    pub(super) default_kinds: Kinds,
    /// The properties wanted; empty for all.
    pub(super) properties: Vec<String>,
}

/// The chosen datasets in the order of their names, and how the command ends: what could not be opened is reported.
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
            // It has its row in `pool list`; who asks for all is shown the others.
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
) -> Result<Vec<(String, Request)>, Failure> {
    let known = context.executor.visible_pools()?;
    let request = |root: Option<Name>, depth, kinds| Request::List {
        root,
        depth,
        kinds,
        properties: selection.properties.clone(),
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

/// How far below a name to go, and for which kinds.
fn reach(selection: &Selection<'_>, root: &Name) -> (Option<u32>, Kinds) {
    let is_recursive = selection.recursion.recursive || selection.recursion.depth.is_some();
    let leaves = Kinds::SNAPSHOT.with(Kinds::BOOKMARK);
    match (selection.kinds, root) {
        (kinds, _) if is_recursive => (selection.recursion.depth, kinds.unwrap_or(selection.default_kinds)),
        (Some(kinds), Name::Dataset(_)) if leaves.contains(kinds) => (Some(1), kinds),
        (kinds, _) => (Some(0), kinds.unwrap_or(Kinds::ALL_DATASETS)),
    }
}

/// The dataset, snapshot or bookmark that a name or a path means.
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

/// The mount in which an absolute path without symbolic links lies.
pub(super) fn mount_above(real: &Path, known: &[String], context: &mut Context<'_>) -> Option<MountRecord> {
    let mut mounts = Vec::new();
    for pool in known {
        if let Ok(Response::Mounts(found)) = context.call(pool, Request::Mounts) {
            mounts.extend(found);
        }
    }
    let above = mounts.into_iter().filter(|mount| real.starts_with(mount.mountpoint.as_os_str()));
    above.max_by_key(|mount| mount.mountpoint.0.len())
}

/// Datasets by name with those below them after them, each followed by its snapshots by age and its bookmarks. What was
/// named twice is listed once.
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
