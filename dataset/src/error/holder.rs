//! The command that keeps a snapshot busy, as shown in errors.

use std::fmt;

use pool::env::Nanos;

use crate::property::on_one_line;

/// A command that reads whole snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The command line, as other commands report the reader; empty if it is not for the user of the present request.
    pub command: String,
    /// The process id, if known.
    pub process: Option<u32>,
    /// The name or id of the user, if not the pool's owner. Command lines of other users are private, and could be
    /// written to deceive.
    pub user: Option<String>,
}

/// A command that holds a snapshot, and the age of the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The command that holds the snapshot.
    pub reader: Reader,
    /// The age of the hold, in nanoseconds.
    pub age: Nanos,
}

impl Holder {
    /// The next step for the user: wait for the command, or end the process.
    pub fn remedy(&self) -> String {
        match &self.reader {
            Reader { process: Some(process), user: None, command } if !command.is_empty() => {
                format!("wait until the command finishes, or end it: kill {process}")
            }
            Reader { user: Some(_), .. } => "wait until the command finishes, or ask its user to end it".to_owned(),
            _ => "wait until the command finishes".to_owned(),
        }
    }

    /// The holder as shown to users other than the owner of the pool: without the command line.
    pub(crate) fn for_others(self) -> Holder {
        Holder { reader: Reader { command: String::new(), ..self.reader }, ..self }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.user, self.process) {
            (Some(user), Some(process)) => write!(f, "process {process} of user {}", on_one_line(user)),
            (Some(user), None) => write!(f, "a process of user {}", on_one_line(user)),
            (None, Some(process)) if self.command.is_empty() => {
                write!(f, "process {process} of the owner of the pool")
            }
            (None, Some(process)) => write!(f, "'{}' (process {process})", on_one_line(&self.command)),
            (None, None) => write!(f, "'{}'", on_one_line(&self.command)),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.reader)?;
        match self.age.max(0) / 1_000_000_000 {
            seconds @ ..120 => write!(f, "for {seconds} s"),
            seconds @ ..7200 => write!(f, "for {} min", seconds / 60),
            seconds => write!(f, "for {} h", seconds / 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_said_in_units_that_can_be_read() {
        let shown = |seconds: Nanos| {
            let reader = Reader { command: "fs send tank@a".into(), ..Reader::default() };
            Holder { reader, age: seconds * 1_000_000_000 }.to_string()
        };
        assert_eq!(shown(-1), "'fs send tank@a', for 0 s");
        assert_eq!(shown(300), "'fs send tank@a', for 5 min");
        assert_eq!(shown(86_400), "'fs send tank@a', for 24 h");
    }

    #[test]
    fn what_another_user_has_typed_is_not_repeated() {
        let own = Reader { command: "fs send \u{1b}[31m'tank@a'\n".into(), process: Some(7), user: None };
        assert_eq!(own.to_string(), "'fs send \\u{1b}[31m'tank@a'\\n' (process 7)");
        let other = Reader { user: Some("ann\r".into()), ..own };
        assert_eq!(other.to_string(), "process 7 of user ann\\r");
        let hidden = Holder { reader: Reader { user: None, ..other.clone() }, age: 0 }.for_others();
        assert_eq!(hidden.to_string(), "process 7 of the owner of the pool, for 0 s");
        assert_eq!(hidden.remedy(), "wait until the command finishes");
        assert_eq!(Reader { process: None, ..other }.to_string(), "a process of user ann\\r");
    }
}
