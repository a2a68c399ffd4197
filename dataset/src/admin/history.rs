//! What was done to the pool, by whom, and when.
//!
//! A line is a command that was given, or *internal*: what a request or the pool itself did. Internal lines name no user. Those
//! of requests are written in the transaction that does what they tell of, one a request, however many snapshots it takes.

use std::fmt::Display;

use pool::{env::Nanos, format::key::Key, units::Txg};

use super::{datasets::Datasets, error::Result};
use crate::catalogue::{History, POOL, Transaction, keys, kind};

/// The longest command line that is kept, in bytes.
const MAX_COMMAND: usize = 4096;

/// A line of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds since 1970.
    pub time: Nanos,
    /// In which transaction group.
    pub txg: Txg,
    /// The command line, or what was done.
    pub command: String,
    /// Who gave it; nobody did if it is internal.
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
        let (command, user, host, time) = (cut(command), cut(user), cut(host), self.now());
        self.run_later("the history lacks a line", move |tx| {
            let (command, user, host) = (command.clone(), user.clone(), host.clone());
            let row = History { time, txg: tx.txg(), command, user, host };
            put(tx, &row)
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

/// Adds an internal line that tells what the transaction does.
pub(super) fn log(tx: &mut Transaction<'_>, what: &str) -> Result<()> {
    let (time, txg) = (tx.now(), tx.txg());
    put(tx, &History { time, txg, command: cut(what), user: String::new(), host: String::new() })
}

/// The same of what was done to several things, if to any: the first is named, and the others are counted.
pub(super) fn log_each(tx: &mut Transaction<'_>, action: &str, names: &[impl Display]) -> Result<()> {
    match names {
        [] => Ok(()),
        [one] => log(tx, &format!("{action} {one}")),
        [first, others @ ..] => log(tx, &format!("{action} {first} and {} more", others.len())),
    }
}

fn put(tx: &mut Transaction<'_>, row: &History) -> Result<()> {
    let number = tx.edit_master(|master| {
        master.next_history = master.next_history.saturating_add(1);
        master.next_history - 1
    })?;
    tx.put(Key::new(POOL, kind::HISTORY, number), row, None);
    Ok(())
}

fn cut(text: &str) -> String {
    text.chars().scan(0, within).collect()
}

/// The next character, if the text up to it is not too long.
fn within(len: &mut usize, c: char) -> Option<char> {
    *len += c.len_utf8();
    (*len <= MAX_COMMAND).then_some(c)
}
