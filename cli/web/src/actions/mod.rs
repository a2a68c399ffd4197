//! Changes: each a command line made from the fields of a form.
//!
//! [`TABLE`] has a row for each change. The words of a command come from typed fields, never through a shell, and the
//! command's own parser validates the words. The dry run of a change is the command with `-n`, or a command that shows
//! what will change. A change that destroys data requires the name typed again.

mod dataset;
mod files;
mod pool;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use ::dataset::name::Name;
use protocol::{Exit, Failure, shell_word};

use crate::fields::Fields;

/// The words of a command line; the first is `pool` or `fs`.
pub(crate) type Words = Vec<OsString>;

/// A change that a page offers.
pub(crate) struct Action {
    /// Name in addresses.
    pub(crate) name: &'static str,
    /// Head of the confirmation page.
    pub(crate) title: &'static str,
    /// The command line of a form.
    pub(crate) words: fn(&Fields) -> Result<Words, Failure>,
    /// How the effect is shown before.
    pub(crate) dry: Dry,
    /// The field with the name to type again.
    pub(crate) retype: Option<&'static str>,
    /// The users for whom the change is offered.
    pub(crate) needs_owner: bool,
    /// The file at one end of the command.
    pub(crate) file: Option<File>,
}

/// How the effect of a change is shown before the change.
pub(crate) enum Dry {
    /// The command itself, with this word after the subcommand.
    Option(&'static str),
    /// A command that shows the present state, or what will be lost.
    Show(fn(&Fields) -> Result<Words, Failure>),
    /// A command whose exit status says whether something would be lost.
    Cost(fn(&Fields) -> Result<Words, Failure>),
    /// The command itself with this word, and a command that shows what will be lost.
    Also(&'static str, fn(&Fields) -> Result<Words, Failure>),
}

/// The use of the file in the field `file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// Standard output of the command.
    Written,
    /// Standard input of the command.
    Read,
}

/// All changes, by subject.
const TABLE: [&[Action]; 3] = [pool::ACTIONS, dataset::ACTIONS, files::ACTIONS];

/// The row of a change.
pub(crate) fn find(name: &str) -> Option<&'static Action> {
    TABLE.into_iter().flatten().find(|action| action.name == name)
}

impl Action {
    const fn new(
        name: &'static str,
        title: &'static str,
        words: fn(&Fields) -> Result<Words, Failure>,
        dry: Dry,
    ) -> Action {
        Action { name, title, words, dry, retype: None, needs_owner: false, file: None }
    }

    const fn retyping(self, field: &'static str) -> Action {
        Action { retype: Some(field), ..self }
    }

    const fn of_owner(self) -> Action {
        Action { needs_owner: true, ..self }
    }

    const fn with_file(self, file: File) -> Action {
        Action { file: Some(file), ..self }
    }

    /// The commands of the dry run.
    pub(crate) fn dry_words(&self, fields: &Fields) -> Result<Vec<Words>, Failure> {
        let with = |option: &str| -> Result<Words, Failure> {
            let mut words = (self.words)(fields)?;
            words.splice(2..2, option.split(' ').map(OsString::from));
            Ok(words)
        };
        match self.dry {
            Dry::Option(option) => Ok(vec![with(option)?]),
            Dry::Show(words) | Dry::Cost(words) => Ok(vec![words(fields)?]),
            Dry::Also(option, words) => Ok(vec![with(option)?, words(fields)?]),
        }
    }

    /// Whether the change is offered after a dry run that ended so.
    pub(crate) fn is_offered_after(&self, exit: Exit) -> bool {
        match self.dry {
            // A loss that would happen is no failure.
            Dry::Cost(_) => matches!(exit, Exit::Done | Exit::Failed | Exit::Damage),
            _ => matches!(exit, Exit::Done | Exit::Damage),
        }
    }

    /// The command line as a user would type it.
    pub(crate) fn shown(&self, fields: &Fields) -> Result<String, Failure> {
        let command = line(&(self.words)(fields)?);
        Ok(match self.file {
            None => command,
            Some(File::Written) => format!("{command} > {}", shell_word(fields.get("file"))),
            Some(File::Read) => format!("{command} < {}", shell_word(fields.get("file"))),
        })
    }
}

/// Words as a command line.
pub(crate) fn line(words: &[OsString]) -> String {
    words.iter().map(|word| shown_word(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it, with any bytes.
fn shown_word(word: &OsStr) -> String {
    match word.to_str() {
        Some(text) => shell_word(text),
        None => {
            let escaped = word.as_bytes().iter().map(|byte| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// A command of fixed words, and values of fields.
fn command(words: &[&str]) -> Words {
    words.iter().map(OsString::from).collect()
}

/// The value of a field as an argument: a value that begins like an option is refused.
fn argument(fields: &Fields, name: &str) -> Result<String, Failure> {
    match fields.need(name)? {
        value if value.starts_with('-') => Err(Failure::usage(format!("the field '{name}' begins with '-'"))),
        value => Ok(value.to_owned()),
    }
}

/// The name of a pool, dataset, snapshot or bookmark. A path, which the commands accept too, would be looked up with the
/// rights of this process.
fn name(fields: &Fields, field: &str) -> Result<String, Failure> {
    let text = fields.need(field)?;
    let name: Name = text.parse().map_err(|error| Failure::cannot("use", text, error))?;
    Ok(name.as_str().to_owned())
}

/// The lines of a field as arguments.
fn arguments(fields: &Fields, name: &str) -> Result<Vec<String>, Failure> {
    let all: Vec<String> = fields.need(name)?.split_whitespace().map(str::to_owned).collect();
    match all.iter().find(|value| value.starts_with('-')) {
        Some(value) => Err(Failure::usage(format!("'{value}' begins with '-'"))),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn names_are_unique() {
        let all: Vec<&str> = TABLE.into_iter().flatten().map(|action| action.name).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_field_never_becomes_an_option_or_a_second_command() {
        let scrub = find("scrub").unwrap();
        assert!(scrub.shown(&fields(&[("pool", "-a")])).is_err());
        assert!(scrub.shown(&fields(&[("pool", "/etc/passwd")])).is_err(), "a path is looked up by root");
        assert!(scrub.shown(&fields(&[("pool", "tank; rm -rf /")])).is_err());
        let hold = find("hold").unwrap();
        let tagged = fields(&[("snapshot", "tank@a"), ("tag", "a; rm -rf /")]);
        assert_eq!(hold.shown(&tagged).unwrap(), "fs hold 'a; rm -rf /' tank@a");
        for action in TABLE.into_iter().flatten() {
            let hostile: Vec<(String, String)> =
                ["pool", "dataset", "snapshot", "device", "name", "vdevs", "file", "to"]
                    .map(|name| (name.to_owned(), "--help".to_owned()))
                    .to_vec();
            assert!((action.words)(&Fields(hostile)).is_err(), "{}", action.name);
        }
    }

    #[test]
    fn a_dry_run_is_the_command_with_its_option() {
        let destroy = find("destroy").unwrap();
        let given = fields(&[("dataset", "tank/old"), ("recursive", "on")]);
        assert_eq!(destroy.shown(&given).unwrap(), "fs destroy -f -r tank/old");
        let dry = destroy.dry_words(&given).unwrap();
        assert_eq!(dry.iter().map(|words| line(words)).collect::<Vec<_>>(), ["fs destroy -n -v -f -r tank/old"]);
    }

    #[test]
    fn a_word_of_any_bytes_is_shown_as_a_shell_reads_it() {
        assert_eq!(shown_word(OsStr::from_bytes(b"tank@a:/\xff\xfe'")), r"$'tank@a:/\xff\xfe\''");
    }
}
