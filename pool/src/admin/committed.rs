//! The last committed state of a pool in use, opened read-only beside it.
//!
//! This is the state that a crash now would leave: opened from the devices, not from memory. None of its blocks is
//! overwritten while it is open, however busy the pool is, unless the pool runs short of space; see
//! [`crate::space::Hold`].

use std::sync::Arc;

use super::{
    open::{chosen, line, open_storage},
    pool::Pool,
};
use crate::{
    block::storage::Vdevs,
    env::{Env, SystemEnv},
    error::Result,
    space::Hold,
    txg::{Ancestry, Engine, Opening, Settings},
    units::MIB,
};

/// A committed state, opened read-only.
pub struct CommittedState {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
}

impl CommittedState {
    /// The engine that reads the state.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// True if the state had to be given up because the pool ran short of space: reads may have returned overwritten
    /// blocks.
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }
}

impl Pool {
    /// Opens the last committed state. Commits wait until its uberblock is found.
    pub fn committed_state(&self) -> Result<CommittedState> {
        let (label, devices) = (self.label(), self.engine().storage().vdevs.devices());
        let (hold, uberblock) =
            self.engine().hold_committed(|txg| Ok(chosen(&label, &line(&label, &devices)?, txg)?.clone()))?;
        let vdevs = Vdevs::new(self.engine().storage().vdevs.all());
        let storage = open_storage(&label, vdevs, &uberblock)?;
        // The devices are the pool's own: bad reads of a given-up state are not counted on them.
        storage.space.is_kept_by(hold.clone());
        let opening = Opening {
            guid: label.pool,
            storage,
            ancestry: Ancestry { epoch: uberblock.epoch, parent: uberblock.parent, forked_at: uberblock.forked_at },
            first: uberblock.txg.next(),
            uberblock: Some(uberblock),
            read_only: true,
            log: Vec::new(),
        };
        // One core is enough: the pool is in use.
        let settings = Settings { cache: 64 * MIB, workers: 1, ..Settings::default() };
        let env: Arc<dyn Env> = Arc::new(SystemEnv);
        Ok(CommittedState { engine: Engine::open(opening, env, settings), hold })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        admin::stamped::{commit, disk, opened, reading, shown, stamped, writing_pool},
        block::{Payload, compression::CompressionChoice},
        format::pointer::Checksum,
        space::Class,
        tree::Policy,
        units::MIB,
    };

    const POLICY: Policy = Policy {
        compression: CompressionChoice::Off,
        checksum: Checksum::Blake3,
        copies: 1,
        small_blocks: 0,
        placement: crate::space::Placement::ANYWHERE,
    };

    #[test]
    fn a_committed_state_stays_as_it_is_while_work_goes_on() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        for _ in 0..6 {
            let committed = commit(&pool, 3);
            let state = pool.committed_state().unwrap();
            for _ in 0..20 {
                assert_eq!(shown(state.engine()), committed);
                assert!(commit(&pool, 3) > committed);
            }
            assert!(!state.is_lost());
            let held = pool.engine().space_totals().deferred;
            drop(state);
            commit(&pool, 3);
            assert!(pool.engine().space_totals().deferred < held, "what was held back is free again");
            assert_eq!(shown(pool.engine()), pool.engine().committed());
        }
    }

    #[test]
    fn uncommitted_changes_are_hidden_and_two_states_can_be_held() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        let before = pool.committed_state().unwrap();
        let first = shown(before.engine());
        let second = commit(&pool, 1);
        let after = pool.committed_state().unwrap();
        commit(&pool, 10);
        assert_eq!((shown(before.engine()), shown(after.engine())), (first, second));
        drop(before);
        commit(&pool, 10);
        assert_eq!(shown(after.engine()), second);
    }

    #[test]
    fn a_pool_that_is_read_only_shows_its_state_too() {
        let (device, newest) = stamped(disk());
        let pool = opened(&device, &reading(None), 2).unwrap();
        assert_eq!(shown(pool.committed_state().unwrap().engine()), newest);
    }

    #[test]
    fn a_pool_that_runs_short_gives_the_state_up() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        let state = pool.committed_state().unwrap();
        for _ in 0..30 {
            // Allocates and frees at once: each commit takes megabytes of the pool's rest.
            let payload = Payload::new(Arc::new((0..1_000_000u32).flat_map(u32::to_le_bytes).collect()), POLICY);
            pool.engine().with_open_txg(|txg| {
                let pointers = pool.engine().storage().write_blocks(txg, Class::Data, &[payload]).unwrap();
                pool.engine().storage().free(txg, &pointers[0]).unwrap();
            });
            commit(&pool, 1);
        }
        assert!(state.is_lost());
        commit(&pool, 3);
        assert!(pool.engine().storage().space.free_for(Class::Data) > 32 * MIB);
        assert_eq!(shown(pool.engine()), pool.engine().committed());
    }
}
