//! Why an administrative request was refused: what, on what, and what to do about it.

use pool::{
    error::{Error as PoolError, ErrorKind},
    tree::Miss,
    txg::OpError,
};

use super::long_hold::Holder;
use crate::{name::NameError, property::PropertyError, stream::Error as StreamError};

/// The result of an administrative request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An administrative request that was refused, with nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such thing.
    #[error("cannot find {what} '{name}'")]
    NotFound {
        /// What was looked for: dataset, snapshot, bookmark, hold, parent.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("{what} '{name}' already exists")]
    Exists {
        /// What bears it.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name is wrong.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A property or its value is wrong.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// A property does not apply.
    #[error("'{property}' does not apply to {what} '{name}'")]
    NotApplicable {
        /// The property.
        property: String,
        /// What it was set on.
        what: &'static str,
        /// The name of that.
        name: String,
    },
    /// The property is not inherited, so it cannot be inherited again.
    #[error("'{property}' cannot be inherited")]
    NotInheritable {
        /// The property.
        property: String,
    },
    /// A limit is below what is used already, or a reservation above what there is.
    #[error("cannot set {property} of '{name}' to {value}: {problem}")]
    Limit {
        /// The property.
        property: &'static str,
        /// The dataset.
        name: String,
        /// The value, in bytes.
        value: u64,
        /// What stands against it.
        problem: String,
        /// With so many more bytes available in the pool, it might do.
        missing: Option<u64>,
    },
    /// A dataset has datasets below it.
    #[error("'{name}' has children: {}", .children.join(", "))]
    HasChildren {
        /// The dataset.
        name: String,
        /// Those below it.
        children: Vec<String>,
    },
    /// A dataset has snapshots.
    #[error("'{name}' has snapshots: {}", .snapshots.join(", "))]
    HasSnapshots {
        /// The dataset.
        name: String,
        /// Its snapshots.
        snapshots: Vec<String>,
    },
    /// Clones depend on a snapshot.
    #[error("'{snapshot}' has dependent clones: {}", .clones.join(", "))]
    HasClones {
        /// The snapshot.
        snapshot: String,
        /// Its clones.
        clones: Vec<String>,
    },
    /// A snapshot is held.
    #[error("'{snapshot}' is held: {}", .tags.join(", "))]
    Held {
        /// The snapshot.
        snapshot: String,
        /// The holds' tags.
        tags: Vec<String>,
    },
    /// A rollback would lose later snapshots or bookmarks.
    #[error("'{snapshot}' is not the most recent: later ones exist: {}", .later.join(", "))]
    NotNewest {
        /// The snapshot to go back to.
        snapshot: String,
        /// Those after it, with the bookmarks.
        later: Vec<String>,
    },
    /// Only a clone can be promoted.
    #[error("'{name}' is not a clone")]
    NotClone {
        /// The dataset.
        name: String,
    },
    /// Something would become part of itself, or of another dataset than it belongs to.
    #[error("cannot {action} '{from}' to '{to}': {problem}")]
    Misplaced {
        /// What was asked for.
        action: &'static str,
        /// What.
        from: String,
        /// Where to.
        to: String,
        /// Why not.
        problem: &'static str,
    },
    /// The pool's root dataset stays as long as the pool.
    #[error("'{name}' is the pool's root dataset: it cannot be {action}")]
    IsRoot {
        /// The dataset.
        name: String,
        /// What was asked for.
        action: &'static str,
    },
    /// One request asks for two snapshots of one instant of a dataset.
    #[error("multiple snapshots of '{name}' at one instant are not allowed")]
    SnapshotTwice {
        /// The dataset.
        name: String,
    },
    /// Two snapshots do not belong together.
    #[error("'{from}' is not an earlier snapshot of '{to}'")]
    Unrelated {
        /// What was to be the earlier one.
        from: String,
        /// What it was compared with.
        to: String,
    },
    /// It is in use.
    #[error("'{name}' is busy: {holder}")]
    Busy {
        /// The dataset.
        name: String,
        /// Who uses it.
        holder: String,
    },
    /// A command reads a snapshot as a whole that would be taken away.
    #[error("dataset is busy: '{name}' is being read by {holder}")]
    InUse {
        /// The snapshot.
        name: String,
        /// Which command.
        holder: Holder,
    },
    /// A stream that is good does not fit what is there.
    #[error("cannot receive '{name}': {problem}")]
    NotReceived {
        /// What the snapshot would be called.
        name: String,
        /// Why not.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Something is wrong with a stream, or with where it comes from or goes to.
    #[error(transparent)]
    Stream(StreamError),
    /// A scrub was asked for something that it is not in the state for.
    #[error("{problem}")]
    Scrub {
        /// What state it is in.
        problem: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A quota leaves no room.
    #[error("the quota of '{name}' is exceeded")]
    Quota {
        /// The dataset whose quota it is.
        name: String,
    },
    /// 256 names have one hash.
    #[error("'{name}' cannot be stored: too many names share its hash")]
    Hash {
        /// The name.
        name: String,
    },
    /// A snapshot of this dataset was taken in this very transaction group; the request waits for the next.
    #[error("a snapshot was taken in this transaction group")]
    NextGroup,
    /// What the request writes needs a feature that the pool's labels do not name yet; the request waits until they do.
    #[error("the pool's feature {feature} is not active yet")]
    Inactive {
        /// Which.
        feature: &'static str,
    },
    /// The engine failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A node is not in memory: the operation is run again once it was read.
    #[error("a node of the catalogue is not in memory")]
    Miss(Box<Miss>),
}

impl Error {
    /// A [`Error::NotFound`].
    pub fn not_found(what: &'static str, name: impl ToString) -> Error {
        Error::NotFound { what, name: name.to_string() }
    }

    /// A [`Error::Exists`].
    pub fn exists(what: &'static str, name: impl ToString) -> Error {
        Error::Exists { what, name: name.to_string() }
    }

    /// Damage to the catalogue, found at some object.
    pub(crate) fn damaged(object: u64, problem: impl ToString) -> Error {
        PoolError::damaged(format!("catalogue, object {object}"), problem).into()
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Pool(error) => error.kind(),
            Error::Quota { .. } => ErrorKind::Space,
            Error::Busy { .. } | Error::InUse { .. } => ErrorKind::Busy,
            _ => ErrorKind::Request,
        }
    }

    /// What to do about it, where something can be said.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            Error::NotReceived { remedy, .. } | Error::Scrub { remedy, .. } => remedy,
            Error::Property(error) => return error.hint(),
            Error::InUse { holder, .. } => return Some(holder.remedy()),
            Error::NotFound { what: "parent", .. } => "use -p to create the datasets above it",
            Error::HasChildren { .. } | Error::HasSnapshots { .. } => "use -r to destroy them too",
            Error::HasClones { .. } => "use -R to destroy them too, or promote them first",
            Error::Held { .. } => "release the holds, or use -d to destroy it with the last of them",
            Error::NotNewest { .. } => "use -r to destroy them",
            Error::IsRoot { action: "destroyed", .. } => {
                "use fs destroy -r to destroy all that is in the pool, and pool destroy to destroy the pool itself"
            }
            Error::Quota { .. } => "raise the quota, or destroy snapshots that are not needed",
            Error::Busy { .. } => "wait, or unmount it first",
            Error::SnapshotTwice { .. } => "take one after the other",
            Error::NextGroup | Error::Inactive { .. } => "try again",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Error {
        match error {
            StreamError::Engine(error) => Error::Pool(error),
            error => Error::Stream(error),
        }
    }
}

impl From<Miss> for Error {
    fn from(miss: Miss) -> Error {
        Error::Miss(Box::new(miss))
    }
}

impl OpError for Error {
    fn miss(&self) -> Option<&Miss> {
        match self {
            Error::Miss(miss) => Some(miss),
            _ => None,
        }
    }
}
