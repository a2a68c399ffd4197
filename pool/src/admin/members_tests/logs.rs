//! Log vdevs that have changed when the pool is opened.

use super::*;
use crate::{admin::ClassedVdev, format::label::classes::VdevClass};

/// A pool of the disk `a` with a log on the rest of the disks: on one, or on a mirror.
pub(super) fn with_log(disks: &[Disk]) -> Pool {
    let device = |disk: &Disk| disk.clone() as Arc<dyn Device>;
    let log = match &disks[1..] {
        [alone] => NewVdev::Disk(device(alone)),
        several => NewVdev::Mirror(several.iter().map(device).collect()),
    };
    let vdevs = [NewVdev::Disk(device(&disks[0])).into(), ClassedVdev { vdev: log, class: Some(VdevClass::Log) }];
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

pub(super) fn without_log() -> OpenOptions {
    OpenOptions { without_log: true, ..writing() }
}

/// True if the pool is without its log vdev.
fn is_lost(pool: &Pool) -> bool {
    pool.engine().storage().vdevs.all()[1].is_lost()
}

#[test]
fn a_truncated_log_is_left_behind_on_request() {
    for names in ["a log", "a c d"] {
        let disks = disks(names);
        drop(with_log(&disks));
        let cut = |disk: &Disk| Arc::new(FaultDevice::new(Arc::new(resized(&**disk, 63 * MIB))));
        let cut: Vec<Disk> = disks[1..].iter().map(cut).collect();
        let there: Vec<&Disk> = disks[..1].iter().chain(&cut).collect();
        let refused = opened(&there, 2).err().unwrap();
        assert!(matches!(refused, Error::LostLog { .. }), "{refused}");
        assert!(refused.to_string().contains("63M, but its label says"), "{refused}");
        let pool = opened_with(&there, &without_log(), 3).unwrap();
        assert!(is_lost(&pool));
        let newest = commit(&pool, 2);
        drop(pool);
        // No further confirmation is needed, and the log's content no longer belongs to the pool.
        let pool = opened(&there, 4).unwrap();
        assert_eq!((shown(pool.engine()), is_lost(&pool)), (newest, true));
        drop(pool);
        let pool = opened(&disks.iter().collect::<Vec<_>>(), 5).unwrap();
        assert_eq!((shown(pool.engine()), is_lost(&pool)), (newest, false));
    }
}
