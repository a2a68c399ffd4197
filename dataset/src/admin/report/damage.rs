//! The names of permanently damaged files.
//!
//! Damage is stored by tree and object (see [`crate::scrub::damage`]); names are looked up on request, so the names are
//! current. A lost node takes inodes with it, and so the inodes' names: then the directories are searched.

use std::fmt::Write;

use pool::{
    format::key::Key,
    tree::{Event, Walker},
    txg::{CATALOGUE, Verdict},
    units::Txg,
};

use crate::{
    admin::table::{
        datasets::{Datasets, Progress},
        opened::OpenSnapshot,
    },
    catalogue::{dataset_key, snapshot_key},
    error::{Error, Result},
    fs::{
        directory::Dirent,
        key::{DIRENT, Ino},
    },
    lineage::nodes,
    name::Name,
    scrub::{
        damage::{self, Damage, SPACE},
        repair,
    },
};

/// The most files named for one lost node.
const NAMES: usize = 1024;

impl Datasets {
    /// Rereads and repairs a block of which a reader met a bad copy.
    pub fn repair_step(&self) -> Result<Progress> {
        // While devices are missing, their blocks are not lost.
        let is_able = self.engine().read_only() || self.engine().writable().is_ok();
        let Some(suspect) = self.engine().next_suspect().filter(|_| is_able) else { return Ok(Progress::Idle) };
        // Until the damage is recorded, the block counts as not examined, so that no report calls the pool healthy
        // meanwhile.
        let examined = repair::repair(self.engine(), &suspect, false).and_then(|outcome| {
            tracing::info!("{:?} of tree {}: {:?}", suspect.place, suspect.tree, outcome.verdict);
            self.note_damage(outcome.damage).map(|()| !matches!(outcome.verdict, Verdict::Unknown(_)))
        });
        self.engine().settle_suspect(&suspect, matches!(examined, Ok(true)));
        examined.map(|_| Progress::Worked)
    }

    /// The permanent damage, sorted: from the catalogue, and from memory for a pool opened read-only.
    pub fn damage(&self) -> Result<Vec<Damage>> {
        let mut list = self.read(damage::list)?;
        list.extend(self.jobs.scrubber.unwritten.lock().iter());
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }

    pub(crate) fn note_damage(&self, damage: Vec<Damage>) -> Result<()> {
        // Known damage seen since the last scrub began stays unchanged.
        let since = self.jobs.scrubber.row.lock().as_ref().map_or(Txg::ZERO, |row| row.limit);
        self.note_damage_since(damage, since)
    }

    /// Records damage, except known damage seen after `since`.
    pub(crate) fn note_damage_since(&self, damage: Vec<Damage>, since: Txg) -> Result<()> {
        if damage.is_empty() {
            return Ok(());
        }
        if self.engine().read_only() {
            // A read-only pool keeps damage in memory while open.
            let mut unwritten = self.jobs.scrubber.unwritten.lock();
            let room = damage::MAX_ENTRIES.saturating_sub(unwritten.len());
            unwritten.extend(damage.into_iter().take(room));
            return Ok(());
        }
        if self.engine().writable().is_err() {
            return Ok(());
        }
        let new = self.read(|tx| damage::unknown(tx, &damage, since))?;
        if new.is_empty() { Ok(()) } else { self.run(move |tx| damage::note(tx, &new)) }
    }

    /// The permanently damaged objects, by name: `tank/home:/ann/notes`; a file without a readable name as
    /// `tank/home:<0x2a>`, and a dataset likewise.
    pub fn damaged_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for damage in self.damage()? {
            self.name_damage(&damage, &mut names)?;
        }
        names.dedup();
        Ok(names)
    }

    /// Whether a node of a dataset or snapshot is lost, with the inodes of several files, which cannot be deleted one
    /// by one any more.
    pub fn has_lost_nodes(&self) -> Result<bool> {
        Ok(self.damage()?.iter().any(|damage| damage.tree != CATALOGUE && damage.first != damage.last))
    }

    fn name_damage(&self, damage: &Damage, names: &mut Vec<String>) -> Result<()> {
        let Damage { tree, first, last } = *damage;
        let objects = if first == last { format!("<{first:#x}>") } else { format!("<{first:#x}>-<{last:#x}>") };
        if tree == CATALOGUE {
            names.push(if first == SPACE { "<metadata>:<space>".to_owned() } else { format!("<metadata>:{objects}") });
            return Ok(());
        }
        let Some(name) = self.tree_name(tree)? else {
            names.push(format!("<{tree:#x}>:{objects}"));
            return Ok(());
        };
        let before = names.len();
        // A tree with a lost root cannot be opened: only numbers are left.
        if let Ok(open) = self.open_named(&name) {
            let paths = if first == last {
                path_of(&open, first).into_iter().collect()
            } else {
                self.paths_in(&open, first, last)
            };
            names.extend(paths.iter().map(|path| format!("{name}:{}", printable(path))));
        }
        if names.len() == before {
            names.push(format!("{name}:{objects}"));
        }
        Ok(())
    }

    /// The name of a dataset or snapshot, if it still exists.
    fn tree_name(&self, tree: u64) -> Result<Option<Name>> {
        let names = self.names();
        self.read(|tx| {
            if tx.contains(snapshot_key(tree))? {
                return Ok(Some(Name::Snapshot(names.of_snapshot(tx, tree)?)));
            }
            match tx.contains(dataset_key(tree))? {
                true => Ok(Some(Name::Dataset(names.of_dataset(tx, tree)?))),
                false => Ok(None),
            }
        })
    }

    fn open_named(&self, name: &Name) -> Result<OpenSnapshot> {
        match name {
            Name::Dataset(name) => self.open_as_written(name),
            Name::Snapshot(name) => self.open_snapshot(name),
            Name::Bookmark(name) => Err(Error::no_dataset(name)),
        }
    }

    /// The paths of the files with numbers in a range, according to the readable directories.
    fn paths_in(&self, open: &OpenSnapshot, first: Ino, last: Ino) -> Vec<Vec<u8>> {
        let Some((root, level)) = open.head.clean_root() else { return Vec::new() };
        let mut walker = Walker::new(nodes::root(root, level), Key::MIN, Txg::ZERO);
        let mut paths = Vec::new();
        loop {
            match walker.next(|place| open.head.load_node(place)) {
                Ok(Some(Event::Enter(_, node))) => {
                    for (leaf, item) in nodes::items(&node).filter(|(_, item)| item.key().kind == DIRENT) {
                        let Ok(entry) = Dirent::decode(leaf.body(item)) else { continue };
                        if (first..=last).contains(&entry.ino) && paths.len() < NAMES {
                            paths.extend(path_of(open, item.key().object).map(|dir| join(dir, entry.name)));
                        }
                    }
                }
                Ok(Some(Event::Leave(..))) => {}
                Ok(None) => return paths,
                Err(_) => walker.skip(),
            }
        }
    }
}

/// A file's path, if readable.
fn path_of(open: &OpenSnapshot, ino: Ino) -> Option<Vec<u8>> {
    open.fs.path_of(ino).ok()
}

fn join(mut dir: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if dir.last() != Some(&b'/') {
        dir.push(b'/');
    }
    dir.extend_from_slice(name);
    dir
}

/// A path on one line: control characters and bytes that are not UTF-8 are shown as numbers.
fn printable(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => text.extend(c.escape_default()),
                false => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_on_their_line() {
        assert_eq!(printable("/a b/ü".as_bytes()), "/a b/ü");
        assert_eq!(printable(b"/a\nb/\xff\x1b["), "/a\\nb/\\xff\\u{1b}[");
        assert_eq!(join(b"/".to_vec(), b"x"), b"/x");
        assert_eq!(join(b"/a".to_vec(), b"x"), b"/a/x");
    }
}
