//! Where the value of a property comes from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a property's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Set on this dataset or pool.
    Local,
    /// Nobody set it.
    Default,
    /// Set on the dataset above that is named here.
    Inherited(String),
    /// Came with a received stream.
    Received,
    /// Given with the mount, until it ends.
    Temporary,
    /// Computed: it has no source.
    None,
}

impl Source {
    /// The word for it in `get -s` and in JSON, without the name of an inherited value's owner.
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
