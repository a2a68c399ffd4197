//! The file `notify.toml`: which targets get messages about which events.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use protocol::{EventRecord, Failure, Severity};
use rustix::fs::OFlags;
use serde::Deserialize;

use crate::{execute::severity, hooks::is_ours};

/// Most bytes of the file.
const MOST: u64 = 64 << 10;

/// Most targets of one kind, and most addresses of a mail.
const MOST_TARGETS: usize = 16;

/// A receiver of messages, and the choice of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) way: Way,
    /// Class patterns: a class, or its beginning before `*`.
    classes: Vec<String>,
    severity: Severity,
    /// Most messages in an hour.
    pub(super) hourly: u32,
}

/// How a message goes to its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Mail, by a program with the addresses as arguments and the mail as input.
    Mail { to: Vec<String>, from: Option<String>, program: PathBuf },
    /// An HTTP POST of JSON.
    Webhook { url: String, authorization: Option<String> },
    /// A notification on the desktop, by `notify-send`.
    Desktop { program: PathBuf },
}

impl Target {
    /// Whether the target gets messages about an event.
    pub(super) fn wants(&self, event: &EventRecord) -> bool {
        let is_meant = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => event.class.starts_with(beginning),
            None => event.class == *pattern,
        };
        severity(event) >= self.severity && self.classes.iter().any(is_meant)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Mail { to, .. } => write!(f, "mail to {}", to.join(", ")),
            // User, path and query may hold a secret.
            Way::Webhook { url, .. } => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                write!(f, "webhook {scheme}://{}", host.rsplit('@').next().unwrap_or_default())
            }
            Way::Desktop { .. } => f.write_str("desktop"),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Everything {
    mail: Vec<Mail>,
    webhook: Vec<Webhook>,
    desktop: Vec<Desktop>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mail {
    to: OneOrMore,
    from: Option<String>,
    program: Option<PathBuf>,
    events: Option<Vec<String>>,
    severity: Option<Severity>,
    hourly: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Webhook {
    url: String,
    authorization: Option<String>,
    events: Option<Vec<String>>,
    severity: Option<Severity>,
    hourly: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Desktop {
    program: Option<PathBuf>,
    events: Option<Vec<String>>,
    severity: Option<Severity>,
    hourly: Option<u32>,
}

/// The targets in a file; none if there is no file.
pub(super) fn read(file: &Path) -> Result<Vec<Target>, Failure> {
    let refused = |problem: String| Failure::cannot("use", file.display(), problem);
    let text = match open(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(error.to_string())),
    };
    // Of the parser's message only the line: the rest quotes the file, which may hold a secret.
    let everything: Everything = toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1));
        refused(format!("line {line}: {}", error.message()))
    })?;
    targets(everything).map_err(refused)
}

/// The text of a file that only this user, or root, can change.
fn open(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if !is_ours(&found) {
        let mode = found.permissions().mode() & 0o777;
        let problem = format!("another user owns or can write the file (mode {mode:o})");
        return Err(io::Error::other(problem));
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other(format!("it has more than {MOST} bytes")));
    }
    Ok(text)
}

fn targets(everything: Everything) -> Result<Vec<Target>, String> {
    let Everything { mail, webhook, desktop } = everything;
    if [mail.len(), webhook.len(), desktop.len()].iter().any(|count| *count > MOST_TARGETS) {
        return Err(format!("more than {MOST_TARGETS} targets of one kind"));
    }
    let mut all = Vec::new();
    for Mail { to, from, program, events, severity, hourly } in mail {
        let to = match to {
            OneOrMore::One(to) => vec![to],
            OneOrMore::More(to) => to,
        };
        if to.is_empty() || to.len() > MOST_TARGETS {
            return Err(format!("a mail has 1 to {MOST_TARGETS} addresses"));
        }
        to.iter().chain(&from).try_for_each(|address| check_address(address))?;
        let program = absolute(program, "/usr/sbin/sendmail")?;
        all.push(target(Way::Mail { to, from, program }, events, severity, hourly)?);
    }
    for Webhook { url, authorization, events, severity, hourly } in webhook {
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) || !is_plain(&url) {
            return Err("a webhook's url begins with https:// or http://, and has no spaces".to_owned());
        }
        if authorization
            .as_ref()
            .is_some_and(|text| text.is_empty() || text.contains(|c: char| !(' '..='~').contains(&c)))
        {
            return Err("authorization has characters that a header cannot have".to_owned());
        }
        all.push(target(Way::Webhook { url, authorization }, events, severity, hourly)?);
    }
    for Desktop { program, events, severity, hourly } in desktop {
        let program = absolute(program, "/usr/bin/notify-send")?;
        all.push(target(Way::Desktop { program }, events, severity, hourly)?);
    }
    Ok(all)
}

fn target(
    way: Way,
    events: Option<Vec<String>>,
    severity: Option<Severity>,
    hourly: Option<u32>,
) -> Result<Target, String> {
    let classes = events.unwrap_or_else(|| vec!["alert.*".to_owned()]);
    if let Some(bad) = classes.iter().find(|class| !is_plain(class) || class.is_empty()) {
        return Err(format!("events: '{}' is not an event class", bad.escape_debug()));
    }
    Ok(Target { way, classes, severity: severity.unwrap_or(Severity::Notice), hourly: hourly.unwrap_or(20).max(1) })
}

fn absolute(program: Option<PathBuf>, usual: &str) -> Result<PathBuf, String> {
    match program {
        Some(program) if !program.is_absolute() => Err("program must be an absolute path".to_owned()),
        program => Ok(program.unwrap_or_else(|| usual.into())),
    }
}

/// An address is printed in headers and is an argument: no spaces, no control characters, no option.
fn check_address(address: &str) -> Result<(), String> {
    let is_good = is_plain(address)
        && (1..=254).contains(&address.len())
        && !address.starts_with('-')
        && !address.contains([',', ';', '<', '>', '(', ')', '"', '\\', ':', '|']);
    is_good.then_some(()).ok_or_else(|| format!("'{}' is not a mail address", address.escape_debug()))
}

/// Whether a text has only visible ASCII characters.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Target>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notify.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        read(&file).map_err(|failure| failure.to_string())
    }

    fn event(class: &str, severity: Option<&str>) -> EventRecord {
        let details = severity.map(|severity| ("alert_severity".to_owned(), severity.to_owned()));
        EventRecord { number: 1, time: 0, class: class.into(), details: details.into_iter().collect() }
    }

    #[test]
    fn targets_choose_their_events() {
        let text = "[[mail]]\nto = 'root'\nseverity = 'warning'\n[[webhook]]\nurl = 'http://u:p@127.0.0.1:9/x?key=secret'\n\
                    events = ['sysevent.fs.zfs.scrub_finish', 'resource.*']\n[[desktop]]\n";
        let targets = parse(text).unwrap();
        assert_eq!(
            targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["mail to root", "webhook http://127.0.0.1:9", "desktop"]
        );
        let wants =
            |class, severity| targets.iter().map(|target| target.wants(&event(class, severity))).collect::<Vec<_>>();
        assert_eq!(wants("alert.fs.cenote.near_capacity", Some("notice")), [false, false, true]);
        assert_eq!(wants("alert.fs.cenote.data_damaged", Some("critical")), [true, false, true]);
        assert_eq!(wants("sysevent.fs.zfs.scrub_finish", None), [false, true, false]);
        assert_eq!(wants("sysevent.fs.zfs.scrub_start", None), [false; 3]);
        assert_eq!(wants("resource.fs.zfs.statechange", None), [false, true, false]);
    }

    #[test]
    fn what_is_no_configuration_is_refused_and_no_secret_is_shown() {
        for (text, problem) in [
            ("[[mail]]\nto = \"a\\nBcc: b\"", "is not a mail address"),
            ("[[mail]]\nto = '-oQ/tmp'", "is not a mail address"),
            ("[[mail]]\nto = []", "a mail has 1 to 16 addresses"),
            ("[[mail]]\nto = 'a'\nfrom = 'b c'", "is not a mail address"),
            ("[[mail]]\nto = 'a'\nprogram = 'sendmail'", "program must be an absolute path"),
            ("[[webhook]]\nurl = 'file:///etc/passwd'", "begins with https:// or http://"),
            ("[[webhook]]\nurl = 'http://a/ b'", "has no spaces"),
            ("[[webhook]]\nurl = 'http://a'\nauthorization = \"a\\r\\nX: y\"", "cannot have"),
            ("[[desktop]]\nevents = ['a b']", "is not an event class"),
            ("\n[[desktop]]\nserverity = 'warning'", "line 3"),
            ("[[webhook]]\nurl = 'http://secret", "line 2"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(problem) && !said.contains("secret"), "{text}: {said}");
        }
        assert!(parse(&"#".repeat(MOST as usize + 1)).unwrap_err().contains("more than 65536 bytes"));
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(read(Path::new("/nowhere/notify.toml")).unwrap(), []);
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notify.toml");
        fs::write(&file, "[[desktop]]").unwrap();
        for (mode, is_good) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&file).is_ok(), is_good, "{mode:o}");
        }
        assert!(read(folder.path()).unwrap_err().to_string().contains("it is not a file"));
    }
}
