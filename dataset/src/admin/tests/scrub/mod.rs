//! Damage is planted on the devices of a pool in use, and repaired or reported.

mod losses;
mod names;
mod parts;
mod readers;
mod scrubs;

use std::sync::Arc;

use pool::{
    check::{self, Ledger},
    device::{Device, MemoryDevice},
    format::{label::DATA_START, pointer::BlockPointer},
    units::MIB,
    vdev::Counts,
};
use rustix::io::Errno;

use super::world::{Items, Nodes, World};
use crate::{
    admin::{Assignment, Progress, Target},
    fs::{ROOT, key::Ino},
    jobs::ScrubStatus,
    lineage,
};

const SIZE: u64 = 128 * MIB;
/// A small budget, so that every scrub takes many steps.
const BUDGET: u64 = 64 << 10;

/// A pool and its devices.
struct Bench {
    world: World,
    disks: Vec<Arc<MemoryDevice>>,
}

impl Bench {
    /// A pool on the given number of devices; with two devices, nodes have two copies.
    fn new(devices: usize, seed: u64) -> Bench {
        let disks: Vec<_> = (0..devices).map(|n| Arc::new(MemoryDevice::new(format!("disk{n}"), SIZE))).collect();
        let world = World::over(disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect(), seed);
        Bench { world, disks }
    }

    fn set(&self, dataset: &str, property: &str, value: &str) {
        let given = [Assignment { property: property.into(), value: value.into() }];
        self.world.datasets.set(&[dataset.parse().unwrap()], &given).unwrap();
    }

    /// Inverts some bytes of a copy of a block.
    fn spoil(&self, pointer: &BlockPointer, copy: usize) {
        let storage = self.world.engine.storage();
        let (vdev, offset) = storage.space.resolve(pointer.addresses[copy], pointer.stored).unwrap();
        self.spoil_at(vdev.0 as usize, DATA_START + offset);
        self.world.engine.forget_read();
    }

    fn spoil_at(&self, disk: usize, at: u64) {
        let mut bytes = [0; 16];
        self.disks[disk].read_at(at, &mut bytes).unwrap();
        self.disks[disk].write_at(at, &bytes.map(|byte| byte ^ 0x5a)).unwrap();
    }

    fn id(&self, name: &str) -> u64 {
        match self.world.datasets.resolve(&name.parse().unwrap()).unwrap() {
            Target::Dataset(id) | Target::Snapshot(id) => id,
            Target::Bookmark(..) => unreachable!("nobody asks for one"),
        }
    }

    fn ino(&self, dataset: &str, file: &str) -> Ino {
        self.world.fs(dataset).lookup(ROOT, file.as_bytes()).unwrap().ino
    }

    /// The blocks of a committed dataset: nodes with levels, and the items' blocks with keys.
    fn blocks(&self, dataset: &str) -> (Nodes, Items) {
        self.world.engine.commit().unwrap();
        self.world.blocks(dataset)
    }

    /// The first block of a file.
    fn data(&self, dataset: &str, file: &str) -> BlockPointer {
        self.world.engine.commit().unwrap();
        self.world.extent(dataset, file)
    }

    fn read(&self, dataset: &str, file: &str) -> Result<Vec<u8>, Errno> {
        let fs = self.world.fs(dataset);
        let mut content = Vec::new();
        fs.read(self.ino(dataset, file), 0, 1 << 20, &mut content)?;
        Ok(content)
    }

    fn repair(&self) {
        while self.world.datasets.repair_step().unwrap() == Progress::Worked {}
    }

    fn scrub(&self) -> ScrubStatus {
        self.world.datasets.scrub().start().unwrap();
        self.finish()
    }

    fn finish(&self) -> ScrubStatus {
        while self.world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {}
        self.status()
    }

    fn status(&self) -> ScrubStatus {
        self.world.datasets.scrub().status().unwrap().expect("there was a scrub")
    }

    /// The sum of the errors of all devices.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for vdev in self.world.engine.storage().vdevs.all() {
            for counts in vdev.leaves().iter().map(|leaf| leaf.counters().snapshot()) {
                sum.read_errors += counts.read_errors;
                sum.write_errors += counts.write_errors;
                sum.checksum_errors += counts.checksum_errors;
            }
        }
        sum
    }

    fn clear(&self) {
        for vdev in self.world.engine.storage().vdevs.all() {
            vdev.leaves().iter().for_each(|leaf| leaf.counters().clear_errors());
        }
    }

    /// Damages one copy of every block with several, a different copy each time. Returns the number of blocks.
    fn spoil_everything(&self) -> usize {
        self.world.engine.commit().unwrap();
        let mut ledger = Ledger::default();
        check::enter_catalogue(&self.world.engine, &mut ledger);
        lineage::check::check(&self.world.engine, &mut ledger).unwrap();
        let mut blocks = ledger.blocks().to_vec();
        blocks.sort_by_key(|block| (block.addresses[0].chunk, block.addresses[0].sector));
        blocks.retain(|block| block.copies > 1);
        for (n, block) in blocks.iter().enumerate() {
            self.spoil(block, n % usize::from(block.copies));
        }
        blocks.len()
    }
}
