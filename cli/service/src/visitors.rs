//! Connections of visitors: users other than the owner of a service and root.
//!
//! A visitor may ask little (see [`protocol::Permission`]), and cannot delay the owner. Each user has a few
//! connections, and all users together have some more. A call is small and must arrive in time. An answer must be
//! read in time. Running calls of visitors are cancelled when the owner ends the service.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::execute::Cancel;

/// Maximum number of connections, of one user and of all users.
const OF_ONE: usize = 8;
const OF_ALL: usize = 64;

/// Maximum number of delegated calls, which may last: the remaining places stay for short calls.
const LASTING: usize = 48;

/// Maximum number of streams, of one user and of all users. A stream takes memory for the parts that are read ahead.
const STREAMS_OF_ONE: usize = 4;
const STREAMS_OF_ALL: usize = 16;

/// Time limit of a visitor's call, until the answer has been read.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum size of a call, in bytes: the longest names and a few hundred properties.
pub(super) const MAX_CALL: usize = 64 << 10;

/// The current connections of visitors.
#[derive(Debug, Default)]
pub(super) struct Visitors {
    by_user: Mutex<HashMap<u32, Vec<Cancel>>>,
    lasting: Mutex<Lasting>,
}

/// The current delegated calls.
#[derive(Debug, Default)]
struct Lasting {
    calls: usize,
    /// The calls with a stream, by user.
    streams: HashMap<u32, usize>,
}

/// The place of a visitor's connection or running call. Dropping this frees the place.
#[derive(Debug)]
pub(super) struct Visit {
    visitors: Arc<Visitors>,
    user: u32,
    /// Whether the call is delegated, and may last.
    lasts: bool,
    /// Whether the call also has a stream.
    has_stream: bool,
    /// Cancels the visitor's call.
    pub(super) cancel: Cancel,
}

/// Cancels a call on drop, however the connection ends.
pub(super) struct Leaving(pub(super) Cancel);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Visitors {
    /// Registers a connection of `user`; `None` if there are too many.
    pub(super) fn enter(self: &Arc<Visitors>, user: u32) -> Option<Visit> {
        let mut by_user = self.by_user.lock();
        let all: usize = by_user.values().map(Vec::len).sum();
        if all >= OF_ALL || by_user.get(&user).is_some_and(|own| own.len() >= OF_ONE) {
            return None;
        }
        let cancel = Cancel::default();
        by_user.entry(user).or_default().push(cancel.clone());
        Some(Visit { visitors: self.clone(), user, lasts: false, has_stream: false, cancel })
    }

    /// Cancels all running calls of visitors.
    pub(super) fn cancel_all(&self) {
        self.by_user.lock().values().flatten().for_each(Cancel::cancel);
    }
}

impl Visit {
    /// Counts the call as delegated, perhaps with a stream; false if there are too many. Called once.
    pub(super) fn last(&mut self, with_stream: bool) -> bool {
        let mut lasting = self.visitors.lasting.lock();
        let (all, own) = (lasting.streams.values().sum::<usize>(), lasting.streams.get(&self.user).copied());
        let too_many = with_stream && (all >= STREAMS_OF_ALL || own.unwrap_or(0) >= STREAMS_OF_ONE);
        if too_many || lasting.calls >= LASTING {
            return false;
        }
        lasting.calls += 1;
        if with_stream {
            *lasting.streams.entry(self.user).or_default() += 1;
        }
        (self.lasts, self.has_stream) = (true, with_stream);
        true
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut lasting = self.visitors.lasting.lock();
        lasting.calls -= usize::from(self.lasts);
        if self.has_stream
            && let Some(own) = lasting.streams.get_mut(&self.user)
        {
            *own -= 1;
            if *own == 0 {
                lasting.streams.remove(&self.user);
            }
        }
        drop(lasting);
        let mut by_user = self.visitors.by_user.lock();
        if let Some(own) = by_user.get_mut(&self.user) {
            own.retain(|cancel| !cancel.is(&self.cancel));
            if own.is_empty() {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_few_connections_and_all_users_some_more() {
        let visitors = Arc::new(Visitors::default());
        let own: Vec<Visit> = (0..OF_ONE).map(|_| visitors.enter(7).unwrap()).collect();
        assert!(visitors.enter(7).is_none());
        let others: Vec<Visit> = (100..).map_while(|user| visitors.enter(user)).collect();
        assert_eq!(others.len(), OF_ALL - OF_ONE);
        let mut others = others;
        assert_eq!(others.iter_mut().filter_map(|visit| visit.last(false).then_some(())).count(), LASTING);
        visitors.cancel_all();
        assert!(own.iter().chain(&others).all(|visit| visit.cancel.is_cancelled()));
        drop(own);
        assert!(!visitors.enter(7).unwrap().cancel.is_cancelled());
        drop(others);
        assert!(visitors.by_user.lock().is_empty() && visitors.lasting.lock().calls == 0);
    }

    #[test]
    fn a_user_has_a_few_streams_and_all_users_some_more() {
        let visitors = Arc::new(Visitors::default());
        let stream = |user| {
            let mut visit = visitors.enter(user)?;
            visit.last(true).then_some(visit)
        };
        let own: Vec<Visit> = (0..STREAMS_OF_ONE).map(|_| stream(7).unwrap()).collect();
        assert!(stream(7).is_none() && visitors.enter(7).is_some_and(|mut visit| visit.last(false)));
        let others: Vec<Visit> = (100..).map_while(stream).collect();
        assert_eq!(others.len(), STREAMS_OF_ALL - STREAMS_OF_ONE);
        drop((own, others));
        assert!(stream(7).is_some() && visitors.lasting.lock().streams.is_empty());
    }
}
