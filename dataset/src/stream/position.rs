//! How far a receive has come: an item of the tree that the receive fills.
//!
//! The item is put in the batch of the step of which it speaks, so every committed state of the tree has exactly the
//! sender's items below the key, and the base's from the key on. The item goes before the tree becomes visible.
//!
//! The item names its receive, so an item that a stream has brought is no position.

use pool::{
    error::Error as EngineError,
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    tree::{Batch, Miss, View},
    txg::{Head, OpError},
    units::Guid,
};

use crate::fs::key::position;

const VERSION: u8 = 1;
const WHAT: &str = "position of a receive";

/// A place in the order of keys that a receive has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The tree has all items of the snapshot with smaller keys.
    pub key: Key,
    /// The bytes of items and blocks received so far, as stored.
    pub bytes: u64,
}

/// The positions of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The GUID of the tree's dataset.
    pub guid: Guid,
    /// The position at the start of the stream.
    pub from: Position,
}

impl Position {
    /// The position before the first step.
    pub const START: Position = Position { key: Key::MIN, bytes: 0 };

    /// The position of the receive with this GUID in a tree; the start if there is none.
    ///
    /// # Errors
    /// If a node cannot be read.
    pub fn of(head: &Head, guid: Guid) -> pool::error::Result<Position> {
        let body = head.read(|view| Ok::<_, Reading>(view.get(position())?.map(|entry| entry.body().to_vec())));
        let body = body.map_err(Reading::into_error)?;
        Ok(body.and_then(|body| Position::decode(&body, guid).ok()).unwrap_or(Position::START))
    }

    /// Stores the position in a tree.
    ///
    /// # Errors
    /// If the tree cannot be changed.
    pub fn put(self, head: &Head, guid: Guid) -> pool::error::Result<()> {
        let note = |_: &View<'_>, batch: &mut Batch| {
            self.note(batch, guid);
            Ok::<_, Reading>(())
        };
        head.update(note).map_err(Reading::into_error)
    }

    /// Removes the position from a tree whose stream is complete.
    ///
    /// # Errors
    /// If the tree cannot be changed.
    pub fn remove(head: &Head) -> pool::error::Result<()> {
        let remove = |_: &View<'_>, batch: &mut Batch| {
            batch.delete(position());
            Ok::<_, Reading>(())
        };
        head.update(remove).map_err(Reading::into_error)
    }

    pub(super) fn note(self, batch: &mut Batch, guid: Guid) {
        batch.put(position(), self.encode(guid), None);
    }

    fn encode(self, guid: Guid) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_u64(guid.0);
        out.put_u64(self.key.object);
        out.put_u8(self.key.kind);
        out.put_u64(self.key.offset);
        out.put_varint(self.bytes);
        out
    }

    fn decode(body: &[u8], guid: Guid) -> Result<Position, Malformed> {
        let mut reader = Reader::new(body);
        if reader.u8(WHAT)? != VERSION || reader.u64(WHAT)? != guid.0 {
            return malformed(WHAT);
        }
        let key = Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? };
        let position = Position { key, bytes: reader.varint(WHAT)? };
        reader.finish(WHAT)?;
        Ok(position)
    }
}

/// Why a step on the position fails.
enum Reading {
    Miss(Miss),
    Engine(EngineError),
}

impl Reading {
    fn into_error(self) -> EngineError {
        match self {
            Reading::Engine(error) => error,
            Reading::Miss(_) => unreachable!("a head never returns a miss"),
        }
    }
}

impl From<Miss> for Reading {
    fn from(miss: Miss) -> Reading {
        Reading::Miss(miss)
    }
}

impl From<EngineError> for Reading {
    fn from(error: EngineError) -> Reading {
        Reading::Engine(error)
    }
}

impl OpError for Reading {
    fn miss(&self) -> Option<&Miss> {
        match self {
            Reading::Miss(miss) => Some(miss),
            Reading::Engine(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_read_by_its_receive_only(object: u64, kind: u8, offset: u64, bytes: u64, guid: u64, other: u64) {
            let position = Position { key: Key { object, kind, offset }, bytes };
            let body = position.encode(Guid(guid));
            prop_assert_eq!(Position::decode(&body, Guid(guid)), Ok(position));
            prop_assert_eq!(Position::decode(&body, Guid(other)).is_ok(), guid == other);
            prop_assert!(Position::decode(&body[..body.len() - 1], Guid(guid)).is_err());
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>, guid: u64) {
            let _ = Position::decode(&body, Guid(guid));
        }
    }
}
