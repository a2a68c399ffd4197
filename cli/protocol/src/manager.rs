//! Messages to systemd (sd_notify): a process is ready, alive, or about to end.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Variable with the socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The process has started, and does its work.
pub const READY: &str = "READY=1";

/// The process is alive; a manager with a watchdog restarts a silent process.
pub const ALIVE: &str = "WATCHDOG=1";

/// The process is about to end.
pub const STOPPING: &str = "STOPPING=1";

/// Before a description of what the process does at present.
pub const STATUS: &str = "STATUS=";

/// Tells the service manager, if there is one. A manager that is gone changes nothing.
pub fn tell(message: &str) {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = send(&path, message) {
        tracing::debug!("cannot notify the service manager: {error}");
    }
}

/// Sends to a path, or to an abstract name that begins with `@`.
fn send(path: &OsStr, message: &str) -> io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("cenote-notify-{}", std::process::id());
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (socket, address) in sockets {
            send(&address, READY).unwrap();
            let mut bytes = [0; 32];
            let count = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..count], READY.as_bytes());
        }
    }
}
