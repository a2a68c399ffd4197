//! A vdev loses one device more than its redundancy allows, at one block only; all files without this block are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dataset::{
    admin::Listed,
    fs::{FileSystem, Ino, key::EXTENT},
    lineage::nodes,
    name::Name,
};
use pool::{
    device::{Device, MemoryDevice},
    format::{
        key::Key,
        label::{DATA_START, usable_size},
        pointer::{BlockPointer, Checksum},
    },
    tree::{Event, Walker},
    units::Txg,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    Losses, is_unrecorded,
    strike::{Blow, Struck, Tally},
    there,
};
use crate::{
    judge::copied,
    model::Tree,
    observe,
    world::{Outcome, World, as_devices},
};

/// Files, each with the name of its dataset or snapshot.
type Files = BTreeSet<(String, Ino)>;

impl Losses<'_> {
    /// Loses as many devices as redundancy allows, and makes one block rot on all other devices of its vdev.
    pub(crate) fn judge_block(&self) -> Outcome<Tally> {
        let mut random = StdRng::seed_from_u64(self.seed ^ 2);
        let struck = self.draw(self.images, &[Blow::Lost], &BTreeSet::new(), &mut random);
        if is_unrecorded(self.images, &struck) {
            return Ok(Tally::default());
        }
        let lost = self.lose_block(&struck, &mut random);
        lost.map_err(|problem| format!("struck {struck:?}, and a block on all others: {problem}"))
    }

    fn lose_block(&self, struck: &Struck, random: &mut StdRng) -> Outcome<Tally> {
        let images = copied(self.images);
        let (devices, _) = there(&as_devices(&images), struck, random);
        let world = self.open(devices, 5)?;
        world.clean_up()?;
        let trees = trees(&world)?;
        // Reading updates access times, and only committed trees have the places of records.
        world.engine().commit().map_err(|error| error.to_string())?;
        let blocks: Vec<(BlockPointer, Files)> = blocks(&world, &trees)?.into_values().collect();
        if blocks.is_empty() {
            return Ok(Tally::default());
        }
        let (block, has_it) = &blocks[random.random_range(0..blocks.len())];
        rot_block(&world, block, &images, random)?;
        world.engine().forget_read();
        for (name, (fs, tree)) in &trees {
            for (ino, expected) in tree.nodes() {
                let is_lost = has_it.contains(&(name.clone(), ino));
                match observe::node(fs, ino) {
                    Err(_) if is_lost => {}
                    Ok(node) if !is_lost && node == **expected => {}
                    read => return Err(format!("inode {ino} of {name}, lost: {is_lost}, {block:?}: {read:?}")),
                }
            }
        }
        Ok(Tally { blocks: 1, ..Tally::default() })
    }
}

/// All file systems and snapshots, each with its files.
fn trees(world: &World) -> Outcome<BTreeMap<String, (Arc<FileSystem>, Tree)>> {
    let failed = |error: dataset::error::Error| error.to_string();
    let mut trees = BTreeMap::new();
    for Listed { name, .. } in world.list()? {
        let fs = match &name {
            Name::Dataset(name) => world.datasets.open_dataset(name).map_err(failed)?.fs().clone(),
            Name::Snapshot(name) => world.datasets.open_snapshot(name).map_err(failed)?.fs,
            Name::Bookmark(_) => continue,
        };
        let tree = observe::files(&fs, &name)?;
        trees.insert(name.to_string(), (fs, tree));
    }
    Ok(trees)
}

/// The data blocks of all files, by address, each with the files that refer to it.
fn blocks(
    world: &World,
    trees: &BTreeMap<String, (Arc<FileSystem>, Tree)>,
) -> Outcome<BTreeMap<(u32, u32), (BlockPointer, Files)>> {
    let mut blocks: BTreeMap<(u32, u32), (BlockPointer, Files)> = BTreeMap::new();
    for (name, (fs, _)) in trees {
        let (root, level) = fs.head().clean_root().ok_or_else(|| format!("{name} is not committed"))?;
        let mut walker = Walker::new(nodes::root(root, level), Key::MIN, Txg::ZERO);
        let seen = world.engine().pin().seen();
        let mut next = || walker.next(|place| world.engine().load_node(place, seen)).map_err(|error| error.to_string());
        while let Some(event) = next()? {
            let Event::Enter(_, node) = event else { continue };
            for (leaf, item) in nodes::items(&node).filter(|(_, item)| item.key().kind == EXTENT) {
                let Some(pointer) = leaf.pointer(item).filter(is_judged) else { continue };
                let at = pointer.addresses[0];
                let (_, files) = blocks.entry((at.chunk.0, at.sector)).or_insert((pointer, Files::new()));
                files.insert((name.clone(), item.key().object));
            }
        }
    }
    Ok(blocks)
}

/// Whether the block is in one piece and has a checksum.
fn is_judged(pointer: &BlockPointer) -> bool {
    !pointer.gang && pointer.checksum_kind != Checksum::Off
}

/// Makes all copies of a block rot on all present devices, differently on each: parity of rotten data could by chance
/// equal the parity of zeros, of which files are full.
fn rot_block(world: &World, block: &BlockPointer, images: &[Arc<MemoryDevice>], random: &mut StdRng) -> Outcome<()> {
    let storage = world.engine().storage();
    for address in block.addresses() {
        let (vdev, offset) = storage.space.resolve(*address, block.stored).map_err(|error| error.to_string())?;
        let vdev = storage.vdevs.get(vdev).map_err(|error| error.to_string())?;
        let (at, len) = match vdev.as_raidz() {
            None => (offset, u64::from(block.stored)),
            Some(raidz) => {
                let rows = raidz.zones().rows(offset, block.stored.into()).ok_or("it lies in no rows")?;
                (rows.place(), rows.count * rows.shape.sector())
            }
        };
        for leaf in vdev.leaves() {
            // In a RAID-Z, rows behind the smallest device continue on the larger devices.
            let reaches = |image: &MemoryDevice| at + len <= usable_size(image.size());
            for image in images.iter().filter(|image| image.name() == leaf.name() && reaches(image)) {
                let mut rotten = vec![0; len as usize];
                random.fill(&mut rotten[..]);
                image.write_at(DATA_START + at, &rotten).expect("memory takes everything");
            }
        }
    }
    Ok(())
}
