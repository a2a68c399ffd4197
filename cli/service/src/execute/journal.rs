//! The log of a pool's events, one JSON record a line, which a new service continues.
//!
//! Writing takes place on a thread of its own: the state folder may be on a device that does not answer, even on the
//! served pool itself. Records that find the queue full are lost for the log, and still shown until the service ends.
//! The log has at most twice as many lines as a pool keeps events. A log that cannot be written is reported once.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Sender, bounded};
use protocol::EventRecord;

/// Number of events kept in the log and in memory.
pub(super) const KEPT: usize = 1000;

/// Number of records that may wait for the writer.
const QUEUE: usize = 256;

/// Maximum size of a log, in bytes; the rest of a larger file is not read.
const MOST: u64 = 16 << 20;

/// How long the end of a service waits for the last records.
const PATIENCE: Duration = Duration::from_secs(1);

/// A change of the log.
enum Change {
    Append(EventRecord),
    Clear,
}

/// The log of a pool's events.
pub(crate) struct Journal {
    changes: Option<Sender<Change>>,
    writer: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens a log, and reads its events, oldest first. A line that is no event, or is out of order, is skipped.
    pub(crate) fn open(path: PathBuf) -> (Journal, VecDeque<EventRecord>) {
        let known = read(&path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("cannot read the events in {}: {error}", path.display());
            }
            VecDeque::new()
        });
        let (changes, received) = bounded(QUEUE);
        let mut log = Log { path, file: None, lines: usize::MAX, kept: known.clone(), has_failed: false };
        let writing = move || received.iter().for_each(|change| log.change(change));
        let writer = thread::Builder::new().name("cenote-events-log".into()).spawn(writing);
        if let Err(error) = &writer {
            tracing::warn!("events are not logged: {error}");
        }
        (Journal { changes: Some(changes), writer: writer.ok() }, known)
    }

    /// Adds an event to the log.
    pub(super) fn append(&self, event: &EventRecord) {
        self.send(Change::Append(event.clone()));
    }

    /// Removes all events.
    pub(super) fn clear(&self) {
        self.send(Change::Clear);
    }

    fn send(&self, change: Change) {
        if let Some(Err(error)) = self.changes.as_ref().map(|changes| changes.try_send(change)) {
            tracing::warn!("an event is not logged: {error}");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        drop(self.changes.take());
        let Some(writer) = self.writer.take() else { return };
        // A device that does not answer must not delay the end of the service.
        let deadline = Instant::now() + PATIENCE;
        while !writer.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read(path: &Path) -> io::Result<VecDeque<EventRecord>> {
    let mut kept = VecDeque::<EventRecord>::new();
    for line in BufReader::new(File::open(path)?.take(MOST)).split(b'\n') {
        let Ok(event) = serde_json::from_slice::<EventRecord>(&line?) else { continue };
        if kept.back().is_some_and(|last| last.number >= event.number) || event.number == u64::MAX {
            continue;
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(event);
    }
    Ok(kept)
}

/// The file, as the writer sees it.
struct Log {
    path: PathBuf,
    file: Option<File>,
    /// Lines in the file; the greatest number before the first write.
    lines: usize,
    kept: VecDeque<EventRecord>,
    has_failed: bool,
}

impl Log {
    fn change(&mut self, change: Change) {
        let written = match change {
            Change::Append(event) => {
                if self.kept.len() == KEPT {
                    self.kept.pop_front();
                }
                self.kept.push_back(event);
                if self.lines < 2 * KEPT { self.append() } else { self.rewrite() }
            }
            Change::Clear => {
                self.kept.clear();
                self.rewrite()
            }
        };
        if let (Err(error), false) = (written, self.has_failed) {
            tracing::warn!("cannot write the events to {}: {error}", self.path.display());
            (self.has_failed, self.lines) = (true, usize::MAX);
        }
    }

    fn append(&mut self) -> io::Result<()> {
        let (Some(file), Some(event)) = (&mut self.file, self.kept.back()) else { return self.rewrite() };
        file.write_all(&line(event)?)?;
        self.lines += 1;
        Ok(())
    }

    /// Writes the kept events to a new file, which then takes the place of the log.
    fn rewrite(&mut self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut bytes = Vec::new();
        for event in &self.kept {
            bytes.extend(line(event)?);
        }
        file.write_all(&bytes)?;
        fs::rename(&new, &self.path)?;
        (self.file, self.lines) = (Some(file), self.kept.len());
        Ok(())
    }
}

fn line(event: &EventRecord) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(event)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> EventRecord {
        EventRecord { number, time: 7, class: "sysevent.fs.zfs.scrub_start".into(), details: Vec::new() }
    }

    #[test]
    fn a_log_is_continued_and_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (journal, known) = Journal::open(path.clone());
        assert!(known.is_empty());
        for number in 1..=3 * KEPT as u64 {
            while journal.changes.as_ref().unwrap().is_full() {
                thread::sleep(Duration::from_millis(1));
            }
            journal.append(&event(number));
        }
        drop(journal);
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!((KEPT..=2 * KEPT).contains(&lines), "{lines}");
        let (journal, known) = Journal::open(path.clone());
        assert_eq!((known.len(), known[0].number), (KEPT, 2 * KEPT as u64 + 1));
        journal.clear();
        drop(journal);
        assert!(Journal::open(path).1.is_empty());
    }

    #[test]
    fn lines_that_are_no_events_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let good = |number| String::from_utf8(line(&event(number)).unwrap()).unwrap();
        let backwards = good(2);
        fs::write(&path, format!("{}\u{0}\n{{\n{}{backwards}{}", good(3), good(5), good(u64::MAX))).unwrap();
        let (_, known) = Journal::open(path);
        assert_eq!(known.iter().map(|event| event.number).collect::<Vec<_>>(), [3, 5]);
    }
}
