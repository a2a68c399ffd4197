//! Tokens for signing in; sessions of signed-in browsers; and failed attempts.
//!
//! A token belongs to the user who ran `pool web token`, as the kernel reports the user at the local socket. A token
//! expires, and may be limited to reading. A token never gives more than the user's own permissions: the services judge
//! each request by the user.
//!
//! Secrets are random and kept only as hashes, so a lookup reveals nothing by its duration. All state is in memory:
//! after a restart of the server, users sign in again.
//!
//! A session belongs to the local user whose browser signed in. Browsers send cookies to every port of a host, so another
//! local user's server on this machine may learn a cookie; a request with the cookie from a process of another user has no
//! session. Clients on other machines have no such user; browsers send them cookies over TLS only, with the certificate in
//! between.
//!
//! The id of a token is no secret. Revoking a token ends the sessions of the token too; a single lock guards tokens and
//! sessions, so no session begins meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};

/// Maximum number of valid tokens and of sessions, and of those of one user. In a full table, the user with the most gives up one.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = 64;

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

/// The id of a token.
type Id = [u8; 5];

/// A valid token, without the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Name of the token for revoking.
    pub id: String,
    /// The user to sign in.
    pub user: u32,
    /// Whether the token only reads.
    pub read_only: bool,
    /// Time of issue, in seconds since 1970.
    pub issued: u64,
    /// End of the validity, in seconds since 1970.
    pub until: u64,
    /// The last request with the token or a session of the token, in seconds since 1970.
    pub used: Option<u64>,
    /// Number of open sessions of the token.
    pub sessions: u64,
}

/// A token or a session.
#[derive(Clone, Copy, Debug)]
struct Entry {
    grant: Grant,
    /// The id of the token, or of the session's token.
    id: Id,
    issued: u64,
    used: Option<u64>,
    /// The local user of the client, for a session over the loopback interface.
    client: Option<u32>,
}

type Entries = HashMap<Hash, Entry>;

/// Tokens and sessions.
#[derive(Debug, Default)]
struct Table {
    tokens: Entries,
    sessions: Entries,
}

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
    table: Mutex<Table>,
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
        let mut id = Id::default();
        OsRng.try_fill_bytes(&mut id).ok()?;
        enter(&mut self.table.lock().tokens, Entry { grant, id, issued: now(), used: None, client: None }, false)
    }

    /// The rights of a valid token, for programs with a token in each request.
    pub fn grant_of(&self, token: &str) -> Option<Grant> {
        find(&mut self.table.lock().tokens, token).map(|entry| entry.grant)
    }

    /// Signs in with a token. A valid token is accepted even after failed attempts: 160 random bits cannot be guessed,
    /// and another local user could otherwise lock the owner out.
    pub fn sign_in(&self, token: &str, from: IpAddr, client: Option<u32>) -> Result<Secret, Refusal> {
        let mut table = self.table.lock();
        match find(&mut table.tokens, token.trim()) {
            Some(entry) => enter(&mut table.sessions, Entry { client, ..entry }, true).ok_or(Refusal::Full),
            None => Err(self.failed(from).map_or(Refusal::Unknown, Refusal::TooMany)),
        }
    }

    /// The session of a cookie, for a client of this local user.
    pub fn session(&self, secret: &str, client: Option<u32>) -> Option<Session> {
        let entry = find(&mut self.table.lock().sessions, secret).filter(|entry| entry.client == client)?;
        Some(Session { grant: entry.grant, form: form_secret(secret) })
    }

    /// Whether a session that was found before is still valid.
    pub fn is_open(&self, secret: &str) -> bool {
        find(&mut self.table.lock().sessions, secret).is_some()
    }

    /// Ends a session before its time.
    pub fn sign_out(&self, secret: &str) {
        let mut table = self.table.lock();
        let Some(session) = table.sessions.remove(&hash(secret)) else { return };
        let token = table.tokens.values_mut().find(|token| token.id == session.id);
        token.into_iter().for_each(|token| token.used = token.used.max(session.used));
    }

    /// The valid tokens of a user, or of all users with `None`, in order of issue.
    pub fn list(&self, user: Option<u32>) -> Vec<TokenRecord> {
        let (table, instant, now) = (self.table.lock(), Instant::now(), now());
        let is_shown = |entry: &&Entry| entry.grant.until > instant && user.is_none_or(|user| user == entry.grant.user);
        let mut records: Vec<TokenRecord> = Vec::new();
        for token in table.tokens.values().filter(is_shown) {
            let sessions = || table.sessions.values().filter(|session| session.id == token.id);
            records.push(TokenRecord {
                id: text(&token.id),
                user: token.grant.user,
                read_only: token.grant.read_only,
                issued: token.issued,
                until: now + token.grant.until.saturating_duration_since(instant).as_secs(),
                used: sessions().filter_map(|session| session.used).max().max(token.used),
                sessions: sessions().filter(|session| session.grant.until > instant).count() as u64,
            });
        }
        records.sort_by(|a, b| (a.issued, &a.id).cmp(&(b.issued, &b.id)));
        records
    }

    /// Revokes a token of a user, or of any user with `None`, and ends the sessions of the token. False without a token.
    pub fn revoke(&self, id: &str, user: Option<u32>) -> bool {
        let mut table = self.table.lock();
        let is_meant = |entry: &Entry| text(&entry.id) == id && user.is_none_or(|user| user == entry.grant.user);
        let before = table.tokens.len();
        table.tokens.retain(|_, token| !is_meant(token));
        let is_revoked = table.tokens.len() < before;
        if is_revoked {
            table.sessions.retain(|_, session| text(&session.id) != id);
        }
        is_revoked
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

/// Enters a token or a session under a new secret. If the user has too many, the entry that expires first makes room, or the
/// grant is refused. In a full table the user with the most entries makes room, so many users cannot lock out one.
fn enter(all: &mut Entries, entry: Entry, makes_room: bool) -> Option<Secret> {
    let now = Instant::now();
    all.retain(|_, known| known.grant.until > now);
    let count = |user: u32| all.values().filter(|known| known.grant.user == user).count();
    let first_of = |user: u32| {
        let own = all.iter().filter(move |(_, known)| known.grant.user == user);
        own.min_by_key(|(_, known)| known.grant.until).map(|(hash, _)| *hash)
    };
    let user = entry.grant.user;
    let leaving = match count(user) >= MOST_OF_ONE {
        true if !makes_room => return None,
        true => first_of(user),
        false if all.len() >= MOST => {
            let users: BTreeSet<u32> = all.values().map(|known| known.grant.user).collect();
            users.into_iter().max_by_key(|user| count(*user)).and_then(first_of)
        }
        false => None,
    };
    leaving.map(|hash| all.remove(&hash));
    let mut bytes = [0; 20];
    OsRng.try_fill_bytes(&mut bytes).ok()?;
    let secret = text(&bytes);
    all.insert(hash(&secret), entry);
    Some(secret)
}

/// The valid entry of a secret; notes the use.
fn find(all: &mut Entries, secret: &str) -> Option<Entry> {
    let key = hash(secret);
    let entry = all.get_mut(&key)?;
    if entry.grant.until <= Instant::now() {
        all.remove(&key);
        return None;
    }
    entry.used = Some(now());
    Some(*entry)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
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
        let session = tokens.sign_in(&format!(" {token}\n"), HERE, None).unwrap();
        assert_eq!(tokens.session(&session, None).unwrap().grant.user, 7);
        assert!(tokens.session(&token, None).is_none() && tokens.grant_of(&session).is_none());
        tokens.sign_out(&session);
        assert!(tokens.session(&session, None).is_none());
        let expired = tokens.issue(grant(7, Duration::ZERO)).unwrap();
        assert_eq!(tokens.sign_in(&expired, HERE, None), Err(Refusal::Unknown));
    }

    #[test]
    fn a_revoked_token_and_its_sessions_end_and_no_other() {
        let tokens = Tokens::default();
        let [ann, bob] = [7, 8].map(|user| tokens.issue(grant(user, WINDOW)).unwrap());
        let [of_ann, of_bob] = [&ann, &bob].map(|token| tokens.sign_in(token, HERE, None).unwrap());
        let known = tokens.list(Some(7));
        assert_eq!(known.iter().map(|token| (token.user, token.sessions)).collect::<Vec<_>>(), [(7, 1)]);
        assert!(known[0].used.is_some() && known[0].until >= known[0].issued && known[0].id.len() == 8);
        assert!(!tokens.revoke(&known[0].id, Some(8)) && !tokens.revoke("", None) && !tokens.revoke(&ann, None));
        assert!(tokens.session(&of_ann, None).is_some());
        assert!(tokens.revoke(&known[0].id, Some(7)) && !tokens.revoke(&known[0].id, None));
        assert!(tokens.session(&of_ann, None).is_none() && tokens.grant_of(&ann).is_none());
        assert!(tokens.session(&of_bob, None).is_some());
        tokens.sign_out(&of_bob);
        let left = tokens.list(None);
        assert_eq!(left.iter().map(|token| (token.user, token.sessions)).collect::<Vec<_>>(), [(8, 0)]);
        assert!(left[0].used.is_some());
    }

    #[test]
    fn a_session_is_no_session_for_another_local_user() {
        let tokens = Tokens::default();
        let session = tokens.sign_in(&tokens.issue(grant(0, WINDOW)).unwrap(), HERE, Some(1000)).unwrap();
        assert!(tokens.session(&session, Some(1000)).is_some() && tokens.is_open(&session));
        assert!(tokens.session(&session, Some(1001)).is_none() && tokens.session(&session, None).is_none());
    }

    #[test]
    fn failed_attempts_are_counted_and_lock_no_valid_token_out() {
        let tokens = Tokens::default();
        let token = tokens.issue(grant(7, WINDOW)).unwrap();
        for _ in 0..MOST_FAILURES {
            assert_eq!(tokens.sign_in("guess", HERE, None), Err(Refusal::Unknown));
        }
        assert!(matches!(tokens.sign_in("guess", HERE, None), Err(Refusal::TooMany(_))));
        assert_eq!(tokens.sign_in("guess", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), None), Err(Refusal::Unknown));
        assert!(tokens.sign_in(&token, HERE, None).is_ok());
    }

    #[test]
    fn one_user_cannot_use_up_all_places() {
        let tokens = Tokens::default();
        let issue = |user| tokens.issue(grant(user, WINDOW));
        assert!((0..MOST_OF_ONE).all(|_| issue(7).is_some()));
        assert!(issue(7).is_none() && issue(8).is_some());
        let token = issue(8).unwrap();
        assert!((0..MOST as u32).all(|user| issue(100 + user / 60).is_some()), "the user with the most makes room");
        assert!(tokens.grant_of(&token).is_some() && issue(9).is_some());
        let sessions: Vec<_> = (0..=MOST_OF_ONE).map(|_| tokens.sign_in(&token, HERE, None).unwrap()).collect();
        assert_eq!(sessions.iter().filter(|secret| tokens.session(secret, None).is_some()).count(), MOST_OF_ONE);
    }
}
