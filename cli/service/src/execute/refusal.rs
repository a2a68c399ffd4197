//! From errors of the layers below to failures of commands, worded as scripts written for ZFS expect.

use std::fmt::Display;

use dataset::{
    admin::Caller,
    error::{Error, Object},
};
use protocol::Failure;

use super::attempt;

/// The advice of one request for an error, if different from the error's own remedy.
pub(crate) type Advice = fn(&Error) -> Option<String>;

/// Advice for a destroy: another command may be reading a snapshot.
pub(crate) fn to_destroy(error: &Error) -> Option<String> {
    match error {
        Error::InUse { holder, .. } => Some(format!("{}\nto wait: the same command with --wait", holder.remedy())),
        _ => None,
    }
}

/// Advice for a receive: unlike other commands, `fs receive` has no option that creates missing parents.
pub(crate) fn to_receive(error: &Error) -> Option<String> {
    match error {
        Error::NotFound { what: Object::Parent, name } => Some(format!("to create it: fs create -p {name}")),
        _ => None,
    }
}

/// Advice for a rollback: a snapshot to be destroyed may have holds.
pub(crate) fn to_roll_back(error: &Error) -> Option<String> {
    match error {
        Error::Held { .. } => Some("to list and release holds: fs holds, fs release".to_owned()),
        _ => None,
    }
}

/// How the owner permits what the caller of the present request may not do.
fn permission(error: &Error) -> Option<String> {
    match error {
        Error::NotAllowed { name, permission } if !name.is_empty() => {
            Some(attempt::remedy(&Caller::current()?, name, permission))
        }
        _ => None,
    }
}

/// The failure of an administrative request: `cannot ACTION 'WHAT': ...`.
fn refused(action: &str, what: impl Display, error: &Error, advice: Advice) -> Failure {
    let failure = match error {
        Error::NotFound { what: missing, name } => match missing {
            Object::Parent => Failure::cannot(action, what, "parent does not exist"),
            Object::Dataset | Object::Snapshot | Object::Bookmark => Failure::no_dataset(name),
            Object::Hold | Object::Tree | Object::Catalogue => Failure::cannot(action, what, error),
        },
        Error::Exists { what: Object::Dataset | Object::Snapshot | Object::Bookmark, name }
            if *name == what.to_string() =>
        {
            Failure::cannot(action, what, "dataset already exists")
        }
        Error::Name(error) => Failure::name(action, error),
        Error::Property(error) => return Failure::property(action, what, error),
        Error::Pool(error) => return Failure::engine(action, what, error),
        // The text of these errors already names the refused action.
        Error::Limit { .. } | Error::Misplaced { .. } | Error::NotReceived { .. } | Error::NotResumed(_) => {
            Failure::new(error.to_string())
        }
        other => Failure::cannot(action, what, other),
    };
    match advice(error).or_else(|| permission(error)).or_else(|| error.remedy()) {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

/// Turns the error of a result into a failure.
pub(crate) trait OrRefused<T> {
    /// The value, or the failure `cannot ACTION 'WHAT': ...`.
    fn or_refused(self, action: &str, what: impl Display) -> Result<T, Failure>;
}

/// As [`OrRefused`], with the advice of one request.
pub(crate) trait OrAdvised<T> {
    /// The value, or the failure `cannot ACTION 'WHAT': ...` with `advice`.
    fn or_advised(self, action: &str, what: impl Display, advice: Advice) -> Result<T, Failure>;
}

impl<T> OrAdvised<T> for dataset::error::Result<T> {
    fn or_advised(self, action: &str, what: impl Display, advice: Advice) -> Result<T, Failure> {
        self.map_err(|error| refused(action, what, &error, advice))
    }
}

impl<T> OrRefused<T> for dataset::error::Result<T> {
    fn or_refused(self, action: &str, what: impl Display) -> Result<T, Failure> {
        self.or_advised(action, what, |_| None)
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
        let refused = |action, what, error, advice| refused(action, what, &error, advice);
        let missing = refused("destroy", "tank/a", Error::no_dataset("tank/a"), to_destroy);
        assert_eq!(missing, Failure::no_dataset("tank/a"));
        let exists = refused("create", "tank/a", Error::dataset_exists("tank/a"), |_| None);
        assert_eq!(exists.to_string(), "cannot create 'tank/a': dataset already exists");
        let orphan = refused("create", "tank/a/b", Error::no_parent("tank/a"), |_| None);
        assert_eq!(orphan.to_string(), "cannot create 'tank/a/b': parent does not exist");
        assert_eq!(orphan.hint.as_deref(), Some("use -p to create missing parents"));
        let orphan = refused("receive into", "tank/a/b", Error::no_parent("tank/a"), to_receive);
        assert_eq!(orphan.hint.as_deref(), Some("to create it: fs create -p tank/a"));
    }
}
