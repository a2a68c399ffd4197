//! Devices that are to leave, or to come back, while they or others do not do what they are asked.

use std::{thread, time::Duration};

use super::*;
use crate::{device::DeadlineDevice, vdev::Stays};

const FOREVER: Duration = Duration::from_secs(3600);

/// Has a device answer at the end, also if a test fails: somebody may wait for it.
pub(in crate::admin) struct Healed(pub(in crate::admin) Disk);

impl Drop for Healed {
    fn drop(&mut self) {
        self.0.heal();
    }
}

#[test]
fn who_was_put_out_of_use_comes_back_only_when_all_it_was_asked_has_been_answered() {
    let [a, b] = ["a", "b"].map(disk);
    let slow = Arc::new(DeadlineDevice::new(b.clone(), FOREVER));
    let pool = made(vec![a.clone(), slow.clone()]);
    let _healed = Healed(b.clone());
    // Nothing else hangs: whoever asks the device itself is answered.
    b.inject(Fault { times: 1, ..Fault::hanging(Operation::Write) });
    slow.set_deadline(Duration::from_millis(50));
    commit(&pool, 1);
    slow.set_deadline(FOREVER);
    assert_eq!((states(&pool), slow.outstanding()), (vec![State::Complete, State::Out], 1));
    let found: Arc<dyn Device> = b.clone();
    let online = || pool.put_online("b", &|_| Ok(found.clone()));
    let refused = online().unwrap_err().to_string();
    assert!(refused.contains("has not answered earlier requests yet"), "{refused}");
    // What the operator wants does not make it forgotten: that write may still land on what was taken back.
    pool.put_offline("b", false).unwrap();
    let refused = online().unwrap_err().to_string();
    assert!(refused.contains("has not answered earlier requests yet"), "{refused}");
    b.heal();
    while slow.outstanding() > 0 {
        thread::yield_now();
    }
    assert!(online().unwrap());
    assert!(fill(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!((alone(&a), alone(&b)), (newest, newest));
}

#[test]
fn who_was_to_take_the_place_of_another_one_and_has_failed_meanwhile_does_not_take_it() {
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
        assert!(fill_alone(&pool));
        assert!(states(&pool).iter().all(|state| *state == State::Complete));
        // Before the old one leaves, all is flushed.
        new.inject(Fault::failing(Operation::Flush));
        pool.finish_replacing().unwrap();
        let (_, leaf) = pool.find_device("a").unwrap();
        assert_eq!(leaf.health(), Health::Online, "{devices}: both stay");
        let is_out: Vec<bool> = states(&pool).iter().map(|state| *state == State::Out).collect();
        let expected: &[bool] = if disks.len() == 1 { &[false, true] } else { &[false, false, true] };
        assert_eq!(is_out, expected);
        new.heal();
        assert!(pool.put_online("new", &reopen(&new)).unwrap());
        assert!(fill(&pool));
        assert!(pool.find_device("a").is_err(), "now it has left");
        let newest = commit(&pool, 1);
        drop(pool);
        assert_eq!(alone(&new), newest);
    }
}

#[test]
fn whether_an_heir_is_complete_is_judged_at_the_moment_in_which_the_old_one_goes_out_of_use() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    pool.attach("a", new.clone(), true).unwrap();
    assert!(fill_alone(&pool));
    let newest = pool.engine().committed();
    let guid = |name: &str| pool.find_device(name).unwrap().1.guid();
    let (vdev, _) = pool.find_device("a").unwrap();
    let group = vdev.as_group().unwrap();
    // It fails after somebody has seen that it is complete. The other one of the mirror is, and would be enough.
    assert!(group.put_offline(guid("new"), true));
    assert_eq!(group.put_out_to_leave(guid("a"), Some(guid("new")), newest), Err(Stays::HeirFailed));
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Out]);
    assert_eq!(pool.find_device("a").unwrap().1.health(), Health::Online);
    // Nobody was to take the place of this one.
    assert_eq!(group.put_out_to_leave(guid("b"), None, newest), Ok(()));
    assert_eq!(group.put_out_to_leave(guid("a"), None, newest), Err(Stays::Needed));
}

#[test]
fn if_the_one_fails_that_had_all_the_states_to_go_back_to_a_device_leaves_when_another_one_has_them() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    commit(&pool, 6);
    pool.attach("a", new.clone(), false).unwrap();
    assert!(fill(&pool));
    // It has had everything for long, so no commit is needed. But before the other one leaves, all is flushed.
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
    // No commit is needed before it leaves, so it is in use until its labels are to be cleared.
    commit(&pool, SAFE_STATES);
    disks[1].inject(Fault::failing(Operation::Write));
    pool.detach("b").unwrap();
    assert_eq!(states(&pool), [State::Complete; 2]);
    assert!(pool.find_device("b").is_err());
    disks[1].heal();
    assert!(labels::read_label(&*disks[1]).unwrap().is_some(), "its labels are still there");
    let newest = commit(&pool, 2);
    assert_eq!(shown(pool.engine()), newest);
    // Nothing keeps it from being used again.
    pool.attach("a", disks[1].clone(), false).unwrap();
    assert!(fill(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert!(disks.iter().all(|disk| alone(disk) == newest));
}

#[test]
fn a_device_that_refuses_the_newest_uberblock_at_an_import_is_done_without() {
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
    assert_eq!(states(&pool), [State::Complete, State::Filling]);
    assert!(fill(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&late), newest);
}

#[test]
fn one_that_cannot_be_done_without_and_refuses_the_newest_uberblock_keeps_the_pool_closed() {
    let disks = disks("a b c");
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let raidz = NewVdev::RaidZ { parity: 1, devices };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    let newest = commit(&pool, 5);
    drop(pool);
    // The third one is lost.
    let late = lacking(&disks[1], newest);
    // Nothing else is refused: the labels could be written.
    late.inject(Fault { times: 4, ..Fault::failing(Operation::Write) });
    let error = opened(&[&disks[0], &late], 3).err().unwrap();
    assert!(matches!(&error, Error::Device { device, .. } if device == "b"), "{error}");
    late.heal();
    let pool = opened(&[&disks[0], &late], 4).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Complete, State::Complete, State::Out]));
}
