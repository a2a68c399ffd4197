//! A pool, its processes, and the judgement of their results.

use std::{
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::{
    Outcome, commons,
    lab::Lab,
    manifest,
    process::{self, Task},
};

/// The number of processes: more than threads serve a mount.
const PROCESSES: u64 = 6;
/// The image's size. All homes together need a small part of it, but the snapshots of a long round need more.
const SIZE: &str = "4G";
const DATASET: &str = "tank/round";
/// How long a snapshot is kept, and the interval between snapshots.
const PAUSE: Duration = Duration::from_secs(1);

/// The properties of a round's dataset, chosen by its seed.
const PROPERTIES: [&[&str]; 4] = [
    &["recordsize=4K", "compression=off"],
    &[],
    &["recordsize=1M", "compression=zstd-1"],
    &["recordsize=16K", "atime=off", "checksum=sha256"],
];

/// A lab with a pool, in which rounds follow each other.
pub(crate) struct Round {
    lab: Lab,
    /// Whether the kernel is made to drop its caches now and then: files, names, pages, of all file systems.
    forgetful: bool,
}

impl Round {
    /// A new pool.
    pub(crate) fn new(forgetful: bool) -> Round {
        let lab = Lab::new();
        lab.create("tank", SIZE);
        Round { lab, forgetful }
    }

    /// Runs all processes with so many operations each, and judges the results.
    pub(crate) fn run(&self, seed: u64, operations: u64) -> Outcome<()> {
        let properties = PROPERTIES[seed as usize % PROPERTIES.len()];
        println!("stress: seed {seed}, {PROCESSES} processes of {operations} operations {}", properties.join(" "));
        let begun = Instant::now();
        let words = properties.iter().flat_map(|property| ["-o", property]);
        self.lab.fs(&[&["create"], &*words.collect::<Vec<_>>(), &[DATASET]].concat());
        let (tree, notes) = (self.lab.mount(DATASET), self.lab.path("notes"));
        let prepared = commons::prepare(&process::commons(&tree), PROCESSES);
        prepared.and_then(|()| std::fs::create_dir_all(&notes)).map_err(|error| format!("the tree: {error}"))?;
        let tasks: Vec<Task<'_>> =
            (0..PROCESSES).map(|number| Task { tree: &tree, notes: &notes, seed, number, operations }).collect();
        let outcome = self.work(&tasks).and_then(|()| self.judge(&tree, &tasks));
        outcome.map_err(|problem| {
            format!("{problem}\nagain: cargo test -p cli --test stress -- round {seed} {operations}")
        })?;
        self.lab.fs(&["destroy", "-r", DATASET]);
        println!("stress: seed {seed} is in order after {} s", begun.elapsed().as_secs());
        Ok(())
    }

    /// Starts the processes and takes snapshots until they have ended.
    fn work(&self, tasks: &[Task<'_>]) -> Outcome<()> {
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let start = |task: &Task<'_>| Command::new(&program).args(task.words()).spawn();
        let processes = tasks.iter().map(start).collect::<Result<Vec<Child>, _>>();
        let mut processes = processes.map_err(|error| format!("a process: {error}"))?;
        let mut snapshots = 0;
        let is_running = |process: &mut Child| matches!(process.try_wait(), Ok(None));
        let mut due = Instant::now() + PAUSE;
        while processes.iter_mut().any(is_running) {
            std::thread::sleep(Duration::from_millis(20));
            if Instant::now() >= due {
                snapshots += 1;
                self.snapshot(snapshots);
                if self.forgetful {
                    // Only root may; without it the round goes on.
                    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
                }
                due = Instant::now() + PAUSE;
            }
        }
        let failed = |process: &mut Child| !process.wait().is_ok_and(|status| status.success());
        let failures = processes.iter_mut().map(failed).filter(|failed| *failed).count();
        if failures == 0 { Ok(()) } else { Err(format!("{failures} processes have failed")) }
    }

    /// Takes a snapshot and destroys the one before the last.
    fn snapshot(&self, number: u64) {
        self.lab.fs(&["snapshot", &format!("{DATASET}@{number}")]);
        if let Some(old @ 1..) = number.checked_sub(2) {
            self.lab.fs(&["destroy", &format!("{DATASET}@{old}")]);
        }
    }

    /// Compares everything before and after the pool is exported and checked.
    fn judge(&self, tree: &Path, tasks: &[Task<'_>]) -> Outcome<()> {
        let accounts = tasks.iter().map(Task::account).collect::<Outcome<Vec<_>>>()?;
        // A change through a map gets its time at write-back.
        let synced = std::fs::File::open(tree)
            .map_err(|error| error.to_string())
            .and_then(|root| rustix::fs::syncfs(root).map_err(|error| error.to_string()));
        synced.map_err(|error| format!("sync: {error}"))?;
        let before = manifest::of_folder(tree, true)?;
        self.lab.unharmed();
        self.lab.check("tank");
        manifest::differences(&before, &manifest::of_folder(tree, true)?)
            .map_err(|lines| format!("after the import:\n{lines}"))?;
        for task in tasks {
            let wanted = std::fs::read_to_string(task.manifest()).map_err(|error| format!("a manifest: {error}"))?;
            let found = manifest::of_folder(&process::home(tree, task.number), false)?;
            manifest::differences(&wanted, &found).map_err(|lines| format!("home {}:\n{lines}", task.number))?;
        }
        commons::judge(&process::commons(tree), &accounts)
    }
}
