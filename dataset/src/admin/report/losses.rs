//! Computes the loss if vdevs were missing: walks all trees, and checks where the copies of each block are. Only nodes
//! are read, and nothing is changed.
//!
//! A block is lost if none of its copies is on the remaining vdevs; so is everything below a lost node. A file is
//! damaged if one of its items is lost. Each block of a dataset and its snapshots counts once; a block shared by a
//! clone and its origin counts for both.
//!
//! Requires an unchanging state: see [`pool::admin::CommittedState`].

use pool::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    space::Seen,
    tree::{Event, Walker},
    txg::Engine,
    units::{Txg, VdevId},
};

use crate::{
    admin::table::datasets::Datasets,
    catalogue::kind,
    error::Result,
    fs::key::{DATASET, INODE},
    lineage::nodes,
    scrub::members::{self, Member},
};

/// The loss of one part of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The dataset, with its snapshots; `<metadata>` for the pool's own structures.
    pub name: String,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of blocks without any copy left, or unreachable.
    pub lost_blocks: u64,
    /// The number of files, directories and other inodes; in each snapshot again if changed.
    pub files: u64,
    /// The number of files with a loss.
    pub lost_files: u64,
}

/// The remaining vdevs, and whether to continue.
pub struct Survivors<'a> {
    /// Whether a vdev remains.
    pub is_left: &'a dyn Fn(VdevId) -> bool,
    /// Called before each tree and repeatedly within a tree; false ends the computation.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Datasets {
    /// The loss if only some vdevs remained: of the pool's own structures, and then of each dataset.
    ///
    /// # Errors
    /// If metadata cannot be read. If `goes_on` returns false, the result so far is returned.
    pub fn losses(&self, survivors: &Survivors<'_>) -> Result<Vec<Loss>> {
        let mut losses = vec![self.metadata_loss(survivors)?];
        let mut dataset = self.read(|tx| members::next_dataset(tx, 0))?;
        while let Some(id) = dataset.filter(|_| (survivors.goes_on)()) {
            losses.push(self.line_loss(id, survivors)?);
            dataset = self.read(|tx| members::next_dataset(tx, id))?;
        }
        Ok(losses)
    }

    /// The names of all datasets, in the order of [`losses`](Datasets::losses).
    pub fn names_of_all(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut dataset = self.read(|tx| members::next_dataset(tx, 0))?;
        while let Some(id) = dataset {
            names.push(self.shown_name(id)?);
            dataset = self.read(|tx| members::next_dataset(tx, id))?;
        }
        Ok(names)
    }

    /// The name of a dataset; an id for a dataset being received, which has no name yet.
    fn shown_name(&self, id: u64) -> Result<String> {
        let names = self.names();
        self.read(|tx| Ok(names.of_dataset(tx, id).map_or_else(|_| format!("<{id:#x}>"), |name| name.to_string())))
    }

    fn metadata_loss(&self, survivors: &Survivors<'_>) -> Result<Loss> {
        let mut tally = Tally::new(self.engine(), survivors, "<metadata>".to_owned());
        let seen = self.engine().pin().seen();
        if let Some((root, level)) = self.engine().catalogue().clean_root() {
            // All other blocks are the roots of trees.
            tally.walk((root, level), seen, Txg::ZERO, &|key| key.kind == kind::PAGE)?;
        }
        let own = self.engine().storage().space.own_blocks();
        for block in own.table.iter().chain(&own.checkpoints).chain(&own.log) {
            let is_lost = !block.places().iter().any(|place| (survivors.is_left)(place.vdev));
            tally.loss.blocks += 1;
            tally.loss.lost_blocks += u64::from(is_lost);
        }
        // Rows do not count as files.
        Ok(Loss { files: 0, lost_files: 0, ..tally.loss })
    }

    /// The loss of a dataset and its snapshots.
    fn line_loss(&self, id: u64, survivors: &Survivors<'_>) -> Result<Loss> {
        let mut tally = Tally::new(self.engine(), survivors, self.shown_name(id)?);
        let mut done = Txg::ZERO;
        loop {
            let (next, seen) = self.read(|tx| Ok((members::next_member(tx, id, done)?, tx.seen())))?;
            let Some(Member { root, level, taken, .. }) = next else { break };
            tally.walk((root, level), seen, done, &|_| true)?;
            match taken {
                Some(taken) => done = taken,
                None => break,
            }
        }
        Ok(tally.loss)
    }
}

struct Tally<'a> {
    engine: &'a Engine,
    survivors: &'a Survivors<'a>,
    loss: Loss,
}

impl<'a> Tally<'a> {
    fn new(engine: &'a Engine, survivors: &'a Survivors<'a>, name: String) -> Tally<'a> {
        Tally { engine, survivors, loss: Loss { name, ..Loss::default() } }
    }

    /// Counts the blocks of a tree that entered the tree after `after`.
    fn walk(
        &mut self,
        (root, level): (BlockPointer, u8),
        seen: Seen,
        after: Txg,
        is_meant: &dyn Fn(Key) -> bool,
    ) -> Result<()> {
        let mut walker = Walker::new(nodes::root(root, level), Key::MIN, after);
        // For each node on the path: whether the node or an ancestor is lost.
        let mut lost: Vec<bool> = Vec::new();
        let mut file = None;
        while let Some(event) = walker.next(|place| self.engine.load_node(place, seen))? {
            let (place, node) = match event {
                Event::Enter(place, node) => (place, node),
                Event::Leave(..) => {
                    lost.pop();
                    continue;
                }
            };
            if !(self.survivors.goes_on)() {
                return Ok(());
            }
            let is_below_lost = lost.last().copied().unwrap_or(false);
            let is_lost = self.count(&place.pointer, is_below_lost)?;
            lost.push(is_lost);
            for (leaf, item) in nodes::items(&node) {
                let key = item.key();
                let pointer = leaf.pointer(item).filter(|block| is_meant(key) && block.entered() > after);
                let has_lost = pointer.map_or(Ok(is_lost), |pointer| self.count(&pointer, is_lost))?;
                self.loss.files += u64::from(key.kind == INODE);
                // Items of the dataset as a whole do not count as files.
                if has_lost && key.object != DATASET && file.replace(key.object) != Some(key.object) {
                    self.loss.lost_files += 1;
                }
            }
        }
        Ok(())
    }

    /// Counts a block; true if the block is lost, by itself or with an ancestor.
    fn count(&mut self, pointer: &BlockPointer, is_below_lost: bool) -> Result<bool> {
        let is_lost = is_below_lost || !self.survives(pointer)?;
        self.loss.blocks += 1;
        self.loss.lost_blocks += u64::from(is_lost);
        Ok(is_lost)
    }

    /// Whether a copy of a block, with all its pieces, is on the remaining vdevs.
    fn survives(&self, pointer: &BlockPointer) -> Result<bool> {
        let storage = self.engine.storage();
        for &address in pointer.addresses() {
            let mut copy = BlockPointer { copies: 1, ..*pointer };
            copy.addresses[0] = address;
            let mut is_left = true;
            for extent in storage.extents(&copy)? {
                let at = Address { chunk: extent.chunk, sector: extent.sector };
                let (vdev, _) = storage.space.resolve(at, extent.sectors.saturating_mul(storage.sector))?;
                is_left &= (self.survivors.is_left)(vdev);
            }
            if is_left {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
