//! One process, from its first operation to its last.
//!
//! The process is the test program with different arguments. Findings go to standard error. For the judgement the
//! process leaves the manifest of its home, and its account of the common folder, in a folder outside of the tree.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    Outcome,
    commons::{Account, Commons},
    home::Home,
    number,
};

/// The share of operations that a process does at home.
const AT_HOME: f64 = 0.75;

/// The task of a process.
pub(crate) struct Task<'a> {
    /// The mounted folder of the round.
    pub(crate) tree: &'a Path,
    /// The folder for manifest and account.
    pub(crate) notes: &'a Path,
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) operations: u64,
}

impl Task<'_> {
    /// The arguments that make this program do the task.
    pub(crate) fn words(&self) -> [OsString; 6] {
        let Task { tree, notes, seed, number, operations } = self;
        let numbers = [seed, number, operations].map(|number| number.to_string().into());
        let [seed, number, operations] = numbers;
        ["process".into(), tree.into(), notes.into(), seed, number, operations]
    }

    fn run(&self) -> Outcome<()> {
        let mut dice = SmallRng::seed_from_u64((self.seed << 8) | self.number);
        let mut home = Home::new(home(self.tree, self.number), dice.random())?;
        let mut commons = Commons::enter(commons(self.tree), self.number, dice.random())?;
        for operation in 0..self.operations {
            let done = if dice.random_bool(AT_HOME) { home.act() } else { commons.act() };
            done.map_err(|problem| self.at(operation, &problem))?;
        }
        let manifest = home.finish().map_err(|problem| self.at(self.operations, &problem))?;
        let Account { appended, counted } = commons.account();
        let account = format!("{appended} {counted}");
        let noted = fs::write(self.manifest(), manifest).and_then(|()| fs::write(self.account_file(), account));
        noted.map_err(|error| format!("{}: {error}", self.notes.display()))
    }

    fn at(&self, operation: u64, problem: &str) -> String {
        format!("process {} of seed {}, operation {operation}: {problem}", self.number, self.seed)
    }

    /// The path of its home's manifest.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.notes.join(format!("manifest-{}", self.number))
    }

    fn account_file(&self) -> PathBuf {
        self.notes.join(format!("account-{}", self.number))
    }

    /// Its results in the common folder.
    pub(crate) fn account(&self) -> Outcome<Account> {
        let text = fs::read_to_string(self.account_file()).map_err(|error| format!("an account: {error}"))?;
        let (appended, counted) = text.split_once(' ').ok_or("an account is a pair")?;
        Ok(Account { appended: number(appended)?, counted: number(counted)? })
    }
}

/// The home of the process of this number.
pub(crate) fn home(tree: &Path, number: u64) -> PathBuf {
    tree.join(format!("home-{number}"))
}

/// The common folder.
pub(crate) fn commons(tree: &Path) -> PathBuf {
    tree.join("commons")
}

/// The program, started with the arguments of a task.
pub(crate) fn main(words: &[&str]) -> Outcome<()> {
    let [tree, notes, seed, own, operations] = words else { return Err("a process has five words".to_owned()) };
    // Modes must be as in the model.
    rustix::process::umask(rustix::fs::Mode::empty());
    let task = Task {
        tree: Path::new(tree),
        notes: Path::new(notes),
        seed: number(seed)?,
        number: number(own)?,
        operations: number(operations)?,
    };
    task.run()
}
