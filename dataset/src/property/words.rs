//! Words and bounds of names and values.

/// The longest value of a user property, in bytes.
pub const MAX_USER_VALUE: usize = 8192;

/// The prefix of the pool's features.
pub const FEATURE: &str = "feature@";
/// OpenZFS's feature by which programs find out whether receives can be resumed. Its state is that of
/// [`RESUMABLE_RECEIVE`](::pool::format::label::RESUMABLE_RECEIVE).
pub const EXTENSIBLE_DATASET: &str = "extensible_dataset";

/// The only value that a feature of an existing pool can be set to.
pub const ENABLED: &str = "enabled";

/// The value that keeps a new pool from using a feature.
pub const DISABLED: &str = "disabled";

/// The longest name of a user property, in bytes.
pub const MAX_USER_NAME: usize = 255;
