//! Copying committed blocks to an archive, and entering the copies as second places: see [`crate::space::Sitting`].
//!
//! Copying needs a pinned state and holds nothing up. A sitting is entered while the pool is held still, after a flush of
//! the archive alone. If the pin did not last, the sitting is dropped: a sector that it copied may have another block by
//! now, and nothing else would tell.

use std::collections::BTreeSet;

use crate::{
    error::{Error, Result},
    format::pointer::BlockPointer,
    space::{Entered, Sitting},
    txg::engine::{
        pinned::Pinned,
        state::{Engine, Still},
    },
};

impl Engine {
    /// Copies committed blocks that were found in trees since the pin, as far as they need a second place. Returns how
    /// many bytes were copied of each. Left out are blocks of the open group, blocks stored in pieces, and blocks
    /// without a checksum.
    ///
    /// # Errors
    /// Of each block: if it cannot be read or the archive refuses it, and [`Error::OutOfSpace`] if the archive is full.
    pub fn tier(&self, pinned: &Pinned, blocks: &[BlockPointer], sitting: &mut Sitting) -> Vec<Result<u64>> {
        let committed = self.committed();
        let is_committed = |at: &usize| blocks[*at].birth <= committed;
        let chosen: Vec<usize> = (0..blocks.len()).filter(is_committed).collect();
        let pointers: Vec<BlockPointer> = chosen.iter().map(|&at| blocks[at]).collect();
        let mut outcomes: Vec<Result<u64>> = blocks.iter().map(|_| Ok(0)).collect();
        for (at, outcome) in chosen.into_iter().zip(self.storage.tier(&pointers, pinned.seen(), sitting)) {
            outcomes[at] = outcome;
        }
        outcomes
    }
}

impl Still<'_> {
    /// Makes the copies of a sitting durable and enters them as second places, in the open group. `pinned` is the pin
    /// under which all of its blocks were copied.
    ///
    /// # Errors
    /// [`Error::Stale`] if the pin did not last, [`Error::OutOfSpace`] if the pool has no room for the places, and
    /// errors of the archive. Then the sitting is dropped, and nothing has changed.
    pub fn enter(&self, pinned: &Pinned, sitting: Sitting) -> Result<Entered> {
        let engine = self.engine();
        let storage = engine.storage();
        engine.writable()?;
        storage.vdevs.flush_only(&BTreeSet::from([sitting.vdev()]))?;
        if !storage.space.stands(pinned.seen()) {
            return Err(Error::Stale);
        }
        let entered = engine.with_open_txg(|txg| storage.space.enter(txg, sitting, &storage.vdevs));
        // A contradiction may have been found when half was done.
        if let Err(error @ Error::Damaged { .. }) = &entered {
            engine.fail(error);
        }
        entered
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        admin::{self, ClassedVdev, CreateOptions, NewVdev, OpenOptions, Pool},
        block::{Payload, Policy, checksum::verify, compression::CompressionChoice},
        device::{Device, MemoryDevice},
        env::SeededEnv,
        format::{label::classes::VdevClass, pointer::Checksum},
        space::{Class, Placement, Tier},
        txg::Settings,
        units::MIB,
    };

    fn settings() -> Settings {
        Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
    }

    /// A pool of a disk and an archive.
    fn with_archive(devices: &[Arc<dyn Device>; 2]) -> Pool {
        let archive = ClassedVdev { vdev: NewVdev::Disk(devices[1].clone()), class: Some(VdevClass::Archive) };
        let vdevs = [NewVdev::Disk(devices[0].clone()).into(), archive];
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        admin::create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap()
    }

    /// Committed blocks of so many bytes each, with two copies.
    fn write(pool: &Pool, each: &[usize], kind: Checksum) -> Vec<BlockPointer> {
        let policy = Policy {
            compression: CompressionChoice::Off,
            checksum: kind,
            copies: 2,
            small_blocks: 0,
            placement: Placement::ANYWHERE,
        };
        let content = |(at, len): (usize, &usize)| Arc::new(vec![at as u8 + 1; *len]);
        let payloads: Vec<Payload> = each.iter().enumerate().map(|part| Payload::new(content(part), policy)).collect();
        let write = |txg| pool.engine().storage().write_blocks(txg, Class::Data, &payloads).unwrap();
        let written = pool.engine().with_open_txg(write);
        pool.engine().commit_anyway().unwrap();
        written
    }

    /// Whether both copies of a block have a second place with its bytes.
    fn is_archived(pool: &Pool, pointer: &BlockPointer) -> bool {
        let storage = pool.engine().storage();
        pointer.addresses().iter().all(|&address| {
            let Some((vdev, offset)) = storage.space.second(address, pointer.stored) else { return false };
            let mut bytes = vec![0; pointer.stored as usize];
            storage.vdevs.get(vdev).unwrap().read_surely(offset, &mut bytes, &|_| true).unwrap();
            verify(pointer.checksum_kind, &bytes, &pointer.checksum)
                && storage.space.tier(address, pointer.stored).unwrap() == Tier::Archived
        })
    }

    #[test]
    fn copies_are_entered_unless_their_blocks_were_freed() {
        let device = |name| Arc::new(MemoryDevice::new(name, 64 * MIB)) as Arc<dyn Device>;
        let devices = [device("disk"), device("archive")];
        let pool = with_archive(&devices);
        let engine = pool.engine();
        let (archive, _) = engine.storage().space.archives()[0];
        let mut each = vec![100_000, 700, 4096, 12_345];
        // More than one batch.
        each.extend([800_000; 12]);
        let blocks = write(&pool, &each, Checksum::Blake3);
        let bare = write(&pool, &[5000], Checksum::Off);
        let (pinned, mut sitting) = (engine.pin(), Sitting::new(archive));
        let copied: Vec<u64> = engine.tier(&pinned, &blocks, &mut sitting).into_iter().map(Result::unwrap).collect();
        assert_eq!(copied, blocks.iter().map(|block| 2 * u64::from(block.stored)).collect::<Vec<_>>());
        let again = engine.tier(&pinned, &[blocks[1], bare[0]], &mut sitting);
        assert!(again.into_iter().all(|copied| copied.unwrap() == 0), "what has a place, and what has no checksum");
        engine.with_open_txg(|txg| engine.storage().free(txg, &blocks[2]).unwrap());
        engine.commit_anyway().unwrap();
        let entered = engine.hold_still().enter(&pinned, sitting).unwrap();
        assert_eq!((entered.blocks, entered.dropped), (30, 2));
        engine.commit_anyway().unwrap();
        drop(pool);
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices.to_vec(), &options, Arc::new(SeededEnv::new(2))).unwrap();
        let is_there: Vec<bool> = blocks.iter().map(|block| is_archived(&pool, block)).collect();
        assert!(is_there.iter().enumerate().all(|(at, is_there)| *is_there == (at != 2)), "{is_there:?}");
    }

    #[test]
    fn a_sitting_whose_pin_was_given_up_is_dropped() {
        let device = |name| Arc::new(MemoryDevice::new(name, 64 * MIB)) as Arc<dyn Device>;
        let pool = with_archive(&[device("disk"), device("archive")]);
        let engine = pool.engine();
        let (archive, free) = engine.storage().space.archives()[0];
        let blocks = write(&pool, &[50_000], Checksum::Blake3);
        let (pinned, mut sitting) = (engine.pin(), Sitting::new(archive));
        engine.tier(&pinned, &blocks, &mut sitting).into_iter().for_each(|copied| assert!(copied.is_ok()));
        engine.storage().space.give_up_holds();
        (0..5).for_each(|_| assert!(engine.commit_anyway().is_ok()));
        let refused = engine.hold_still().enter(&pinned, sitting);
        assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
        assert!(!is_archived(&pool, &blocks[0]) && engine.storage().space.archives()[0].1 == free);
    }
}
