//! Notifications: messages about events, by mail, to a web address or on the desktop.
//!
//! `notify.toml` of the configuration folder names the targets; the pool, which may come from another person, does not.
//! The file is read anew for each event, and refused if another user owns or can write it. A thread of its own sends the
//! messages, one after the other, each with a time limit; the service waits for none. Nothing of an event reaches a
//! shell: programs get arguments and an input.
//!
//! ```text
//! config   targets, and the events that each wants
//! message  the text of a message, safe in headers and in markup
//! limit    how many messages a target gets in an hour, and how many were withheld
//! send     mail through sendmail, HTTP, notify-send
//! ```

mod config;
mod limit;
mod message;
mod send;

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use protocol::{EventRecord, Failure};

use self::{config::Target, limit::Limits, message::Message};
use crate::{hooks::OfPool, places::Places};

/// Number of events that may wait; further events make no messages, which the log reports.
const QUEUE: usize = 256;

/// Interval of looks for targets with withheld messages.
const INTERVAL: Duration = Duration::from_secs(60);

/// Starts the thread that sends messages as `file` says; events are sent to the returned end.
pub(crate) fn start(file: PathBuf, pool: OfPool) -> io::Result<Sender<EventRecord>> {
    let (events, received) = bounded(QUEUE);
    thread::Builder::new().name("cenote-notify".into()).spawn(move || run(&file, &pool, &received))?;
    Ok(events)
}

fn run(file: &Path, pool: &OfPool, events: &Receiver<EventRecord>) {
    let (mut limits, mut complaint) = (Limits::default(), None);
    loop {
        let event = match events.recv_timeout(INTERVAL) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (targets, refused) = match config::read(file) {
            Ok(targets) => (targets, None),
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        if let Some(refused) = refused.as_ref().filter(|_| refused != complaint) {
            tracing::warn!("no notifications: {refused}");
        }
        complaint = refused;
        if let Some(event) = event {
            tell(&targets, pool, &event, &mut limits);
        }
        // Also between events: a busy pool may have no quiet minute.
        tell_withheld(&targets, pool, &mut limits);
    }
}

/// Sends an event to the targets that want the event.
fn tell(targets: &[Target], pool: &OfPool, event: &EventRecord, limits: &mut Limits) {
    for target in targets.iter().filter(|target| target.wants(event)) {
        if let Some(withheld) = limits.admit(target, Instant::now()) {
            attempt(target, &Message::of(pool, event, withheld));
        }
    }
}

/// Reports the number of withheld messages to each target after its hour.
fn tell_withheld(targets: &[Target], pool: &OfPool, limits: &mut Limits) {
    for target in targets {
        if let Some(withheld) = limits.take_withheld(target, Instant::now()) {
            attempt(target, &Message::of_withheld(pool, withheld));
        }
    }
}

fn attempt(target: &Target, message: &Message) {
    if let Err(error) = send::send(target, message) {
        tracing::warn!("{target} was not notified: {error}");
    }
}

/// The result of a test message.
#[derive(Debug)]
pub struct Tried {
    /// The target, such as `mail to root`.
    pub target: String,
    /// Why no message could be sent; `None` if the message was sent.
    pub problem: Option<String>,
}

/// Sends a test message about a pool to all targets of this user.
///
/// # Errors
/// If the configuration file is invalid, refused, or names no target.
pub fn test(places: &Places, pool: &str) -> Result<Vec<Tried>, Failure> {
    let file = places.notify();
    let targets = config::read(&file)?;
    if targets.is_empty() {
        let hint = "add a section [[mail]], [[webhook]] or [[desktop]]: see 'pool events --help'";
        return Err(Failure::cannot("notify", file.display(), "the file names no target, or does not exist").hint(hint));
    }
    let message = Message::of_test(pool);
    let tried = |target: &Target| Tried {
        target: target.to_string(),
        problem: send::send(target, &message).err().map(|error| error.to_string()),
    };
    Ok(targets.iter().map(tried).collect())
}
