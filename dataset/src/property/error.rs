//! Why a property or a value is refused, and the remedy.

use super::words::{ENABLED, MAX_USER_NAME, MAX_USER_VALUE};

/// The reasons to refuse a property or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// No property has this name.
    #[error("invalid property '{name}'")]
    Unknown {
        /// The name as given.
        name: String,
        /// Whether a property of pools was looked for, else a property of datasets.
        of_pool: bool,
    },
    /// A property of OpenZFS that this version does not support.
    #[error("property '{name}' is not supported: {reason}")]
    Absent {
        /// OpenZFS's name of the property.
        name: String,
        /// The reason, and the alternative.
        reason: &'static str,
    },
    /// A computed property.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// The property's name.
        name: String,
    },
    /// A property that can only be set at creation.
    #[error("'{name}' can only be set at creation time")]
    SetOnce {
        /// The property's name.
        name: String,
    },
    /// The value is invalid for the property.
    #[error("bad value '{}' for '{name}': {problem}", on_one_line(.value))]
    Value {
        /// The property's name.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The problem of the value.
        problem: String,
        /// The valid values, as help shows them.
        expected: String,
    },
    /// A feature of the pool can only be set to `enabled`.
    #[error("bad value '{}' for '{name}': only '{ENABLED}' can be set", on_one_line(.value))]
    Feature {
        /// The name, `feature@` included.
        name: String,
        /// The value as given.
        value: String,
    },
    /// The name of a user property has an invalid character.
    #[error("invalid character {character:?} in the name of user property '{name}'")]
    UserCharacter {
        /// The name as given.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The value of a user property has a control character, which would break lines of output.
    #[error("the value of '{name}' contains the control character {character:?}")]
    Control {
        /// The property's name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The name of a user property is too long or begins with a dash.
    #[error("invalid user property '{name}': at most {MAX_USER_NAME} bytes, and not beginning with '-'")]
    UserName {
        /// The name as given.
        name: String,
    },
    /// The value of a user property is too long.
    #[error("the value of '{name}' has {length} bytes, at most {MAX_USER_VALUE} are allowed")]
    TooLong {
        /// The property's name.
        name: String,
        /// The value's length in bytes.
        length: usize,
    },
}

/// A text without control characters, for messages on a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
