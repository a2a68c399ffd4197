//! The text of a message. Names of pools, devices and files come from outside, so every form has its own safe text.

use protocol::{EventRecord, Severity};
use serde_json::{Map, Value, json};

use crate::{execute::severity, hooks::OfPool};

/// Longest subject, in characters.
const SUBJECT: usize = 160;
/// Longest detail, in characters.
const DETAIL: usize = 900;
/// Most details of an event.
const DETAILS: usize = 64;

/// A message about an event.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// One line without control characters.
    pub(super) subject: String,
    /// Lines without control characters.
    pub(super) lines: Vec<String>,
    pub(super) severity: Severity,
    pub(super) json: Value,
}

impl Message {
    /// The message about an event. `withheld` is the number of messages withheld before.
    pub(super) fn of(pool: &OfPool, event: &EventRecord, withheld: u64) -> Message {
        let detail =
            |name: &str| event.details.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let word = event.class.rsplit('.').next().unwrap_or(&event.class);
        let (about, state) = (detail("alert_subject").or(detail("vdev_path")), detail("alert_state"));
        let cleared = if state == Some("cleared") { " cleared" } else { "" };
        let about = about.map_or_else(String::new, |about| format!(" ({about})"));
        let mut lines: Vec<String> =
            [detail("alert_problem"), detail("alert_action")].into_iter().flatten().map(plain).collect();
        lines.push(format!("Pool: {}", plain(&pool.name)));
        lines.push(format!("Event: {} {}", event.number, plain(&event.class)));
        let shown = |(name, value): &(String, String)| format!("{}: {}", plain(name), plain(value));
        lines.extend(event.details.iter().take(DETAILS).map(shown));
        if withheld > 0 {
            lines.push(said_withheld(withheld));
        }
        let details: Map<String, Value> =
            event.details.iter().take(DETAILS).map(|(name, value)| (name.clone(), json!(value))).collect();
        let severity = severity(event);
        let json = json!({
            "pool": pool.name, "pool_guid": pool.guid.to_string(), "severity": severity.as_str(),
            "class": event.class, "number": event.number, "time": event.time, "details": details, "withheld": withheld,
        });
        Message { subject: subject(&pool.name, severity, &format!("{word}{cleared}{about}")), lines, severity, json }
    }

    /// The message about withheld messages alone.
    pub(super) fn of_withheld(pool: &OfPool, withheld: u64) -> Message {
        let json = json!({ "pool": pool.name, "pool_guid": pool.guid.to_string(), "withheld": withheld });
        let lines = vec![said_withheld(withheld), format!("To see all events: pool events -v {}", plain(&pool.name))];
        Message {
            subject: subject(&pool.name, Severity::Notice, "messages withheld"),
            lines,
            severity: Severity::Notice,
            json,
        }
    }

    /// A message that tests the targets.
    pub(super) fn of_test(pool: &str) -> Message {
        let class = "sysevent.fs.cenote.notify_test";
        let json = json!({ "pool": pool, "severity": "notice", "class": class, "details": {} });
        let lines = vec![format!("A test of the notifications of pool {}.", plain(pool))];
        Message { subject: subject(pool, Severity::Notice, "test"), lines, severity: Severity::Notice, json }
    }
}

fn said_withheld(withheld: u64) -> String {
    let messages = if withheld == 1 { "message was" } else { "messages were" };
    format!("{withheld} earlier {messages} withheld: the limit of this target is reached.")
}

fn subject(pool: &str, severity: Severity, what: &str) -> String {
    let text = format!("[cenote] {pool}: {}: {what}", severity.as_str());
    plain(&text).chars().take(SUBJECT).collect()
}

/// A text on one line, of bounded length, without control characters.
fn plain(text: &str) -> String {
    text.chars()
        .take(DETAIL)
        .map(|c| {
            if c == '\n' {
                ' '
            } else if c.is_control() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_adds_a_line_or_a_control_character() {
        let pool = OfPool { name: "tank".into(), guid: 7 };
        let details = [
            ("alert_subject", "/dev/x\r\nBcc: all@example.org\r\n\r\nbody"),
            ("alert_severity", "critical"),
            ("alert_problem", "lost\u{1b}[2J"),
            ("alert_action", &"long".repeat(10_000)),
        ];
        let details = details.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let event = EventRecord { number: 3, time: 9, class: "alert.fs.cenote.data_damaged".into(), details };
        let message = Message::of(&pool, &event, 2);
        assert_eq!(message.subject, "[cenote] tank: critical: data_damaged (/dev/x? Bcc: all@example.org? ? body)");
        assert!(message.lines.iter().chain([&message.subject]).all(|line| !line.contains(char::is_control)));
        assert!(message.lines.iter().all(|line| line.chars().count() <= 1000));
        assert_eq!(message.lines[0], "lost?[2J");
        assert_eq!(
            message.lines.last().unwrap(),
            "2 earlier messages were withheld: the limit of this target is reached."
        );
        assert_eq!(message.json["details"]["alert_subject"], "/dev/x\r\nBcc: all@example.org\r\n\r\nbody");
    }
}
