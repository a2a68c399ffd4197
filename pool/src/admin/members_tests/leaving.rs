//! Devices that should leave or return while they, or their peers, fail requests.

use std::{thread, time::Duration};

use super::*;
use crate::{device::DeadlineDevice, vdev::Stays};

const FOREVER: Duration = Duration::from_secs(3600);

/// Heals a device at the end, even of a failed test, because threads may wait for it.
pub(in crate::admin) struct Healed(pub(in crate::admin) Disk);

impl Drop for Healed {
    fn drop(&mut self) {
        self.0.heal();
    }
}

#[test]
fn a_device_returns_only_after_all_its_requests_are_answered() {
    let [a, b] = ["a", "b"].map(disk);
    let slow = Arc::new(DeadlineDevice::new(b.clone(), FOREVER));
    let pool = made(vec![a.clone(), slow.clone()]);
    let _healed = Healed(b.clone());
    // Nothing else hangs: requests past the deadline are answered.
    b.inject(Fault { times: 1, ..Fault::hanging(Operation::Write) });
    slow.set_deadline(Duration::from_millis(50));
    commit(&pool, 1);
    slow.set_deadline(FOREVER);
    assert_eq!((states(&pool), slow.outstanding()), (vec![State::Complete, State::Out], 1));
    let found: Arc<dyn Device> = b.clone();
    let online = || pool.put_online("b", &|_| Ok(found.clone()));
    let refused = online().unwrap_err().to_string();
    assert!(refused.contains("still has unanswered requests"), "{refused}");
    // Going offline does not forget the request: the write may still reach the device after its return.
    pool.put_offline("b", false).unwrap();
    let refused = online().unwrap_err().to_string();
    assert!(refused.contains("still has unanswered requests"), "{refused}");
    b.heal();
    while slow.outstanding() > 0 {
        thread::yield_now();
    }
    assert!(online().unwrap());
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!((alone(&a), alone(&b)), (newest, newest));
}

#[test]
fn a_replacement_that_fails_replaces_nothing() {
    for devices in ["a", "a b"] {
        let (disks, new) = (disks(devices), disk("new"));
        let pool = match &disks[..] {
            [alone] => {
                let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
                let pool = create_of(&[NewVdev::Disk(alone.clone())], &options, Arc::new(SeededEnv::new(1))).unwrap();
                pool.engine().set_client(Arc::new(Stamp));
                commit(&pool, 3);
                pool
            }
            _ => mirror(&disks),
        };
        pool.attach("a", new.clone(), true).unwrap();
        assert!(resilver_alone(&pool));
        assert!(states(&pool).iter().all(|state| *state == State::Complete));
        // Everything is flushed before the old device leaves.
        new.inject(Fault::failing(Operation::Flush));
        pool.finish_replacing().unwrap();
        let (_, leaf) = pool.find_device("a").unwrap();
        assert_eq!(leaf.health(), Health::Online, "{devices}: both stay");
        let is_out: Vec<bool> = states(&pool).iter().map(|state| *state == State::Out).collect();
        let expected: &[bool] = if disks.len() == 1 { &[false, true] } else { &[false, false, true] };
        assert_eq!(is_out, expected);
        new.heal();
        assert!(pool.put_online("new", &reopen(&new)).unwrap());
        assert!(resilver(&pool));
        assert!(pool.find_device("a").is_err(), "now it has left");
        let newest = commit(&pool, 1);
        drop(pool);
        assert_eq!(alone(&new), newest);
    }
}

#[test]
fn a_replacement_must_be_complete_when_the_old_device_leaves() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    pool.attach("a", new.clone(), true).unwrap();
    assert!(resilver_alone(&pool));
    let newest = pool.engine().committed();
    let guid = |name: &str| pool.find_device(name).unwrap().1.guid();
    let (vdev, _) = pool.find_device("a").unwrap();
    let group = vdev.as_group().unwrap();
    // The replacement fails after it was seen complete. The other member of the mirror is complete, and would suffice.
    assert!(group.put_offline(guid("new"), true));
    assert_eq!(group.take_out_to_leave(guid("a"), Some(guid("new")), newest), Err(Stays::HeirFailed));
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Out]);
    assert_eq!(pool.find_device("a").unwrap().1.health(), Health::Online);
    // This device has no replacement.
    assert_eq!(group.take_out_to_leave(guid("b"), None, newest), Ok(()));
    assert_eq!(group.take_out_to_leave(guid("a"), None, newest), Err(Stays::Needed));
}

#[test]
fn a_device_leaves_once_another_has_all_states_to_rewind_to() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    commit(&pool, 6);
    pool.attach("a", new.clone(), false).unwrap();
    assert!(resilver(&pool));
    // The new device has been complete for long enough, so no commit is needed. But everything is flushed before the
    // old one leaves.
    disks[0].inject(Fault::failing(Operation::Flush));
    pool.detach("b").unwrap();
    assert_eq!(states(&pool), [State::Out, State::Complete]);
    drop(pool);
    let device: Arc<dyn Device> = new.clone();
    let kept = rewind_states(std::slice::from_ref(&device), &writing()).unwrap();
    assert!(kept.len() >= SAFE_STATES, "{kept:?}");
    for state in kept.iter().take(SAFE_STATES) {
        assert_eq!(shown(opened_with(&[&new], &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
    }
}

#[test]
fn a_device_whose_labels_cannot_be_cleared_leaves_all_the_same() {
    let disks = disks("a b c");
    let pool = mirror(&disks);
    // No commit is needed before the device leaves, so it is in use until its labels are to be erased.
    commit(&pool, SAFE_STATES);
    disks[1].inject(Fault::failing(Operation::Write));
    pool.detach("b").unwrap();
    assert_eq!(states(&pool), [State::Complete; 2]);
    assert!(pool.find_device("b").is_err());
    disks[1].heal();
    assert!(labels::read_label(&*disks[1]).unwrap().is_some(), "its labels are still there");
    let newest = commit(&pool, 2);
    assert_eq!(shown(pool.engine()), newest);
    // It can be used again.
    pool.attach("a", disks[1].clone(), false).unwrap();
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert!(disks.iter().all(|disk| alone(disk) == newest));
}

#[test]
fn an_import_faults_a_device_that_refuses_the_newest_uberblock() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let newest = commit(&pool, 3);
    drop(pool);
    let late = lacking(&disks[1], newest);
    late.inject(Fault::failing(Operation::Write));
    let pool = opened(&[&disks[0], &late], 3).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Complete, State::Out]));
    assert_eq!(behind(&pool), [false, true]);
    commit(&pool, 1);
    drop(pool);
    late.heal();
    let pool = opened(&[&disks[0], &late], 4).unwrap();
    assert_eq!(states(&pool), [State::Complete, State::Resilvering]);
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&late), newest);
}

#[test]
fn a_needed_device_that_refuses_the_newest_uberblock_is_fatal() {
    let disks = disks("a b c");
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let raidz = NewVdev::RaidZ { parity: 1, devices };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    let newest = commit(&pool, 5);
    drop(pool);
    // The third device is lost.
    let late = lacking(&disks[1], newest);
    // Only uberblock writes fail: labels could be written.
    late.inject(Fault { times: 4, ..Fault::failing(Operation::Write) });
    let error = opened(&[&disks[0], &late], 3).err().unwrap();
    assert!(matches!(&error, Error::Device { device, .. } if device == "b"), "{error}");
    late.heal();
    let pool = opened(&[&disks[0], &late], 4).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Complete, State::Complete, State::Out]));
}
