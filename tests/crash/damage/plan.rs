//! What a pool promises to survive, region by region, and where each region lies.
//!
//! A pool consists of *things*, each stored in one or more *copies*. The promise: as long as one copy of every thing is
//! intact, the pool opens at its newest state and everything is read. What may be lost with the last copy of a thing
//! depends on its region ([`Region::loses`]). In no case is a wrong byte read, and nothing panics.
//!
//! | region | copies | when the last is lost |
//! | --- | --- | --- |
//! | label | 4 on each device | opening may be refused |
//! | uberblock | 4 on each device | the newest state is lost: an older one opens, or none |
//! | chunk table, space log | 3 | opening may be refused |
//! | checkpoint | 3 | no stored data; its chunk allocates no more |
//! | catalogue | 3 | opening or commands may be refused; files may be unreachable |
//! | list | as datasets' nodes | no stored data; its space is not freed |
//! | node | 2 on several devices, else 1 | files of the datasets and snapshots that share it |
//! | data | 1 to 3: `copies` | only the files with this data |

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use dataset::{fs::Ino, lineage, name::Name};
use pool::{
    check::Ledger,
    device::{Device, MemoryDevice},
    format::{
        key::Key,
        label::{BODY_AT, BODY_SIZE, DATA_START, label_offsets, uberblock_offset},
        pointer::{Address, BlockPointer},
        space::PhysicalPointer,
        uberblock::UBERBLOCK_SIZE,
    },
    tree::{Block, Event, Miss, Root, Walker},
    txg::{Engine, Head, Plain},
    units::Txg,
    vdev::labels,
};

use crate::world::{Outcome, World};

/// The kind of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Region {
    Label,
    Uberblock,
    ChunkTable,
    SpaceLog,
    Checkpoint,
    Catalogue,
    List,
    Node,
    Data,
}

impl Region {
    /// All regions.
    pub(super) const ALL: [Region; 9] = [
        Region::Label,
        Region::Uberblock,
        Region::ChunkTable,
        Region::SpaceLog,
        Region::Checkpoint,
        Region::Catalogue,
        Region::List,
        Region::Node,
        Region::Data,
    ];

    /// What may be lost with the last copy of a thing here.
    pub(super) fn loses(self) -> Loss {
        match self {
            Region::Checkpoint | Region::List => Loss::Nothing,
            Region::Node | Region::Data => Loss::Files,
            Region::Label | Region::ChunkTable | Region::SpaceLog | Region::Catalogue => Loss::Pool,
            Region::Uberblock => Loss::NewestState,
        }
    }
}

impl Thing {
    /// Whether the check of a pool reads every copy.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self.region, Region::Catalogue | Region::List | Region::Node | Region::Data)
    }
}

/// What may be lost, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    /// No stored data.
    Nothing,
    /// Some files.
    Files,
    /// Some files; opening and commands may be refused.
    Pool,
    /// As `Pool`, and the newest state.
    NewestState,
}

/// A place on a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) device: usize,
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Extent {
    /// The content of this place.
    pub(super) fn content(&self, devices: &[Arc<MemoryDevice>]) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        devices[self.device].read_at(self.start, &mut bytes).expect("an extent lies on its device");
        bytes
    }
}

/// One structure or block.
#[derive(Clone, Debug)]
pub(super) struct Thing {
    pub(super) region: Region,
    pub(super) copies: Vec<Extent>,
    /// For nodes and data: the datasets and snapshots, and for data the files, with this thing.
    pub(super) holders: BTreeSet<(String, Option<Ino>)>,
}

/// All things in a pool.
pub(super) struct Plan {
    pub(super) things: Vec<Thing>,
}

impl Plan {
    /// Locates everything in a pool just opened, on images numbered as its devices.
    pub(super) fn of(world: &World, images: &[Arc<MemoryDevice>], uberblock: Txg) -> Outcome<Plan> {
        let mut survey = Survey { engine: world.engine().clone(), things: Vec::new(), blocks: BTreeMap::new() };
        survey.labels(images, uberblock)?;
        survey.space();
        survey.trees(world)?;
        survey.lists()?;
        let Survey { mut things, blocks, .. } = survey;
        things.extend(blocks.into_values());
        Ok(Plan { things })
    }

    /// The things of a region.
    pub(super) fn in_region(&self, region: Region) -> Vec<&Thing> {
        self.things.iter().filter(|thing| thing.region == region).collect()
    }

    /// Fails unless all copies of a thing are equal.
    pub(super) fn check_copies(&self, devices: &[Arc<MemoryDevice>]) -> Outcome<()> {
        // Each copy of a label records its own place.
        for thing in self.things.iter().filter(|thing| thing.region != Region::Label) {
            let first = thing.copies[0].content(devices);
            if thing.copies.iter().any(|copy| copy.content(devices) != first) {
                return Err(format!("without any damage the copies of a thing differ: {thing:?}"));
            }
        }
        Ok(())
    }

    /// The things without an unchanged copy.
    pub(super) fn lost(&self, before: &[Arc<MemoryDevice>], after: &[Arc<MemoryDevice>]) -> Vec<&Thing> {
        let is_whole = |copy: &Extent| copy.content(before) == copy.content(after);
        self.things.iter().filter(|thing| !thing.copies.iter().any(is_whole)).collect()
    }

    /// The things with a changed copy.
    pub(super) fn hit(&self, before: &[Arc<MemoryDevice>], after: &[Arc<MemoryDevice>]) -> Vec<&Thing> {
        let is_hit = |copy: &Extent| copy.content(before) != copy.content(after);
        self.things.iter().filter(|thing| thing.copies.iter().any(is_hit)).collect()
    }
}

/// A plan being made.
struct Survey {
    engine: Arc<Engine>,
    things: Vec<Thing>,
    /// Blocks by the address of their first copy.
    blocks: BTreeMap<(u32, u32), Thing>,
}

impl Survey {
    fn labels(&mut self, images: &[Arc<MemoryDevice>], txg: Txg) -> Outcome<()> {
        let mut rings = Vec::new();
        for (device, image) in images.iter().enumerate() {
            let is_member = matches!(labels::read_label(&**image), Ok(Some(_)));
            if !is_member {
                continue;
            }
            let offsets = label_offsets(image.size());
            let body = |label: &u64| Extent { device, start: label + BODY_AT, len: BODY_SIZE as u64 };
            let copies = offsets.iter().map(body).collect();
            self.things.push(Thing { region: Region::Label, copies, holders: BTreeSet::new() });
            let slot = |label: u64| Extent { device, start: uberblock_offset(label, txg), len: UBERBLOCK_SIZE as u64 };
            rings.extend(offsets.map(slot));
        }
        let copies = rings;
        self.things.push(Thing { region: Region::Uberblock, copies, holders: BTreeSet::new() });
        Ok(())
    }

    fn space(&mut self) {
        let own = self.engine.storage().space.own_blocks();
        let regions =
            [(Region::ChunkTable, own.table), (Region::SpaceLog, own.log), (Region::Checkpoint, own.checkpoints)];
        for (region, pointers) in regions {
            let thing = |pointer: &PhysicalPointer| {
                let place = |place: &pool::format::space::Place| Extent {
                    device: place.vdev.0 as usize,
                    start: DATA_START + place.offset,
                    len: pointer.len.into(),
                };
                Thing { region, copies: pointer.places().iter().map(place).collect(), holders: BTreeSet::new() }
            };
            self.things.extend(pointers.iter().map(thing));
        }
    }

    fn trees(&mut self, world: &World) -> Outcome<()> {
        let catalogue = self.engine.catalogue().clone();
        self.nodes(&catalogue, Region::Catalogue, None)?;
        for listed in world.list()? {
            let failed = |error| format!("{}: {error}", listed.name);
            let head = match &listed.name {
                Name::Dataset(name) => world.datasets.open_dataset(name).map_err(failed)?.head().clone(),
                Name::Snapshot(name) => world.datasets.open_snapshot(name).map_err(failed)?.head,
                Name::Bookmark(_) => continue,
            };
            let holder = listed.name.to_string();
            self.nodes(&head, Region::Node, Some(&holder))?;
            self.data(&head, &holder)?;
        }
        Ok(())
    }

    fn nodes(&mut self, head: &Head, region: Region, holder: Option<&str>) -> Outcome<()> {
        let (root, level) = head.clean_root().ok_or("a tree has changed since the last commit")?;
        let root = Miss::root(&Root::stored(root, level)).ok_or("a tree without a root")?;
        let mut walker = Walker::new(root, Key::MIN, Txg::ZERO);
        let engine = self.engine.clone();
        let seen = engine.pin().seen();
        while let Some(event) = walker.next(|miss| engine.load_node(miss, seen)).map_err(|error| error.to_string())? {
            if let Event::Enter(place, _) = event {
                self.block(region, &place.pointer, holder.map(|name| (name.to_owned(), None)))?;
            }
        }
        Ok(())
    }

    fn data(&mut self, head: &Head, holder: &str) -> Outcome<()> {
        let read = head.read(|view| -> Result<Vec<(Key, BlockPointer)>, Plain> {
            let mut found = Vec::new();
            for entry in view.range(Key::MIN..Key::MAX) {
                let entry = entry?;
                if let Some(Block::Stored(pointer)) = entry.block() {
                    found.push((entry.key(), pointer));
                }
            }
            Ok(found)
        });
        for (key, pointer) in read.map_err(|error| pool::error::Error::from(error).to_string())? {
            self.block(Region::Data, &pointer, Some((holder.to_owned(), Some(key.object))))?;
        }
        Ok(())
    }

    /// Blocks in use that are neither nodes nor data: the pages of lists.
    fn lists(&mut self) -> Outcome<()> {
        let mut ledger = Ledger::default();
        lineage::check::check(&self.engine, &mut ledger).map_err(|error| error.to_string())?;
        let known: HashSet<(u32, u32)> = self.blocks.keys().copied().collect();
        let pages = ledger.blocks().iter().filter(|pointer| !known.contains(&place(pointer.addresses[0])));
        let pages: Vec<BlockPointer> = pages.copied().collect();
        pages.iter().try_for_each(|pointer| self.block(Region::List, pointer, None))
    }

    fn block(&mut self, region: Region, pointer: &BlockPointer, holder: Option<(String, Option<Ino>)>) -> Outcome<()> {
        if pointer.gang {
            return Err("a pool that was never full has no gang blocks".into());
        }
        let space = &self.engine.storage().space;
        let copy = |address: &Address| {
            let (vdev, offset) = space.resolve(*address, pointer.stored).map_err(|error| error.to_string())?;
            Ok(Extent { device: vdev.0 as usize, start: DATA_START + offset, len: pointer.stored.into() })
        };
        let copies = pointer.addresses().iter().map(copy).collect::<Outcome<Vec<Extent>>>()?;
        let new = Thing { region, copies, holders: BTreeSet::new() };
        self.blocks.entry(place(pointer.addresses[0])).or_insert(new).holders.extend(holder);
        Ok(())
    }
}

fn place(address: Address) -> (u32, u32) {
    (address.chunk.0, address.sector)
}
