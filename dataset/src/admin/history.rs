//! What was done to the pool, by whom, and when.

use pool::{env::Nanos, format::key::Key, units::Txg};

use super::{datasets::Datasets, error::Result};
use crate::catalogue::{History, POOL, keys, kind};

/// The longest command line that is kept, in bytes.
const MAX_COMMAND: usize = 4096;

/// A line of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds since 1970.
    pub time: Nanos,
    /// In which transaction group.
    pub txg: Txg,
    /// The command line.
    pub command: String,
    /// Who gave it.
    pub user: String,
    /// On which host.
    pub host: String,
}

impl Datasets {
    /// Adds a line to the history, with the next commit, whoever makes it.
    ///
    /// What the line tells of is committed already. To commit once more for the line would double what a command costs the
    /// devices; a crash before the next commit loses the line and nothing else.
    pub fn record(&self, command: &str, user: &str, host: &str) -> Result<()> {
        let cut = |text: &str| text.chars().scan(0, within).collect::<String>();
        let (command, user, host, time) = (cut(command), cut(user), cut(host), self.now());
        self.run_later("the history lacks a line", move |tx| {
            let number = tx.edit_master(|master| {
                master.next_history = master.next_history.saturating_add(1);
                master.next_history - 1
            })?;
            let (command, user, host) = (command.clone(), user.clone(), host.clone());
            let row = History { time, txg: tx.txg(), command, user, host };
            tx.put(Key::new(POOL, kind::HISTORY, number), &row, None);
            Ok(())
        })
    }

    /// The history, oldest line first, up to the last commit.
    pub fn history(&self) -> Result<Vec<Event>> {
        let rows = self.read(|tx| tx.rows::<History>(keys(POOL, kind::HISTORY)))?;
        let event = |row: History| {
            let History { time, txg, command, user, host } = row;
            Event { time, txg, command, user, host }
        };
        Ok(rows.into_iter().map(|(_, row)| event(row)).collect())
    }
}

/// The next character, if the text up to it is not too long.
fn within(len: &mut usize, c: char) -> Option<char> {
    *len += c.len_utf8();
    (*len <= MAX_COMMAND).then_some(c)
}
