//! The states of the pool's features, and the space saved by shared blocks.

use pool::format::label::SPACES_IN_NAMES;

use crate::{
    admin::table::{
        datasets::Datasets,
        feature::{check_enabled, is_enabled},
    },
    error::Result,
    lineage::reference,
    property::{DISABLED, ENABLED},
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
        Ok(if self.read(|tx| is_enabled(tx, feature))? { ENABLED } else { DISABLED })
    }

    /// Fails if a feature is disabled.
    pub fn check_feature(&self, feature: &str) -> Result<()> {
        if self.engine().is_active(feature) { Ok(()) } else { self.read(|tx| check_enabled(tx, feature)) }
    }

    /// Fails if names need a disabled feature, before any work is done. The request that writes the names activates the
    /// feature: a crash before its commit leaves a pool that older programs refuse although they could read it.
    pub(in crate::admin) fn check_names<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<()> {
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
