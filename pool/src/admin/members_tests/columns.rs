//! RAID-Z pools expanded by a device, at every power failure.

use super::{
    raidz::{names, raidz, raidz_of, sets, survives, without},
    *,
};
use crate::format::label::{Compatibility, RAIDZ_EXPANSION};

/// The numbers of columns of the label's zones.
fn widths(pool: &Pool) -> Vec<u8> {
    let label = pool.label();
    let VdevTree::RaidZ(raidz) = &label.vdevs[0].tree else { return Vec::new() };
    raidz.zones.iter().map(|zone| zone.columns).collect()
}

#[test]
fn a_raidz_with_a_device_more_survives_what_it_survived_before() {
    for (count, parity) in [(2, 1), (4, 1), (4, 2), (4, 3)] {
        let mut disks = names(count);
        let pool = raidz(parity, &disks);
        let size = pool.engine().space_totals().size;
        let new = disk("new");
        assert_eq!(pool.attach_column(&format!("raidz{parity}-0"), new.clone()).unwrap().0, 0);
        assert_eq!((states(&pool), widths(&pool)), (vec![State::Complete; count + 1], vec![count as u8]));
        assert_eq!(pool.label().features.get(RAIDZ_EXPANSION), Some(&Compatibility::None));
        assert_eq!(pool.engine().space_totals().size, size, "no row is wider yet");
        let newest = commit(&pool, 5);
        assert_eq!(shown(pool.engine()), newest);
        drop(pool);
        disks.push(new);
        for missing in sets(count + 1, usize::from(parity) + 1) {
            let what = format!("without {missing:?} of {count} and one, parity {parity}");
            let old = missing.iter().filter(|at| **at < count).count();
            match opened_with(&without(&disks, &missing), &reading(None), 7) {
                Ok(pool) => {
                    assert!(old <= usize::from(parity), "{what}");
                    assert_eq!(shown(pool.engine()), newest, "{what}");
                }
                Err(error) => assert!(old > usize::from(parity), "{what}: {error}"),
            }
        }
        // A device that was away is resilvered as usual, the new one too.
        for away in [0, count] {
            let pool = opened(&without(&disks, &[]), 8).unwrap();
            disks[away].vanish();
            commit(&pool, 3);
            assert_eq!(states(&pool)[away], State::Out);
            disks[away].heal();
            assert!(pool.put_online(disks[away].name(), &reopen(&disks[away])).unwrap() && resilver(&pool));
            assert_eq!(states(&pool), vec![State::Complete; count + 1]);
            assert_eq!(commit(&pool, 2), shown(pool.engine()));
        }
    }
}

#[test]
fn what_cannot_have_a_device_more_is_said() {
    let disks = names(3);
    let pool = raidz(1, &disks);
    let refusal = |name: &str, new: Disk| pool.attach_column(name, new).unwrap_err().to_string();
    assert_eq!(refusal("raidz1-1", disk("new")), "no such device in pool: raidz1-1");
    assert!(refusal("a", disk("new")).contains("a is a device of raidz1-0"));
    let small = || Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("small", 32 * MIB))));
    assert_eq!(refusal("raidz1-0", small()), "small is too small: 32M, at least 64M needed");
    pool.put_offline("b", false).unwrap();
    let degraded = "raidz1-0 is degraded: b lacks data; wait for its resilver before attaching another device";
    assert_eq!(refusal("raidz1-0", disk("new")), degraded);
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    assert_eq!(refusal("raidz1-0", disk("new")), degraded);
    assert!(resilver(&pool));
    commit(&pool, 1);
    pool.attach_column("raidz1-0", disk("new")).unwrap();
    assert_eq!(refusal("raidz1-0", disk("newer")), "raidz1-0 is being expanded; wait until the expansion finishes");
    assert!(pool.widen(crate::units::VdevId(0), 1).unwrap_err().to_string().contains("something lies in"));
}

#[test]
fn wherever_power_fails_while_a_device_joins_the_pool_is_whole() {
    let recorder = Recorder::new();
    let wrap = |name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let (members, new) = (vec![wrap("a"), wrap("b"), wrap("c")], wrap("new"));
    let pool = raidz_of(1, members);
    let (begin, first) = (recorder.len(), pool.engine().committed());
    pool.attach_column("raidz1-0", new).unwrap();
    let last = commit(&pool, 2);
    drop(pool);
    for cut in begin..=recorder.len() {
        for missing in [vec![], vec![cut % 3], vec![3]] {
            let images = recorder.images_at(cut, &mut Fate::seeded(cut as u64));
            let what = format!("cut {cut}, without {missing:?}");
            assert!(survives(images, &missing, first..=last, &what), "{what}");
        }
    }
}
