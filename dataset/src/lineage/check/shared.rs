//! Blocks with several references: is each reference counted?
//!
//! Like a block, a reference belongs to one dataset: the dataset in whose line the reference was taken. The reference
//! is found exactly once: in the dataset's tree, on one deadlist of the line, or queued for freeing. All references to
//! a block but the first are marked as shared; the first, if not yet given up, looks like any other block.

use std::collections::{BTreeMap, BTreeSet};

use pool::{
    check::Ledger,
    format::pointer::{Address, BlockPointer},
    units::Txg,
};

use super::{FindingKind, Report, rows::Rows, trees::Blocks};
use crate::catalogue::{SharingRow, Space};

/// The shared references found to a block.
struct Met {
    references: u64,
    birth: Txg,
    space: Space,
}

/// All shared references found.
#[derive(Default)]
pub(super) struct Shared {
    blocks: BTreeMap<Address, Met>,
    /// The space of the references that datasets are charged for.
    pub(super) charged: Space,
}

impl Shared {
    /// Counts a shared reference; ignores others. `charged` tells whether a dataset is charged for the reference.
    pub(super) fn meet(&mut self, block: &BlockPointer, sector: u32, charged: bool) {
        if block.shared.is_none() {
            return;
        }
        let space = Space::of(block, sector);
        let met = Met { references: 0, birth: block.birth, space };
        self.blocks.entry(block.addresses[0]).or_insert(met).references += 1;
        if charged {
            self.charged += space;
        }
    }

    /// Compares the references found with the counts. `used` are the blocks in use by unshared references.
    pub(super) fn judge(&self, rows: &Rows, ledger: &Ledger, used: &Blocks, sector: u32, report: &mut Report) {
        let places: BTreeSet<Address> = rows.shared.keys().chain(self.blocks.keys()).copied().collect();
        for place in places {
            let first = ledger.number_at(place).filter(|number| used.contains(*number));
            let first = first.map(|number| &ledger.blocks()[number as usize]);
            let met = self.blocks.get(&place);
            let references = met.map_or(0, |met| met.references) + u64::from(first.is_some());
            let row = rows.shared.get(&place);
            let counted = row.map_or(1, |row| row.more.saturating_add(1));
            if references != counted || row.is_some_and(|row| row.more == 0) {
                let text = format!("the block at {place:?} has {references} references, and {counted} are counted");
                report.find(FindingKind::References, 0, text);
            }
            let real = first.map(|block| (block.birth, Space::of(block, sector)));
            let real = real.or(met.map(|met| (met.birth, met.space)));
            if let (Some(row), Some(real)) = (row, real) {
                let has = (row.birth, row.space);
                report.expect(FindingKind::References, 0, "birth and space of a shared block", has, real);
            }
        }
        let mut sharing = SharingRow::default();
        for row in rows.shared.values() {
            sharing.blocks += 1;
            sharing.used += row.space;
            let times = |bytes: u64| bytes.saturating_mul(row.more);
            sharing.saved += Space { allocated: times(row.space.allocated), logical: times(row.space.logical) };
        }
        report.expect(FindingKind::Sharing, 0, "the total of shared blocks", &rows.sharing, &sharing);
    }
}
