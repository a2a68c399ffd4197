//! Telling the devices of a pool which space nobody needs: see [`crate::space::TrimCursor`]. Image files get holes there.

use super::pool::Pool;
use crate::{
    error::Result,
    space::{TrimCursor, Trimmed},
    units::MIB,
};

/// Shorter spans are left alone: to make a hole costs as much as to write some of them.
const LEAST: u64 = MIB;

impl Pool {
    /// Does a step: tells the devices of about `budget` bytes.
    pub fn trim(&self, from: TrimCursor, budget: u64) -> Result<Trimmed> {
        self.engine().writable()?;
        let storage = self.engine().storage();
        let discard = |vdev, offset, len| storage.vdevs.get(vdev)?.discard(offset, len);
        storage.space.trim(&storage.vdevs, from, (LEAST, budget), &discard)
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
    };

    /// Writes over everything that may be trimmed; how much that was, and the shortest piece of it.
    fn destroy_free_space(pool: &Pool, budget: u64) -> (u64, u64) {
        let storage = pool.engine().storage();
        let shortest = Cell::new(u64::MAX);
        let destroy = |vdev, offset, len: u64| {
            shortest.set(shortest.get().min(len));
            storage.vdevs.get(vdev)?.write(offset, &vec![0xee; len as usize])
        };
        let (mut from, mut bytes) = (TrimCursor::default(), 0);
        loop {
            let step = storage.space.trim(&storage.vdevs, from, (4096, budget), &destroy).unwrap();
            bytes += step.bytes;
            match step.next {
                Some(next) => from = next,
                None => return (bytes, shortest.get()),
            }
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
            // Nobody allocates in it yet: what was just freed is not left alone for that.
            let pool = opened(&device, &writing(), 100 + round).unwrap();
            let (bytes, piece) = destroy_free_space(&pool, [4096, 1 << 20, u64::MAX][round as usize % 3]);
            assert!(bytes > 40 * MIB, "{bytes}");
            shortest = shortest.min(piece);
            drop(pool);
            for state in (0..SAFE_STATES as u64).map(|age| newest.back(age)) {
                let copy: Arc<dyn Device> = Arc::new(resized(&*device, device.size()));
                match opened(&copy, &reading(Some(state)), 5) {
                    Ok(then) => assert_eq!(shown(then.engine()), state, "round {round}"),
                    // A number that an import has passed over.
                    Err(error) => assert!(error.to_string().contains("has no state of"), "round {round}: {error}"),
                }
            }
        }
        assert!(shortest < 64 << 10, "also from chunks that are in use: {shortest}");
    }

    #[test]
    fn a_step_goes_on_where_the_one_before_has_ended() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        let all = pool.trim(TrimCursor::default(), u64::MAX).unwrap();
        assert_eq!(all.next, None);
        let free = pool.engine().space_totals().free;
        assert!(all.bytes > free / 2 && all.bytes <= free, "{all:?} of {free}");
        let (mut from, mut bytes, mut steps) = (Some(TrimCursor::default()), 0, 0);
        while let Some(at) = from {
            let step = pool.trim(at, 1).unwrap();
            (from, bytes, steps) = (step.next, bytes + step.bytes, steps + 1);
        }
        assert_eq!(bytes, all.bytes);
        assert!(steps > 10);
    }
}
