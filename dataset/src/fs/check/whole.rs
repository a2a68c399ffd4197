//! What only the whole tree can tell: whether names and inodes belong together, whether everything can be reached, and
//! whether the counts are right.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

use super::{Checker, Finding, Object, Problem};
use crate::fs::{
    inode::{Inode, Link, flag},
    key::{DATASET, Ino, ROOT},
};

impl Checker {
    /// Judges what needs the whole tree, and hands out all that was found.
    pub fn finish(mut self) -> Vec<Finding> {
        self.judge_names();
        self.judge_reachability();
        let objects = mem::take(&mut self.objects);
        self.judge_master(&objects);
        for (&ino, object) in &objects {
            match object.inode {
                Some(inode) => self.judge_object(ino, &inode, object),
                None => self.find(ino, Problem::NoInode),
            }
        }
        self.findings
    }

    fn judge_master(&mut self, objects: &BTreeMap<Ino, Object>) {
        let Some(master) = self.master else { return self.find(DATASET, Problem::NoMaster) };
        let files = objects.values().filter(|object| object.inode.is_some()).count() as u64;
        if files != master.files {
            self.find(DATASET, Problem::Files(master.files, files));
        }
        for &ino in objects.range(master.next..).map(|(ino, _)| ino) {
            self.find(ino, Problem::BeyondNext);
        }
        if !objects.get(&ROOT).and_then(|root| root.inode).is_some_and(|root| root.is_dir()) {
            self.find(ROOT, Problem::NoRoot);
        }
    }

    fn judge_names(&mut self) {
        let entries = mem::take(&mut self.entries);
        for (&link, &(ino, file_type)) in &entries {
            match self.object(ino).inode {
                None => self.find(link.dir, Problem::Dangling(link)),
                Some(inode) if inode.file_type != file_type => self.find(ino, Problem::EntryType(link)),
                Some(_) => {}
            }
        }
        let mut claimed = HashSet::new();
        for (ino, link) in mem::take(&mut self.links) {
            let own = entries.get(&link).is_some_and(|(named, _)| *named == ino) && claimed.insert(link);
            if own {
                self.object(ino).named += 1;
            } else {
                self.find(ino, Problem::NotItsName(link));
            }
        }
    }

    /// Follows every directory's way up. A way that ends at the root, or at a directory without a name, is good.
    fn judge_reachability(&mut self) {
        let mut verdicts = HashMap::from([(ROOT, true)]);
        let mut lost = Vec::new();
        for (&ino, object) in &self.objects {
            if object.inode.is_some_and(|inode| inode.is_dir()) && !self.arrives(ino, &mut verdicts) {
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
            let inode = self.objects.get(&at).and_then(|object| object.inode).filter(Inode::is_dir);
            match inode {
                Some(inode) if inode.parent == Link::NONE => break inode.nlink == 0,
                Some(inode) if way.insert(at) => at = inode.parent.dir,
                _ => break false,
            }
        };
        verdicts.extend(way.into_iter().map(|ino| (ino, verdict)));
        verdict
    }

    fn judge_object(&mut self, ino: Ino, inode: &Inode, object: &Object) {
        let links = match (inode.is_dir(), inode.nlink) {
            (true, 0) => 0,
            (true, _) => 2 + object.subdirectories,
            (false, _) => object.names,
        };
        if u64::from(inode.nlink) != links {
            self.find(ino, Problem::Links(inode.nlink, links));
        }
        let names = if inode.is_dir() { u64::from(inode.nlink > 0 && ino != ROOT) } else { object.names };
        if object.names != names || object.named != names || object.links != names {
            self.find(ino, Problem::Names(object.links, object.names));
        }
        if inode.is_dir() && inode.size != object.entries {
            self.find(ino, Problem::Entries(inode.size, object.entries));
        }
        if inode.bytes != object.bytes {
            self.find(ino, Problem::Bytes(inode.bytes, object.bytes));
        }
        if (inode.nlink == 0) != object.orphan {
            self.find(ino, Problem::Orphan);
        }
        if inode.has(flag::TRUNCATING) != object.truncating {
            self.find(ino, Problem::Truncating);
        }
    }
}
