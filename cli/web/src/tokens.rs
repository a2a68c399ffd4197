//! Tokens for signing in; sessions of signed-in browsers; and failed attempts.
//!
//! A token belongs to the user who ran `pool web token`, as the kernel reports the user at the local socket. A token
//! expires, and may be limited to reading. A token never gives more than the user's own permissions: the services judge
//! each request by the user.
//!
//! Secrets are random and kept only as hashes, so a lookup reveals nothing by its duration. All state is in memory:
//! after a restart of the server, users sign in again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;

/// Maximum number of valid tokens and of sessions; of one user, a quarter.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = MOST / 4;

/// Maximum number of failed attempts of one address in a [`WINDOW`].
const MOST_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of addresses with failed attempts on record.
const MOST_ADDRESSES: usize = 1024;

/// Longest validity of a token.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The user to sign in.
    pub user: u32,
    /// Whether the token only reads.
    pub read_only: bool,
    /// End of the validity.
    pub until: Instant,
}

/// A secret of a token or a session, as the user knows the secret.
pub type Secret = String;

type Hash = [u8; 32];

/// A signed-in browser.
#[derive(Clone, Debug)]
pub struct Session {
    /// The rights of the session's token.
    pub grant: Grant,
    /// The secret in every form of the session.
    pub form: String,
}

/// All tokens, sessions and failed attempts.
#[derive(Debug, Default)]
pub struct Tokens {
    tokens: Mutex<HashMap<Hash, Grant>>,
    sessions: Mutex<HashMap<Hash, Grant>>,
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

/// Why a user is not signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is unknown or has expired.
    Unknown,
    /// Too many failed attempts of the address: the next attempt is possible after this time.
    TooMany(Duration),
    /// The user has too many tokens or sessions.
    Full,
}

impl Tokens {
    /// A new token; `None` if the user has too many.
    pub fn issue(&self, grant: Grant) -> Option<Secret> {
        enter(&mut self.tokens.lock(), grant, false)
    }

    /// The rights of a valid token, for programs with a token in each request.
    pub fn grant_of(&self, token: &str) -> Option<Grant> {
        find(&mut self.tokens.lock(), token)
    }

    /// Signs in with a token. A valid token is accepted even after failed attempts: 160 random bits cannot be guessed,
    /// and another local user could otherwise lock the owner out.
    pub fn sign_in(&self, token: &str, from: IpAddr) -> Result<Secret, Refusal> {
        match self.grant_of(token.trim()) {
            Some(grant) => enter(&mut self.sessions.lock(), grant, true).ok_or(Refusal::Full),
            None => Err(self.failed(from).map_or(Refusal::Unknown, Refusal::TooMany)),
        }
    }

    /// The session of a cookie.
    pub fn session(&self, secret: &str) -> Option<Session> {
        let grant = find(&mut self.sessions.lock(), secret)?;
        Some(Session { grant, form: form_secret(secret) })
    }

    /// Ends a session before its time.
    pub fn sign_out(&self, secret: &str) {
        self.sessions.lock().remove(&hash(secret));
    }

    /// Counts a failed attempt; the time to wait if there are too many.
    fn failed(&self, from: IpAddr) -> Option<Duration> {
        let now = Instant::now();
        let mut failures = self.failures.lock();
        if failures.len() >= MOST_ADDRESSES {
            failures.retain(|_, (_, since)| now.duration_since(*since) < WINDOW);
        }
        if failures.len() >= MOST_ADDRESSES && !failures.contains_key(&from) {
            return Some(WINDOW);
        }
        let (count, since) = failures.entry(from).or_insert((0, now));
        if now.duration_since(*since) >= WINDOW {
            (*count, *since) = (0, now);
        }
        *count = count.saturating_add(1);
        (*count > MOST_FAILURES).then(|| WINDOW.saturating_sub(now.duration_since(*since)))
    }
}

/// Enters a grant under a new secret. If the user has too many, the one that expires first makes room, or the grant is
/// refused.
fn enter(all: &mut HashMap<Hash, Grant>, grant: Grant, makes_room: bool) -> Option<Secret> {
    let now = Instant::now();
    all.retain(|_, known| known.until > now);
    let own = all.iter().filter(|(_, known)| known.user == grant.user);
    let own_count = own.clone().count();
    if own_count >= MOST_OF_ONE || all.len() >= MOST {
        let first = own.min_by_key(|(_, known)| known.until).map(|(hash, _)| *hash)?;
        if !makes_room {
            return None;
        }
        all.remove(&first);
    }
    let mut bytes = [0; 20];
    OsRng.try_fill_bytes(&mut bytes).ok()?;
    let secret = text(&bytes);
    all.insert(hash(&secret), grant);
    Some(secret)
}

fn find(all: &mut HashMap<Hash, Grant>, secret: &str) -> Option<Grant> {
    let key = hash(secret);
    let grant = *all.get(&key)?;
    if grant.until <= Instant::now() {
        all.remove(&key);
        return None;
    }
    Some(grant)
}

fn hash(secret: &str) -> Hash {
    blake3::derive_key("cenote web secret", secret.as_bytes())
}

/// The secret in the forms of a session: known only to the browser with the cookie and to the server.
fn form_secret(session: &str) -> String {
    text(&blake3::derive_key("cenote web form", session.as_bytes())[..20])
}

/// Bytes as text in base 32, without letters similar to digits.
fn text(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut text = String::new();
    let (mut pending, mut bits) = (0u32, 0);
    for byte in bytes {
        pending = pending << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(pending >> bits) as usize & 31]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn grant(user: u32, valid: Duration) -> Grant {
        Grant { user, read_only: false, until: Instant::now() + valid }
    }

    #[test]
    fn a_token_signs_in_until_it_expires() {
        let tokens = Tokens::default();
        let hour = Duration::from_secs(3600);
        let token = tokens.issue(grant(7, hour)).unwrap();
        assert_eq!(token.len(), 32);
        let session = tokens.sign_in(&format!(" {token}\n"), HERE).unwrap();
        assert_eq!(tokens.session(&session).unwrap().grant.user, 7);
        assert!(tokens.session(&token).is_none() && tokens.grant_of(&session).is_none());
        tokens.sign_out(&session);
        assert!(tokens.session(&session).is_none());
        let expired = tokens.issue(grant(7, Duration::ZERO)).unwrap();
        assert_eq!(tokens.sign_in(&expired, HERE), Err(Refusal::Unknown));
    }

    #[test]
    fn failed_attempts_are_counted_and_lock_no_valid_token_out() {
        let tokens = Tokens::default();
        let token = tokens.issue(grant(7, WINDOW)).unwrap();
        for _ in 0..MOST_FAILURES {
            assert_eq!(tokens.sign_in("guess", HERE), Err(Refusal::Unknown));
        }
        assert!(matches!(tokens.sign_in("guess", HERE), Err(Refusal::TooMany(_))));
        assert_eq!(tokens.sign_in("guess", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))), Err(Refusal::Unknown));
        assert!(tokens.sign_in(&token, HERE).is_ok());
    }

    #[test]
    fn one_user_cannot_use_up_all_places() {
        let tokens = Tokens::default();
        let issue = |user| tokens.issue(grant(user, WINDOW));
        assert!((0..MOST_OF_ONE).all(|_| issue(7).is_some()));
        assert!(issue(7).is_none() && issue(8).is_some());
        let token = issue(8).unwrap();
        let sessions: Vec<_> = (0..=MOST_OF_ONE).map(|_| tokens.sign_in(&token, HERE).unwrap()).collect();
        assert_eq!(sessions.iter().filter(|secret| tokens.session(secret).is_some()).count(), MOST_OF_ONE);
    }
}
