//! The blocks of the space layer itself, as the last sync left them.

use std::collections::VecDeque;

use crate::{format::space::PhysicalPointer, units::Txg};

/// The space layer's blocks have as many copies.
pub(in crate::space) const COPIES: u8 = 3;

/// The blocks of the last sync, and their places.
#[derive(Debug, Default)]
pub(in crate::space) struct Stored {
    pub(in crate::space) txg: Txg,
    pub(in crate::space) table: Option<PhysicalPointer>,
    pub(in crate::space) pages: Vec<PhysicalPointer>,
    /// How many chunks the table describes.
    pub(in crate::space) rows: usize,
    /// Chunks have come to lie elsewhere, and the table does not say so yet.
    pub(in crate::space) is_misplaced: bool,
    /// Chunks were packed, and no stored table says so yet. The group's log makes no sense without such a table.
    pub(in crate::space) is_packing: bool,
    /// The log, oldest group first.
    pub(in crate::space) log: VecDeque<LogGroup>,
}

/// The log of one transaction group.
#[derive(Debug)]
pub(in crate::space) struct LogGroup {
    pub(in crate::space) txg: Txg,
    /// Its blocks, in order.
    pub(in crate::space) blocks: Vec<PhysicalPointer>,
}

impl LogGroup {
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.len)).sum()
    }
}

impl Stored {
    /// The blocks of the chunk table.
    pub(in crate::space) fn table_pointers(&self) -> impl Iterator<Item = PhysicalPointer> + '_ {
        self.table.into_iter().chain(self.pages.iter().copied())
    }

    /// The blocks of the log.
    pub(in crate::space) fn log_pointers(&self) -> impl Iterator<Item = PhysicalPointer> + '_ {
        self.log.iter().flat_map(|group| group.blocks.iter().copied())
    }
}
