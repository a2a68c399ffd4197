//! From an error to what is printed: a message, a hint, an exit code.
//!
//! ```text
//! pool: cannot open 'tnak': no such pool
//!   known pools: pool list; others: pool import
//! ```
//!
//! A [`Failure`] is built where the cause is known and can cross the service's socket, so a command fails with the same
//! words in any process. Messages begin with the failed operation, as ZFS's messages do. Operation, object and reason
//! stay apart until a message is printed, and code decides by the [`Kind`]: no code reads a message.

use std::fmt::{self, Display};
use std::io;

use dataset::name::NameError;
use dataset::property::PropertyError;
use serde::{Deserialize, Serialize};

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exit {
    /// Success, status 0.
    Done,
    /// Refusal or failure, status 1.
    Failed,
    /// A known pool is unavailable, status 1.
    Unavailable,
    /// Error in the command line, status 2.
    Usage,
    /// The command ran, and found damage: status 3.
    Damage,
}

impl Exit {
    /// The exit status that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed | Exit::Unavailable => 1,
            Exit::Usage => 2,
            Exit::Damage => 3,
        }
    }

    /// Exit status after a scrub that found `errors` blocks without a good copy.
    pub fn of_scrub(errors: u64) -> Exit {
        if errors == 0 { Exit::Done } else { Exit::Damage }
    }
}

/// Why a command failed. Displayed as a message without line end and program name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sent", into = "Sent")]
pub struct Failure {
    /// The failed operation and its object; `None` if the reason names both, or there are none.
    pub attempt: Option<Attempt>,
    /// The cause of the failure, without line end.
    pub reason: String,
    /// Next steps for the user, in whole lines.
    pub hint: Option<String>,
    /// Exit status of the program.
    pub exit: Exit,
    /// Cause, for decisions in code.
    pub kind: Kind,
}

/// An operation and its object, which a message puts as `cannot ACTION 'WHAT'`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The operation, such as `destroy` or `receive into`.
    pub action: String,
    /// Name of the object, such as a dataset or the path of a device.
    pub what: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.attempt {
            Some(Attempt { action, what }) => write!(f, "cannot {action} '{what}': {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Failure {}

/// A failure on the socket. Programs of every version decode `message`, `hint` and `exit`.
#[derive(Serialize, Deserialize)]
struct Sent {
    message: String,
    hint: Option<String>,
    exit: Exit,
    #[serde(default)]
    kind: Kind,
    /// Attempt and reason, for programs that keep both apart; `None` if `message` is only a reason.
    #[serde(default)]
    parts: Option<(Attempt, String)>,
}

impl From<Failure> for Sent {
    fn from(failure: Failure) -> Sent {
        let message = failure.to_string();
        let Failure { attempt, reason, hint, exit, kind } = failure;
        Sent { message, hint, exit, kind, parts: attempt.map(|attempt| (attempt, reason)) }
    }
}

impl From<Sent> for Failure {
    fn from(Sent { message, hint, exit, kind, parts }: Sent) -> Failure {
        let (attempt, reason) = parts.map_or((None, message), |(attempt, reason)| (Some(attempt), reason));
        Failure { attempt, reason, hint, exit, kind }
    }
}

/// Causes of failures that code distinguishes. On the socket a kind is a word, and an unknown word means `Other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Kind {
    /// Any cause that code does not distinguish.
    #[default]
    Other,
    /// The file system to unmount is not mounted.
    NotMounted,
    /// The pool is not known.
    NoPool,
    /// The pool's service speaks another version of the protocol.
    OtherVersion,
    /// The pool's service speaks the same version, but a call or an answer cannot be decoded.
    Undecodable,
}

impl Kind {
    /// Each kind with its word on the socket.
    const WORDS: [(Kind, &'static str); 5] = [
        (Kind::Other, "Other"),
        (Kind::NotMounted, "NotMounted"),
        (Kind::NoPool, "NoPool"),
        (Kind::OtherVersion, "OtherVersion"),
        (Kind::Undecodable, "Undecodable"),
    ];
}

impl From<String> for Kind {
    fn from(word: String) -> Kind {
        Kind::WORDS.iter().find(|(_, known)| *known == word).map_or(Kind::Other, |(kind, _)| *kind)
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        Kind::WORDS[kind as usize].1.to_owned()
    }
}

/// A word for a shell command line: quoted if the shell would interpret characters of the word.
pub fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Failure {
    /// A refusal or a failure with exit status 1.
    pub fn new(reason: impl Into<String>) -> Failure {
        Failure { attempt: None, reason: reason.into(), hint: None, exit: Exit::Failed, kind: Kind::Other }
    }

    /// `cannot ACTION 'WHAT': WHY`.
    pub fn cannot(action: &str, what: impl Display, why: impl Display) -> Failure {
        let attempt = Attempt { action: action.to_owned(), what: what.to_string() };
        Failure { attempt: Some(attempt), ..Failure::new(why.to_string()) }
    }

    /// The same failure as a failure of `action` on `what`: `cannot ACTION 'WHAT': ...`.
    pub fn of(self, action: &str, what: &str) -> Failure {
        let Failure { attempt, reason, .. } = Failure::cannot(action, what, self.reason_about(what));
        Failure { attempt, reason, ..self }
    }

    /// The same failure after a partial success, which comes first: `CONTEXT: ...`.
    pub fn after(self, context: &str) -> Failure {
        Failure { reason: format!("{context}: {self}"), attempt: None, ..self }
    }

    /// The reason alone if the failure is about `what`, else the whole message.
    pub fn reason_about(&self, what: &str) -> String {
        match &self.attempt {
            Some(attempt) if attempt.what == what => self.reason.clone(),
            _ => self.to_string(),
        }
    }

    /// `cannot open 'WHAT': dataset does not exist`, the phrase that programs written for ZFS look for.
    pub fn no_dataset(what: impl Display) -> Failure {
        Failure::cannot("open", what, "dataset does not exist")
    }

    /// `cannot open 'POOL': no such pool`.
    pub fn no_pool(pool: impl Display) -> Failure {
        let failure = Failure::cannot("open", pool, "no such pool").hint("known pools: pool list; others: pool import");
        Failure { kind: Kind::NoPool, ..failure }
    }

    /// The failure as said of `what` in the unknown pool, in the sentences that programs written for ZFS look for;
    /// `action` is the request's. Other failures stay as they are.
    pub fn within_pool(self, action: &str, what: &str) -> Failure {
        if self.kind != Kind::NoPool {
            return self;
        }
        let dataset = what.split(['@', '#']).next().unwrap_or_default();
        let pool = dataset.split('/').next().unwrap_or_default();
        let failure = match action {
            "create" => Failure::cannot(action, what, format!("no such pool '{pool}'")),
            "create snapshot" => Failure::cannot(action, what, "dataset does not exist"),
            _ => Failure::no_dataset(dataset),
        };
        failure.hint(format!("no pool '{pool}' is known here: pool list"))
    }

    /// The service's answer to a user without permission for the request.
    pub fn not_permitted() -> Failure {
        Failure::new("permission denied")
            .hint("only the owner of the pool, and root, may do this; other users may run list, get and status")
    }

    /// `cannot open 'POOL': permission denied`.
    pub fn not_permitted_in(pool: impl Display) -> Failure {
        let hint = Failure::not_permitted().hint;
        Failure { hint, ..Failure::cannot("open", pool, "permission denied") }
    }

    /// The service's answer to a user with too many calls at a time.
    pub fn too_many_calls() -> Failure {
        Failure::new("the pool's service is busy with calls of other users").hint("try again")
    }

    /// `cannot unmount 'WHAT': not currently mounted`.
    pub fn not_mounted(what: impl Display) -> Failure {
        Failure { kind: Kind::NotMounted, ..Failure::cannot("unmount", what, "not currently mounted") }
    }

    /// Whether a known pool is unavailable, rather than the request refused.
    pub fn is_unavailable(&self) -> bool {
        self.exit == Exit::Unavailable
    }

    /// Whether the failure says only that a file system is not mounted.
    pub fn is_not_mounted(&self) -> bool {
        self.hint.is_none() && self.kind == Kind::NotMounted
    }

    /// The message about a pool whose service has died, or was never started, although the registry has the pool.
    pub fn unserved(pool: impl Display) -> String {
        format!(
            "the service of '{pool}' is not running and its file systems are not mounted; to start it: pool import {pool}"
        )
    }

    /// An error in the command line, exit status 2.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, ..Failure::new(message) }
    }

    /// An invalid name of a dataset or pool.
    pub fn name(action: &str, error: &NameError) -> Failure {
        Failure::cannot(action, &error.name, error)
    }

    /// A rejected property or value.
    pub fn property(action: &str, what: impl Display, error: &PropertyError) -> Failure {
        Failure { hint: error.hint(), ..Failure::cannot(action, what, error) }
    }

    /// An error of the engine, with a hint for the kinds of error that have a remedy.
    pub fn engine(action: &str, what: impl Display, error: &pool::error::Error) -> Failure {
        use pool::error::{Error, ErrorKind};
        match error {
            Error::Unreadable { pool, .. } => {
                let hint = format!("to see what a rewind would lose: pool import -F -n {pool}");
                return Failure::cannot(action, what, error).hint(hint);
            }
            Error::Shrunk { device, needed, .. } => {
                let hint = format!(
                    "the device was truncated, or is a truncated copy; restore its size to recover the remaining data;\n\
                     for an image file: truncate -s {needed} {}",
                    shell_word(device)
                );
                return Failure::cannot(action, what, error).hint(hint);
            }
            Error::Split { .. } => {
                let hint = "import one side while the devices of the other side are disconnected;\n\
                            then detach the other devices (pool detach), and attach them again (pool attach), which discards their content";
                return Failure::cannot(action, what, error).hint(hint);
            }
            Error::Incomplete { pool, .. } => {
                return Failure::cannot(action, what, error)
                    .hint(format!("search the directories of all devices: pool import -d DIR -d DIR {pool}"));
            }
            Error::OlderCopy { pool, .. } => {
                let hint = format!(
                    "connect the original device and search its directory: pool import -d DIR {pool}\n\
                     to read the outdated state: pool import -o readonly=on {pool}"
                );
                return Failure::cannot(action, what, error).hint(hint);
            }
            Error::LostLog { pool, .. } => {
                let hint = format!(
                    "search the directories of all devices: pool import -d DIR -d DIR {pool}\n\
                     if the log is lost: pool import -m {pool}; synchronous writes since the last commit are lost"
                );
                return Failure::cannot(action, what, error).hint(hint);
            }
            Error::Busy { device, holder } if let Some(process) = holder.other_users_process() => {
                return Failure::cannot(action, what, error).hint(format!(
                    "to end the process: kill {process}\n\
                     to protect an image from other users: chmod 600 {}",
                    shell_word(device)
                ));
            }
            Error::NoDevice { pool, name, similar } => {
                let what = what.to_string();
                let has = similar.as_ref().map_or_else(String::new, |similar| format!("the pool has {similar}\n"));
                let why = if what == *name { "no such device in pool".to_owned() } else { error.to_string() };
                return Failure::cannot(action, what, why)
                    .hint(format!("{has}to list the devices: pool status {pool}"));
            }
            Error::Suspended(why) => return Failure::suspended(action, &what.to_string(), why),
            _ => {}
        }
        let hint = match error.kind() {
            ErrorKind::Space => Some("free some space, or add a device: pool add"),
            ErrorKind::Damage => Some("to list the damage: pool status -v, or pool check"),
            ErrorKind::Device => Some("check the path, the permissions and the device; for a pool: pool status"),
            ErrorKind::Unsupported => Some("use the version of Cenote that wrote it, or a newer one"),
            ErrorKind::Request | ErrorKind::Busy => None,
        };
        Failure { hint: hint.map(str::to_owned), ..Failure::cannot(action, what, error) }
    }

    /// The failure of a write to a pool suspended by a failed device.
    fn suspended(action: &str, what: &str, why: &str) -> Failure {
        let pool = what.split(['/', '@', '#']).next().unwrap_or(what);
        Failure::cannot(action, what, "pool I/O is currently suspended").hint(format!(
            "{why}\nto see the devices: pool status {pool}; to resume when the devices are back: pool clear {pool}\n\
             to discard unwritten data: pool export --abandon {pool}"
        ))
    }

    /// Adds a hint to the failure.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }
}

/// The failure for a response of the wrong type.
pub fn unexpected_answer() -> Failure {
    Failure::new("unexpected answer from the pool's service")
        .hint("the service may be of another version of Cenote: export and import the pool")
}

/// An error of printing. A reader that closes the pipe, as `head` does, is not an error: the program ends quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { exit: Exit::Done, ..Failure::new("") };
        }
        Failure::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_be_copied_names_a_device_as_the_shell_takes_it() {
        let hint = |device: &str| {
            let error = pool::error::Error::Shrunk { device: device.into(), size: 1, needed: 2 };
            Failure::engine("import", "tank", &error).hint.unwrap()
        };
        assert!(hint("/var/tank.img").ends_with(" truncate -s 2 /var/tank.img"));
        assert!(hint("/my disks/a'b.img").ends_with(r" truncate -s 2 '/my disks/a'\''b.img'"));
        assert!(hint("$(x)").ends_with(" truncate -s 2 '$(x)'"));
    }

    #[test]
    fn a_failure_crosses_the_socket_in_its_parts() {
        let hint = Failure::not_mounted("tank/a: b").hint("see there");
        for failure in [Failure::new("cannot open 'x': y"), Failure::no_pool("tank"), hint] {
            let sent = serde_json::to_vec(&failure).unwrap();
            assert_eq!(serde_json::from_slice::<Failure>(&sent).unwrap(), failure);
        }
        for (kind, word) in Kind::WORDS {
            assert_eq!((Kind::from(word.to_owned()), String::from(kind)), (kind, word.to_owned()));
        }
    }

    #[test]
    fn failures_of_programs_before_and_after_are_read() {
        let read = |sent: &str| serde_json::from_str::<Failure>(sent).unwrap();
        assert_eq!(read(r#"{"message":"no","hint":null,"exit":"Failed"}"#), Failure::new("no"));
        let later = r#"{"message":"no","hint":"go","exit":"Usage","kind":"Bewitched","spell":7}"#;
        assert_eq!(read(later), Failure::usage("no").hint("go"));
    }

    #[test]
    fn a_failure_of_another_action_keeps_its_reason() {
        let export = |failure: Failure| failure.of("export", "tank").to_string();
        assert_eq!(export(Failure::no_pool("tank")), "cannot export 'tank': no such pool");
        let other = "cannot export 'tank': cannot open 'tank/a': dataset does not exist";
        assert_eq!(export(Failure::no_dataset("tank/a")), other);
        assert_eq!(export(Failure::new("busy")), "cannot export 'tank': busy");
        assert_eq!(Failure::no_pool("tank").after("created").to_string(), "created: cannot open 'tank': no such pool");
    }

    #[test]
    fn only_what_says_no_more_than_that_it_is_not_mounted_is_that() {
        assert!(Failure::not_mounted("tank/a").is_not_mounted());
        assert!(!Failure::not_mounted("tank/a").hint("see there").is_not_mounted());
        assert!(!Failure::no_dataset("tank/a").is_not_mounted());
    }

    #[test]
    fn a_reader_that_went_away_is_success() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, Exit::Done);
        assert_eq!(Failure::from(io::Error::other("disk on fire")).exit, Exit::Failed);
    }

    #[test]
    fn a_scrub_that_found_damage_ends_with_a_status_of_its_own() {
        assert_eq!([0, 1, u64::MAX].map(|errors| Exit::of_scrub(errors).code()), [0, 3, 3]);
    }
}
