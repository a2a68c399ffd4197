//! The programs, the directory and the clock of the tour.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io::{self, Write},
    ops::Range,
    os::unix::{
        fs::{FileExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use super::compare;
use crate::output::wrap::wrapped;

/// The size of each disk of the mirror.
pub(super) const MIRRORED: &str = "192M";
/// Where in a disk wrong data is written: behind the front labels and before the back ones.
const CORRUPTED: Range<u64> = 8 << 20..160 << 20;
/// The widest line, in columns.
const WIDTH: usize = 79;
/// How far what was done is set in, behind the time it took.
const MARGIN: usize = 13;

/// A step of the tour that failed.
#[derive(Debug)]
pub struct Problem(String);

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Problem {
        Problem(text.into())
    }

    pub(super) fn at(path: &Path, error: &dyn fmt::Display) -> Problem {
        Problem(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem(error.to_string())
    }
}

/// The environment of the tour: its directory, pools and output.
pub(super) struct Stage<'a> {
    output: &'a mut dyn Write,
    folder: PathBuf,
    program: PathBuf,
    mounted: bool,
    begun: Instant,
}

impl<'a> Stage<'a> {
    pub(super) fn new(output: &'a mut dyn Write) -> Result<Stage<'a>, Problem> {
        let folder = std::env::temp_dir().join(format!("cenote-tour-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| Problem::at(&folder, &error))?;
        let program = std::env::current_exe()?;
        writeln!(output, "Working in T={}", folder.display())?;
        Ok(Stage { output, folder, program, mounted: false, begun: Instant::now() })
    }

    /// Ends services that may still run, and removes the directory.
    pub(super) fn close(self) -> Result<(), Problem> {
        for name in ["tank", "vault", "safe"] {
            // Fails harmlessly after a successful tour, whose pools are exported.
            let _ = self.command("pool", &["export", "-f", name]).output();
        }
        fs::remove_dir_all(&self.folder).map_err(|error| Problem::at(&self.folder, &error))
    }

    /// Reports the success of the tour.
    pub(super) fn applaud(&mut self) -> Result<(), Problem> {
        Ok(writeln!(self.output, "\nAll is well, after {:.1} s.", self.begun.elapsed().as_secs_f64())?)
    }

    pub(super) fn say(&mut self, what: &str) -> Result<(), Problem> {
        Ok(writeln!(self.output, "\n{what}")?)
    }

    pub(super) fn note(&mut self, what: &str) -> Result<(), Problem> {
        let lines = wrapped(what, WIDTH - MARGIN);
        Ok(lines.iter().try_for_each(|line| writeln!(self.output, "            {line}"))?)
    }

    /// The text, with the tour's folder as `$T`.
    pub(super) fn short(&self, text: &str) -> String {
        text.replace(&self.folder(), "$T")
    }

    /// The directory of all images.
    pub(super) fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    pub(super) fn image(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(super) fn scratch(&self, name: &str) -> Result<PathBuf, Problem> {
        let path = self.folder.join(name);
        fs::create_dir(&path).map_err(|error| Problem::at(&path, &error))?;
        Ok(path)
    }

    /// Runs a step and reports its duration.
    pub(super) fn time<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
        let begun = Instant::now();
        let value = work()?;
        let seconds = begun.elapsed().as_secs_f64();
        let lines = wrapped(&self.short(what), WIDTH - MARGIN);
        writeln!(self.output, "  {seconds:7.3} s  {}", lines.join(&format!("\n{:MARGIN$}  ", "")))?;
        self.output.flush()?;
        Ok(value)
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0(name).args(arguments);
        command.env("CENOTE_STATE", self.folder.join("state")).env("CENOTE_RUN", self.folder.join("run"));
        command.env("HOME", self.folder.join("mounts"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command; what it has printed.
    fn run(&mut self, name: &str, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Result<String, Problem> {
        let shown = format!("{name} {}", arguments.join(" "));
        let mut command = self.command(name, arguments);
        prepare(&mut command);
        self.time(&shown, || {
            let Output { status, stdout, stderr } = command.output()?;
            if status.success() {
                return Ok(String::from_utf8_lossy(&stdout).into_owned());
            }
            let said = [stdout, stderr].concat();
            Err(Problem(format!("{shown}: {status}\n{}", String::from_utf8_lossy(&said))))
        })
    }

    pub(super) fn pool(&mut self, arguments: &[&str]) -> Result<(), Problem> {
        self.run("pool", arguments, |_| {}).map(drop)
    }

    /// Prints the lines of a pool's status that begin with `what`.
    pub(super) fn show_status(&mut self, name: &str, what: &str) -> Result<(), Problem> {
        let status = self.run("pool", &["status", name], |_| {})?;
        let lines: Vec<&str> = status.lines().map(str::trim).filter(|line| line.starts_with(what)).collect();
        lines.into_iter().try_for_each(|line| self.note(line))
    }

    /// Exports a pool and verifies every block of it.
    pub(super) fn verify(&mut self, name: &str) -> Result<(), Problem> {
        self.pool(&["export", name])?;
        self.pool(&["check", "-d", &self.folder(), name])
    }

    /// Creates a pool in a new image, and mounts its datasets in the tour's directory. The root dataset stays
    /// unmounted: below a FUSE mount of an ordinary user, ordinary users often cannot mount again.
    pub(super) fn create(&mut self, name: &str, image: &str, options: &[&str]) -> Result<(), Problem> {
        let vdev = format!("8G:{image}");
        self.create_of(name, options, &[&vdev])
    }

    /// Creates a pool of one mirror, likewise.
    pub(super) fn create_mirror(&mut self, name: &str, left: &str, right: &str) -> Result<(), Problem> {
        let [left, right] = [left, right].map(|image| format!("{MIRRORED}:{image}"));
        self.create_of(name, &[], &["mirror", &left, &right])
    }

    fn create_of(&mut self, name: &str, options: &[&str], vdevs: &[&str]) -> Result<(), Problem> {
        let mountpoint = self.mountpoint(name).display().to_string();
        self.pool(&[&["create", "-m", &mountpoint, "-O", "canmount=off"], options, &[name], vdevs].concat())
    }

    pub(super) fn fs(&mut self, arguments: &[&str]) -> Result<(), Problem> {
        self.run("fs", arguments, |_| {}).map(drop)
    }

    pub(super) fn fs_to(&mut self, arguments: &[&str], file: &str) -> Result<(), Problem> {
        let file = File::create(file).map_err(|error| Problem::at(Path::new(file), &error))?;
        self.run("fs", arguments, |command| _ = command.stdout(file)).map(drop)
    }

    pub(super) fn fs_from(&mut self, arguments: &[&str], file: &str) -> Result<(), Problem> {
        let file = File::open(file).map_err(|error| Problem::at(Path::new(file), &error))?;
        self.run("fs", arguments, |command| _ = command.stdin(file)).map(drop)
    }

    fn mountpoint(&self, dataset: &str) -> PathBuf {
        self.folder.join("mounts").join(dataset)
    }

    /// Detects whether the pools are mounted, and reports the result.
    pub(super) fn find_mounts(&mut self) -> Result<(), Problem> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let place = self.mountpoint("tank/home").display().to_string();
        self.mounted = mounts.lines().any(|line| line.split(' ').nth(4) == Some(&place));
        self.note(match self.mounted {
            true => "Mounts work on this machine: files go through the kernel.",
            false => "No mounts on this machine: files go in and out with `fs cp`.",
        })
    }

    /// Copies the content of a directory into a dataset.
    pub(super) fn put(&mut self, folder: &Path, dataset: &str) -> Result<(), Problem> {
        if self.mounted {
            let target = self.mountpoint(dataset);
            self.time(&format!("copy into {}", target.display()), || compare::copy(folder, &target))?;
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
            let target = format!("{dataset}:/{name}");
            let path = path.display().to_string();
            self.fs(&["cp", "-r", &path, &target])?;
        }
        Ok(())
    }

    /// Compares a dataset with a directory; any difference, missing or extra file is an error.
    pub(super) fn compare(&mut self, folder: &Path, dataset: &str) -> Result<(), Problem> {
        let (place, temporary) = if self.mounted {
            (self.mountpoint(dataset), false)
        } else {
            let place = self.scratch("read-back")?;
            let target = place.display().to_string();
            self.fs(&["cp", "-r", &format!("{dataset}:/."), &target])?;
            (place, true)
        };
        let compared =
            self.time(&format!("compare {dataset} with what it must be"), || compare::trees(folder, &place))?;
        self.note(&format!("identical: {} entries, {:.1} MB", compared.entries, compared.bytes as f64 / 1e6))?;
        if temporary {
            fs::remove_dir_all(&place)?;
        }
        Ok(())
    }

    /// Changes and deletes some files of a dataset.
    pub(super) fn spoil(&mut self, dataset: &str) -> Result<(), Problem> {
        if !self.mounted {
            let junk = self.scratch("junk")?;
            fs::write(junk.join("junk"), vec![7; 3_000_000])?;
            self.put(&junk, dataset)?;
            return Ok(fs::remove_dir_all(junk)?);
        }
        let place = self.mountpoint(dataset);
        self.time(&format!("change and delete files in {}", place.display()), || {
            for (index, entry) in fs::read_dir(&place)?.enumerate() {
                let path = entry?.path();
                match (index % 2, path.is_dir()) {
                    (0, true) => fs::remove_dir_all(&path)?,
                    (0, false) => fs::remove_file(&path)?,
                    _ => fs::rename(&path, path.with_extension("renamed"))?,
                }
            }
            Ok(fs::write(place.join("junk"), vec![7; 3_000_000])?)
        })
    }

    /// Creates a directory of new files, and updates `second`, the expected result, in the same way.
    pub(super) fn work(&mut self, second: &Path) -> Result<PathBuf, Problem> {
        let work = self.scratch("work")?;
        let report = work.join("report");
        fs::create_dir(&report)?;
        for number in 0..10 {
            fs::write(report.join(format!("page-{number}")), format!("page {number}\n").repeat(700))?;
        }
        symlink("page-0", report.join("first"))?;
        fs::hard_link(report.join("page-1"), report.join("second"))?;
        compare::copy(&work, second)?;
        Ok(work)
    }

    /// Makes a folder of files that do not compress, 32 MB in all.
    pub(super) fn photos(&mut self) -> Result<PathBuf, Problem> {
        let photos = self.scratch("photos")?;
        for number in 1..=8 {
            fs::write(photos.join(format!("photo-{number}.jpg")), noise(number, 4_000_000))?;
        }
        Ok(photos)
    }

    /// Overwrites most of a disk behind the pool's back.
    pub(super) fn corrupt(&mut self, image: &str) -> Result<(), Problem> {
        let megabytes = (CORRUPTED.end - CORRUPTED.start) >> 20;
        self.time(&format!("overwrite {megabytes} MiB of {image} with noise"), || {
            let file =
                File::options().write(true).open(image).map_err(|error| Problem::at(Path::new(image), &error))?;
            for (number, at) in CORRUPTED.step_by(1 << 20).enumerate() {
                file.write_all_at(&noise(number as u64 + 100, 1 << 20), at)?;
            }
            Ok(())
        })
    }

    /// Deletes the image of a disk.
    pub(super) fn lose(&mut self, image: &str) -> Result<(), Problem> {
        self.time(&format!("delete {image}"), || {
            fs::remove_file(image).map_err(|error| Problem::at(Path::new(image), &error))
        })
    }
}

/// Bytes that no compression makes smaller.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // The generator is xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}
