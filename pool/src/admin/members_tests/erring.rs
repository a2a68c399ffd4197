//! Devices with read errors when the pool is opened, and devices wrongly suspected of errors.

use std::thread;

use super::*;
use crate::{
    format::label::{LABEL_SIZE, RING_AT},
    units::VdevId,
    vdev::Counts,
};

/// Behind the end of the intent log no member has more to read.
#[test]
fn a_mirror_one_of_whose_devices_refuses_to_be_read_opens() {
    for refusing in 0..2 {
        let disks = disks("a b");
        let newest = commit(&mirror(&disks), 5);
        let end = disks[0].size() - DATA_START;
        disks[refusing].inject(Fault { range: DATA_START..end, ..Fault::failing(Operation::Read) });
        let pool = opened(&[&disks[0], &disks[1]], 2).unwrap();
        disks[refusing].heal();
        assert_eq!(shown(pool.engine()), newest);
    }
}

fn counts(pool: &Pool, device: &str) -> Counts {
    pool.find_device(device).unwrap().1.counters().snapshot()
}

/// Runs `ask` on a device while an earlier one hangs, and `meanwhile` beside it.
fn while_hanging<T: Send>(hanging: &Disk, ask: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    hanging.inject(Fault { times: 1, ..Fault::hanging(Operation::Write) });
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while hanging.waiting() == 0 {
            thread::yield_now();
        }
        meanwhile();
        hanging.heal();
        asking.join().unwrap()
    })
}

#[test]
fn a_device_put_offline_is_not_blamed_for_a_late_write() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let vdev = pool.engine().storage().vdevs.get(VdevId(0)).unwrap();
    let write = || vdev.write(32 * MIB, &[7; 4096]).unwrap();
    while_hanging(&disks[0], write, || pool.put_offline("b", false).unwrap());
    assert_eq!(counts(&pool, "b").write_errors, 0);
    commit(&pool, 4);
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    assert!(resilver(&pool));
    commit(&pool, 5);
    assert_eq!([counts(&pool, "a").write_errors, counts(&pool, "b").write_errors], [0, 0]);
}

#[test]
fn a_device_that_is_back_keeps_its_labels_during_a_scrub() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    pool.put_offline("b", false).unwrap();
    commit(&pool, 4);
    disks[1].inject(Fault { times: 1, ..Fault::hanging(Operation::Flush) });
    let examined = thread::scope(|scope| {
        let online = scope.spawn(|| pool.put_online("b", &reopen(&disks[1])).unwrap());
        while disks[1].waiting() == 0 {
            thread::yield_now();
        }
        let scrub = scope.spawn(|| pool.engine().hold_still().repair_labels());
        thread::sleep(std::time::Duration::from_millis(100));
        disks[1].heal();
        assert!(online.join().unwrap());
        scrub.join().unwrap()
    });
    assert_eq!((examined.bad, counts(&pool, "b").checksum_errors), (0, 0));
}

/// A commit under way when the device left does not count for the returned device.
#[test]
fn a_device_that_came_back_is_not_given_an_older_state() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let rings = Fault { range: RING_AT..LABEL_SIZE, times: 1, ..Fault::hanging(Operation::Write) };
    disks[0].inject(rings);
    thread::scope(|scope| {
        let committing = scope.spawn(|| commit(&pool, 4));
        while disks[0].waiting() == 0 {
            thread::yield_now();
        }
        pool.put_offline("b", false).unwrap();
        let again: Arc<dyn Device> = Arc::new(FaultDevice::new(disks[1].clone()));
        assert!(pool.put_online("b", &move |_: &str| Ok(again.clone())).unwrap());
        disks[0].heal();
        committing.join().unwrap();
    });
    assert_eq!(
        (states(&pool)[1], pool.find_device("b").unwrap().1.newest_uberblock()),
        (State::Resilvering, Txg::ZERO)
    );
}
