//! Properties with their values, as requested and as reported.

use dataset::property::{Setting, Source, Typed};
use serde::{Deserialize, Serialize};

/// A property together with its new canonical value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The property's name, never an alias.
    pub name: String,
    /// The canonical value from [`dataset::property::Property::parse_value`].
    pub value: String,
}

/// The last value assigned to `property`; `None` without an assignment, or if the property rejects the value.
pub fn given<T: Setting>(assignments: &[Assignment], property: &Typed<T>) -> Option<T> {
    let last = assignments.iter().rfind(|assignment| property.is(&assignment.name))?;
    property.read(&last.value)
}

/// One property of a pool or a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyRecord {
    /// Canonical name of the property.
    pub name: String,
    /// Canonical value; `-` if the property has no value now.
    pub value: String,
    /// Source of the value, such as local or inherited.
    pub source: Source,
    /// The received value, effective or overridden.
    pub received: Option<String>,
}
