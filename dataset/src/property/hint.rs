//! The next step after a property or a value was refused.

use super::{Property, error::PropertyError, words::FEATURE};

impl PropertyError {
    /// The next step for the user, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            PropertyError::Unknown { name, of_pool: true } => Some(match name {
                name if name.starts_with(FEATURE) => "to list the features: pool get all".into(),
                name if Property::of_dataset(name).is_ok() => {
                    format!("'{name}' is a property of file systems: fs get, fs set")
                }
                _ => "to list the properties: pool get --help\n\
                      user properties have a colon in their name, as in 'me:note'"
                    .into(),
            }),
            PropertyError::Unknown { name, of_pool: false } => Some(match Property::of_pool(name) {
                Ok(_) => format!("'{name}' is a property of pools: pool get, pool set"),
                Err(_) => "to list the properties: fs get --help\n\
                           user properties have a colon in their name, as in 'me:backup'"
                    .into(),
            }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_property_is_looked_for_where_it_belongs() {
        let hint = |looked: Result<Property, PropertyError>| looked.unwrap_err().hint().unwrap();
        assert_eq!(
            hint(Property::of_pool("compression")),
            "'compression' is a property of file systems: fs get, fs set"
        );
        assert_eq!(hint(Property::of_dataset("autoexpand")), "'autoexpand' is a property of pools: pool get, pool set");
        assert!(hint(Property::of_pool("color")).starts_with("to list the properties: pool get --help\n"));
        assert!(hint(Property::of_dataset("color")).ends_with("a colon in their name, as in 'me:backup'"));
    }
}
