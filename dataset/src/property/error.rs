//! Why a property or a value is refused, and what to do about it.

use super::{ENABLED, MAX_USER_NAME, MAX_USER_VALUE};

/// Why a property or its value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// No property has this name.
    #[error("invalid property '{name}'")]
    Unknown {
        /// The name.
        name: String,
    },
    /// ZFS has it, this version of Cenote does not.
    #[error("property '{name}' is not supported: {reason}")]
    Absent {
        /// The name.
        name: String,
        /// Why, and what there is instead.
        reason: &'static str,
    },
    /// Nobody sets it.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// The name.
        name: String,
    },
    /// It can be set at creation time only.
    #[error("'{name}' can only be set at creation time")]
    SetOnce {
        /// The name.
        name: String,
    },
    /// The value does not fit the property.
    #[error("bad value '{}' for '{name}': {problem}", on_one_line(.value))]
    Value {
        /// The property.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        expected: String,
    },
    /// A feature of the pool can be enabled, and nothing else.
    #[error("bad value '{}' for '{name}': the only one that can be set is '{ENABLED}'", on_one_line(.value))]
    Feature {
        /// The property.
        name: String,
        /// What was given.
        value: String,
    },
    /// A user property's name has a character it may not have.
    #[error("invalid character {character:?} in the name of user property '{name}'")]
    UserCharacter {
        /// The name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// A user property's value would break the lines it is shown in.
    #[error("the value of '{name}' has the control character {character:?}")]
    Control {
        /// The property.
        name: String,
        /// The first such character.
        character: char,
    },
    /// A user property's name is too long or begins with a dash.
    #[error("invalid user property '{name}': at most {MAX_USER_NAME} bytes, and not beginning with '-'")]
    UserName {
        /// The name.
        name: String,
    },
    /// A user property's value is too long.
    #[error("the value of '{name}' has {length} bytes, at most {MAX_USER_VALUE} are allowed")]
    TooLong {
        /// The property.
        name: String,
        /// The value's length in bytes.
        length: usize,
    },
}

/// A text that does not break the line of a message, and commands no terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

impl PropertyError {
    /// What to do about it, where something can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            PropertyError::Unknown { name } if name.contains(':') => {
                Some("pools have no properties of users; file systems do: fs set".into())
            }
            PropertyError::Unknown { .. } => {
                Some("user properties have a colon in their name, as in 'me:backup'".into())
            }
            // A problem that says what the value must be needs no list of values.
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
