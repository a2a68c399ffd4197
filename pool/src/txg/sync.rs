//! Writing a transaction group: the frozen trees go to the devices, children before parents, and the uberblock last.
//!
//! The order, and why:
//!
//! 1. Records, then nodes level by level from the leaves: a parent holds its children's addresses and checksums.
//! 2. The client (the datasets' layer) puts the new roots into the catalogue, frees dropped blocks that no snapshot
//!    keeps, and runs the tasks of administrators.
//! 3. The catalogue's nodes. From here on the catalogue does not change.
//! 4. The intent log's area, if there is none yet; its frames are written elsewhere.
//! 5. The space layer's account, in which all of the above and itself are counted.
//! 6. Flush, uberblock, flush. See the module above for the state after a failure at each point.

use std::sync::Arc;

use crate::{
    block::{Payload, compression::CompressionChoice},
    device::Device,
    error::{Error, Result},
    format::{
        pointer::{BlockPointer, Checksum},
        uberblock::Uberblock,
        vdev_config::Mark,
    },
    space::Class,
    tree::{Batch, Cell, ItemBlock, Kill, Node, Policy, Record, Root, Slot, Usage, View},
    txg::{
        client::{Sync, Written},
        engine::{Redundancy, parameters::CATALOGUE_LEVEL, state::Engine},
        head::{Frozen, Head, OpError, Plain},
        resilver::{noted, resilver_shares},
    },
    units::Txg,
    vdev::{Health, Leaf, Vdev, uberblocks},
};

/// How many copies the catalogue's nodes have.
const CATALOGUE_COPIES: u8 = 3;
/// About how many bytes one worker compresses and writes in one run.
const RUN: usize = 1 << 20;

impl Sync<'_> {
    /// The transaction group being written.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The engine of the pool being written.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Reads and changes the catalogue, as one step.
    pub fn catalogue<T, E: OpError>(
        &mut self,
        operation: impl FnMut(&View<'_>, &mut Batch) -> Result<T, E>,
    ) -> Result<T, E> {
        self.engine.catalogue().update_in(self.txg, operation)
    }

    /// Looks at the catalogue.
    pub fn look<T>(&self, look: impl FnMut(&View<'_>) -> Result<T, Plain>) -> Result<T> {
        Ok(self.engine.catalogue().read(look)?)
    }

    /// Gives a block's space back.
    pub fn free(&mut self, pointer: &BlockPointer) -> Result<()> {
        free(self.engine, self.txg, pointer)
    }

    /// Writes a block of metadata.
    pub fn write_block(&mut self, bytes: Vec<u8>, copies: u8) -> Result<BlockPointer> {
        let payload = Payload::new(Arc::new(bytes), metadata_policy(copies));
        Ok(self.engine.storage.write_blocks(self.txg, Class::Metadata, &[payload])?[0])
    }
}

/// Freeing a nonsensical pointer, from a damaged pool, loses space at worst, and the check finds the loss. Failing the
/// commit would close the pool for good.
fn free(engine: &Engine, txg: Txg, pointer: &BlockPointer) -> Result<()> {
    match engine.storage.free(txg, pointer) {
        Err(error @ Error::Damaged { .. }) => {
            tracing::error!("space is lost: {error}");
            Ok(())
        }
        other => other,
    }
}

fn metadata_policy(copies: u8) -> Policy {
    Policy {
        compression: CompressionChoice::Lz4,
        checksum: Checksum::Blake3,
        copies,
        small_blocks: 0,
        placement: crate::space::Placement::ANYWHERE,
    }
}

/// Writes and commits the open transaction group. The caller holds the `syncing` lock.
pub(super) fn run(engine: &Engine) -> Result<Txg> {
    let (txg, (frozen, standing)) = engine.quiesce(|_| {
        let heads = engine.heads.lock();
        (heads.values().filter_map(Head::freeze).collect::<Vec<Frozen>>(), engine.log.standing())
    });
    let last = engine.committed();
    assert!(last < txg, "TXG-1: transaction group {txg} is written after {last}");
    let mut written = Vec::with_capacity(frozen.len());
    store_records(engine, &frozen)?;
    engine.wait_early(txg);
    engine.not_failed()?;
    for frozen in frozen {
        written.push(write_tree(engine, txg, frozen, engine.metadata_copies())?);
    }
    resilver_shares(engine, written.iter().flat_map(|written| &written.shares));
    if let Some(client) = engine.client() {
        client.sync(&mut Sync { engine, txg }, written)?;
    }
    let note = engine.client().and_then(|client| client.resilvering(&mut Sync { engine, txg }));
    let (catalogue, level) = write_catalogue(engine, txg)?;
    let log = engine.log_head(txg, standing)?;
    let mut space = Vec::new();
    engine.storage.space.sync(txg, &engine.storage.vdevs)?.encode(&mut space);
    let mark = Mark { epoch: engine.ancestry.epoch, txg };
    engine.storage.vdevs.all().iter().for_each(|vdev| vdev.expect(mark));
    engine.storage.vdevs.flush()?;
    // Made after the flush: a resilvering device may have failed in it.
    let counters = [(CATALOGUE_LEVEL, level.into())].into_iter().chain(noted(engine, note)).collect();
    let uberblock = Uberblock {
        pool: engine.guid(),
        txg,
        epoch: engine.ancestry.epoch,
        parent: engine.ancestry.parent,
        forked_at: engine.ancestry.forked_at,
        written: engine.env().now(),
        catalogue,
        space,
        log,
        counters,
    };
    publish(engine, &uberblock)?;
    engine.storage.space.committed(txg);
    Ok(txg)
}

/// Makes a commit count: writes its uberblock to the devices, and flushes. A device that refuses the uberblock is
/// faulted if other devices hold all of its data. Otherwise the failure is logged, and the device is stale until the
/// next commit. Only if no device accepts the uberblock does the commit wait.
///
/// A RAID-Z is stricter. An import needs several of its devices, and any subset may be left. So each complete device
/// gets the uberblock or is faulted, or the commit waits.
fn publish(engine: &Engine, uberblock: &Uberblock) -> Result<()> {
    let suspension = engine.storage.vdevs.suspension();
    let mark = Mark { epoch: uberblock.epoch, txg: uberblock.txg };
    loop {
        let era = suspension.era();
        let vdevs = engine.storage.vdevs.all();
        let leaves: Vec<(&dyn Vdev, Arc<Leaf>)> =
            vdevs.iter().flat_map(|vdev| vdev.committing().into_iter().map(|leaf| (&**vdev, leaf))).collect();
        let devices: Vec<Arc<dyn Device>> = leaves.iter().map(|(_, leaf)| leaf.device()).collect();
        let written: Vec<&dyn Device> = devices.iter().map(|device| &**device).collect();
        leaves.iter().for_each(|(_, leaf)| leaf.set_mark(mark));
        let (mut reached, mut failures) = (Vec::new(), Vec::new());
        let written = devices.iter().zip(uberblocks::write_uberblock(&written, uberblock));
        for ((vdev, leaf), (device, written)) in leaves.iter().zip(written) {
            leaf.count_uberblock(written.as_ref().err());
            match written {
                Ok(()) => reached.push((leaf, device)),
                Err(ref error) if vdev.degrade(leaf.guid(), Health::of(error)) => {}
                Err(error) => failures.push((*vdev, leaf, error)),
            }
        }
        let is_needed = |vdev: &dyn Vdev| vdev.as_group().is_some_and(|group| group.needed() > 1);
        if reached.is_empty() || failures.iter().any(|(vdev, ..)| is_needed(*vdev)) {
            // None of the devices can be faulted without losing data.
            failures.iter().for_each(|(_, leaf, _)| leaf.note_fault());
            let Some((_, _, failure)) = failures.pop() else { continue };
            suspension.hold(era, failure)?;
            continue;
        }
        engine.storage.vdevs.flush()?;
        // A device that was away meanwhile may have lost the uberblock with its cache.
        if suspension.era() == era {
            let state = Arc::new(uberblock.clone());
            // The operator may have taken a device offline and online again since.
            reached.into_iter().for_each(|(leaf, device)| leaf.note_written(device, &state));
            vdevs.iter().for_each(|vdev| vdev.committed());
            return Ok(());
        }
    }
}

/// Stores every record of the frozen trees that no worker has taken.
fn store_records(engine: &Engine, frozen: &[Frozen]) -> Result<()> {
    let mut records = Vec::new();
    for frozen in frozen {
        dirty_nodes(&frozen.root, &mut |_, node| {
            let pending = node.leaf().into_iter().flat_map(|leaf| leaf.items()).filter_map(|item| match item.block() {
                ItemBlock::Pending(record) if record.pointer().is_none() => Some(record),
                _ => None,
            });
            // A record is sealed once, so a record shared by several items is taken once.
            records.extend(pending.filter_map(|record| Some((record.clone(), record.seal()?))));
        });
    }
    engine.workers.try_each(runs(records), |run| {
        let payloads: Vec<Payload> = run.iter().map(|(record, bytes)| record.payload(bytes.clone())).collect();
        let txg = run[0].0.txg();
        let pointers = engine.storage.write_blocks(txg, Class::Data, &payloads)?;
        for ((record, _), pointer) in run.iter().zip(pointers) {
            record.stored(pointer, engine.sector());
        }
        engine.early_written.notify_all();
        Ok(())
    })
}

type Sealed = (Arc<Record>, Arc<Vec<u8>>);

/// Cuts records into runs, in order: about a megabyte each, with one number of copies. Each run is written together.
fn runs(records: Vec<Sealed>) -> Vec<Vec<Sealed>> {
    let mut runs: Vec<Vec<Sealed>> = Vec::new();
    let mut size = 0;
    for (record, bytes) in records {
        let fits = runs
            .last()
            .is_some_and(|run: &Vec<Sealed>| size < RUN && run[0].0.policy().copies == record.policy().copies);
        if !fits {
            runs.push(Vec::new());
            size = 0;
        }
        size += bytes.len();
        runs.last_mut().expect("one was just pushed").push((record, bytes));
    }
    runs
}

/// Writes the changed nodes of a frozen tree.
fn write_tree(engine: &Engine, txg: Txg, frozen: Frozen, copies: u8) -> Result<Written> {
    let Frozen { head, root, kills, shares } = frozen;
    let redundancy = head.cached().redundancy();
    let births = write_nodes(engine, txg, &root, redundancy, copies)? + head.births(txg);
    let pointer = *root.slot.pointer().expect("the root was just written");
    let kills = kills.iter().filter_map(Kill::pointer).collect();
    Ok(Written { head, root: pointer, level: root.level, births, kills, shares })
}

/// Writes the changed nodes of the catalogue, and frees its dropped blocks.
fn write_catalogue(engine: &Engine, txg: Txg) -> Result<(BlockPointer, u8)> {
    let catalogue = engine.catalogue();
    if let Some(frozen) = catalogue.freeze() {
        let written = write_tree(engine, txg, frozen, CATALOGUE_COPIES)?;
        written.kills.iter().try_for_each(|pointer| free(engine, txg, pointer))?;
        return Ok((written.root, written.level));
    }
    catalogue.clean_root().ok_or_else(|| Error::damaged("catalogue", "it has no root"))
}

/// Writes the nodes under `root` without an address, level by level, with all cores at work on each level.
fn write_nodes(engine: &Engine, txg: Txg, root: &Root, redundancy: Redundancy, most: u8) -> Result<Usage> {
    let mut levels: Vec<Vec<(Arc<Cell>, Arc<Node>)>> = Vec::new();
    dirty_nodes(root, &mut |cell, node| {
        assert_eq!(cell.txg(), txg, "TXG-2: a node of an earlier transaction group was never written");
        let level = usize::from(node.level());
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push((cell.clone(), node));
    });
    let usage = parking_lot::Mutex::new(Usage::default());
    let top = levels.len().saturating_sub(1);
    for (height, level) in levels.into_iter().enumerate() {
        let copies = redundancy.copies(height, top, most);
        // A node is about 32 KiB before compression.
        let runs: Vec<&[(Arc<Cell>, Arc<Node>)]> = level.chunks(RUN >> 15).collect();
        engine.workers.try_each(runs, |run| write_run(engine, txg, run, copies).map(|born| *usage.lock() += born))?;
    }
    Ok(usage.into_inner())
}

fn write_run(engine: &Engine, txg: Txg, run: &[(Arc<Cell>, Arc<Node>)], copies: u8) -> Result<Usage> {
    let resolved: Vec<Arc<Node>> = run.iter().map(|(_, node)| Arc::new(node.resolved())).collect();
    let payload = |node: &Arc<Node>| Payload::new(Arc::new(node.encode(txg)), metadata_policy(copies));
    let payloads: Vec<Payload> = resolved.iter().map(payload).collect();
    let pointers = engine.storage.write_blocks(txg, Class::Metadata, &payloads)?;
    for (((cell, _), node), pointer) in run.iter().zip(resolved).zip(&pointers) {
        engine.cache().keep_node(pointer, node);
        cell.stored(*pointer);
    }
    Ok(pointers.iter().map(|pointer| Usage::of(pointer, engine.sector())).sum())
}

/// Calls `visit` for each node under `root` without an address.
fn dirty_nodes(root: &Root, visit: &mut impl FnMut(&Arc<Cell>, Arc<Node>)) {
    let mut todo = vec![root.slot.clone()];
    while let Some(slot) = todo.pop() {
        let Slot::Dirty(cell) = slot else { continue };
        if cell.pointer().is_some() {
            continue;
        }
        let node = cell.node().expect("a cell without an address has its node");
        let dirty = node.interior().into_iter().flat_map(|interior| interior.children.iter().rev());
        todo.extend(dirty.map(|child| child.slot.clone()).filter(|slot| matches!(slot, Slot::Dirty(_))));
        visit(&cell, node);
    }
}
