//! The features of the pool's format.
//!
//! A feature is *disabled* until the administrator enables the feature, which permits its use; new pools have all
//! features enabled. A feature is *active* from its first use on, forever: the labels name the feature, and programs
//! without it refuse the pool. Enabling a feature writes a row of the catalogue, a property of the pool, which older
//! programs ignore.

use pool::format::label::{KNOWN_FEATURES, SPACES_IN_NAMES};

use super::{datasets::Datasets, error::Result};
use crate::{
    catalogue::{POOL, Transaction, Value, kind},
    jobs::moving::refused,
    lineage::reference,
    property::{ENABLED, FEATURE},
};

impl Datasets {
    /// The space saved by sharing blocks: the pool's properties `bcloneused` and `bclonesaved`.
    pub fn sharing(&self) -> Result<Sharing> {
        let row = self.read(reference::sharing)?;
        Ok(Sharing { used: row.used.allocated, saved: row.saved.allocated })
    }

    /// The state of a feature: `disabled`, `enabled` or `active`.
    pub fn feature_state(&self, feature: &str) -> Result<&'static str> {
        if self.engine().is_active(feature) {
            return Ok("active");
        }
        Ok(if self.read(|tx| is_enabled(tx, feature))? { ENABLED } else { "disabled" })
    }

    /// Fails if a feature is disabled.
    pub fn check_feature(&self, feature: &str) -> Result<()> {
        if self.engine().is_active(feature) { Ok(()) } else { self.read(|tx| check_enabled(tx, feature)) }
    }

    /// Fails if names need a disabled feature, before any work is done. The request that writes the names activates the
    /// feature: a crash before its commit leaves a pool that older programs refuse although they could read it.
    pub(super) fn check_names<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<()> {
        if names.any(|name| name.contains(' ')) { self.check_feature(SPACES_IN_NAMES) } else { Ok(()) }
    }
}

/// The totals of blocks with several references, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The space of the blocks, each counted once.
    pub used: u64,
    /// The additional space if each reference had a block of its own.
    pub saved: u64,
}

/// Whether a feature is enabled.
pub(crate) fn is_enabled(tx: &Transaction<'_>, feature: &str) -> Result<bool> {
    let row = tx.find_named::<Value>(POOL, kind::PROPERTY, &format!("{FEATURE}{feature}"))?;
    Ok(row.is_some_and(|(_, row)| row.value.as_deref() == Some(ENABLED)))
}

/// Fails if a feature is disabled.
pub(super) fn check_enabled(tx: &Transaction<'_>, feature: &str) -> Result<()> {
    match is_enabled(tx, feature)? {
        true => Ok(()),
        false => refused(format!("the pool's feature {feature} is disabled; to enable it: pool set")),
    }
}

/// Enables all features of a new pool.
pub(super) fn enable_all(tx: &mut Transaction<'_>) -> Result<()> {
    KNOWN_FEATURES.iter().try_for_each(|feature| enable(tx, feature))
}

fn enable(tx: &mut Transaction<'_>, feature: &str) -> Result<()> {
    let row = Value { name: format!("{FEATURE}{feature}"), value: Some(ENABLED.to_owned()) };
    tx.put_named(POOL, kind::PROPERTY, &row)
}
