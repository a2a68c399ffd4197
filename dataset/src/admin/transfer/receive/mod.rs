//! Receiving: the target of a stream, whether the stream fits, and the result.
//!
//! A stream fills a hidden dataset ([`arrival`]). After the stream was verified, one request makes the hidden dataset
//! visible, or moves its tree to the target, takes the snapshot and sets the received properties: so all of the changes
//! are visible, or none. The request repeats all checks made at the beginning, because the pool may have changed
//! meanwhile.
//!
//! ```text
//! request    the request and the result
//! naming     the names of received datasets
//! judge      whether a stream fits the pool, and the resulting plan
//! census     destroying datasets and snapshots that the sender of a replication no longer has
//! follow     renaming datasets that were renamed at the sender
//! lander     landing streams, with a step at the beginning and at the end of each
//! partial    receives that can be resumed: their tokens, and discarding them
//! corrective repairing damaged blocks of existing snapshots
//! properties received properties, and the user's replacements
//! rehearsal  a dry run
//! ```

mod census;
mod corrective;
mod follow;
mod judge;
mod lander;
mod naming;
pub(in crate::admin) mod partial;
mod properties;
mod rehearsal;
mod request;

use std::{io::Read, sync::Arc};

pub use self::corrective::Corrected;
pub use self::request::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest};
use self::{lander::Lander, rehearsal::Rehearsal};
use crate::{
    admin::table::datasets::Datasets,
    error::{Error, Result},
    lineage::arrival,
    stream::{self, Landing, Received},
    zfs,
};

/// Receives streams of Cenote or of OpenZFS, whichever the input begins with.
fn receive_any<L: Landing<Error = Error>>(
    input: &mut dyn Read,
    landing: &mut L,
    verifiers: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Received> {
    let (start, is_foreign) = peek(input)?;
    let mut whole = start.as_slice().chain(input);
    if is_foreign {
        zfs::receive(&mut whole, landing, progress)
    } else {
        stream::receive(&mut whole, landing, verifiers, progress)
    }
}

/// The first bytes of an input, and whether a stream of OpenZFS begins with them.
fn peek(input: &mut dyn Read) -> Result<(Vec<u8>, bool)> {
    let mut start = Vec::with_capacity(zfs::START);
    let read = input.take(zfs::START as u64).read_to_end(&mut start);
    read.map_err(|source| stream::Error::Read { offset: 0, source })?;
    let is_foreign = zfs::is_stream(&start);
    Ok((start, is_foreign))
}

impl Datasets {
    /// Receives all packages of an input up to its end, with `verifiers` threads that verify ahead. `progress` is
    /// called with the number of bytes read so far. A dataset that was only read since its newest snapshot still
    /// accepts an incremental stream. Returns the snapshots received, and whether the whole input was received.
    ///
    /// # Errors
    /// If a stream is damaged, does not fit, exceeds a quota, or needs space reserved for other datasets. Then nothing
    /// of the stream is visible, and no parent was created for it; a resumable receive keeps what it has stored. Earlier
    /// streams of the input stay received. So do the destroys and renames done for a replication: none if the first
    /// stream is refused, and everything that the sender no longer has if a later stream is refused.
    pub fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> (Arrived, Result<()>) {
        self.receive_beside(request, input, verifiers, progress, &mut |_| Ok(()))
    }

    /// As [`Datasets::receive`], in a pool in use: before datasets and snapshots are destroyed, or datasets renamed,
    /// `leaving` is called with their names. When `leaving` returns, none of them may be mounted.
    ///
    /// # Errors
    /// As [`Datasets::receive`], and if `leaving` fails.
    pub fn receive_beside(
        self: &Arc<Self>,
        request: ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
        leaving: &mut dyn FnMut(&[String]) -> Result<()>,
    ) -> (Arrived, Result<()>) {
        let mut lander = Lander::new(self, request, leaving);
        let received = receive_any(input, &mut lander, verifiers, progress);
        let received = received.and_then(|received| lander.check_new().map(|()| received));
        if received.is_err() {
            lander.destroy_parents();
        }
        let mut arrived = lander.take();
        let reloaded = if arrived.replaced.is_empty() { Ok(()) } else { self.reload_options() };
        let result = received.and_then(|received| {
            arrived.received = received;
            reloaded
        });
        (arrived, result)
    }

    /// Reads and verifies all packages of an input, and returns the result of a receive that would succeed: a dry run.
    ///
    /// # Errors
    /// If a stream is damaged or does not fit.
    pub fn plan_receive(
        self: &Arc<Self>,
        request: &ReceiveRequest,
        input: &mut dyn Read,
        verifiers: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Arrived> {
        if !self.engine().read_only() {
            self.engine().commit()?;
        }
        let mut rehearsal = Rehearsal::new(self, request);
        receive_any(input, &mut rehearsal, verifiers, progress)?;
        rehearsal.conclude()
    }

    /// Destroys hidden datasets left by receives that a crash or a failure interrupted, unless they can be resumed.
    /// Called after an import, with no receive running. Returns the number destroyed.
    pub fn destroy_unfinished(&self) -> Result<usize> {
        let unfinished = self.read(arrival::unfinished)?;
        for id in unfinished.clone() {
            self.run(move |tx| arrival::abandon(tx, id))?;
        }
        Ok(unfinished.len())
    }
}
