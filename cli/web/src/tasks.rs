//! Running commands: each on a thread of its own, with its output kept for the page.
//!
//! A task ends with its command. A browser may leave and come back. The number of tasks and the size of their output
//! are bounded; the oldest ended task makes room.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use protocol::{Exit, Failure};
use serde::Deserialize;
use serde_json::Value;

use crate::quota::{Lasting, Quota};

/// Maximum number of tasks on record: of the owner, of one other user, and of all other users.
const MOST: usize = 200;
const MOST_OF_ONE: usize = 20;
const MOST_OF_OTHERS: usize = 200;

/// Kept output of a task, in bytes; the middle of a longer output is left out.
const MAX_OUTPUT: usize = 64 << 10;

/// The tasks, by number.
#[derive(Default)]
pub(crate) struct Tasks {
    all: Mutex<(u64, BTreeMap<u64, Arc<Task>>)>,
    /// The shares in running tasks.
    places: Quota,
}

/// A command, running or ended.
pub(crate) struct Task {
    /// Number in the address of its page.
    pub(crate) number: u64,
    /// The user who confirmed the command.
    pub(crate) user: u32,
    /// The user has all rights of the owner.
    is_owner: bool,
    /// The command line, as a user would type it.
    pub(crate) command: String,
    /// The page to go back to.
    pub(crate) back: String,
    /// Start, in seconds since 1970.
    pub(crate) begun: u64,
    since: Instant,
    state: Mutex<State>,
}

/// Output and end of a task.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Output so far, in bytes of any encoding.
    pub(crate) output: Vec<u8>,
    /// The progress of a transfer.
    pub(crate) progress: Option<Transfer>,
    /// The exit status and the duration in seconds; `None` while the task runs.
    pub(crate) end: Option<(Exit, f64)>,
}

/// The progress of a send or a receive: a line of `--progress json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Transfer {
    /// Bytes transferred.
    pub(crate) bytes: u64,
    /// Number of expected bytes.
    pub(crate) total: Option<u64>,
    /// Bytes per second since the beginning.
    pub(crate) rate: u64,
}

impl Transfer {
    /// The progress in a line of output; `None` for any other line.
    pub(crate) fn of_line(line: &[u8]) -> Option<Transfer> {
        let object: Value = serde_json::from_slice(line).ok()?;
        object.get("operation")?;
        serde_json::from_value(object).ok()
    }

    /// Seconds left at the present rate.
    pub(crate) fn left(&self) -> Option<u64> {
        self.total?.saturating_sub(self.bytes).checked_div(self.rate)
    }
}

impl Task {
    /// Notes the progress of a transfer; the size of the file is the total of a command without a total.
    pub(crate) fn note(&self, transfer: Transfer, size: Option<u64>) {
        self.state.lock().progress = Some(Transfer { total: transfer.total.or(size), ..transfer });
    }

    /// Output and end so far.
    pub(crate) fn state(&self) -> State {
        self.state.lock().clone()
    }

    fn is_running(&self) -> bool {
        self.state.lock().end.is_none()
    }
}

impl Tasks {
    /// A task visible to the user.
    pub(crate) fn get(&self, number: u64, user: u32, is_owner: bool) -> Option<Arc<Task>> {
        let task = self.all.lock().1.get(&number).cloned()?;
        (is_owner || task.user == user).then_some(task)
    }

    /// The tasks of a user, newest first; the owner sees all.
    pub(crate) fn of(&self, user: u32, is_owner: bool) -> Vec<Arc<Task>> {
        let all = self.all.lock();
        all.1.values().rev().filter(|task| is_owner || task.user == user).cloned().collect()
    }

    /// Runs `work` as a task. The work returns the exit status.
    pub(crate) fn run(
        &self,
        (user, is_owner): (u32, bool),
        (command, back): (String, String),
        work: impl FnOnce(&Arc<Task>) -> Exit + Send + 'static,
    ) -> Result<Arc<Task>, Failure> {
        let full = || Failure::new("too many commands are running").hint("wait until a command has ended");
        let place = self.places.enter(Lasting::Command, (!is_owner).then_some(user)).ok_or_else(full)?;
        let begun = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let task = {
            let mut all = self.all.lock();
            let (last, tasks) = &mut *all;
            make_room(tasks, user, is_owner);
            *last += 1;
            let state = Mutex::default();
            let task = Task { number: *last, user, is_owner, command, back, begun, since: Instant::now(), state };
            let task = Arc::new(task);
            tasks.insert(task.number, task.clone());
            task
        };
        let running = task.clone();
        std::thread::Builder::new().name("task".into()).spawn(move || {
            // A defect ends the task, and its page says so.
            let mut ending = Ending(running.clone(), Exit::Failed);
            ending.1 = work(&running);
            drop(place);
        })?;
        Ok(task)
    }
}

/// Maximum number of tasks on record, and the tasks that count.
type Share<'a> = (usize, &'a dyn Fn(&Task) -> bool);

/// Drops the oldest ended task of a user, or of all users but the owner, if too many are on record.
fn make_room(tasks: &mut BTreeMap<u64, Arc<Task>>, user: u32, is_owner: bool) {
    let of_owner = |task: &Task| task.is_owner;
    let of_one = |task: &Task| !task.is_owner && task.user == user;
    let of_others = |task: &Task| !task.is_owner;
    let shares: &[Share<'_>] = match is_owner {
        true => &[(MOST, &of_owner)],
        false => &[(MOST_OF_ONE, &of_one), (MOST_OF_OTHERS, &of_others)],
    };
    for &(most, is_counted) in shares {
        let counted = || tasks.values().filter(|task| is_counted(task));
        let oldest = counted().find(|task| !task.is_running()).map(|task| task.number);
        if let Some(oldest) = oldest.filter(|_| counted().count() >= most) {
            tasks.remove(&oldest);
        }
    }
}

/// Notes the end of a task on drop, also after a panic.
struct Ending(Arc<Task>, Exit);

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Notes of a task are kept in memory, so the write cannot fail.
            let _ = writeln!(Output(&self.0), "internal error in the web server");
        }
        let mut state = self.0.state.lock();
        state.end = Some((self.1, self.0.since.elapsed().as_secs_f64()));
    }
}

/// Writer of a task's output.
pub(crate) struct Output<'a>(pub(crate) &'a Task);

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        append(&mut self.0.state.lock().output, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends to an output, and leaves out the middle of a long output.
pub(crate) fn append(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(bytes);
    if output.len() > MAX_OUTPUT {
        let gone = output.len() - MAX_OUTPUT;
        let half = MAX_OUTPUT / 2;
        output.splice(half..half + gone, []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_is_no_output() {
        let line =
            br#"{"operation":"sending","snapshot":"tank@a","bytes":100,"total":300,"rate":50,"remaining_seconds":4}"#;
        let transfer = Transfer::of_line(line).unwrap();
        assert_eq!((transfer.bytes, transfer.total, transfer.left()), (100, Some(300), Some(4)));
        for other in ["", "{", "{\"operation\"", "{\"operation\":1}", "would send", r#"{"bytes":1}"#] {
            assert_eq!(Transfer::of_line(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Transfer { rate: 0, ..transfer }.left(), None);
    }

    #[test]
    fn other_users_take_neither_places_nor_records_of_the_owner() {
        let tasks = Tasks::default();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let begin = |user, is_owner| {
            let held = held.clone();
            tasks.run((user, is_owner), ("x".into(), "/".into()), move |_| {
                let _ = held.lock().recv();
                Exit::Done
            })
        };
        let ends = |number| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                tasks.get(number, 0, true).is_none_or(|task| !task.is_running())
            })
        };
        let ended = tasks.run((0, true), ("x".into(), "/".into()), |_| Exit::Done).unwrap();
        assert!(ends(ended.number));
        let of_others = (1..=10).flat_map(|user| [user; 3]).filter(|user| begin(*user, false).is_ok()).count();
        assert_eq!(of_others, 8);
        assert_eq!((0..20).filter(|_| begin(0, true).is_ok()).count(), 16);
        drop(hold);
        assert!((1..=25).all(ends));
        for _ in 0..300 {
            let task = tasks.run((7, false), ("x".into(), "/".into()), |_| Exit::Done).unwrap();
            assert!(ends(task.number));
        }
        assert!(tasks.get(ended.number, 0, true).is_some(), "the owner's record is there");
        assert_eq!(tasks.of(7, false).len(), MOST_OF_ONE);
    }

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end() {
        let mut output = b"begin".to_vec();
        for _ in 0..100 {
            append(&mut output, &[b'x'; 4096]);
        }
        append(&mut output, b"end");
        assert_eq!(output.len(), MAX_OUTPUT);
        assert!(output.starts_with(b"begin") && output.ends_with(b"end"));
    }
}
