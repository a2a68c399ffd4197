//! Locks between processes: whole files, records of a process, and records of an open file. A Perl script plays the
//! other processes. The tests check exclusion, waiting, and the release of a killed process's locks.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{fs::FlockOperation, io::Errno};

use crate::{has_perl, lab::wait_until, on_a_mount};

/// A process that holds a lock, or waits for one.
struct Holder(Child);

impl Holder {
    fn new(words: &str, path: &Path) -> Holder {
        let (kind, rest) = words.split_once(' ').unwrap();
        let (how, range) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut command = Command::new("perl");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/posix/lock.pl"));
        command.args([kind, how]).arg(path).args(range.split_whitespace());
        Holder(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Whether the process gets the lock, however long it waits.
    fn holds(&mut self) -> bool {
        let mut said = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        said == "held\n"
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process waits for a lock of the file.
fn is_waited_for(path: &Path) -> bool {
    let file = fs::metadata(path).unwrap();
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!(" {major:02x}:{minor:02x}:{} ", file.ino());
    let table = fs::read_to_string("/proc/locks").unwrap();
    table.lines().any(|line| line.contains("->") && line.contains(&place))
}

/// Runs a test with a file, if Perl is available.
fn with_a_file(test: impl FnOnce(&Path)) {
    if !has_perl() {
        return;
    }
    on_a_mount(|_, place| {
        let path = place.join("file");
        fs::write(&path, "text").unwrap();
        test(&path);
    });
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_lock_is_free_when_its_holder_is_killed() {
    with_a_file(|path| {
        for kind in ["flock", "record", "description"] {
            let mut holder = Holder::new(&format!("{kind} try"), path);
            assert!(holder.holds(), "{kind}");
            assert!(!Holder::new(&format!("{kind} try"), path).holds(), "{kind}: a second one must be refused");
            let mut next = Holder::new(&format!("{kind} wait"), path);
            wait_until("the next one waits", || is_waited_for(path));
            holder.kill();
            assert!(next.holds(), "{kind}: the next one gets it");
            // Closing the file also releases the lock.
            drop(next.0.stdin.take());
            assert!(next.0.wait().unwrap().success());
            assert!(Holder::new(&format!("{kind} try"), path).holds(), "{kind}");
        }
    });
}

#[test]
fn records_of_a_file_are_locked_one_by_one() {
    with_a_file(|path| {
        for (kind, other) in [("record", "description"), ("description", "record")] {
            let mut holder = Holder::new(&format!("{kind} try 100 100"), path);
            assert!(holder.holds());
            for (range, free) in [("0 100", true), ("200 0", true), ("199 1", false), ("0 0", false), ("50 51", false)]
            {
                for asked in [kind, other] {
                    let taken = Holder::new(&format!("{asked} try {range}"), path).holds();
                    assert_eq!(taken, free, "{asked} {range} beside a {kind}");
                }
            }
            // Locks of whole files are independent of record locks.
            assert!(Holder::new("flock try", path).holds());
        }
    });
}

#[test]
fn a_record_is_free_when_its_process_closes_the_file_once() {
    with_a_file(|path| {
        let (first, second) = (open(path), open(path));
        rustix::fs::fcntl_lock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!Holder::new("record try", path).holds());
        assert!(!Holder::new("description try", path).holds());
        drop(second);
        assert!(Holder::new("record try", path).holds(), "so POSIX wants it");

        let mut holder = Holder::new("description try", path);
        assert!(holder.holds());
        let refused = rustix::fs::fcntl_lock(&first, FlockOperation::NonBlockingLockExclusive);
        assert!(matches!(refused, Err(Errno::AGAIN | Errno::ACCESS)), "{refused:?}");
    });
}
