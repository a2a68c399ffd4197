//! The user behind a request, and the browser's right: sessions, forged requests, response headers.
//!
//! - A session is a cookie that only this host's pages over TLS send, and no script can read.
//! - A request that changes something carries the session's form secret, and comes from a page of this server.
//! - A page loads nothing from elsewhere, and no other site can frame a page.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::header::ORIGIN;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};

use crate::app::App;
use crate::fields::escape;
use crate::peer::Peer;
use crate::tokens::{Grant, Session};

/// Name of the cookie of the page on a port. Browsers accept the prefix only over TLS, for the whole host, without a domain. The
/// port keeps two pages of one host apart: browsers send the cookies of one port to every port.
pub(crate) fn cookie_name(port: u16) -> String {
    format!("__Host-cenote-{port}")
}

/// A user with a session.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// The user's number.
    pub(crate) user: u32,
    /// The user's name, for display.
    pub(crate) name: String,
    /// Whether the user has all rights of the owner.
    pub(crate) is_owner: bool,
    /// Whether the token only reads.
    pub(crate) read_only: bool,
    /// The secret in the forms of the session.
    pub(crate) form: String,
    /// The secret of the session.
    pub(crate) session: String,
}

impl Visitor {
    fn new(app: &App, secret: &str, session: Session) -> Visitor {
        let Grant { user, read_only, .. } = session.grant;
        let name = app.name_of(user);
        let is_owner = app.is_owner(user);
        Visitor { user, name, is_owner, read_only, form: session.form, session: secret.to_owned() }
    }

    /// The user for [`crate::quota::Quota`]: none for the owner.
    pub(crate) fn other(&self) -> Option<u32> {
        (!self.is_owner).then_some(self.user)
    }
}

impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Visitor, Response> {
        let session = session(app, parts);
        session.map(|(secret, session)| Visitor::new(app, secret, session)).ok_or_else(|| {
            // A browser shows the page of the sign-in; an expired form is not repeated.
            match parts.method.is_safe() {
                // A browser would follow the redirection of a live view and show nothing.
                _ if parts.uri.path().starts_with("/live/") => StatusCode::UNAUTHORIZED.into_response(),
                true => Redirect::to(&sign_in(&parts.uri)).into_response(),
                false => (StatusCode::UNAUTHORIZED, Html(EXPIRED)).into_response(),
            }
        })
    }
}

/// The address of the sign-in, with the way back to `wanted`.
fn sign_in(wanted: &Uri) -> String {
    match wanted.path_and_query().map(|path| path.as_str()) {
        None | Some("/") => "/sign-in".to_owned(),
        Some(path) => format!("/sign-in?to={}", escape(path.as_bytes())),
    }
}

/// The answer to a change without a session.
const EXPIRED: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Session ended</title>\
    <link rel=\"stylesheet\" href=\"/assets/style.css\"></head><body><main><h1>Your session has ended</h1>\
    <p>Nothing was changed. <a href=\"/sign-in\">Sign in</a></p></main></body></html>";

/// A program with a token in the header `Authorization: Bearer`, or a signed-in user.
pub(crate) struct Reader;

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Reader, Response> {
        let header = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let grant = header.and_then(|value| value.strip_prefix("Bearer ")).and_then(|token| app.tokens.grant_of(token));
        match grant.or_else(|| session(app, parts).map(|(_, session)| session.grant)) {
            Some(grant) if app.is_owner(grant.user) => Ok(Reader),
            Some(_) => Err((StatusCode::FORBIDDEN, "figures are for the owner of the pools\n").into_response()),
            None => {
                let asks = [(header::WWW_AUTHENTICATE, "Bearer")];
                Err((StatusCode::UNAUTHORIZED, asks, "send a token of: pool web token --read-only\n").into_response())
            }
        }
    }
}

/// The session of a request, with its secret.
fn session<'a>(app: &App, parts: &'a Parts) -> Option<(&'a str, Session)> {
    let secret = cookie(app, parts)?;
    Some((secret, app.tokens.session(secret, peer(parts)?.user)?))
}

/// The session's secret in the request's cookies.
pub(crate) fn cookie<'a>(app: &App, parts: &'a Parts) -> Option<&'a str> {
    let all = parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == app.cookie).map(|(_, value)| value)
}

/// The header's value for setting the cookie; an empty secret removes the cookie.
pub(crate) fn set_cookie(app: &App, secret: &str) -> HeaderValue {
    let name = &app.cookie;
    let age = if secret.is_empty() { "; Max-Age=0" } else { "" };
    let value = format!("{name}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict{age}");
    HeaderValue::try_from(value).expect("the secret is plain text")
}

/// The client at the other end of the connection.
pub(crate) fn peer(parts: &Parts) -> Option<Peer> {
    parts.extensions.get().copied()
}

/// Longest path of an address, in bytes: the longest name, with each byte escaped.
const MAX_PATH: usize = 1024;

/// Refuses changes that another site's page requests. Adds the headers of every response.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    if !request.method().is_safe() && !is_from_here(&request) {
        return (StatusCode::FORBIDDEN, "the request comes from another site\n").into_response();
    }
    if request.uri().path().len() > MAX_PATH {
        return (StatusCode::URI_TOO_LONG, "the address is too long\n").into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    response
}

const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Whether a page of this server sent the request. Browsers send one header or both; programs may send neither, and
/// then have no cookie that a foreign page could use.
fn is_from_here(request: &Request) -> bool {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let site = header("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let host = header("host");
    let origin = header(ORIGIN.as_str()).is_none_or(|origin| {
        origin.parse::<Uri>().ok().is_some_and(|uri| uri.authority().map(|name| name.as_str()) == host)
    });
    site && origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_knows_the_way_back() {
        assert_eq!(sign_in(&"/".parse().unwrap()), "/sign-in");
        assert_eq!(sign_in(&"/pool/tank?a=b".parse().unwrap()), "/sign-in?to=/pool/tank%3Fa%3Db");
    }
}
