//! The owners of accounts.

use serde::{Deserialize, Serialize};

/// The kind of an account's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerKind {
    /// A user, by its uid.
    User,
    /// A group, by its gid.
    Group,
    /// A project, by its number.
    Project,
}

impl OwnerKind {
    /// All kinds, in display order.
    pub const ALL: [OwnerKind; 3] = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];

    /// The name in commands and output.
    pub fn name(self) -> &'static str {
        match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        }
    }
}
