//! Listening sockets from systemd, as in sd_listen_fds(3): systemd takes the port when the machine starts, and keeps the
//! port while the server restarts. So no program can come first.

use std::net::{SocketAddr, TcpListener};

use protocol::Failure;
use rustix::{
    io::Errno,
    net::sockopt::{set_socket_send_buffer_size, socket_acceptconn},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

/// Number of the first descriptor handed over.
const FIRST: i32 = 3;

/// Most sockets: both addresses of `localhost`.
const MOST: usize = 2;

/// The sockets handed over to this process, each with its address; empty without systemd.
///
/// # Errors
/// For more than two sockets, or a descriptor without a listening socket of TCP.
pub(crate) fn sockets(send_buffer: usize) -> Result<Vec<(TcpListener, SocketAddr)>, Failure> {
    let variable = |name| std::env::var(name).ok()?.parse::<usize>().ok();
    // The variables may be meant for a parent of this process.
    let is_meant = variable("LISTEN_PID") == usize::try_from(std::process::id()).ok();
    let count = variable("LISTEN_FDS").filter(|_| is_meant).unwrap_or(0);
    if count > MOST {
        return Err(Failure::new(format!("cannot use {count} sockets of the socket unit: at most {MOST} addresses")));
    }
    (FIRST..).take(count).map(|number| take(number, send_buffer)).collect()
}

fn take(number: i32, send_buffer: usize) -> Result<(TcpListener, SocketAddr), Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::cannot("use", format!("descriptor {number}"), why);
    // The copy has an owner, and no child inherits it. The original would stay open in children.
    let copied = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|own| pidfd_getfd(own, number, PidfdGetfdFlags::empty()))
        .map_err(|error| refused(&error))?;
    let _ = nix::unistd::close(number);
    match socket_acceptconn(&copied) {
        Ok(true) => {}
        Ok(false) | Err(Errno::NOTSOCK) => return Err(refused(&"it is no listening socket")),
        Err(error) => return Err(refused(&error)),
    }
    set_socket_send_buffer_size(&copied, send_buffer).map_err(|error| refused(&error))?;
    let listener = TcpListener::from(copied);
    let address = listener.local_addr().map_err(|_| refused(&"it is no socket of TCP"))?;
    listener.set_nonblocking(true)?;
    Ok((listener, address))
}
