//! The pool in which a cell of the table is played, with files that identify their state.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use pool::{
    device::Device,
    format::{key::Key, pointer::Address},
    space::Extent,
    txg::Plain,
    units::{ChunkId, MIB},
};

use super::{
    World,
    stopping::{Before, Stopping},
};
use crate::{
    admin::Assignment,
    fs::{Caller, ROOT, SetXattr},
};

/// The byte written over all freed space.
const FOREIGN: u8 = 0xee;
/// The files of every state.
pub(super) const FILES: [&str; 4] = ["big", "small", "tiny", "other"];
/// The attribute of each file, with a block of its own.
pub(super) const XATTR: &[u8] = b"user.large";

/// The allocated sectors of each chunk.
pub(super) type Allocated = BTreeMap<ChunkId, Vec<bool>>;

/// The parameters of a scene.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) seed: u64,
    pub(super) checksum: &'static str,
    /// The lengths of the files in bytes,
    pub(super) lengths: [usize; 4],
    /// and the length of each file's attribute.
    pub(super) attribute: usize,
}

impl Kind {
    /// The scene of the table.
    pub(super) fn table(checksum: &'static str) -> Kind {
        Kind { seed: 11, checksum, lengths: [300_000, 9_000, 100, 40_000], attribute: 20_000 }
    }

    /// Every file of a state, with its length.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, usize)> {
        FILES.into_iter().zip(self.lengths)
    }

    /// Gives every file of a dataset the content of a state.
    pub(super) fn put_state(&self, world: &World, dataset: &str, state: u8) {
        for (file, len) in self.files() {
            world.write(dataset, file, &vec![state; len]);
            let fs = world.fs(dataset);
            let ino = fs.lookup(ROOT, file.as_bytes()).unwrap().ino;
            fs.setxattr(ino, XATTR, &vec![state; self.attribute], SetXattr::Any).unwrap();
        }
        let fs = world.fs(dataset);
        fs.create(&Caller::default(), ROOT, format!("only-in-{state}").as_bytes(), 0o644, false).unwrap();
        world.engine.commit().unwrap();
    }
}

/// A pool with the states 1 and 2 of `tank/a` as snapshots, and state 3 as the current content.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) kind: Kind,
    pub(super) device: Arc<Stopping>,
}

impl Deref for Scene {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Scene {
    pub(super) fn new(kind: &Kind) -> Scene {
        let device = Stopping::new(64 * MIB);
        let world = World::over(vec![device.clone() as Arc<dyn Device>], kind.seed);
        let set = |property: &str, value: &str| Assignment { property: property.to_owned(), value: value.to_owned() };
        let assignments = vec![set("checksum", kind.checksum), set("compression", "off"), set("atime", "off")];
        world.datasets.set(&["tank".parse().unwrap()], &assignments).unwrap();
        world.create("tank/a").unwrap();
        for state in 1..=3 {
            kind.put_state(&world, "tank/a", state);
            if state < 3 {
                world.snapshot(&format!("tank/a@{state}")).unwrap();
            }
        }
        Scene { world, kind: kind.clone(), device }
    }

    /// Finishes all background work, so that commands find everything committed.
    pub(super) fn rest(&self) {
        self.work();
        self.engine.commit().unwrap();
        self.settle();
    }

    /// Called before each step of a command with many steps.
    pub(super) fn step(&self) {
        self.device.pass(Before::Step);
    }

    pub(super) fn allocated(&self) -> Allocated {
        let storage = self.engine.storage();
        let sectors = storage.space.region() as usize / storage.sector as usize;
        let mut allocated = Allocated::new();
        for Extent { chunk, sector, sectors: count } in storage.space.allocated_extents(&storage.vdevs).unwrap() {
            let map = allocated.entry(chunk).or_insert_with(|| vec![false; sectors]);
            map[sector as usize..(sector + count) as usize].fill(true);
        }
        allocated
    }

    /// Makes free space reusable as soon as allowed, and overwrites space freed since `before`.
    pub(super) fn reuse(&self, before: &Allocated) {
        self.rest();
        let storage = self.engine.storage();
        if storage.space.totals().deferred > 0 {
            // The space is kept for the reader.
            return;
        }
        let after = self.allocated();
        for (chunk, was) in before {
            let is = |sector: usize| after.get(chunk).is_some_and(|map| map[sector]);
            for sector in (0..was.len()).filter(|sector| was[*sector] && !is(*sector)) {
                let address = Address { chunk: *chunk, sector: sector as u32 };
                let (vdev, offset) = storage.space.resolve(address, storage.sector).unwrap();
                storage.vdevs.get(vdev).unwrap().write(offset, &vec![FOREIGN; storage.sector as usize]).unwrap();
            }
        }
    }

    /// Asserts that no device has an error, and no block is suspect.
    pub(super) fn is_unharmed(&self, cell: &str) {
        assert_eq!(self.harm(), [""; 0], "{cell}: a device is blamed");
        assert!(self.engine.next_suspect().is_none(), "{cell}: a block is suspected");
    }
}

/// Empties the memory except for the catalogue: no command waits for a reader of the catalogue.
pub(super) fn forget(world: &World) {
    world.engine.forget_read();
    let rows = world.engine.catalogue().read(|view| {
        let rows: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
        Ok::<_, Plain>(rows?.len())
    });
    assert!(rows.unwrap() > 0);
}
