//! The memory of a pool's service with a million files.
//!
//! The engine in this process makes the pool in an image file. The real program imports the pool with default settings,
//! and a real mount is used: the attributes of every file are read, some files are read, some made and some deleted;
//! there are a snapshot, a full and an incremental stream. After each step the service's memory is printed: resident
//! now, and at the peak.
//!
//! `cargo bench --bench million` uses a million files. `-- --files N` uses another number, `-- --limit N` limits the
//! service to N MiB: in a control group of its own if possible, else by `RLIMIT_DATA`. Any other run (as a test) does
//! everything once, on little data. The image is in `TMPDIR`.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt,
    path::Path,
    process::Stdio,
    time::Instant,
};

use lab::{Lab, can_mount, crowd, limit::Limit, memory};

/// The number of files made, and of files deleted.
const CHANGED: usize = 20_000;

fn main() -> io::Result<()> {
    if !can_mount() {
        return Ok(());
    }
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let files = option("--files").unwrap_or(if measuring { 1_000_000 } else { 2_000 });
    let limit = option("--limit").map(|mib| Limit::new((mib as u64) << 20));
    let mut lab = Lab::new();
    if let Some(limit) = &limit {
        say(&format!("limited by {}", limit.kind()))?;
        lab.through(limit.prefix());
    }
    lab.create("tank", "16G");
    lab.fs(&["create", "tank/data"]);
    lab.pool(&["export", "tank"]);
    crowd::fill(&lab.path("tank.img"), "tank/data", files);
    work(&lab, files, files.min(CHANGED))?;
    if let Some(peak) = limit.as_ref().and_then(Limit::peak) {
        say(&format!("the most in the group, kernel memory and check included: {} MiB", peak >> 20))?;
    }
    Ok(())
}

/// A number on the command line.
fn option(name: &str) -> Option<usize> {
    std::env::args().skip_while(|argument| argument != name).nth(1)?.parse().ok()
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// All steps in order, with the memory after each.
fn work(lab: &Lab, files: usize, changed: usize) -> io::Result<()> {
    let folder = lab.path("").display().to_string();
    let place = lab.mount("tank/data");
    say(&format!("{files} files\n{:34}{:>10}{:>14}{:>14}", "", "time", "resident", "at most"))?;
    let step = |what: &str, act: &dyn Fn() -> io::Result<()>| {
        let begun = Instant::now();
        act()?;
        let pid = lab.service("tank").expect("the service lives");
        let [resident, peak] = ["VmRSS", "VmHWM"].map(|figure| memory(pid, figure) >> 20);
        say(&format!("{what:34}{:>8.1} s{resident:>10} MiB{peak:>10} MiB", begun.elapsed().as_secs_f64()))
    };
    let to_file = |words: &[&str]| {
        let status = lab.command("fs", words).stdout(Stdio::null()).status()?;
        assert!(status.success(), "fs {words:?}: {status}");
        Ok(())
    };
    step("import", &|| fine(lab.pool(&["import", "-d", &folder, "tank"])))?;
    step("look at every file", &|| {
        let seen = walk(&place)?;
        assert_eq!(seen, files + files.div_ceil(crowd::PER_DIRECTORY));
        Ok(())
    })?;
    step("read every tenth", &|| (0..files).step_by(10).try_for_each(|index| fs::read(file(&place, index)).map(drop)))?;
    step("snapshot", &|| fine(lab.fs(&["snapshot", "tank/data@one"])))?;
    step(&format!("make {changed}"), &|| {
        fs::create_dir(place.join("new"))?;
        let content = |index: usize| format!("new {index}\n").repeat(index % 400);
        (0..changed).try_for_each(|index| fs::write(place.join(format!("new/{index}")), content(index)))
    })?;
    step(&format!("delete {}", changed / 2), &|| {
        (0..changed).step_by(2).try_for_each(|index| fs::remove_file(file(&place, index * (files / changed))))
    })?;
    step("snapshot", &|| fine(lab.fs(&["snapshot", "tank/data@two"])))?;
    step("full stream", &|| to_file(&["send", "tank/data@two"]))?;
    step("incremental stream", &|| to_file(&["send", "-i", "one", "tank/data@two"]))?;
    step("receive a full stream", &|| receive(lab))?;
    step("roll back", &|| fine(lab.fs(&["rollback", "-r", "tank/data@one"])))?;
    step("look at every file", &|| walk(&place).map(drop))?;
    lab.pool(&["export", "tank"]);
    let begun = Instant::now();
    lab.pool(&["check", "-d", &folder, "tank"]);
    say(&format!("{:34}{:>8.1} s", "check", begun.elapsed().as_secs_f64()))
}

/// Ignores the output of a command that has succeeded.
fn fine(_: String) -> io::Result<()> {
    Ok(())
}

fn receive(lab: &Lab) -> io::Result<()> {
    let stream = lab.path("stream");
    assert!(lab.command("fs", &["send", "tank/data@two"]).stdout(File::create(&stream)?).status()?.success());
    assert!(lab.command("fs", &["receive", "tank/copy"]).stdin(File::open(&stream)?).status()?.success());
    fs::remove_file(stream)
}

fn file(place: &Path, index: usize) -> std::path::PathBuf {
    place.join(format!("directory-{}/file-{index}", index / crowd::PER_DIRECTORY))
}

/// Reads the attributes of everything below a folder; returns the count.
fn walk(folder: &Path) -> io::Result<usize> {
    let mut seen = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        assert!(metadata.ino() > 0);
        seen += 1;
        if metadata.is_dir() {
            seen += walk(&path)?;
        }
    }
    Ok(seen)
}
