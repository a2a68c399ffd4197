//! The features of the pool's format.
//!
//! A feature is *disabled* until somebody enables it, which allows to use it: new pools have all enabled. It is *active*
//! from its first use on, for good: then the labels name it, and programs that do not know it refuse the pool. Enabling one
//! is a row of the catalogue, a property of the pool, which older programs pass over.

use pool::format::label::{KNOWN_FEATURES, SPACES_IN_NAMES};

use super::{datasets::Datasets, error::Result};
use crate::{
    catalogue::{POOL, Transaction, Value, kind},
    jobs::moving::refused,
    lineage::reference,
    property::{ENABLED, FEATURE},
};

impl Datasets {
    /// What sharing blocks saves: the pool's properties `bcloneused` and `bclonesaved`.
    pub fn sharing(&self) -> Result<Sharing> {
        let row = self.read(reference::sharing)?;
        Ok(Sharing { used: row.used.allocated, saved: row.saved.allocated })
    }

    /// How a feature stands: `disabled`, `enabled` or `active`.
    pub fn feature_state(&self, feature: &str) -> Result<&'static str> {
        if self.engine().is_active(feature) {
            return Ok("active");
        }
        Ok(if self.read(|tx| is_enabled(tx, feature))? { ENABLED } else { "disabled" })
    }

    /// Refuses to use a feature that is disabled.
    pub fn check_feature(&self, feature: &str) -> Result<()> {
        if self.engine().is_active(feature) { Ok(()) } else { self.read(|tx| check_enabled(tx, feature)) }
    }

    /// Refuses names that need a disabled feature, before any work is done for them. The request that writes them makes the
    /// feature active: a crash before its commit leaves a pool that older programs refuse although they could read it.
    pub(super) fn check_names<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<()> {
        if names.any(|name| name.contains(' ')) { self.check_feature(SPACES_IN_NAMES) } else { Ok(()) }
    }
}

/// What blocks with several references come to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// What they take, each once.
    pub used: u64,
    /// What they would take in addition if each reference had a block of its own.
    pub saved: u64,
}

/// Whether a feature may be used.
pub(crate) fn is_enabled(tx: &Transaction<'_>, feature: &str) -> Result<bool> {
    let row = tx.find_named::<Value>(POOL, kind::PROPERTY, &format!("{FEATURE}{feature}"))?;
    Ok(row.is_some_and(|(_, row)| row.value.as_deref() == Some(ENABLED)))
}

/// Refuses to use a feature that is disabled.
pub(super) fn check_enabled(tx: &Transaction<'_>, feature: &str) -> Result<()> {
    match is_enabled(tx, feature)? {
        true => Ok(()),
        false => refused(format!("the pool's feature {feature} is disabled; it is enabled by pool set")),
    }
}

/// Enables all features: of a pool that is being made.
pub(super) fn enable_all(tx: &mut Transaction<'_>) -> Result<()> {
    KNOWN_FEATURES.iter().try_for_each(|feature| enable(tx, feature))
}

fn enable(tx: &mut Transaction<'_>, feature: &str) -> Result<()> {
    let row = Value { name: format!("{FEATURE}{feature}"), value: Some(ENABLED.to_owned()) };
    tx.put_named(POOL, kind::PROPERTY, &row)
}
