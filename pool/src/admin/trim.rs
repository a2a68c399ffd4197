//! TRIM and initialization of unused space on the devices of a pool: see [`crate::space::TrimCursor`]. TRIM leaves holes
//! in image files; initialization writes a pattern.
//!
//! An initialization writes only where a TRIM may discard, while the chunk is locked. An allocation of the same space
//! comes later and waits for the lock, so its write comes after the pattern. A device whose write of the pattern missed a
//! deadline counts as lost and gets no later write, so no late pattern overwrites data.

use std::{cell::RefCell, collections::BTreeSet};

use super::pool::Pool;
use crate::{
    error::Result,
    space::{TrimCursor, TrimWhat, Trimmed},
    units::{MIB, VdevId},
    vdev::Clear,
};

/// The shortest span to trim in a full pass, in bytes: punching a hole costs as much as several writes.
const LEAST: u64 = MIB;
/// The shortest span to trim of freshly freed space, in bytes: it is trimmed only once, and there is less of it.
const LEAST_FRESH: u64 = MIB / 8;
/// The longest span in one request, in bytes: the device answers in time.
const AT_ONCE: u64 = 64 * MIB;
/// The longest piece that gets the pattern in one write, in bytes.
const PIECE: u64 = MIB;

impl Pool {
    /// Performs a step: trims about `budget` free bytes of a vdev.
    pub fn trim(&self, vdev: VdevId, from: TrimCursor, budget: u64) -> Result<Trimmed> {
        self.trim_step((TrimWhat::Vdev(vdev), from), (LEAST, budget), &|vdev, offset, len| {
            self.discard(vdev, offset, len)
        })
    }

    /// The bytes that a trim of a vdev would discard now; changes nothing.
    pub fn plan_trim(&self, vdev: VdevId) -> Result<u64> {
        let whole = (TrimWhat::Vdev(vdev), TrimCursor::default());
        Ok(self.trim_step(whole, (LEAST, u64::MAX), &|_, _, _| Ok(()))?.bytes)
    }

    /// Performs a step: writes the pattern over about `budget` free bytes of a vdev.
    pub fn initialize(&self, vdev: VdevId, from: TrimCursor, budget: u64) -> Result<Trimmed> {
        let fill = |vdev, offset, len| self.engine().storage().vdevs.get(vdev)?.clear(offset, len, Clear::Fill);
        self.trim_step((TrimWhat::Pieces(vdev, PIECE), from), (1, budget), &fill)
    }

    /// The bytes that an initialization of a vdev would write now; changes nothing.
    pub fn plan_initialize(&self, vdev: VdevId) -> Result<u64> {
        let whole = (TrimWhat::Vdev(vdev), TrimCursor::default());
        Ok(self.trim_step(whole, (1, u64::MAX), &|_, _, _| Ok(()))?.bytes)
    }

    /// Performs a step: trims about `budget` bytes freed since the last trim. A vdev that refuses is skipped.
    pub fn trim_fresh(&self, from: TrimCursor, budget: u64) -> Result<Trimmed> {
        let refusing = RefCell::new(BTreeSet::new());
        let discard = |vdev, offset, len| {
            if !refusing.borrow().contains(&vdev)
                && let Err(error) = self.discard(vdev, offset, len)
            {
                tracing::debug!("what has become free is not given back: {error}");
                refusing.borrow_mut().insert(vdev);
            }
            Ok(())
        };
        self.trim_step((TrimWhat::Fresh, from), (LEAST_FRESH, budget), &discard)
    }

    fn trim_step(
        &self,
        what: (TrimWhat, TrimCursor),
        how_much: (u64, u64),
        discard: &dyn Fn(VdevId, u64, u64) -> Result<()>,
    ) -> Result<Trimmed> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        storage.space.trim(&storage.vdevs, what, how_much, discard)
    }

    fn discard(&self, vdev: VdevId, offset: u64, len: u64) -> Result<()> {
        let vdev = self.engine().storage().vdevs.get(vdev)?;
        let pieces = (0..len).step_by(AT_ONCE as usize);
        pieces.into_iter().try_for_each(|at| vdev.clear(offset + at, AT_ONCE.min(len - at), Clear::Discard))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use super::*;
    use crate::{
        admin::{
            SAFE_STATES,
            stamped::{commit, disk, opened, reading, resized, shown, stamped, writing, writing_pool},
        },
        device::Device,
        space::Class,
        units::Txg,
    };

    /// Overwrites everything that may be trimmed; returns the total bytes, and the shortest span.
    fn destroy_free_space(pool: &Pool, what: TrimWhat, budget: u64) -> (u64, u64) {
        let storage = pool.engine().storage();
        let shortest = Cell::new(u64::MAX);
        let destroy = |vdev, offset, len: u64| {
            shortest.set(shortest.get().min(len));
            storage.vdevs.get(vdev)?.write(offset, &vec![0xee; len as usize])
        };
        let (mut from, mut bytes) = (TrimCursor::default(), 0);
        loop {
            let step = storage.space.trim(&storage.vdevs, (what, from), (4096, budget), &destroy).unwrap();
            bytes += step.bytes;
            match step.next {
                Some(next) => from = next,
                None => return (bytes, shortest.get()),
            }
        }
    }

    /// Opens a copy at a state, unless an import skipped the txg, and reads everything.
    fn see_state(device: &Arc<dyn Device>, state: Txg, round: u64) {
        let copy: Arc<dyn Device> = Arc::new(resized(&**device, device.size()));
        match opened(&copy, &reading(Some(state)), 5) {
            Ok(then) => assert_eq!(shown(then.engine()), state, "round {round}"),
            Err(error) => assert!(error.to_string().contains("has no state of"), "round {round}: {error}"),
        }
    }

    #[test]
    fn nothing_is_given_away_that_a_state_to_go_back_to_refers_to() {
        let (device, _) = stamped(disk());
        let mut shortest = u64::MAX;
        for round in 0..12 {
            let pool = writing_pool(&device, 2 + round);
            let newest = commit(&pool, 1 + round as usize % 4);
            drop(pool);
            // No chunk is open for allocation yet, so freshly freed space is not exempted.
            let pool = opened(&device, &writing(), 100 + round).unwrap();
            let (bytes, piece) =
                destroy_free_space(&pool, TrimWhat::Vdev(VdevId(0)), [4096, 1 << 20, u64::MAX][round as usize % 3]);
            assert!(bytes > 40 * MIB, "{bytes}");
            shortest = shortest.min(piece);
            drop(pool);
            (0..SAFE_STATES as u64).for_each(|age| see_state(&device, newest.back(age), round));
        }
        assert!(shortest < 64 << 10, "also from chunks that are in use: {shortest}");
    }

    #[test]
    fn freed_space_is_trimmed_once_and_never_below_kept_states() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        assert_eq!(destroy_free_space(&pool, TrimWhat::Fresh, 4096).0, 0, "nothing has become free");
        let storage = pool.engine().storage();
        const LEN: u32 = 400 << 10;
        let place = |address| storage.space.resolve(address, LEN).unwrap();
        let (mut sum, mut freed) = (0, Vec::new());
        for round in 0..8 {
            // Allocates more than fits the open chunks, and frees a part in each of the next txgs.
            let take = |txg| storage.space.allocate(txg, Class::Data, LEN, 1, &storage.vdevs).unwrap().addresses[0];
            let taken: Vec<_> = pool.engine().with_open_txg(|txg| (0..12).map(|_| take(txg)).collect());
            for address in &taken {
                let (vdev, offset) = place(*address);
                storage.vdevs.get(vdev).unwrap().write(offset, &[7; LEN as usize]).unwrap();
            }
            for some in taken.chunks(4) {
                let group = pool.engine().with_open_txg(|txg| {
                    some.iter().for_each(|address| storage.space.free(txg, *address, LEN).unwrap());
                    txg
                });
                freed.extend(some.iter().map(|address| (*address, group)));
                let newest = commit(&pool, 1);
                sum += destroy_free_space(&pool, TrimWhat::Fresh, [4096, u64::MAX][round % 2]).0;
                assert_eq!(destroy_free_space(&pool, TrimWhat::Fresh, 4096).0, 0, "it was told of");
                // The state before the free still has the block, and may be rewound to.
                for (address, group) in freed.iter().filter(|(_, group)| *group > newest.back(SAFE_STATES as u64 - 1)) {
                    let (vdev, offset) = place(*address);
                    let mut bytes = vec![0; LEN as usize];
                    storage.vdevs.get(vdev).unwrap().read(offset, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 7), "{address:?}, freed in {group}, at {newest}");
                }
            }
        }
        assert!(sum > 20 * MIB && sum <= 8 * 12 * u64::from(LEN) + MIB, "{sum}");
        commit(&pool, 4);
        assert_eq!(shown(pool.engine()), pool.engine().committed());
    }

    /// Initializes all free space of the first vdev, in steps of a budget; returns the bytes written.
    fn initialize(pool: &Pool, budget: u64) -> u64 {
        let (mut from, mut bytes) = (Some(TrimCursor::default()), 0);
        while let Some(at) = from {
            let step = pool.initialize(VdevId(0), at, budget).unwrap();
            (from, bytes) = (step.next, bytes + step.bytes);
        }
        bytes
    }

    #[test]
    fn an_initialization_fills_all_free_space_and_nothing_else() {
        for round in 0..6 {
            let (device, _) = stamped(disk());
            let pool = writing_pool(&device, 2 + round);
            let newest = commit(&pool, 1 + round as usize % 4);
            drop(pool);
            let pool = writing_pool(&device, 100 + round);
            let planned = pool.plan_initialize(VdevId(0)).unwrap();
            // The smallest budget makes a step of one piece.
            assert_eq!(initialize(&pool, [1, 3 * MIB, u64::MAX][round as usize % 3]), planned);
            assert!(planned > 40 * MIB && planned <= pool.engine().space_totals().free, "{planned}");
            let mut all = vec![0; device.size() as usize];
            device.read_at(0, &mut all).unwrap();
            let filled = all.chunks_exact(8).filter(|word| **word == 0xdead_beef_dead_beee_u64.to_le_bytes()).count();
            assert_eq!(filled as u64 * 8, planned, "the pattern is in free space, all of it");
            (0..SAFE_STATES as u64).for_each(|age| see_state(&device, newest.back(age), round));
            // Allocations afterwards take over filled space.
            commit(&pool, 8);
            assert_eq!(shown(pool.engine()), pool.engine().committed());
        }
    }

    #[test]
    fn a_step_goes_on_where_the_one_before_has_ended() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        let all = pool.trim(VdevId(0), TrimCursor::default(), u64::MAX).unwrap();
        assert_eq!(all.next, None);
        let free = pool.engine().space_totals().free;
        assert!(all.bytes > free / 2 && all.bytes <= free, "{all:?} of {free}");
        let (mut from, mut bytes, mut steps) = (Some(TrimCursor::default()), 0, 0);
        while let Some(at) = from {
            let step = pool.trim(VdevId(0), at, 1).unwrap();
            (from, bytes, steps) = (step.next, bytes + step.bytes, steps + 1);
        }
        assert_eq!(bytes, all.bytes);
        assert!(steps > 10);
    }
}
