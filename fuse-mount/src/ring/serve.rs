//! Serving a request, from its bytes to the bytes of its reply, for each transport.
//!
//! The payload is the request's at first and the reply's at the end. The only allocations are the file system's own
//! result vectors; data is read and written in place in the payload. There is no `unsafe` here, and no byte of a
//! request causes a panic.

use dataset::fs::Errno;
use fuser::{INodeNo, RenameFlags, WriteFlags};

use super::entry::{HEADER, Header};
use super::{reply, wire};
use crate::adapter::MAX_REQUEST;
use crate::counters::{Opcode, RENAME2};
use crate::handler::{Handler, Listed, Writing, is_direct};
use wire::Head;

const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// The payloads of request and reply: one memory for both, as in the ring, or two.
pub(crate) trait Payload {
    /// The request's payload.
    fn asked(&self) -> &[u8];

    /// The reply's payload. This call may overwrite the request's.
    fn reply(&mut self) -> &mut Vec<u8>;
}

impl Payload for Vec<u8> {
    fn asked(&self) -> &[u8] {
        self
    }

    fn reply(&mut self) -> &mut Vec<u8> {
        self
    }
}

/// Separate memory for request and reply.
pub(crate) struct Parted<'a> {
    pub(crate) asked: &'a [u8],
    pub(crate) reply: &'a mut Vec<u8>,
}

impl Payload for Parted<'_> {
    fn asked(&self) -> &[u8] {
        self.asked
    }

    fn reply(&mut self) -> &mut Vec<u8> {
        self.reply
    }
}

/// The fields of a request for the transport's use.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: INodeNo,
    pub(crate) pid: u32,
    /// The first eight bytes of the argument: for a forget, the number of references.
    pub(crate) count: u64,
    /// The number of data bytes read or written.
    pub(crate) size: usize,
}

impl Asked {
    /// For a request with this header and `payload` bytes behind the argument.
    pub(crate) fn of(header: &Header, payload: usize) -> Asked {
        let head = Head::new(header);
        let is_read = head.opcode() == Opcode::Read as u32;
        let size = if is_read { room(head.u32(16)) as usize } else { payload };
        let (opcode, unique, node, pid) = (head.opcode(), head.unique(), head.node(), head.requester().pid);
        Asked { opcode, unique, node, pid, count: head.u64(0), size }
    }
}

/// The header of the reply to a request done by another thread.
pub(crate) fn replied(unique: u64, done: Result<(), Errno>) -> Header {
    let mut header = [0; HEADER];
    reply::finish(&mut header, &mut Vec::new(), unique, done);
    header
}

/// Answers the request in the header and the payload, in place.
pub(crate) fn serve(handler: &dyn Handler, header: &mut Header, payload: &mut impl Payload) {
    let unique = Head::new(header).unique();
    let result = answer(handler, Head::new(header), payload);
    reply::finish(header, payload.reply(), unique, result);
}

/// Whether the request is a sync.
pub(crate) fn is_sync(header: &Header) -> bool {
    matches!(Opcode::of(Head::new(header).opcode()), Some(Opcode::FSync | Opcode::FSyncDir))
}

/// Whether the request is a write whose answer waits for the kernel to drop pages; until then the kernel may need
/// answers to other requests.
pub(crate) fn waits_for_others(handler: &dyn Handler, header: &Header) -> bool {
    let head = Head::new(header);
    let how = || Writing::new(WriteFlags::from_bits_retain(head.u32(20)), head.i32(32));
    head.opcode() == Opcode::Write as u32 && handler.must_recall(head.node(), how())
}

/// Makes the reply to a request whose thread panicked: `EIO`.
pub(crate) fn fail(header: &mut Header, payload: &mut impl Payload) {
    let unique = Head::new(header).unique();
    reply::finish(header, payload.reply(), unique, Err(Errno::IO));
}

/// Arguments are borrowed from the payload until the handler returns; then the payload is the reply's.
fn answer(handler: &dyn Handler, head: Head<'_>, payload: &mut impl Payload) -> Result<(), Errno> {
    let opcode = Opcode::of(head.opcode()).ok_or(Errno::NOSYS)?;
    handler.count(opcode);
    let (node, who) = (head.node(), head.requester());
    let bytes = match opcode {
        Opcode::Read => u64::from(head.u32(16)),
        Opcode::Write => payload.asked().len() as u64,
        _ => 0,
    };
    handler.note(&who, node, opcode, bytes);
    match opcode {
        Opcode::Lookup => {
            let found = handler.lookup(node, wire::name(payload.asked())?)?;
            fill(payload.reply(), |out| match found {
                Some(entry) => reply::entry(out, &entry),
                None => reply::no_entry(out),
            });
        }
        Opcode::Symlink => {
            let (name, target) = wire::two_names(payload.asked())?;
            let made = handler.symlink(&who, node, name, target)?;
            fill(payload.reply(), |out| reply::entry(out, &made));
        }
        Opcode::MkNod => {
            let how = (head.u32(0), head.u32(8), head.u32(4));
            let made = handler.mknod(&who, node, wire::name(payload.asked())?, how)?;
            fill(payload.reply(), |out| reply::entry(out, &made));
        }
        Opcode::MkDir => {
            let made = handler.mkdir(&who, node, wire::name(payload.asked())?, (head.u32(0), head.u32(4)))?;
            fill(payload.reply(), |out| reply::entry(out, &made));
        }
        Opcode::Unlink => done(handler.unlink(node, wire::name(payload.asked())?), payload.reply())?,
        Opcode::RmDir => done(handler.rmdir(node, wire::name(payload.asked())?), payload.reply())?,
        Opcode::Rename => {
            let flags = if head.opcode() == RENAME2 { head.u32(8) } else { 0 };
            let (old, new) = wire::two_names(payload.asked())?;
            let to = (INodeNo(head.u64(0)), new);
            done(handler.rename(&who, (node, old), to, RenameFlags::from_bits_retain(flags)), payload.reply())?;
        }
        Opcode::Link => {
            let linked = handler.link(INodeNo(head.u64(0)), node, wire::name(payload.asked())?)?;
            fill(payload.reply(), |out| reply::entry(out, &linked));
        }
        Opcode::Create => {
            let how = (head.u32(4), head.u32(8), head.i32(0));
            let (made, flags) = handler.create(&who, node, wire::name(payload.asked())?, how)?;
            fill(payload.reply(), |out| {
                reply::entry(out, &made);
                reply::open(out, flags);
            });
        }
        Opcode::ReadDir => {
            let room = room(head.u32(16)) as usize;
            let out = payload.reply();
            out.clear();
            handler.readdir(node, head.u64(8), &mut |listed| reply::dirent(out, room, &listed))?;
        }
        Opcode::ReadDirPlus => {
            let room = room(head.u32(16)) as usize;
            let out = payload.reply();
            out.clear();
            let mut each = |listed: Listed<'_>, entry: &_| reply::dirent_plus(out, room, &listed, entry);
            handler.readdirplus(node, head.u64(8), &mut each)?;
        }
        Opcode::ReleaseDir | Opcode::Destroy => payload.reply().clear(),
        _ => return answer_about_attributes(handler, opcode, head, payload),
    }
    Ok(())
}

/// Like [`answer`], for requests about attributes, not about entries of directories.
fn answer_about_attributes(
    handler: &dyn Handler,
    opcode: Opcode,
    head: Head<'_>,
    payload: &mut impl Payload,
) -> Result<(), Errno> {
    let (node, who) = (head.node(), head.requester());
    match opcode {
        Opcode::GetAttr => {
            let (attr, lifetime) = handler.getattr(node)?;
            fill(payload.reply(), |out| reply::attr(out, node, &attr, lifetime));
        }
        // The kernel asks so only for a program that wants the birth time, and keeps the answer.
        Opcode::Statx => {
            let (attr, lifetime) = handler.getattr(node)?;
            fill(payload.reply(), |out| reply::statx(out, node, &attr, lifetime));
        }
        Opcode::SetAttr => {
            let (attr, lifetime) = handler.setattr(&who, node, &head.changes())?;
            fill(payload.reply(), |out| reply::attr(out, node, &attr, lifetime));
        }
        Opcode::ReadLink => {
            let target = handler.readlink(node)?;
            fill(payload.reply(), |out| out.extend_from_slice(&target));
        }
        Opcode::SetXattr => {
            let (name, rest) = wire::split_name(payload.asked())?;
            let value = wire::data(rest, head.u32(0))?;
            done(handler.setxattr(&who, node, name, value, head.i32(4)), payload.reply())?;
        }
        Opcode::GetXattr => {
            let value = handler.getxattr(node, wire::name(payload.asked())?, room(head.u32(0)))?;
            fill(payload.reply(), |out| reply::fitted(out, &value));
        }
        Opcode::ListXattr => {
            let names = handler.listxattr(&who, node, room(head.u32(0)))?;
            fill(payload.reply(), |out| reply::fitted(out, &names));
        }
        Opcode::RemoveXattr => done(handler.removexattr(node, wire::name(payload.asked())?), payload.reply())?,
        Opcode::StatFs => {
            let stat = handler.statfs(node)?;
            fill(payload.reply(), |out| reply::statfs(out, &stat));
        }
        _ => return answer_about_data(handler, opcode, head, payload),
    }
    Ok(())
}

/// Like [`answer`], for requests about the content of one file, or of no file.
fn answer_about_data(
    handler: &dyn Handler,
    opcode: Opcode,
    head: Head<'_>,
    payload: &mut impl Payload,
) -> Result<(), Errno> {
    let node = head.node();
    match opcode {
        Opcode::Open => {
            let flags = handler.open(node, head.i32(0))?;
            fill(payload.reply(), |out| reply::open(out, flags));
        }
        Opcode::Read => {
            payload.reply().clear();
            handler.read(node, head.position(8)?, room(head.u32(16)), is_direct(head.i32(32)), payload.reply())?;
        }
        Opcode::Write => {
            let how = Writing::new(WriteFlags::from_bits_retain(head.u32(20)), head.i32(32));
            let (data, at) = (wire::data(payload.asked(), head.u32(16))?, head.position(8)?);
            let written = handler.write(&head.requester(), node, at, data, how)?;
            if handler.must_recall(node, how) {
                // Waits here, for a bounded time: there are more threads for this queue's requests.
                handler.recall(node, at, written.into());
            }
            fill(payload.reply(), |out| reply::written(out, written));
        }
        Opcode::FSync | Opcode::FSyncDir => {
            // Waits here: there are more threads for this queue's requests.
            let result = if handler.must_sync(node)? { handler.sync() } else { Ok(()) };
            done(result, payload.reply())?;
        }
        Opcode::Release => {
            handler.release(node, head.i32(8));
            payload.reply().clear();
        }
        Opcode::FAllocate => {
            let (offset, length) = (head.position(8)?, head.position(16)?);
            done(handler.fallocate(node, head.i32(24), offset, length), payload.reply())?;
        }
        Opcode::Ioctl if head.u32(8) & IOCTL_UNRESTRICTED != 0 => return Err(Errno::NOSYS),
        Opcode::Ioctl => {
            let data = wire::data(payload.asked(), head.u32(24))?;
            let answer = handler.ioctl(&head.requester(), node, head.u32(12), data)?;
            fill(payload.reply(), |out| reply::ioctl(out, &answer));
        }
        Opcode::LSeek => {
            let found = handler.lseek(node, head.u64(8) as i64, head.i32(16))?;
            fill(payload.reply(), |out| reply::offset(out, found));
        }
        Opcode::CopyFileRange => {
            let (from, to) = ((node, head.position(8)?), (INodeNo(head.u64(16)), head.position(32)?));
            let copied = handler.copy_file_range(from, to, head.u64(40))?;
            fill(payload.reply(), |out| reply::written(out, copied));
        }
        _ => return Err(Errno::NOSYS),
    }
    Ok(())
}

/// No reply is longer than the payload can be.
fn room(asked: u32) -> u32 {
    asked.min(MAX_REQUEST)
}

fn fill(payload: &mut Vec<u8>, with: impl FnOnce(&mut Vec<u8>)) {
    payload.clear();
    with(payload);
}

fn done(result: Result<(), Errno>, payload: &mut Vec<u8>) -> Result<(), Errno> {
    payload.clear();
    result
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dataset::property::SnapDir;
    use pool::admin::Pool;

    use super::*;
    use crate::dispatcher::Dispatcher;
    use crate::options::MountOptions;
    use crate::server::Server;
    use crate::testing::{self, Nothing};

    /// An empty file system, as a connection would reach it.
    struct Connection {
        handler: Dispatcher,
        payload: Vec<u8>,
        _pool: Pool,
    }

    impl Connection {
        fn new() -> Connection {
            let (live, pool) = testing::file_system();
            let server = Server::new(live, Arc::new(Nothing), SnapDir::Hidden).unwrap();
            let handler = Dispatcher::new(Arc::new(server), &MountOptions::new("tank")).unwrap();
            Connection { handler, payload: Vec::with_capacity(MAX_REQUEST as usize), _pool: pool }
        }

        /// Serves a request, and checks the form of the reply.
        fn serve(&mut self, header: &Header, payload: &[u8]) -> Result<&[u8], i32> {
            let mut header = *header;
            self.payload.clear();
            self.payload.extend_from_slice(payload);
            let (place, unique) = (self.payload.as_ptr(), Head::new(&header).unique());
            serve(&self.handler, &mut header, &mut self.payload);
            assert_eq!(self.payload.as_ptr(), place, "the kernel knows where the payload is");
            assert_eq!(u64::from_ne_bytes(header[8..16].try_into().unwrap()), unique);
            let length = u32::from_ne_bytes(header[..4].try_into().unwrap());
            assert_eq!(length as usize, 16 + self.payload.len());
            match i32::from_ne_bytes(header[4..8].try_into().unwrap()) {
                0 => Ok(&self.payload),
                error => {
                    assert!((-511..0).contains(&error), "{error} is what the kernel takes for an error");
                    Err(error)
                }
            }
        }

        fn ask(&mut self, opcode: Opcode, node: u64, argument: &[u8], payload: &[u8]) -> Result<&[u8], i32> {
            self.ask_number(opcode as u32, node, argument, payload)
        }

        fn ask_number(&mut self, opcode: u32, node: u64, argument: &[u8], payload: &[u8]) -> Result<&[u8], i32> {
            let mut header = [0; HEADER];
            header[4..8].copy_from_slice(&opcode.to_ne_bytes());
            header[8..16].copy_from_slice(&77u64.to_ne_bytes());
            header[16..24].copy_from_slice(&node.to_ne_bytes());
            header[128..128 + argument.len()].copy_from_slice(argument);
            self.serve(&header, payload)
        }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_file_is_made_written_found_and_read() {
        let mut connection = Connection::new();
        let made = connection.ask(Opcode::Create, 1, &words(&[0, 0o100_644, 0, 0]), b"file\0").unwrap();
        assert_eq!(made.len(), 144);
        let node = u64::from_ne_bytes(made[..8].try_into().unwrap());
        let written = connection.ask(Opcode::Write, node, &words(&[0, 0, 2, 0, 5, 0, 0, 0, 0, 0]), b"hello");
        assert_eq!(written, Ok(words(&[5, 0]).as_slice()));
        let found = connection.ask(Opcode::Lookup, 1, &[], b"file\0").unwrap();
        assert_eq!((found.len(), &found[..8]), (128, node.to_ne_bytes().as_slice()));
        let read = connection.ask(Opcode::Read, node, &words(&[0, 0, 0, 0, 100, 0, 0, 0, 0, 0]), b"");
        assert_eq!(read, Ok(b"\0\0hello".as_slice()));
        let absent = connection.ask(Opcode::Lookup, 1, &[], b"other\0").unwrap();
        assert_eq!((absent.len(), &absent[..8]), (128, [0; 8].as_slice()), "which the kernel may remember");
        assert_eq!(connection.ask(Opcode::Flush, node, &[], b""), Err(-Errno::NOSYS.raw_os_error()));
        assert_eq!(connection.ask_number(4096, node, &[], b""), Err(-Errno::NOSYS.raw_os_error()));
        assert_eq!(connection.ask(Opcode::FSync, node, &[], b""), Ok([].as_slice()));
    }

    #[test]
    fn a_listing_fills_no_more_than_was_asked_for() {
        let mut connection = Connection::new();
        for name in [b"first\0", b"other\0", b"third\0"] {
            connection.ask(Opcode::MkDir, 1, &words(&[0o755, 0]), name).unwrap();
        }
        for (opcode, entry) in [(Opcode::ReadDir, 32), (Opcode::ReadDirPlus, 160)] {
            let some = connection.ask(opcode, 1, &words(&[0, 0, 0, 0, entry * 2 + 8, 0]), b"").unwrap();
            assert_eq!(some.len(), entry as usize * 2);
            let all = connection.ask(opcode, 1, &words(&[0, 0, 0, 0, u32::MAX, 0]), b"").unwrap();
            assert_eq!(all.len(), entry as usize * 5);
        }
    }

    /// Requests of random bytes, most of a known kind and about an existing node. Sizes that a file system would have
    /// to execute are kept small.
    #[test]
    fn no_request_makes_it_panic() {
        let mut connection = Connection::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut header = [0; HEADER];
            header.chunks_exact_mut(8).for_each(|word| {
                let value = match random() % 4 {
                    0 => random(),
                    1 => 0,
                    _ => random() % 64,
                };
                word.copy_from_slice(&value.to_ne_bytes());
            });
            header[4..8].copy_from_slice(&(random() as u32 % 64).to_ne_bytes());
            if random() % 8 != 0 {
                header[16..24].copy_from_slice(&(1 + random() % 8).to_ne_bytes());
            }
            let payload: Vec<u8> = (0..random() % 80).map(|_| (random() % 4) as u8 * 50).collect();
            let _ = connection.serve(&header, &payload);
        }
    }
}
