//! Changing the GUID of a known pool.
//!
//! The registry identifies a pool by its GUID. So during a change the registry has both GUIDs, the old and the new:
//! after an interruption at any point, the pool is found under one of the two.

use pool::env::{Env, SystemEnv};
use protocol::{Failure, OnSaid, PoolRequest};

use crate::{client::Client, registry::KnownPool};

const ACTION: &str = "reguid";

impl Client {
    /// Gives a pool this GUID; a random GUID if `None`.
    pub(super) fn renumber(&mut self, pool: &str, guid: Option<u64>, progress: OnSaid<'_>) -> Result<(), Failure> {
        self.known(pool)?;
        let lock = self.turn(pool)?;
        let known = self.known(pool)?;
        if known.read_only {
            return Err(Failure::cannot(ACTION, pool, "it is imported read-only"));
        }
        let guid = guid.unwrap_or_else(|| SystemEnv.random());
        if self.known_guids()?.contains(&guid) {
            return Err(Failure::cannot(ACTION, pool, format!("the GUID {guid} is already in use by a pool")));
        }
        let both = KnownPool { guid, former: Some(known.guid), ..known.clone() };
        self.registry.put(&lock, &both)?;
        match self.call_pool(both.clone(), PoolRequest::Renumber { guid }.into(), None, progress) {
            Ok(_) => self.registry.put(&lock, &KnownPool { former: None, ..both }),
            Err(failure) => {
                // The labels may have either GUID.
                self.registry.put(&lock, &KnownPool { guid: known.guid, former: Some(guid), ..both })?;
                Err(failure)
            }
        }
    }
}
