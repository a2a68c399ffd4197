//! Tokens: what a sender needs to know to continue an interrupted receive, as a text that users copy.
//!
//! ```text
//! token     1-CHECKSUM-LENGTH-PAYLOAD, all in hexadecimal digits
//! checksum  the first 8 bytes of the payload's BLAKE3, as a big-endian number
//! payload   for the bytes see `dataset/STREAM.md`
//! ```
//!
//! The shape is that of OpenZFS's tokens, so programs that look at the shape accept the token. The checksum finds
//! copying mistakes; the content is distrusted like a stream's.

use std::{fmt, str::FromStr};

use pool::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
    },
    units::Guid,
};

use super::position::Position;
use crate::name::SnapshotName;

const SHAPE: &str = "1";
const VERSION: u8 = 1;
/// The version of a token with the flag [`BACKUP`]: a sender that knows only version 1 would send local values.
const BACKUP_VERSION: u8 = 2;
/// The longest token, in characters.
const LONGEST: usize = 4096;

const INCREMENTAL: u8 = 1;
const PROPERTIES: u8 = 2;
const BACKUP: u8 = 4;

/// An interrupted receive, as its sender must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The snapshot's name at the sender.
    pub snapshot: SnapshotName,
    /// The snapshot's GUID.
    pub guid: Guid,
    /// The GUID of the base; `None` for a full stream.
    pub base: Option<Guid>,
    /// Whether the stream has properties.
    pub properties: bool,
    /// Whether the properties are the received values only (`-b`).
    pub backup: bool,
    /// Where the receive continues.
    pub position: Position,
}

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text has not the form of a token.
    #[error("it is no token: a token is like 1-CHECKSUM-LENGTH-PAYLOAD, in hexadecimal digits")]
    Form,
    /// The text differs from the token that was copied.
    #[error("its checksum does not match: the text is incomplete or changed, or another system made the token")]
    Checksum,
    /// The token is of a later version.
    #[error(
        "it is of version {version}, and this program reads versions up to {BACKUP_VERSION}; use a newer version of Cenote"
    )]
    Version {
        /// The version of the payload.
        version: u8,
    },
    /// The payload is not one that a receive has written.
    #[error("its content is invalid: {0}")]
    Content(String),
}

impl Token {
    fn payload(&self) -> Vec<u8> {
        let flag = |set, bit| if set { bit } else { 0 };
        let version = if self.backup { BACKUP_VERSION } else { VERSION };
        let flags = [(self.base.is_some(), INCREMENTAL), (self.properties, PROPERTIES), (self.backup, BACKUP)];
        let mut out = vec![version, flags.into_iter().fold(0, |sum, (set, bit)| sum | flag(set, bit))];
        out.put_u64(self.guid.0);
        out.put_u64(self.base.unwrap_or_default().0);
        out.put_u64(self.position.key.object);
        out.put_u8(self.position.key.kind);
        out.put_u64(self.position.key.offset);
        out.put_varint(self.position.bytes);
        out.put_prefixed(self.snapshot.as_str().as_bytes());
        out
    }

    fn take(mut reader: Reader<'_>, known: u8) -> Result<Token, Malformed> {
        const WHAT: &str = "content of a token";
        let flags = reader.u8(WHAT)?;
        let (guid, base) = (Guid(reader.u64(WHAT)?), Guid(reader.u64(WHAT)?));
        if flags & !known != 0 || (flags & INCREMENTAL == 0 && base != Guid::default()) {
            return malformed("flags of a token");
        }
        let key = Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? };
        let position = Position { key, bytes: reader.varint(WHAT)? };
        let Ok(snapshot) = reader.text(WHAT)?.parse() else { return malformed("name of a token's snapshot") };
        reader.finish(WHAT)?;
        let base = (flags & INCREMENTAL != 0).then_some(base);
        let (properties, backup) = (flags & PROPERTIES != 0, flags & BACKUP != 0);
        Ok(Token { snapshot, guid, base, properties, backup, position })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.payload();
        write!(f, "{SHAPE}-{:x}-{:x}-", checksum(&payload), payload.len())?;
        payload.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let parts: Vec<&str> = text.splitn(5, '-').collect();
        let [SHAPE, sum, len, digits] = parts[..] else { return Err(TokenError::Form) };
        let number = |text: &str| match text.starts_with('+') {
            true => Err(TokenError::Form),
            false => u64::from_str_radix(text, 16).map_err(|_| TokenError::Form),
        };
        let (sum, len) = (number(sum)?, number(len)?);
        let payload = bytes(digits).filter(|_| text.len() <= LONGEST).ok_or(TokenError::Form)?;
        if payload.len() as u64 != len || checksum(&payload) != sum {
            return Err(TokenError::Checksum);
        }
        match payload.split_first() {
            Some((&version @ (VERSION | BACKUP_VERSION), rest)) => {
                let known = INCREMENTAL | PROPERTIES | if version == VERSION { 0 } else { BACKUP };
                Token::take(Reader::new(rest), known).map_err(|error| TokenError::Content(error.to_string()))
            }
            Some((&version, _)) => Err(TokenError::Version { version }),
            None => Err(TokenError::Form),
        }
    }
}

fn checksum(payload: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(payload).as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The bytes of an even number of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(value(high)? << 4 | value(low)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token() -> Token {
        Token {
            snapshot: "tank/home@monday".parse().unwrap(),
            guid: Guid(0x1122_3344_5566_7788),
            base: Some(Guid(9)),
            properties: true,
            backup: false,
            position: Position { key: Key { object: 5, kind: 0x50, offset: 4096 }, bytes: 300 },
        }
    }

    #[test]
    fn the_document_has_this_token() {
        let text = token().to_string();
        assert_eq!(text.parse(), Ok(token()));
        assert!(include_str!("../../STREAM.md").contains(&text), "{text}");
    }

    #[test]
    fn changed_tokens_are_refused() {
        let text = token().to_string();
        for at in 0..text.len() {
            for other in ['0', 'f', '-', 'x', '+', 'ä'] {
                let changed: String = text.chars().enumerate().map(|(n, c)| if n == at { other } else { c }).collect();
                assert_eq!(changed == text, changed.parse::<Token>().is_ok(), "{changed}");
            }
            assert!(text[..at].parse::<Token>().is_err());
        }
        assert_eq!(format!("{text}-").parse::<Token>(), Err(TokenError::Form));
        let long = format!("1-0-0-{}", "0".repeat(1 << 20));
        assert_eq!(long.parse::<Token>(), Err(TokenError::Form));
    }

    fn text_of(payload: &[u8]) -> String {
        let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("1-{:x}-{:x}-{digits}", checksum(payload), payload.len())
    }

    #[test]
    fn versions_and_contents_are_checked_behind_the_checksum() {
        assert_eq!(text_of(&[7]).parse::<Token>(), Err(TokenError::Version { version: 7 }));
        assert!(matches!(text_of(&[1, 8]).parse::<Token>(), Err(TokenError::Content(_))));
        let full = Token { base: None, ..token() }.payload();
        assert_eq!(text_of(&full).parse(), Ok(Token { base: None, ..token() }));
        assert!(matches!(text_of(&[&full[..], &[0]].concat()).parse::<Token>(), Err(TokenError::Content(_))));
        let mut backup = Token { backup: true, ..token() }.payload();
        assert_eq!(text_of(&backup).parse(), Ok(Token { backup: true, ..token() }));
        backup[0] = VERSION;
        assert!(matches!(text_of(&backup).parse::<Token>(), Err(TokenError::Content(_))));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: String, payload: Vec<u8>) {
            let _ = text.parse::<Token>();
            let _ = text_of(&payload).parse::<Token>();
            let _ = text_of(&[&[1], &payload[..]].concat()).parse::<Token>();
        }
    }
}
