//! The main job on a tree as large as users have: 500 MB of source code in 40,000 files, mixed with every other kind of
//! file system object, made from a seed.
//!
//! The tree is copied in, snapshotted, damaged, rolled back, sent, changed by a hundredth, sent incrementally and
//! received in a second pool; after each step everything is compared, and in the end both pools are checked. With FUSE
//! this goes through a real mount; a smaller tree goes in and out with `fs cp` everywhere. The time of each step is
//! printed on standard error.

mod lab;

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use cli::tour::compare;
use lab::{Lab, can_mount, forest::Forester};

/// The seed of the trees.
const SEED: u64 = 20_260_607;

#[test]
fn a_source_tree_of_500_megabytes_through_mounts() {
    if can_mount() {
        let amount = main_job(&Lab::new(), true, 40_000);
        assert!(amount.bytes > 500_000_000, "{amount:?}");
    }
}

#[test]
fn a_source_tree_without_mounts() {
    main_job(&Lab::mountless(), false, 2_500);
}

/// Does all steps; returns the amount of the tree.
fn main_job(lab: &Lab, mounted: bool, files: usize) -> compare::Amount {
    let job = Job { lab, mounted, tree: lab.path("tree") };
    let mut forester = Forester::new(SEED);
    fs::create_dir(&job.tree).unwrap();
    job.step("plant the tree", || forester.plant(&job.tree, files));
    lab.create("tank", "4G");
    lab.create("vault", "4G");
    // Comparing a copy reads it; without access times the copy stays as received.
    lab.fs(&["set", "atime=off", "vault"]);
    lab.fs(&["create", "-o", "compression=zstd-1", "tank/tree"]);

    job.step("copy it in", || job.put(&job.tree, "tank/tree"));
    let amount = job.compare("tank/tree");
    lab.fs(&["snapshot", "tank/tree@monday"]);
    job.step("change and delete", || job.spoil());
    job.step("roll back", || lab.fs(&["rollback", "tank/tree@monday"]));
    job.compare("tank/tree");

    job.send(&["tank/tree@monday"], "full");
    job.receive("full");
    job.compare("vault/tree");

    let overlay = lab.path("overlay");
    fs::create_dir(&overlay).unwrap();
    forester.overlay(&job.tree, &overlay);
    job.step("change a hundredth", || {
        copy(&overlay, &job.tree);
        job.put(&overlay, "tank/tree");
        if mounted {
            forester.tidy(&job.tree);
            forester.tidy(&lab.mount("tank/tree"));
        }
    });
    lab.fs(&["snapshot", "tank/tree@tuesday"]);
    job.compare("tank/tree");
    job.send(&["-i", "monday", "tank/tree@tuesday"], "increment");
    let [full, increment] = ["full", "increment"].map(|name| fs::metadata(lab.path(name)).unwrap().len());
    assert!(increment < full / 8, "{increment} of {full} bytes");
    job.receive("increment");
    job.compare("vault/tree");
    job.step("close and check both pools", || ["tank", "vault"].map(|pool| lab.check(pool)));
    amount
}

struct Job<'a> {
    lab: &'a Lab,
    mounted: bool,
    /// The content required in the pools.
    tree: PathBuf,
}

impl Job<'_> {
    /// Does a step, and prints its duration.
    fn step<T>(&self, what: &str, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = act();
        let way = if self.mounted { "mounted" } else { "mountless" };
        // Past the test harness, which hides the output of passing tests.
        let _ = writeln!(io::stderr(), "{way:10}{:8.2} s  {what}", begun.elapsed().as_secs_f64());
        done
    }

    /// Copies the content of a folder into a dataset.
    fn put(&self, folder: &Path, dataset: &str) {
        if self.mounted {
            return copy(folder, &self.lab.mount(dataset));
        }
        self.lab.fs(&["cp", "-r", &format!("{}/.", folder.display()), &format!("{dataset}:/")]);
    }

    /// Compares a dataset with the tree.
    fn compare(&self, dataset: &str) -> compare::Amount {
        self.step(&format!("compare {dataset}"), || {
            let back = self.lab.path("back");
            if self.mounted {
                return same(&self.tree, &self.lab.mount(dataset));
            }
            fs::create_dir(&back).unwrap();
            self.lab.fs(&["cp", "-r", &format!("{dataset}:/."), &back.display().to_string()]);
            let amount = same(&self.tree, &back);
            fs::remove_dir_all(back).unwrap();
            amount
        })
    }

    /// Changes nearly everything.
    fn spoil(&self) {
        if !self.mounted {
            let junk = self.lab.path("junk");
            fs::create_dir(&junk).unwrap();
            fs::write(junk.join("source_0.rs"), vec![7; 3_000_000]).unwrap();
            return self.put(&junk, "tank/tree");
        }
        let place = self.lab.mount("tank/tree");
        for (index, entry) in fs::read_dir(&place).unwrap().enumerate() {
            let path = entry.unwrap().path();
            match (index % 3, path.is_dir()) {
                (0, true) => fs::remove_dir_all(&path).unwrap(),
                (0, false) => fs::remove_file(&path).unwrap(),
                (1, _) => fs::rename(&path, place.join(format!("renamed-{index}"))).unwrap(),
                _ => fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap(),
            }
        }
        fs::write(place.join("junk"), vec![7; 3_000_000]).unwrap();
    }

    fn send(&self, words: &[&str], file: &str) {
        let stream = File::create(self.lab.path(file)).unwrap();
        let words = [&["send"], words].concat();
        let status =
            self.step(&format!("send {file}"), || self.lab.command("fs", &words).stdout(stream).status().unwrap());
        assert!(status.success(), "{words:?}: {status}");
    }

    fn receive(&self, file: &str) {
        let stream = File::open(self.lab.path(file)).unwrap();
        let mut command = self.lab.command("fs", &["receive", "vault/tree"]);
        let status = self.step(&format!("receive {file}"), || command.stdin(stream).status().unwrap());
        assert!(status.success(), "receive {file}: {status}");
    }
}

#[track_caller]
fn same(wanted: &Path, found: &Path) -> compare::Amount {
    compare::trees(wanted, found).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Copies the content of a folder with the system's cp, with all metadata; files are replaced.
#[track_caller]
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--remove-destination"]).arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success());
}
