//! From errors of the layers below to failures of commands, worded as scripts written for ZFS expect.

use std::fmt::Display;

use dataset::error::Error;
use protocol::Failure;

/// The failure of an administrative request: `cannot ACTION 'WHAT': ...`.
pub(crate) fn refused(action: &str, what: impl Display, error: &Error) -> Failure {
    let failure = match error {
        Error::NotFound { what: "parent", .. } => Failure::cannot(action, what, "parent does not exist"),
        Error::NotFound { what: "dataset" | "snapshot" | "bookmark", name } => Failure::no_dataset(name),
        Error::Exists { what: "dataset" | "snapshot" | "bookmark", name } if *name == what.to_string() => {
            Failure::cannot(action, what, "dataset already exists")
        }
        Error::Name(error) => Failure::name(action, error),
        Error::Property(error) => return Failure::property(action, what, error),
        Error::Pool(error) => return Failure::engine(action, what, error),
        // The text of these errors already names the refused action.
        Error::Limit { .. } | Error::Misplaced { .. } | Error::NotReceived { .. } => Failure::new(error.to_string()),
        other => Failure::cannot(action, what, other),
    };
    match way_out(action, error).or_else(|| error.remedy()) {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

/// The advice for an error, if different from the usual advice.
fn way_out(action: &str, error: &Error) -> Option<String> {
    match (action, error) {
        ("receive into", Error::NotFound { what: "parent", name }) => {
            Some(format!("to create it: fs create -p {name}"))
        }
        ("destroy", Error::InUse { holder, .. }) => {
            Some(format!("{}\nto wait: the same command with --wait", holder.remedy()))
        }
        ("rollback to", Error::Held { .. }) => Some("to list and release holds: fs holds, fs release".to_owned()),
        _ => None,
    }
}

/// Turns the error of a result into a failure.
pub(crate) trait OrRefused<T> {
    /// The value, or the failure `cannot ACTION 'WHAT': ...`.
    fn or_refused(self, action: &str, what: impl Display) -> Result<T, Failure>;
}

impl<T> OrRefused<T> for dataset::error::Result<T> {
    fn or_refused(self, action: &str, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| refused(action, what, &error))
    }
}

impl<T> OrRefused<T> for pool::error::Result<T> {
    fn or_refused(self, action: &str, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::engine(action, what, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_speak_as_programs_expect() {
        let missing = refused("destroy", "tank/a", &Error::not_found("dataset", "tank/a"));
        assert_eq!(missing, Failure::no_dataset("tank/a"));
        let exists = refused("create", "tank/a", &Error::exists("dataset", "tank/a"));
        assert_eq!(exists.to_string(), "cannot create 'tank/a': dataset already exists");
        let orphan = refused("create", "tank/a/b", &Error::not_found("parent", "tank/a"));
        assert_eq!(orphan.to_string(), "cannot create 'tank/a/b': parent does not exist");
        assert_eq!(orphan.hint.as_deref(), Some("use -p to create missing parents"));
        let orphan = refused("receive into", "tank/a/b", &Error::not_found("parent", "tank/a"));
        assert_eq!(orphan.hint.as_deref(), Some("to create it: fs create -p tank/a"));
    }
}
