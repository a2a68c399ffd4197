//! Events in the journal of systemd, with fields: `journalctl CENOTE_POOL=tank`, `journalctl -p warning -t cenote`.
//!
//! A service that systemd has started (it has an `INVOCATION_ID`) sends each event in the native protocol of journald.
//! Sending waits for nothing: an event that finds the journal busy is missing there, and is still in the pool's log.

use std::{io, os::unix::net::UnixDatagram, path::Path, thread};

use crossbeam_channel::{Sender, bounded};
use protocol::{EventRecord, Severity};

use crate::{execute::severity, hooks::OfPool};

/// The socket of journald.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Number of waiting events.
const QUEUE: usize = 256;

/// Longest value of a field, in bytes.
const LONGEST: usize = 16 << 10;

/// Starts the thread that sends events; `None` for a service that systemd has not started.
pub(crate) fn start(pool: OfPool) -> io::Result<Option<Sender<EventRecord>>> {
    if std::env::var_os("INVOCATION_ID").is_none() || !Path::new(SOCKET).exists() {
        return Ok(None);
    }
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let (events, received) = bounded::<EventRecord>(QUEUE);
    let work = move || {
        for event in received {
            if let Err(error) = socket.send_to(&entry(&pool, &event), SOCKET) {
                tracing::debug!("event {} is not in the journal: {error}", event.number);
            }
        }
    };
    thread::Builder::new().name("cenote-journald".into()).spawn(work)?;
    Ok(Some(events))
}

/// The entry of an event, in the native protocol.
fn entry(pool: &OfPool, event: &EventRecord) -> Vec<u8> {
    let detail = |name: &str| event.details.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let priority = match severity(event) {
        Severity::Critical => "2",
        Severity::Warning => "4",
        Severity::Notice => "5",
    };
    let said = detail("alert_problem").or(detail("vdev_path")).or(detail("history_command")).unwrap_or_default();
    let message = format!("{}: {} {said}", pool.name, event.class);
    let guid = format!("{:#018x}", pool.guid);
    let (mut bytes, number) = (Vec::new(), event.number.to_string());
    for (name, value) in [
        ("MESSAGE", message.trim_end()),
        ("PRIORITY", priority),
        ("SYSLOG_IDENTIFIER", "cenote"),
        ("CENOTE_POOL", pool.name.as_str()),
        ("CENOTE_POOL_GUID", guid.as_str()),
        ("CENOTE_CLASS", event.class.as_str()),
        ("CENOTE_EID", number.as_str()),
    ] {
        field(&mut bytes, name, value);
    }
    for (name, value) in event.details.iter().take(64) {
        field(&mut bytes, &format!("CENOTE_{}", name.to_ascii_uppercase()), value);
    }
    bytes
}

/// A field. A value with a line break has its length in front, so no value can end a field or begin another one.
fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    let is_name = name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    if !is_name || name.len() > 64 {
        return;
    }
    let value = &value.as_bytes()[..value.len().min(LONGEST)];
    bytes.extend(name.as_bytes());
    if value.contains(&b'\n') {
        bytes.push(b'\n');
        bytes.extend((value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend(value);
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_fields_and_no_value_makes_another_one() {
        let details = [("alert_severity", "warning"), ("vdev_path", "/dev/x\nPRIORITY=0"), ("bad name", "x")];
        let details = details.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let event = EventRecord { number: 7, time: 0, class: "alert.fs.cenote.device_errors".into(), details };
        let bytes = entry(&OfPool { name: "tank".into(), guid: 9 }, &event);
        let message = b"tank: alert.fs.cenote.device_errors /dev/x\nPRIORITY=0";
        let mut expected = b"MESSAGE\n".to_vec();
        expected.extend((message.len() as u64).to_le_bytes());
        expected.extend(message);
        expected.extend(
            b"\nPRIORITY=4\nSYSLOG_IDENTIFIER=cenote\nCENOTE_POOL=tank\nCENOTE_POOL_GUID=0x0000000000000009\n\
              CENOTE_CLASS=alert.fs.cenote.device_errors\nCENOTE_EID=7\nCENOTE_ALERT_SEVERITY=warning\nCENOTE_VDEV_PATH\n",
        );
        expected.extend(17_u64.to_le_bytes());
        expected.extend(b"/dev/x\nPRIORITY=0\n");
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&expected));
    }
}
