//! What only the whole tree can tell: whether names and inodes belong together, whether everything can be reached, and
//! whether the counts are right.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

use super::{Checker, Finding, Object, Problem, Seen};
use crate::fs::{
    inode::{FileType, Link},
    key::{DATASET, Ino, ROOT},
};

impl Checker {
    /// Judges what needs the whole tree, and hands out all that was found.
    pub fn finish(mut self) -> Vec<Finding> {
        self.judge_current();
        self.judge_names();
        self.judge_reachability();
        let objects = mem::take(&mut self.objects);
        self.judge_master(&objects);
        for (&ino, object) in &objects {
            match object.seen {
                Some(seen) => self.judge_object(ino, seen, object),
                None => self.find(ino, Problem::NoInode),
            }
        }
        self.findings
    }

    fn judge_master(&mut self, objects: &BTreeMap<Ino, Object>) {
        let Some(master) = self.master else { return self.find(DATASET, Problem::NoMaster) };
        let files = objects.values().filter(|object| object.seen.is_some()).count() as u64;
        if files != master.files {
            self.find(DATASET, Problem::Files(master.files, files));
        }
        for &ino in objects.range(master.next..).map(|(ino, _)| ino) {
            self.find(ino, Problem::BeyondNext);
        }
        if !objects.get(&ROOT).and_then(|root| root.seen).is_some_and(|root| root.is_dir()) {
            self.find(ROOT, Problem::NoRoot);
        }
    }

    fn judge_names(&mut self) {
        let entries = mem::take(&mut self.entries);
        for &(link, ino, file_type) in &entries {
            match self.object(ino).seen {
                None => self.find(link.dir, Problem::Dangling(link)),
                Some(seen) if seen.file_type != file_type => self.find(ino, Problem::EntryType(link)),
                Some(_) => {}
            }
        }
        let mut claimed = vec![false; entries.len()];
        for (ino, link) in mem::take(&mut self.links) {
            let at = entries.binary_search_by_key(&(link.dir, link.offset), |(of, ..)| (of.dir, of.offset)).ok();
            let own = at.filter(|&at| entries[at].1 == ino && !mem::replace(&mut claimed[at], true));
            match own {
                Some(_) => self.object(ino).named += 1,
                None => self.find(ino, Problem::NotItsName(link)),
            }
        }
    }

    /// Follows every directory's way up. A way that ends at the root, or at a directory without a name, is good.
    fn judge_reachability(&mut self) {
        let mut verdicts = HashMap::from([(ROOT, true)]);
        let mut lost = Vec::new();
        for (&ino, object) in &self.objects {
            if object.seen.is_some_and(Seen::is_dir) && !self.arrives(ino, &mut verdicts) {
                lost.push(ino);
            }
        }
        for ino in lost {
            self.find(ino, Problem::Unreachable);
        }
    }

    fn arrives(&self, dir: Ino, verdicts: &mut HashMap<Ino, bool>) -> bool {
        let mut way = HashSet::new();
        let mut at = dir;
        let verdict = loop {
            if let Some(&known) = verdicts.get(&at) {
                break known;
            }
            let seen = self.objects.get(&at).and_then(|object| object.seen).filter(|seen| seen.is_dir());
            match seen {
                Some(seen) if seen.parent == Link::NONE => break seen.nlink == 0,
                Some(seen) if way.insert(at) => at = seen.parent.dir,
                _ => break false,
            }
        };
        verdicts.extend(way.into_iter().map(|ino| (ino, verdict)));
        verdict
    }

    /// Judges the names of an object, wherever they stand.
    fn judge_object(&mut self, ino: Ino, seen: Seen, object: &Object) {
        if !seen.is_dir() && seen.nlink != object.names {
            self.find(ino, Problem::Links(seen.nlink, object.names.into()));
        }
        let names = if seen.is_dir() { u32::from(seen.nlink > 0 && ino != ROOT) } else { object.names };
        if object.names != names || object.named != names || object.links != names {
            self.find(ino, Problem::Names(object.links.into(), object.names.into()));
        }
    }
}

impl Seen {
    fn is_dir(self) -> bool {
        self.file_type == FileType::Directory
    }
}
