//! The requests of a mount by user, process and file, while someone watches.
//!
//! A request costs one load while no one watches. A watch lasts for [`LEASE`] after each look, so a watcher that dies
//! costs nothing afterwards. The table is bounded: requests that find no room are counted together.

use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use fuser::INodeNo;
use parking_lot::Mutex;

use crate::counters::Opcode;
use crate::handler::Requester;

/// How long requests are counted after a look.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// The most rows of a mount.
pub(crate) const MOST: usize = 1024;
/// The most threads whose processes are remembered.
const MOST_THREADS: usize = 4096;
/// A full table drops the rows without a request for so long.
const IDLE: Duration = Duration::from_secs(5);

/// Who made requests about which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Actor {
    /// The effective user ID.
    pub uid: u32,
    /// The process ID; 0 for the kernel itself.
    pub pid: u32,
    /// The node number of the file.
    pub node: u64,
}

/// Requests since the watch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Requests of all kinds.
    pub requests: u64,
    /// Requests to read files.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes given by writes.
    pub written_bytes: u64,
}

impl Done {
    fn add(&mut self, opcode: Opcode, bytes: u64) {
        self.requests += 1;
        match opcode {
            Opcode::Read => (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + bytes),
            Opcode::Write => (self.writes, self.written_bytes) = (self.writes + 1, self.written_bytes + bytes),
            _ => {}
        }
    }
}

/// The activity of a mount.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    is_watched: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<Actor, (Done, Instant)>,
    /// The process of each thread seen, at most [`MOST_THREADS`].
    processes: HashMap<u32, u32>,
    others: Done,
    until: Option<Instant>,
}

impl Table {
    /// The process of a thread; the thread's own number if the thread has ended.
    fn process_of(&mut self, thread: u32) -> u32 {
        if self.processes.len() >= MOST_THREADS {
            self.processes.clear();
        }
        *self.processes.entry(thread).or_insert_with(|| {
            let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
            let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
            process.and_then(|process| process.trim().parse().ok()).unwrap_or(thread)
        })
    }
}

impl Activity {
    /// Counts a request if someone watches.
    pub(crate) fn note(&self, who: &Requester, node: INodeNo, opcode: Opcode, bytes: u64) {
        if self.is_watched.load(Ordering::Relaxed) {
            // The kernel gives the number of the thread.
            self.note_at(Actor { uid: who.uid, pid: who.pid, node: node.0 }, opcode, bytes, Instant::now());
        }
    }

    fn note_at(&self, actor: Actor, opcode: Opcode, bytes: u64, now: Instant) {
        let mut table = self.table.lock();
        if table.until.is_none_or(|until| until < now) {
            *table = Table::default();
            self.is_watched.store(false, Ordering::Relaxed);
            return;
        }
        let actor = Actor { pid: table.process_of(actor.pid), ..actor };
        if let Some((done, last)) = table.rows.get_mut(&actor) {
            done.add(opcode, bytes);
            *last = now;
            return;
        }
        if table.rows.len() >= MOST {
            table.rows.retain(|_, (_, last)| now.saturating_duration_since(*last) < IDLE);
        }
        if table.rows.len() >= MOST {
            return table.others.add(opcode, bytes);
        }
        table.rows.entry(actor).or_insert((Done::default(), now)).0.add(opcode, bytes);
    }

    /// The rows since the watch began, at most [`MOST`], and the requests that found no room. Goes on watching.
    pub(crate) fn look(&self) -> (Vec<(Actor, Done)>, Done) {
        let mut table = self.table.lock();
        table.until = Some(Instant::now() + LEASE);
        self.is_watched.store(true, Ordering::Relaxed);
        let rows = table.rows.iter().map(|(actor, (done, _))| (*actor, *done)).collect();
        (rows, table.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_only_during_a_watch() {
        let activity = Activity::default();
        let who = Requester { uid: 1, gid: 2, pid: 3 };
        activity.note(&who, INodeNo(7), Opcode::Read, 10);
        assert_eq!(activity.look(), (vec![], Done::default()));
        activity.note(&who, INodeNo(7), Opcode::Read, 10);
        activity.note(&who, INodeNo(7), Opcode::GetAttr, 0);
        let done = Done { requests: 2, reads: 1, read_bytes: 10, ..Done::default() };
        assert_eq!(activity.look().0, [(Actor { uid: 1, pid: 3, node: 7 }, done)]);
        let late = Instant::now() + LEASE + LEASE;
        activity.note_at(Actor { uid: 1, pid: 3, node: 7 }, Opcode::Read, 10, late);
        assert!(!activity.is_watched.load(Ordering::Relaxed), "the watcher has gone");
        assert!(activity.look().0.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_idle() {
        let activity = Activity::default();
        activity.look();
        let actor = |node| Actor { uid: 0, pid: 1, node };
        let now = Instant::now();
        (0..MOST as u64 + 3).for_each(|node| activity.note_at(actor(node), Opcode::Write, 1, now));
        let (rows, others) = activity.look();
        assert_eq!((rows.len(), others.requests, others.written_bytes), (MOST, 3, 3));
        activity.note_at(actor(u64::MAX), Opcode::Write, 1, now + IDLE);
        assert_eq!(activity.look().0.len(), 1);
    }
}
