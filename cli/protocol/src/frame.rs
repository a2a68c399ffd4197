//! Frames: how calls and replies cross a service's socket.
//!
//! A frame is a length of four bytes, little-endian, followed by `length` bytes of JSON. A call's file descriptor, if
//! any, travels beside the first byte of its frame. The length is bounded before any further use, and memory grows with
//! the bytes that arrive, never with the announced length.

use std::{
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// Largest call: 16 MiB.
pub const MAX_CALL: usize = 16 << 20;

/// Largest reply, such as the history of a pool: 1 GiB. Lists of datasets and files use parts, which are much smaller.
pub const MAX_REPLY: usize = 1 << 30;

/// Size of the length field, in bytes.
pub const HEADER: usize = 4;

/// Encodes a message as a frame.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the message would be longer than `max` bytes.
pub fn encode(message: &impl Serialize, max: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message)?;
    let len = frame.len() - HEADER;
    match u32::try_from(len) {
        Ok(header) if len <= max => frame[..HEADER].copy_from_slice(&header.to_le_bytes()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a message of {len} bytes is too large"))),
    }
    Ok(frame)
}

/// The length announced by a header; an error above `max`.
pub fn body_len(header: [u8; HEADER], max: usize) -> io::Result<usize> {
    let len = u32::from_le_bytes(header) as usize;
    match len <= max {
        true => Ok(len),
        false => Err(invalid(format!("a message of {len} bytes is announced"))),
    }
}

/// Decodes the body of a frame; an error unless the body has all `len` announced bytes.
pub fn decode<T: DeserializeOwned>(body: &[u8], len: usize) -> io::Result<T> {
    if body.len() != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Reads one frame; `None` at the end of input between frames.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, max: usize) -> io::Result<Option<T>> {
    let mut header = Vec::with_capacity(HEADER);
    from.take(HEADER as u64).read_to_end(&mut header)?;
    if header.is_empty() {
        return Ok(None);
    }
    let header = header.try_into().map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let len = body_len(header, max)?;
    let mut body = Vec::new();
    from.take(len as u64).read_to_end(&mut body)?;
    decode(&body, len).map(Some)
}

/// Sends a frame, with `descriptor` beside its first byte, if given.
pub fn send(socket: &mut UnixStream, frame: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one descriptor");
    }
    let sent = sendmsg(socket.as_fd(), &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)?;
    socket.write_all(&frame[sent..])
}

/// Receives some bytes into `buffer`, together with any descriptor beside the bytes.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [io::IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = rights.next().and_then(|mut descriptors| descriptors.next());
    Ok((message.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Failure, PoolRequest, Reply, Response};

    fn call() -> Call {
        Call::new("fs list", PoolRequest::Sync)
    }

    #[test]
    fn a_frame_comes_back() {
        let mut bytes = encode(&call(), MAX_CALL).unwrap();
        bytes.extend(encode(&call(), MAX_CALL).unwrap());
        let mut from = &bytes[..];
        assert_eq!(read(&mut from, MAX_CALL).unwrap(), Some(call()));
        assert_eq!(read(&mut from, MAX_CALL).unwrap(), Some(call()));
        assert_eq!(read::<Call>(&mut from, MAX_CALL).unwrap(), None);
    }

    #[test]
    fn every_cut_is_an_error() {
        let bytes = encode(&Reply::Failed(Failure::new("no")), MAX_REPLY).unwrap();
        for len in 1..bytes.len() {
            let error = read::<Reply>(&mut &bytes[..len], MAX_REPLY).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn garbage_is_an_error_and_takes_no_memory() {
        let announced = [&u32::MAX.to_le_bytes()[..], b"{}"].concat();
        assert_eq!(read::<Call>(&mut &announced[..], MAX_CALL).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for len in 0..2000_u32 {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .take(len as usize % 97)
            .collect();
            let frame = [&(noise.len() as u32).to_le_bytes()[..], &noise].concat();
            assert!(read::<Call>(&mut &frame[..], MAX_CALL).is_err());
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let body = "[".repeat(100_000);
        let frame = [&(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat();
        assert!(read::<Call>(&mut &frame[..], MAX_CALL).is_err());
    }

    #[test]
    fn what_is_too_large_is_not_sent() {
        let error = encode(&Reply::Done(Response::Done), 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_descriptor_travels_beside_a_frame() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let frame = encode(&call(), MAX_CALL).unwrap();
        send(&mut ours, &frame, Some(writer.as_fd())).unwrap();
        drop(writer);
        let mut header = [0; HEADER];
        let (count, descriptor) = receive(theirs.as_fd(), &mut header).unwrap();
        assert_eq!(count, HEADER);
        std::fs::File::from(descriptor.unwrap()).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        let mut body = vec![0; frame.len()];
        let (count, none) = receive(theirs.as_fd(), &mut body).unwrap();
        assert!(none.is_none());
        assert_eq!(decode::<Call>(&body[..count], body_len(header, MAX_CALL).unwrap()).unwrap(), call());
    }
}
