//! The client at the other end of a connection: its address, and on this machine its user.
//!
//! The kernel lists the sockets of the loopback interface with the users who made them. Only a connected socket that a process
//! still holds counts: a socket without a process has no user, and is listed as root's.

use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The client's address, without port.
    pub(crate) address: IpAddr,
    /// The user of a client on this machine; `None` for a client elsewhere.
    pub(crate) user: Option<u32>,
}

/// The state of a connected socket in the kernel's lists.
const ESTABLISHED: &str = "01";

impl Peer {
    /// The client at `peer` of a connection with this server at `local`.
    ///
    /// # Errors
    /// If the client is on this machine and its socket is not found: the client has already gone.
    pub(crate) fn of(peer: SocketAddr, local: SocketAddr) -> io::Result<Peer> {
        let address = peer.ip().to_canonical();
        if !address.is_loopback() && address != local.ip().to_canonical() {
            return Ok(Peer { address, user: None });
        }
        let lists = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|list| read_to_string(list).ok());
        let user = lists.into_iter().find_map(|list| user_of(&list, peer, local));
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the user of the connection is unknown");
        Ok(Peer { address, user: Some(user.ok_or_else(gone)?) })
    }
}

/// The user of the socket at `near`, connected to `far`, in a list of the kernel.
fn user_of(list: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    list.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[_, local, remote, state, _, _, _, user, _, inode, ..] = fields.as_slice() else { return None };
        let is_meant = is_at(local, near) && is_at(remote, far) && state == ESTABLISHED && inode != "0";
        is_meant.then(|| user.parse().ok()).flatten()
    })
}

/// Whether the kernel's text of an address and a port means `address`.
fn is_at(text: &str, address: SocketAddr) -> bool {
    let parsed = text.split_once(':').and_then(|(ip, port)| Some((ip_of(ip)?, u16::from_str_radix(port, 16).ok()?)));
    parsed == Some((address.ip().to_canonical(), address.port()))
}

/// The address in the kernel's text: words of 32 bits in hexadecimal, each in the byte order of the machine.
fn ip_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_client_of_this_machine_has_the_user_of_its_process() {
        let own = rustix::process::geteuid().as_raw();
        for place in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(place) else { continue };
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let (_served, peer) = listener.accept().unwrap();
            assert_eq!(Peer::of(peer, local).unwrap(), Peer { address: local.ip(), user: Some(own) });
            // A socket that is closed, or without a process, has no user, and is not root's.
            client.shutdown(Shutdown::Both).unwrap();
            drop(client);
            assert!(Peer::of(peer, local).is_err(), "{place}");
        }
    }

    #[test]
    fn a_client_elsewhere_has_no_user() {
        let (peer, local) = ("192.0.2.7:4000".parse().unwrap(), "192.0.2.1:6789".parse().unwrap());
        assert_eq!(Peer::of(peer, local).unwrap(), Peer { address: "192.0.2.7".parse().unwrap(), user: None });
    }

    #[test]
    fn the_lists_of_the_kernel_are_read() {
        let [seven, eight]: [SocketAddr; 2] = ["127.0.0.1:7", "127.0.0.1:8"].map(|text| text.parse().unwrap());
        let ip = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let line =
            |state: &str, inode: u32| format!("head\n 0: {ip}:0007 {ip}:0008 {state} 00:0 00:0 0 1000 0 {inode} 1 x\n");
        assert_eq!(user_of(&line("01", 5), seven, eight), Some(1000));
        assert_eq!(user_of(&line("01", 5), eight, seven), None);
        assert_eq!(user_of(&line("06", 5), seven, eight), None);
        assert_eq!(user_of(&line("01", 0), seven, eight), None);
        assert_eq!(user_of("head\n 0: x y\n 1: zz:zz 1:1 01 0 0 0 1 0 1\n", seven, eight), None);
    }
}
