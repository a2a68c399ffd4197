//! Errors of administrative requests: the problem, the object, and the remedy.

mod holder;

use std::fmt;

use pool::{
    error::{Error as PoolError, ErrorKind},
    tree::Miss,
    txg::OpError,
};

pub use holder::{Holder, Reader};

use crate::{name::NameError, property::PropertyError, stream::Error as StreamError};

/// The result of an administrative request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of object that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A file system, as opposed to its snapshots.
    Dataset,
    /// A snapshot of a dataset.
    Snapshot,
    /// A bookmark of a dataset.
    Bookmark,
    /// The dataset above a new or renamed dataset.
    Parent,
    /// A hold on a snapshot.
    Hold,
    /// The stored tree of a dataset, as shown by `pool debug`.
    Tree,
    /// The pool's catalogue.
    Catalogue,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::Dataset => "dataset",
            Object::Snapshot => "snapshot",
            Object::Bookmark => "bookmark",
            Object::Parent => "parent",
            Object::Hold => "hold",
            Object::Tree => "tree",
            Object::Catalogue => "catalogue",
        })
    }
}

/// An administrative request that was refused, with nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object does not exist.
    #[error("cannot find {what} '{name}'")]
    NotFound {
        /// The kind of object.
        what: Object,
        /// The object's name.
        name: String,
    },
    /// The name is taken.
    #[error("{what} '{name}' already exists")]
    Exists {
        /// The kind of the existing object.
        what: Object,
        /// The name already taken.
        name: String,
    },
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A property or its value is invalid.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// The property does not apply to the object.
    #[error("'{property}' does not apply to {what} '{name}'")]
    NotApplicable {
        /// The property's name.
        property: String,
        /// The kind of object.
        what: &'static str,
        /// The object's name.
        name: String,
    },
    /// Permissions of one grantee do not fit into a row.
    #[error("the list of permissions is longer than {most} bytes")]
    TooManyPermissions {
        /// The longest list, in bytes.
        most: usize,
    },
    /// A dataset has no room for the grants of another grantee.
    #[error("the dataset already has {most} grants")]
    TooManyGrants {
        /// The most grants on a dataset.
        most: usize,
    },
    /// No set of permissions can have the name.
    #[error("invalid name of a permission set")]
    BadSet,
    /// The user for whom the request is made lacks a permission.
    #[error("permission denied")]
    NotAllowed {
        /// The name of the dataset; empty if the request names none.
        name: String,
        /// The needed permissions, separated by commas.
        permission: String,
    },
    /// The property is not inheritable.
    #[error("'{property}' cannot be inherited")]
    NotInheritable {
        /// The property's name.
        property: String,
    },
    /// A limit is below the used space, or a reservation exceeds the available space.
    #[error("cannot set {property} of '{name}' to {value}: {problem}")]
    Limit {
        /// The property's name.
        property: &'static str,
        /// The name of the dataset.
        name: String,
        /// The value, as a size for people.
        value: String,
        /// The reason, with figures.
        problem: String,
        /// The bytes missing in the pool, if more space would help.
        missing: Option<u64>,
    },
    /// A dataset has children.
    #[error("'{name}' has children: {}", .children.join(", "))]
    HasChildren {
        /// The name of the dataset.
        name: String,
        /// The names of the children.
        children: Vec<String>,
    },
    /// A dataset has snapshots.
    #[error("'{name}' has snapshots: {}", .snapshots.join(", "))]
    HasSnapshots {
        /// The name of the dataset.
        name: String,
        /// The names of the snapshots.
        snapshots: Vec<String>,
    },
    /// Clones depend on a snapshot.
    #[error("'{snapshot}' has dependent clones: {}", .clones.join(", "))]
    HasClones {
        /// The name of the snapshot.
        snapshot: String,
        /// The names of the clones.
        clones: Vec<String>,
    },
    /// A snapshot has holds.
    #[error("'{snapshot}' is held: {}", .tags.join(", "))]
    Held {
        /// The name of the snapshot.
        snapshot: String,
        /// The tags of all holds.
        tags: Vec<String>,
    },
    /// A rollback would destroy later snapshots or bookmarks.
    #[error("'{snapshot}' is not the most recent: later ones exist: {}", .later.join(", "))]
    NotNewest {
        /// The target of the rollback.
        snapshot: String,
        /// The later snapshots and bookmarks.
        later: Vec<String>,
    },
    /// Only a clone can be promoted.
    #[error("'{name}' is not a clone")]
    NotClone {
        /// The name of the dataset.
        name: String,
    },
    /// An object cannot be moved or created at the given place.
    #[error("cannot {action} '{from}' to '{to}': {problem}")]
    Misplaced {
        /// The requested action.
        action: &'static str,
        /// The name of the object to move or create.
        from: String,
        /// The requested name.
        to: String,
        /// The reason, as a sentence without a full stop.
        problem: &'static str,
    },
    /// The pool's root dataset cannot be destroyed, renamed or received.
    #[error("'{name}' is the pool's root dataset: it cannot be {action}")]
    IsRoot {
        /// The name of the dataset.
        name: String,
        /// The requested action, as a participle.
        action: &'static str,
        /// The remedy, if any.
        remedy: Option<&'static str>,
    },
    /// One request asks for two snapshots of a dataset in the same txg.
    #[error("multiple snapshots of '{name}' at one instant are not allowed")]
    SnapshotTwice {
        /// The name of the dataset.
        name: String,
    },
    /// Two snapshots are not in the same line.
    #[error("'{from}' is not an earlier snapshot of '{to}'")]
    Unrelated {
        /// The supposed earlier snapshot.
        from: String,
        /// The later snapshot or dataset.
        to: String,
    },
    /// The dataset is in use.
    #[error("'{name}' is busy: {holder}")]
    Busy {
        /// The name of the dataset.
        name: String,
        /// The user of the dataset.
        holder: String,
    },
    /// A command holds the snapshot while reading the whole snapshot.
    #[error("dataset is busy: '{name}' is being read by {holder}")]
    InUse {
        /// The name of the snapshot.
        name: String,
        /// The command that reads the snapshot.
        holder: Holder,
    },
    /// A valid stream does not fit the pool.
    #[error("cannot receive '{name}': {problem}")]
    NotReceived {
        /// The name of the received snapshot or dataset.
        name: String,
        /// The reason, as a sentence without a full stop.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// An interrupted receive has left a part of a stream in the dataset, or for the dataset.
    #[error("'{name}' contains partially-complete state from an interrupted 'fs receive -s' of '{of}'")]
    Partial {
        /// The name of the dataset.
        name: String,
        /// The snapshot's name at the sender.
        of: String,
    },
    /// What a token names is not at the sender any more. The text is the reason, as OpenZFS words it.
    #[error("cannot resume send: {0}")]
    NotResumed(String),
    /// A snapshot has no form in the format that the stream is to have.
    #[error("{problem}")]
    NotSent {
        /// The reason, as a sentence without a full stop.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A stream is damaged, or its source or destination failed.
    #[error(transparent)]
    Stream(StreamError),
    /// The scrub's state does not allow the request.
    #[error("{problem}")]
    Scrub {
        /// The scrub's state.
        problem: &'static str,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A quota is exceeded.
    #[error("the quota of '{name}' is exceeded")]
    Quota {
        /// The dataset with the quota.
        name: String,
    },
    /// A limit of the number of file systems or snapshots is exceeded.
    #[error("the {property} of '{name}' is reached: {limit}")]
    Count {
        /// The name of the property with the limit.
        property: &'static str,
        /// The dataset with the limit.
        name: String,
        /// The largest number allowed.
        limit: u64,
    },
    /// All 256 keys of a name's hash are taken.
    #[error("'{name}' cannot be stored: too many names share its hash")]
    Hash {
        /// The name that cannot be stored.
        name: String,
    },
    /// The dataset already has a snapshot from the open txg; the request waits for the next txg.
    #[error("a snapshot was taken in this transaction group")]
    NextGroup,
    /// The request needs a feature that the pool's labels do not name yet; the request waits for the labels.
    #[error("the pool's feature {feature} is not active yet")]
    Inactive {
        /// The feature's name.
        feature: &'static str,
    },
    /// A comparison has found enough: its receiver wants no further differences.
    #[error("the comparison was ended early")]
    Ended,
    /// The engine failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A node is not in memory: the operation is retried after the node was read.
    #[error("a node of the catalogue is not in memory")]
    Miss(Box<Miss>),
}

impl Error {
    /// [`Error::NotFound`], about a dataset.
    pub fn no_dataset(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Dataset, name: name.to_string() }
    }

    /// [`Error::NotFound`], about a snapshot.
    pub fn no_snapshot(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Snapshot, name: name.to_string() }
    }

    /// [`Error::NotFound`], about a bookmark.
    pub fn no_bookmark(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Bookmark, name: name.to_string() }
    }

    /// [`Error::NotFound`], about the parent of a new dataset.
    pub fn no_parent(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Parent, name: name.to_string() }
    }

    /// [`Error::NotFound`], about the hold with a tag.
    pub fn no_hold(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Hold, name: name.to_string() }
    }

    /// [`Error::NotFound`], about the stored tree of a bookmark, or of an empty dataset.
    pub fn no_tree(name: impl ToString) -> Error {
        Error::NotFound { what: Object::Tree, name: name.to_string() }
    }

    /// [`Error::Exists`], about a dataset.
    pub fn dataset_exists(name: impl ToString) -> Error {
        Error::Exists { what: Object::Dataset, name: name.to_string() }
    }

    /// [`Error::Exists`], about a snapshot.
    pub fn snapshot_exists(name: impl ToString) -> Error {
        Error::Exists { what: Object::Snapshot, name: name.to_string() }
    }

    /// [`Error::Exists`], about a bookmark.
    pub fn bookmark_exists(name: impl ToString) -> Error {
        Error::Exists { what: Object::Bookmark, name: name.to_string() }
    }

    /// [`Error::Exists`], about the hold with a tag.
    pub fn hold_exists(name: impl ToString) -> Error {
        Error::Exists { what: Object::Hold, name: name.to_string() }
    }

    /// [`Error::Exists`], about the catalogue of a new pool.
    pub fn catalogue_exists(name: impl ToString) -> Error {
        Error::Exists { what: Object::Catalogue, name: name.to_string() }
    }

    /// Damage of the catalogue, at the given object.
    pub(crate) fn damaged(object: u64, problem: impl ToString) -> Error {
        PoolError::damaged(format!("catalogue, object {object}"), problem).into()
    }

    /// The kind of error, for the caller's decision.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Pool(error) => error.kind(),
            Error::Quota { .. } | Error::Count { .. } => ErrorKind::Space,
            Error::Busy { .. } | Error::InUse { .. } => ErrorKind::Busy,
            _ => ErrorKind::Request,
        }
    }

    /// The remedy, if any.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            Error::NotReceived { remedy, .. } | Error::NotSent { remedy, .. } | Error::Scrub { remedy, .. } => remedy,
            Error::Property(error) => return error.hint(),
            Error::InUse { holder, .. } => return Some(holder.remedy()),
            Error::Partial { name, .. } => {
                return Some(format!(
                    "to continue: fs send -t TOKEN | fs receive -s {name}, with the TOKEN of: fs get receive_resume_token {name}\n\
                     to discard the partial state: fs receive -A {name}"
                ));
            }
            Error::NotAllowed { name, .. } if name.is_empty() => {
                "the request names nothing that a permission could cover"
            }
            Error::NotAllowed { name, permission } => {
                return Some(format!("the owner of the pool can permit it: fs allow USER {permission} {name}"));
            }
            Error::TooManyGrants { .. } => "give the permissions to a group, or on a dataset below or above",
            Error::NotFound { what: Object::Parent, .. } => "use -p to create missing parents",
            Error::NotResumed(_) => {
                "discard the partial state at the receiver: fs receive -A; then send the whole snapshot"
            }
            Error::HasChildren { .. } | Error::HasSnapshots { .. } => "use -r to destroy all of them",
            Error::HasClones { .. } => "use -R to destroy the clones too, or promote the clones first",
            Error::Held { .. } => "release the holds, or use -d to destroy the snapshot after the last release",
            Error::NotNewest { .. } => "use -r to destroy the later snapshots",
            Error::IsRoot { remedy: Some(remedy), .. } => remedy,
            Error::Quota { .. } => "raise the quota, or destroy unneeded snapshots",
            Error::Count { .. } => "raise the limit by 'fs set', or destroy unneeded file systems or snapshots",
            Error::Busy { .. } => "wait, or unmount the file system first",
            Error::SnapshotTwice { .. } => "take the snapshots one after another",
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
