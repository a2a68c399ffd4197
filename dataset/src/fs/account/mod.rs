//! Usage and quotas of users, groups and projects.
//!
//! An account is an item of object 0 (`dataset/FORMAT.md`, "Account"): the usage of one user, group or project, and the
//! quotas. An inode is charged to its user, group and project: one object, and its `bytes`, the length of the content
//! without holes. `stat` and `du` show the same number, independent of compression, copies, parity and shared blocks.
//! So users can see their charges, and a charge is known before the call returns. Extended attributes and names are not
//! charged. Under a quota of bytes a file's attributes are bounded instead (see [`super::xattr`]), and a quota of
//! objects bounds the number of files, directories and names.
//!
//! The batch that changes an inode also changes its accounts (`ledger`). So accounts are always exact, snapshots,
//! clones, rollbacks, streams and the intent log carry accounts like any other item, and a quota refuses the very call
//! that would exceed the quota. A write at the end of a file is done as far as the quota allows; a write that fills
//! holes within the file is done entirely or not at all. Files without a name are charged until freed. So before a
//! quota refuses an operation, unused files charged to the account in question are freed.
//!
//! Without quotas there is no cost: a tree begins to keep accounts when the first quota is set, even `none`. Then all
//! inodes are counted, in bounded steps and in the order of their numbers (`count`), while the file system is in use.
//! Inodes below the number in the item ACCOUNTING are charged, all others are still to be counted. After a crash the
//! count continues.
//!
//! The pool's feature `project_quota` is active from the first account on. A query changes nothing: in a tree without
//! accounts, every query counts the inodes.
//!
//! Invariant, which [`check`](super::check) verifies: an account equals the sum of the inodes charged to it.

mod count;
pub(super) mod item;
pub(crate) mod ledger;
mod quota;

pub use item::{Account, Amount};
pub(crate) use ledger::are_there;
pub use quota::SetQuota;
