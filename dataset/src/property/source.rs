//! The source of a property's value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a property's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Set on the dataset or pool itself.
    Local,
    /// The built-in default.
    Default,
    /// Set on the named ancestor.
    Inherited(String),
    /// Received with a stream.
    Received,
    /// Set for the duration of a mount.
    Temporary,
    /// Computed, without a source.
    None,
}

impl Source {
    /// The word for `get -s` and JSON, without the name of an inherited value's owner.
    pub fn word(&self) -> &'static str {
        match self {
            Source::Local => "local",
            Source::Default => "default",
            Source::Inherited(_) => "inherited",
            Source::Received => "received",
            Source::Temporary => "temporary",
            Source::None => "none",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Inherited(owner) => write!(f, "inherited from {owner}"),
            Source::None => f.write_str("-"),
            other => f.write_str(other.word()),
        }
    }
}
