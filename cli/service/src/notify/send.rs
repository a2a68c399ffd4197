//! Sending a message on its way, within a time limit.

use std::{
    fs::File,
    io::{self, Seek, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use protocol::Severity;
use rustix::fs::{MemfdFlags, memfd_create};
use ureq::tls::{RootCerts, TlsConfig};

use super::{
    config::{Target, Way},
    message::Message,
};
use crate::hooks::run_within;

/// Time limit of a program.
const PROGRAM: Duration = Duration::from_secs(30);
/// Time limit of an HTTP request with everything: name, connection, answer.
const REQUEST: Duration = Duration::from_secs(10);

/// Sends a message to a target.
pub(super) fn send(target: &Target, message: &Message) -> io::Result<()> {
    match &target.way {
        Way::Mail { to, from, program } => mail(program, to, from.as_deref(), message),
        Way::Webhook { url, authorization } => post(url, authorization.as_deref(), message),
        Way::Desktop { program } => show(program, message),
    }
}

/// A program with few variables, regardless of the environment of the service.
fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let passed = ["HOME", "USER", "LOGNAME", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY"];
    command.envs(passed.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

fn mail(path: &Path, to: &[String], from: Option<&str>, message: &Message) -> io::Result<()> {
    // The input is a file: a program that does not read cannot block the thread.
    let mut input = File::from(memfd_create("cenote-mail", MemfdFlags::CLOEXEC)?);
    input.write_all(letter(to, from, message).as_bytes())?;
    input.rewind()?;
    let mut command = program(path);
    // A line with a dot ends nothing, and the addresses are arguments: a header adds no recipient.
    command.args(["-oi", "--"]).args(to).stdin(input);
    run_within(command, PROGRAM)
}

/// The mail. Headers have plain ASCII; the body has UTF-8.
fn letter(to: &[String], from: Option<&str>, message: &Message) -> String {
    let ascii = |text: &str| text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect::<String>();
    let from = from.map_or_else(String::new, |from| format!("From: {from}\n"));
    format!(
        "{from}To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{}\n",
        to.join(", "),
        ascii(&message.subject),
        message.lines.join("\n")
    )
}

fn post(url: &str, authorization: Option<&str>, message: &Message) -> io::Result<()> {
    // The authorities that this machine trusts, an own one included.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config =
        ureq::Agent::config_builder().timeout_global(Some(REQUEST)).max_redirects(0).proxy(None).tls_config(tls);
    let agent: ureq::Agent = config.build().into();
    let mut request = agent.post(url).header("Content-Type", "application/json");
    if let Some(authorization) = authorization {
        request = request.header("Authorization", authorization);
    }
    // The error may quote the address, which may hold a secret.
    let answer = request.send(message.json.to_string()).map_err(|error| match error {
        ureq::Error::StatusCode(status) => io::Error::other(format!("the server answered {status}")),
        ureq::Error::Timeout(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        ureq::Error::HostNotFound => io::Error::other("no machine has the name in the address"),
        ureq::Error::ConnectionFailed => io::Error::other("no connection to the server"),
        ureq::Error::Rustls(error) => io::Error::other(error),
        ureq::Error::Io(error) => error,
        _ => io::Error::other("the request failed"),
    })?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the server answered {}", answer.status().as_u16()))),
    }
}

fn show(path: &Path, message: &Message) -> io::Result<()> {
    let urgency = match message.severity {
        Severity::Critical => "critical",
        Severity::Warning => "normal",
        Severity::Notice => "low",
    };
    let mut command = program(path);
    if std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none() {
        let user = rustix::process::geteuid().as_raw();
        command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path=/run/user/{user}/bus"));
    }
    // The body is markup.
    let body = message.lines.iter().take(2).map(|line| escaped(line)).collect::<Vec<_>>().join("\n");
    command.args(["--app-name=Cenote", "-u", urgency, "--", &message.subject, &body]).stdin(Stdio::null());
    run_within(command, PROGRAM)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_has_its_headers_and_no_others() {
        let message = Message {
            subject: "[cenote] tänk: critical: x".into(),
            lines: vec!["Bcc: ann".into(), ".".into(), "grün".into()],
            severity: Severity::Critical,
            json: serde_json::Value::Null,
        };
        let text = letter(&["root".into(), "ann@example.org".into()], Some("pool@example.org"), &message);
        let (head, body) = text.split_once("\n\n").unwrap();
        assert_eq!(
            head.lines().map(|line| line.split_once(": ").unwrap().0).collect::<Vec<_>>(),
            ["From", "To", "Subject", "Auto-Submitted", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"]
        );
        assert!(head.contains("To: root, ann@example.org\nSubject: [cenote] t?nk: critical: x\n"), "{head}");
        assert_eq!(body, "Bcc: ann\n.\ngrün\n");
    }
}
