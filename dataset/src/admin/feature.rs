//! The features of the pool's format.
//!
//! A feature is *disabled* until somebody enables it, which allows to use it: new pools have all enabled. It is *active*
//! from its first use on, for good: then the labels name it, and programs that do not know it refuse the pool. Enabling one
//! is a row of the catalogue, a property of the pool, which older programs pass over.

use pool::format::label::{KNOWN_FEATURES, SPACES_IN_NAMES};

use super::{datasets::Datasets, error::Result, moving::refused};
use crate::{
    catalogue::{POOL, Transaction, Value, kind},
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
        match self.feature_state(feature)? {
            "disabled" => refused(format!("the pool's feature {feature} is disabled; it is enabled by pool set")),
            _ => Ok(()),
        }
    }

    /// Has the labels say so before the catalogue has a name with a space: older programs would take it for damage. A crash
    /// in between leaves a pool that they refuse although they could read it.
    pub(super) fn allow_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        if !names.into_iter().any(|name| name.contains(' ')) {
            return Ok(());
        }
        self.check_feature(SPACES_IN_NAMES)?;
        Ok(self.engine().activate(SPACES_IN_NAMES)?)
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
pub(super) fn is_enabled(tx: &Transaction<'_>, feature: &str) -> Result<bool> {
    let row = tx.find_named::<Value>(POOL, kind::PROPERTY, &format!("{FEATURE}{feature}"))?;
    Ok(row.is_some_and(|(_, row)| row.value.as_deref() == Some(ENABLED)))
}

/// Enables all features: of a pool that is being made.
pub(super) fn enable_all(tx: &mut Transaction<'_>) -> Result<()> {
    KNOWN_FEATURES.iter().try_for_each(|feature| enable(tx, feature))
}

fn enable(tx: &mut Transaction<'_>, feature: &str) -> Result<()> {
    let row = Value { name: format!("{FEATURE}{feature}"), value: Some(ENABLED.to_owned()) };
    tx.put_named(POOL, kind::PROPERTY, &row)
}
