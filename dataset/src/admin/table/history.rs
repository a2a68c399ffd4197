//! The pool's history: commands and internal events, with user and time.
//!
//! An entry is a command, or *internal*: an action of a request or of the pool itself. Internal entries have no user.
//! Entries of requests are written in the transaction that makes the change, one entry per request, however many
//! snapshots are taken.

use std::fmt::Display;

use pool::{env::Nanos, format::key::Key, units::Txg};

use super::datasets::Datasets;
use crate::{
    catalogue::{History, POOL, Transaction, keys, kind},
    error::Result,
};

/// The longest recorded command line, in bytes.
const MAX_COMMAND: usize = 4096;

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time, in nanoseconds since 1970.
    pub time: Nanos,
    /// The txg in which the entry was written.
    pub txg: Txg,
    /// The command line, or the internal action.
    pub command: String,
    /// The user that gave the command; empty for an internal entry.
    pub user: String,
    /// The host on which the command was given.
    pub host: String,
}

impl Datasets {
    /// Adds an entry to the history, with the next commit.
    ///
    /// The recorded change is committed already. A commit for the entry alone would double the I/O of a command; a
    /// crash before the next commit loses only the entry.
    pub fn record(&self, command: &str, user: &str, host: &str) -> Result<()> {
        let (command, user, host, time) = (cut(command), cut(user), cut(host), self.now());
        self.run_later("the history lacks a line", move |tx| {
            let (command, user, host) = (command.clone(), user.clone(), host.clone());
            let row = History { time, txg: tx.txg(), command, user, host };
            put(tx, &row)
        })
    }

    /// The history, oldest entry first, up to the last commit.
    pub fn history(&self) -> Result<Vec<Event>> {
        let rows = self.read(|tx| tx.rows::<History>(keys(POOL, kind::HISTORY)))?;
        let event = |row: History| {
            let History { time, txg, command, user, host } = row;
            Event { time, txg, command, user, host }
        };
        Ok(rows.into_iter().map(|(_, row)| event(row)).collect())
    }
}

/// Adds an internal entry that describes the transaction.
pub(in crate::admin) fn log(tx: &mut Transaction<'_>, what: &str) -> Result<()> {
    let (time, txg) = (tx.now(), tx.txg());
    put(tx, &History { time, txg, command: cut(what), user: String::new(), host: String::new() })
}

/// As [`log`], for an action on several objects, if any: names the first, and counts the rest.
pub(in crate::admin) fn log_each(tx: &mut Transaction<'_>, action: &str, names: &[impl Display]) -> Result<()> {
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
