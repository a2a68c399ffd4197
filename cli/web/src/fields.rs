//! Fields of forms and of addresses, with limits on size and time.
//!
//! File names may hold any bytes. So a path stands in a field or an address in escaped form ([`escape`]), which is plain
//! ASCII text.

use std::time::Duration;

use axum::Form;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::Failure;
use tokio::time::timeout;

/// Time limit for the body of a form.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names and values, in the order of the form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The first value of a field; empty without the field.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The value of a field that must not be empty.
    pub(crate) fn need(&self, name: &str) -> Result<&str, Failure> {
        match self.get(name).trim() {
            "" => Err(Failure::usage(format!("the field '{name}' is empty"))),
            value => Ok(value),
        }
    }

    /// Whether a box is checked.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Fields, Response> {
        match timeout(PATIENCE, Form::<Vec<(String, String)>>::from_request(request, state)).await {
            Ok(Ok(Form(pairs))) => Ok(Fields(pairs)),
            Ok(Err(rejection)) => Err(rejection.into_response()),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the form did not arrive in time\n").into_response()),
        }
    }
}

/// Bytes as text of letters, digits, `/._-` and escapes such as `%20`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            true => text.push(char::from(*byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// The bytes of an escaped text; `None` for a broken escape.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? << 4 | digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_its_escape() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escape(&all);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>&\"'".contains(&byte)));
        assert_eq!(unescape(&text), Some(all));
        assert_eq!(unescape("%4"), None);
        assert_eq!(unescape("%zz"), None);
    }
}
