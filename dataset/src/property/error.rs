//! Why a property or a value is refused, and the remedy.

use super::{ENABLED, MAX_USER_NAME, MAX_USER_VALUE};

/// The reasons to refuse a property or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// No property has this name.
    #[error("invalid property '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A property of OpenZFS that this version does not support.
    #[error("property '{name}' is not supported: {reason}")]
    Absent {
        /// The name.
        name: String,
        /// The reason, and the alternative.
        reason: &'static str,
    },
    /// A computed property.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// The name.
        name: String,
    },
    /// A property that can only be set at creation.
    #[error("'{name}' can only be set at creation time")]
    SetOnce {
        /// The name.
        name: String,
    },
    /// The value is invalid for the property.
    #[error("bad value '{}' for '{name}': {problem}", on_one_line(.value))]
    Value {
        /// The property.
        name: &'static str,
        /// The text given.
        value: String,
        /// The problem of the value.
        problem: String,
        /// The valid values.
        expected: String,
    },
    /// A feature of the pool can only be set to `enabled`.
    #[error("bad value '{}' for '{name}': only '{ENABLED}' can be set", on_one_line(.value))]
    Feature {
        /// The property.
        name: String,
        /// The text given.
        value: String,
    },
    /// The name of a user property has an invalid character.
    #[error("invalid character {character:?} in the name of user property '{name}'")]
    UserCharacter {
        /// The name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The value of a user property has a control character, which would break lines of output.
    #[error("the value of '{name}' contains the control character {character:?}")]
    Control {
        /// The property.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The name of a user property is too long or begins with a dash.
    #[error("invalid user property '{name}': at most {MAX_USER_NAME} bytes, and not beginning with '-'")]
    UserName {
        /// The name.
        name: String,
    },
    /// The value of a user property is too long.
    #[error("the value of '{name}' has {length} bytes, at most {MAX_USER_VALUE} are allowed")]
    TooLong {
        /// The property.
        name: String,
        /// The value's length in bytes.
        length: usize,
    },
}

/// A text without control characters, for messages on a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

impl PropertyError {
    /// The next step for the user, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            PropertyError::Unknown { name } if name.contains(':') => {
                Some("user properties are not supported on pools; on datasets: fs set".into())
            }
            PropertyError::Unknown { .. } => {
                Some("user properties have a colon in their name, as in 'me:backup'".into())
            }
            // A problem that states the valid values needs no list.
            PropertyError::Value { problem, expected, .. } if !problem.starts_with("must be") => {
                Some(format!("values: {expected}"))
            }
            PropertyError::UserCharacter { .. } => {
                Some("lower-case letters, digits and the characters : + . _ - are allowed".into())
            }
            _ => None,
        }
    }
}
