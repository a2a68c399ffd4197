//! Checks that need the whole tree: names match inodes, every directory is reachable, and the counts are right.
//!
//! Inodes, entries and links are each sorted by inode number and merged in one pass.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
};

use super::{Checker, Finding, Named, Problem, Seen};
use crate::fs::{
    inode::{FileType, Link},
    key::{DATASET, Ino, ROOT},
};

impl Checker {
    /// Makes the checks that need the whole tree, and returns all findings.
    pub fn finish(mut self) -> Vec<Finding> {
        self.judge_current();
        let inodes = mem::take(&mut self.inodes);
        let mut entries = mem::take(&mut self.entries);
        entries.sort_unstable_by_key(|entry| (entry.ino, entry.link));
        let mut links = mem::take(&mut self.links);
        links.sort_unstable();
        let missing = self.missing(&inodes, &entries);
        self.judge_master(&inodes, &missing);
        self.judge_reachability(&inodes);
        for ino in missing {
            self.find(ino, Problem::NoInode);
        }
        self.judge_names(&inodes, &entries, &links);
        self.judge_accounts();
        self.findings
    }

    /// The objects that some item mentions, but without an inode.
    fn missing(&mut self, inodes: &[Seen], entries: &[Named]) -> BTreeSet<Ino> {
        let mut missing = mem::take(&mut self.bare);
        let noted = self.orphans.iter().chain(&self.truncating);
        missing.extend(noted.copied().filter(|&ino| find(inodes, ino).is_none()));
        for entry in entries.iter().filter(|entry| find(inodes, entry.ino).is_none()) {
            missing.insert(entry.ino);
            self.findings.push(Finding { ino: entry.link.dir, problem: Problem::Dangling(entry.link) });
        }
        missing
    }

    fn judge_master(&mut self, inodes: &[Seen], missing: &BTreeSet<Ino>) {
        let Some(master) = self.master else { return self.find(DATASET, Problem::NoMaster) };
        let files = inodes.len() as u64;
        if files != master.files {
            self.find(DATASET, Problem::Files(master.files, files));
        }
        let new = &inodes[inodes.partition_point(|seen| seen.ino < master.next)..];
        for ino in new.iter().map(|seen| seen.ino).chain(missing.range(master.next..).copied()) {
            self.find(ino, Problem::BeyondNext);
        }
        if !find(inodes, ROOT).is_some_and(Seen::is_dir) {
            self.find(ROOT, Problem::NoRoot);
        }
    }

    fn judge_accounts(&mut self) {
        for (key, (counted, found)) in mem::take(&mut self.accounts) {
            if counted != found {
                self.find(DATASET, Problem::Account(key, counted, found));
            }
        }
    }

    /// Follows the parents of every directory. A path that ends at the root, or at a directory without a name, is good.
    fn judge_reachability(&mut self, inodes: &[Seen]) {
        let mut verdicts = HashMap::from([(ROOT, true)]);
        for seen in inodes.iter().filter(|seen| seen.is_dir()) {
            if !arrives(inodes, seen.ino, &mut verdicts) {
                self.find(seen.ino, Problem::Unreachable);
            }
        }
    }

    /// Checks the names of all inodes. Entries and links are sorted by inode number, then by directory and offset.
    fn judge_names(&mut self, inodes: &[Seen], mut entries: &[Named], mut links: &[(Ino, Link)]) {
        let mut claims = Vec::new();
        for seen in inodes {
            take_while(&mut entries, |entry| entry.ino < seen.ino);
            take_while(&mut links, |(ino, _)| *ino < seen.ino);
            let names = take_while(&mut entries, |entry| entry.ino == seen.ino);
            let further = take_while(&mut links, |(ino, _)| *ino == seen.ino);
            claims.clear();
            claims.extend(Some(seen.parent).filter(|parent| *parent != Link::NONE));
            claims.extend(further.iter().map(|(_, link)| *link));
            claims.sort_unstable();
            self.judge_object(seen, names, &claims);
        }
    }

    fn judge_object(&mut self, seen: &Seen, names: &[Named], claims: &[Link]) {
        for entry in names.iter().filter(|entry| entry.file_type != seen.file_type) {
            self.find(seen.ino, Problem::EntryType(entry.link));
        }
        let mut ahead = names;
        let mut named = 0;
        for &claim in claims {
            take_while(&mut ahead, |entry| entry.link < claim);
            match ahead.split_first().filter(|(entry, _)| entry.link == claim) {
                Some((_, rest)) => {
                    ahead = rest;
                    named += 1;
                }
                None => self.find(seen.ino, Problem::NotItsName(claim)),
            }
        }
        if !seen.is_dir() && seen.nlink as usize != names.len() {
            self.find(seen.ino, Problem::Links(seen.nlink, names.len() as u64));
        }
        let due = if seen.is_dir() { usize::from(seen.nlink > 0 && seen.ino != ROOT) } else { names.len() };
        if [names.len(), named, claims.len()] != [due; 3] {
            self.find(seen.ino, Problem::Names(claims.len() as u64, names.len() as u64));
        }
    }
}

fn find(inodes: &[Seen], ino: Ino) -> Option<&Seen> {
    inodes.binary_search_by_key(&ino, |seen| seen.ino).ok().map(|at| &inodes[at])
}

/// Splits off the leading elements for which `is_taken` holds.
fn take_while<'a, T>(rest: &mut &'a [T], is_taken: impl FnMut(&T) -> bool) -> &'a [T] {
    let (taken, left) = rest.split_at(rest.partition_point(is_taken));
    *rest = left;
    taken
}

fn arrives(inodes: &[Seen], dir: Ino, verdicts: &mut HashMap<Ino, bool>) -> bool {
    let mut way = HashSet::new();
    let mut at = dir;
    let verdict = loop {
        if let Some(&known) = verdicts.get(&at) {
            break known;
        }
        match find(inodes, at).filter(|seen| seen.is_dir()) {
            Some(seen) if seen.parent == Link::NONE => break seen.nlink == 0,
            Some(seen) if way.insert(at) => at = seen.parent.dir,
            _ => break false,
        }
    };
    verdicts.extend(way.into_iter().map(|ino| (ino, verdict)));
    verdict
}

impl Seen {
    fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }
}
