//! The features of the pool's format.
//!
//! A feature is *disabled* until the administrator enables the feature, which permits its use; new pools have all
//! features enabled. A feature is *active* from its first use on, forever: the labels name the feature, and programs
//! without it refuse the pool. Enabling a feature writes a row of the catalogue, a property of the pool, which older
//! programs ignore.

use pool::{error::Error as PoolError, format::label::KNOWN_FEATURES};

use crate::{
    catalogue::{POOL, Transaction, Value, kind},
    error::Result,
    property::{ENABLED, FEATURE},
};

/// Whether a feature is enabled.
pub(crate) fn is_enabled(tx: &Transaction<'_>, feature: &str) -> Result<bool> {
    let row = tx.find_named::<Value>(POOL, kind::PROPERTY, &format!("{FEATURE}{feature}"))?;
    Ok(row.is_some_and(|(_, row)| row.value.as_deref() == Some(ENABLED)))
}

/// Fails if a feature is disabled.
pub(in crate::admin) fn check_enabled(tx: &Transaction<'_>, feature: &str) -> Result<()> {
    match is_enabled(tx, feature)? {
        true => Ok(()),
        false => {
            Err(PoolError::Request(format!("the pool's feature {feature} is disabled; to enable it: pool set")).into())
        }
    }
}

/// Enables all features of a new pool.
pub(crate) fn enable_all(tx: &mut Transaction<'_>) -> Result<()> {
    KNOWN_FEATURES.iter().try_for_each(|feature| enable(tx, feature))
}

fn enable(tx: &mut Transaction<'_>, feature: &str) -> Result<()> {
    let row = Value { name: format!("{FEATURE}{feature}"), value: Some(ENABLED.to_owned()) };
    tx.put_named(POOL, kind::PROPERTY, &row)
}
