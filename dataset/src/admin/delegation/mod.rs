//! Delegation: the requests to a dataset that `fs allow` permits to users without the pool.
//!
//! A [`Grant`] belongs to a dataset and a grantee: a user, a group, all users, the creator of a new dataset, or a named
//! set. Its permissions count for the dataset itself (local), for the datasets and snapshots below (descendent),
//! or for both. A permission is the name of a subcommand or of a property. Grants are rows of the catalogue.
//! Grants follow a rename, end with their dataset, and are not part of streams.
//!
//! ```text
//! grant   grants, permissions and their stored form
//! judge   whether a user has a permission
//! judgement   the permissions that a request needs, asked in its transactions
//! powers  set-uid programs and device nodes in files that a user brings
//! change  giving, taking back and listing grants
//! ```
//!
//! Older programs ignore the rows, and serve the owner alone.

mod change;
pub(in crate::admin) mod grant;
pub(in crate::admin) mod judge;
pub(in crate::admin) mod judgement;
pub(in crate::admin) mod powers;

pub use change::Allowance;
pub use grant::{ALLOW, BadPermission, Grant, Grantee, Reach, permission, permission_names, set_name};
pub use judge::Caller;
pub use judgement::{Judgement, Moment, Need};
