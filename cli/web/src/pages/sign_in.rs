//! Signing in with a token, and out.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::page::Page;
use super::{frame, parts};
use crate::app::App;
use crate::fields::Fields;
use crate::gate::{self, Visitor};
use crate::tokens::Refusal;

/// The page that a user wanted before signing in.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    to: String,
}

/// The page with the form.
pub(crate) async fn show(Query(wanted): Query<Wanted>) -> Page {
    Page(StatusCode::OK, frame::whole("Sign in", None, &[], content(&wanted.to, None)))
}

fn content(to: &str, problem: Option<&str>) -> Markup {
    html! {
        @if let Some(problem) = problem { div.message.bad role="alert" { p { (problem) } } }
        form.card method="post" action="/sign-in" {
            input type="hidden" name="to" value=(to);
            (parts::field("token", "Token", html! {
                input id="token" name="token" type="password" required autofocus autocomplete="off" spellcheck="false"
                    aria-describedby="token-help";
            }))
            button { "Sign in" }
            div id="token-help" {
                p { "To get a token, type in a terminal of this machine:" }
                (parts::command("pool web token"))
                p { "A read-only token:" }
                (parts::command("pool web token --read-only"))
            }
        }
    }
}

/// Checks a token and begins a session, in place of a session before.
pub(crate) async fn sign_in(State(app): State<Arc<App>>, parts: Parts, fields: Fields) -> Response {
    let peer = gate::peer(&parts);
    let (from, client) = peer.map_or((IpAddr::V4(Ipv4Addr::UNSPECIFIED), None), |peer| (peer.address, peer.user));
    if let Some(secret) = gate::cookie(&app, &parts) {
        app.tokens.sign_out(secret);
    }
    match app.tokens.sign_in(fields.get("token"), from, client) {
        Ok(secret) => {
            let cookie = [(header::SET_COOKIE, gate::set_cookie(&app, &secret))];
            (cookie, Redirect::to(local(fields.get("to")))).into_response()
        }
        Err(refusal) => refused(fields.get("to"), refusal),
    }
}

fn refused(to: &str, refusal: Refusal) -> Response {
    let page = |status, problem: &str| {
        Page(status, frame::whole("Sign in", None, &[], content(to, Some(problem)))).into_response()
    };
    match refusal {
        Refusal::Unknown => page(StatusCode::UNAUTHORIZED, "The token is unknown or has expired."),
        Refusal::Full => page(StatusCode::TOO_MANY_REQUESTS, "This user has too many sessions."),
        Refusal::TooMany(wait) => {
            let seconds = wait.as_secs().max(1).to_string();
            let problem = format!("Too many failed attempts. Try again in {seconds} seconds.");
            ([(header::RETRY_AFTER, seconds)], page(StatusCode::TOO_MANY_REQUESTS, &problem)).into_response()
        }
    }
}

/// The address to return to: of this server only.
fn local(to: &str) -> &str {
    let is_local = to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\");
    if is_local && to.bytes().all(|byte| byte.is_ascii_graphic()) { to } else { "/" }
}

/// Ends the session of the request.
pub(crate) async fn sign_out(State(app): State<Arc<App>>, visitor: Visitor, fields: Fields) -> Response {
    if fields.get("form") == visitor.form {
        app.tokens.sign_out(&visitor.session);
    }
    ([(header::SET_COOKIE, gate::set_cookie(&app, ""))], Redirect::to("/sign-in")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_no_other_site() {
        assert_eq!(local("/pool/tank"), "/pool/tank");
        for foreign in ["//evil.example/", "https://evil.example", "/\\evil.example", "", "/\r\nx: y"] {
            assert_eq!(local(foreign), "/");
        }
    }
}
