//! Second places in the simulation: copies are made, and entered some groups later.

use super::*;

/// The sitting under way, and what was done so far.
#[derive(Default)]
pub(super) struct Archived {
    sitting: Option<Sitting>,
    /// The stamps of the copied blocks.
    copied: BTreeSet<u64>,
    /// How many groups the sitting may still last: so long no freed sector is in use again, as if the state were held.
    left: u32,
    /// Second places that were entered.
    entered: u64,
    /// Copies of blocks that were freed before they could be entered.
    dropped: u64,
    /// Crashes after which stored places lacked frees.
    lacking: u64,
}

impl Archived {
    /// Power fails: the sitting is lost.
    pub(super) fn lose(&mut self, space: &Space) {
        (self.sitting, self.copied) = (None, BTreeSet::new());
        self.lacking += u64::from(space.layout.load().chunks.iter().any(|chunk| chunk.lacks_frees()));
    }
}

impl Simulation {
    /// A pool with an archive, which is small, so that its freed sectors are used again.
    fn archiving(seed: u64, units: &[u32]) -> Simulation {
        let mut vdevs = Simulation::new(seed, units).vdevs;
        vdevs.push(VdevShape { class: Some(VdevClass::Archive), ..plain(units.len() as u32, 8 * REGION) });
        Simulation::of(seed, vdevs)
    }

    /// Copies some blocks to the archive, or enters the copies.
    pub(super) fn archive(&mut self) {
        let Some((vdev, _)) = self.space.archives().first().copied() else { return };
        if self.archived.sitting.is_none() {
            self.archived.left = self.random.random_range(0..3);
        }
        let mut sitting = self.archived.sitting.take().unwrap_or_else(|| Sitting::new(vdev));
        self.copy_some(&mut sitting);
        if self.archived.left > 0 {
            self.archived.left -= 1;
            self.archived.sitting = Some(sitting);
            return;
        }
        let copied = std::mem::take(&mut self.archived.copied);
        match self.space.enter(self.txg, sitting, &self.memory) {
            Ok(entered) => {
                let still = |block: &&mut Block| copied.contains(&block.stamp) && block.died.is_none();
                let living: Vec<&mut Block> = self.blocks.iter_mut().filter(still).collect();
                let expected = (living.len() as u64, (copied.len() - living.len()) as u64);
                assert_eq!((entered.blocks, entered.dropped), expected);
                living.into_iter().for_each(|block| block.entered = Some(self.txg));
                self.archived.entered += entered.blocks;
                self.archived.dropped += entered.dropped;
            }
            Err(Error::OutOfSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn copy_some(&mut self, sitting: &mut Sitting) {
        let is_there = |block: &&Block| block.died.is_none() && block.born < self.txg;
        let mut some: Vec<Block> = self.blocks.iter().filter(is_there).cloned().collect();
        some.shuffle(&mut self.random);
        some.truncate(self.random.random_range(0..30));
        if self.random.random_bool(0.5) {
            some.sort_by_key(|block| block.extent);
        }
        for block in some {
            let place = match self.space.hand_out(sitting, block.address(), block.bytes, &self.memory) {
                Ok(place) => place,
                Err(Error::OutOfSpace) => return,
                Err(error) => panic!("{error}"),
            };
            let is_new = block.entered.is_none() && !self.archived.copied.contains(&block.stamp);
            assert_eq!(place.is_some(), is_new, "{block:?}");
            let Some((vdev, offset)) = place else { continue };
            self.memory.write(vdev, offset, &content_of(block.stamp, block.bytes)).unwrap();
            self.archived.copied.insert(block.stamp);
        }
    }

    /// Adds the archive's sectors of a block's second place, and returns their number. There is one exactly if the
    /// model says so, with the block's content.
    pub(super) fn expect_second(&self, space: &Space, block: &Block, expected: &mut BTreeSet<(ChunkId, u32)>) -> u64 {
        let txg = space.stored.lock().txg;
        let layout = space.layout.load();
        let chunk = &layout.chunks[block.extent.chunk.0 as usize];
        let span = Span::new(block.extent.sector, block.extent.sectors);
        let seconds = chunk.seconds_at(txg);
        let touching = seconds.iter().filter(|entry| entry.span.start < span.end() && span.start < entry.span.end());
        let found: Vec<_> = touching.collect();
        if block.entered.is_none_or(|entered| entered > txg) {
            assert!(found.is_empty(), "{block:?} has a second place");
            return 0;
        }
        let [entry] = found[..] else { panic!("{block:?} has no second place of its own: {found:?}") };
        assert!(entry.span.start <= span.start && span.end() <= entry.span.end(), "{block:?} is cut");
        let sector = entry.host.sector + (span.start - entry.span.start);
        let host = &layout.chunks[entry.host.chunk.0 as usize];
        let place = layout.place(host, sector);
        self.check_stamp((place.vdev, place.offset), block);
        // The next group may have freed the block in memory.
        if block.died.is_none() {
            assert_eq!(space.second(block.address(), block.bytes), Some((place.vdev, place.offset)));
            assert_eq!(space.tier(block.address(), block.bytes).unwrap(), Tier::Archived);
        }
        for sector in sectors(extent(host.id, Span::new(sector, span.len))) {
            assert!(expected.insert(sector), "two blocks are at {sector:?}");
        }
        u64::from(span.len)
    }
}

/// Runs a pool with an archive, on devices with these units: second places entered, copies dropped, and crashes after
/// which the log had frees that the stored places lacked.
fn lives(units: &[u32], packs: bool, seeds: std::ops::Range<u64>) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    for seed in seeds {
        let mut simulation = Simulation { packs, ..Simulation::archiving(seed, units) };
        (0..60).for_each(|step| simulation.step(if step < 20 { 60 } else { 49 }));
        let Archived { entered, dropped, lacking, .. } = simulation.archived;
        sum = (sum.0 + entered, sum.1 + dropped, sum.2 + lacking);
    }
    sum
}

#[test]
fn second_places_come_and_go_through_crashes() {
    for units in [&[1, 1][..], &[3, 1]] {
        let (entered, dropped, lacking) = lives(units, false, 0..6);
        assert!(entered > 200 && dropped > 8 && lacking > 5, "{units:?}: {entered}, {dropped}, {lacking}");
    }
}

#[test]
fn chunks_with_second_places_are_packed_through_crashes() {
    let (entered, dropped, lacking) = lives(&[1, 2], true, 0..6);
    assert!(entered > 200 && dropped > 8 && lacking > 5, "{entered}, {dropped}, {lacking}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn archives_keep_every_promise(
        seed: u64,
        units in prop::collection::vec(1u32..8, 1..3),
        packs: bool,
        pressure in 45u32..75,
    ) {
        let mut simulation = Simulation { packs, ..Simulation::archiving(seed, &units) };
        for _ in 0..60 {
            simulation.step(pressure);
        }
    }
}
