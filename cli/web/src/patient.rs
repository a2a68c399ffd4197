//! A connection with a peer that has to read: a write without progress for a time ends the connection.
//!
//! A browser without interest in the answer would otherwise hold the memory of an answer, and a connection, for ever.
//! The kernel takes writes in steps of a part of its buffer, so a reader of single bytes makes no progress either.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with a time limit for each write.
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// The deadline of the present write.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Patient<S> {
    /// A stream: each write ends with an error after `limit` without progress.
    pub(crate) fn new(stream: S, limit: Duration) -> Patient<S> {
        Patient { stream, limit, deadline: Box::pin(sleep(limit)), is_waiting: false }
    }

    /// Watches the time of a waiting write.
    fn watch<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_write_without_a_reader_ends_and_a_slow_reader_gets_all() {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (near, far) = duplex(64);
            let mut near = Patient::new(near, Duration::from_secs(20));
            let begun = Instant::now();
            let failed = near.write_all(&[7; 4096]).await.unwrap_err();
            assert_eq!((failed.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 20));
            drop(far);
            let (near, mut far) = duplex(64);
            let mut near = Patient::new(near, Duration::from_secs(20));
            let reader = tokio::spawn(async move {
                let (mut all, mut piece) = (0, [0; 64]);
                while let Ok(count @ 1..) = far.read(&mut piece).await {
                    all += count;
                    sleep(Duration::from_secs(15)).await;
                }
                all
            });
            near.write_all(&[7; 4096]).await.unwrap();
            drop(near);
            assert_eq!(reader.await.unwrap(), 4096);
        });
    }
}
