//! Another number for a pool that is known.
//!
//! The registry knows a pool by its number. So it knows both, the new one and the one before, until the pool has the new one:
//! whatever is cut off in between, the pool is found under one of them.

use pool::env::{Env, SystemEnv};
use protocol::{Failure, OnSaid, Request};

use crate::{client::Client, registry::KnownPool};

const ACTION: &str = "reguid";

impl Client {
    /// Gives a pool this number, or one that is drawn.
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
        match self.call_pool(both.clone(), Request::Renumber { guid }, None, progress) {
            Ok(_) => self.registry.put(&lock, &KnownPool { former: None, ..both }),
            Err(failure) => {
                // It may have either.
                self.registry.put(&lock, &KnownPool { guid: known.guid, former: Some(guid), ..both })?;
                Err(failure)
            }
        }
    }
}
