//! `pool tour`: the main job from end to end, on pools in image files, with every byte compared.
//!
//! The tour runs the real programs, as a user would, in a state directory of its own. Its report lists each step, the
//! duration, and whether data went through mounts or without. The tour needs neither root nor a service, and leaves
//! nothing behind.
//!
//! ```text
//! compare   two trees, by content and by all metadata that a copy must keep
//! stage     the programs, the directory, the clock
//! ```

pub mod compare;
mod stage;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use self::stage::Problem;
use self::stage::{MIRRORED, Stage};

/// Runs the tour on the files under `source`, writing to `output`.
pub fn run(source: Option<&Path>, output: &mut dyn io::Write) -> Result<(), Problem> {
    let source = match source {
        Some(source) => source.to_owned(),
        None => default_source()?,
    };
    let mut stage = Stage::new(output)?;
    let outcome = act(&mut stage, &source);
    let closed = stage.close();
    outcome.and(closed)
}

/// Source code of other programs: Cargo's unpacked crates, else the header files of the machine's compiler.
fn default_source() -> Result<PathBuf, Problem> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let candidates = [cargo.map(|cargo| cargo.join("registry/src")), Some(PathBuf::from("/usr/include"))];
    let found = candidates.into_iter().flatten().find(|path| path.is_dir());
    found.ok_or_else(|| Problem::new("no directory to copy; name a directory: pool tour FOLDER"))
}

fn act(stage: &mut Stage<'_>, source: &Path) -> Result<(), Problem> {
    let (tank, vault) = (stage.image("tank.img"), stage.image("vault.img"));
    stage.say("Two pools in image files")?;
    stage.create("tank", &tank, &["-O", "compression=zstd-1"])?;
    // Comparing reads the copy. Without access times, reading leaves the copy as received.
    stage.create("vault", &vault, &["-O", "atime=off"])?;
    stage.fs(&["create", "tank/home"])?;
    stage.find_mounts()?;
    stage.fs(&["create", "-o", "recordsize=1M", "tank/media"])?;

    stage.say(&format!("Copy {} in, and compare every byte", source.display()))?;
    let first = stage.scratch("first")?;
    let copied = stage.time("prepare a copy to work on", || compare::copy(source, &first))?;
    stage.note(&format!("{} entries, {:.1} MB", copied.entries, copied.bytes as f64 / 1e6))?;
    stage.put(&first, "tank/home")?;
    stage.compare(&first, "tank/home")?;

    stage.say("Snapshot, change, delete, roll back")?;
    stage.fs(&["snapshot", "-r", "tank@monday"])?;
    stage.spoil("tank/home")?;
    stage.fs(&["rollback", "tank/home@monday"])?;
    stage.compare(&first, "tank/home")?;

    stage.say("Clone, and change the clone alone")?;
    stage.fs(&["clone", "tank/home@monday", "tank/clone"])?;
    stage.spoil("tank/clone")?;
    stage.compare(&first, "tank/home")?;

    stage.say("A full stream to a file, and into the second pool")?;
    let full = stage.image("home-monday.stream");
    stage.fs_to(&["send", "tank/home@monday"], &full)?;
    stage.fs_from(&["receive", "vault/home"], &full)?;
    stage.compare(&first, "vault/home")?;

    stage.say("More changes: an incremental stream contains only the changes")?;
    let second = stage.scratch("second")?;
    compare::copy(&first, &second)?;
    let work = stage.work(&second)?;
    stage.put(&work, "tank/home")?;
    stage.fs(&["snapshot", "tank/home@tuesday"])?;
    let increment = stage.image("home-tuesday.stream");
    stage.fs_to(&["send", "-i", "monday", "tank/home@tuesday"], &increment)?;
    stage.fs_from(&["receive", "vault/home"], &increment)?;
    stage.compare(&second, "vault/home")?;
    stage.compare(&second, "tank/home")?;

    stage.say("Export the pools, and verify every block, copy and counter")?;
    stage.verify("tank")?;
    stage.verify("vault")?;
    for stream in [&full, &increment] {
        let size = fs::metadata(stream).map_err(|error| Problem::at(Path::new(stream), &error))?.len();
        stage.note(&format!("{}: {:.1} MB", stage.short(stream), size as f64 / 1e6))?;
    }

    disks_fail(stage)?;
    stage.applaud()
}

/// A mirror: one disk returns wrong data, and then the other one is gone.
fn disks_fail(stage: &mut Stage<'_>) -> Result<(), Problem> {
    let (left, right, new) = (stage.image("left.img"), stage.image("right.img"), stage.image("new.img"));
    stage.say("A mirror of two disks; one of them silently returns wrong data")?;
    stage.create_mirror("safe", &left, &right)?;
    stage.fs(&["create", "safe/photos"])?;
    let photos = stage.photos()?;
    stage.put(&photos, "safe/photos")?;
    stage.pool(&["sync", "safe"])?;
    stage.corrupt(&right)?;
    stage.compare(&photos, "safe/photos")?;
    stage.pool(&["scrub", "-w", "safe"])?;
    stage.show_status("safe", "scan:")?;
    stage.pool(&["clear", "safe"])?;

    stage.say("The other disk dies: the data survives, and a new disk takes its place")?;
    stage.pool(&["export", "safe"])?;
    stage.lose(&left)?;
    let folder = stage.folder();
    stage.pool(&["import", "-d", &folder, "safe"])?;
    stage.show_status("safe", "state:")?;
    stage.compare(&photos, "safe/photos")?;
    stage.pool(&["replace", "-w", "safe", &left, &format!("{MIRRORED}:{new}")])?;
    stage.show_status("safe", "state:")?;
    stage.compare(&photos, "safe/photos")?;
    stage.verify("safe")
}
