//! Mirrors on devices that fail, return wrong bytes or vanish.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use super::*;
use crate::{
    device::{DeadlineDevice, Device, Fault, FaultDevice, MemoryDevice, Operation},
    format::{
        label::DATA_START,
        vdev_config::{Behind, LeafConfig, MemberConfig},
    },
    units::{MIB, Txg},
    vdev::{Health, Leaf, Suspension, Vdev},
};

const SIZE: u64 = 512 * MIB;

/// A mirror, and its devices.
struct World {
    mirror: Arc<Mirror>,
    devices: Vec<Arc<FaultDevice>>,
}

fn member(n: u64, device: Arc<dyn Device>, state: State) -> Arc<Member> {
    let leaf = Arc::new(Leaf::new(Guid(n), device));
    let config = LeafConfig { guid: Guid(n), size: leaf.size(), path: format!("disk{n}") };
    Arc::new(Member::new(leaf, state, &MemberConfig::whole(config)))
}

impl World {
    fn new(count: u64) -> World {
        let device = |n: u64| Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(format!("disk{n}"), SIZE))));
        let devices: Vec<Arc<FaultDevice>> = (0..count).map(device).collect();
        let members: Vec<Arc<Member>> =
            (0..).zip(&devices).map(|(n, device)| member(n, device.clone(), State::Complete)).collect();
        let size = members[0].leaf.size();
        World { mirror: Arc::new(Mirror::new(VdevId(0), Guid(99), size, members)), devices }
    }

    fn states(&self) -> Vec<State> {
        self.mirror.group().members().iter().map(|member| member.state()).collect()
    }

    fn held(&self, device: usize, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.devices[device].heal();
        self.devices[device].read_at(DATA_START + offset, &mut bytes).unwrap();
        bytes
    }

    fn checksum_errors(&self) -> Vec<u64> {
        self.mirror.leaves().iter().map(|leaf| leaf.counters().snapshot().checksum_errors).collect()
    }

    fn reads(&self) -> Vec<u64> {
        self.mirror.leaves().iter().map(|leaf| leaf.counters().snapshot().reads).collect()
    }
}

#[test]
fn what_is_written_is_on_every_member() {
    let world = World::new(3);
    world.mirror.write(4096, b"everywhere").unwrap();
    world.mirror.flush().unwrap();
    assert!((0..3).all(|device| world.held(device, 4096, 10) == b"everywhere"));
    assert!(world.mirror.write(world.mirror.size() - 1, b"xy").is_err());
    assert_eq!(world.states(), [State::Complete; 3]);
}

#[test]
fn a_bulk_read_asks_one_member_or_all_and_counts_nothing() {
    let world = World::new(3);
    world.mirror.write(4096, b"everywhere").unwrap();
    let begun = |sources| {
        let bytes = world.mirror.clone().begin(4096, 10, sources)(&|read| read == b"everywhere");
        bytes.map(|bytes| assert_eq!(bytes, b"everywhere")).is_some()
    };
    assert!(begun(Sources::Any) && begun(Sources::All));
    assert_eq!(world.reads().iter().sum::<u64>(), 4);
    for spoil in [Fault::corrupting(0..u64::MAX), Fault::failing(Operation::Read)] {
        world.devices[2].inject(spoil);
        assert!(!begun(Sources::All));
        world.devices[2].heal();
    }
    assert!(begun(Sources::All));
    assert_eq!(world.checksum_errors(), [0; 3]);
    // An incomplete member is not read.
    world.mirror.degrade(Guid(2), Health::Faulted);
    world.devices[2].inject(Fault::failing(Operation::Read));
    assert!(begun(Sources::All));
}

/// Power failed while the newest uberblock was written to some members, and a member with the uberblock returns wrong
/// bytes.
#[test]
fn resilvering_members_are_read_where_complete_ones_are_bad() {
    for spoil in [Fault::corrupting(0..u64::MAX), Fault::failing(Operation::Read)] {
        let world = World::new(3);
        world.mirror.write(0, b"everywhere").unwrap();
        let found: Arc<dyn Device> = world.devices[1].clone();
        for device in [1, 2] {
            world.mirror.degrade(Guid(device), Health::Faulted);
        }
        world.mirror.group().take_back(Guid(1), found, Behind::default());
        assert_eq!(world.states(), [State::Complete, State::Resilvering, State::Out]);
        world.devices[0].inject(spoil.clone());
        world.devices[2].inject(Fault::failing(Operation::Read));
        let mut bytes = [0; 10];
        let is_good = |read: &[u8]| read == b"everywhere";
        let simple = world.mirror.read_checked(0, &mut bytes, &is_good);
        assert!(matches!(simple, Ok(Found::Bad) | Err(_)), "without a checksum it may be anything");
        assert_eq!(world.mirror.read_surely(0, &mut bytes, &is_good).unwrap(), Found::Elsewhere);
        assert_eq!(&bytes, b"everywhere");
        // An examine finds the right content for the complete member.
        let examined = world.mirror.examine_surely(0, 10, &is_good);
        assert_eq!(examined.good.as_deref(), Some(&b"everywhere"[..]));
        assert_eq!(examined.bad.iter().map(|(source, _)| *source).collect::<Vec<_>>(), [Guid(0)]);
        assert!(world.mirror.examine(0, 10, &is_good).good.is_none());
        // Stale bytes on a member being resilvered do not pass, and count no error.
        world.devices[1].write_at(DATA_START, b"before").unwrap();
        let lacking = world.mirror.read_surely(0, &mut bytes, &is_good);
        assert!(matches!(lacking, Ok(Found::Bad) | Err(_)));
        assert_eq!(world.checksum_errors()[1], 0);
    }
}

#[test]
fn a_member_that_fails_a_write_or_a_flush_gets_nothing_more() {
    for on in [Operation::Write, Operation::Flush] {
        let world = World::new(2);
        world.mirror.write(0, b"before").unwrap();
        world.mirror.flush().unwrap();
        assert_eq!(world.mirror.news(), None);
        world.devices[0].inject(Fault { times: 1, ..Fault::failing(on) });
        world.mirror.write(0, b"during").unwrap();
        world.mirror.flush().unwrap();
        assert_eq!(world.states(), [State::Out, State::Complete]);
        assert!(world.mirror.news().is_some(), "the labels have to be told");
        world.mirror.write(0, b"behind").unwrap();
        world.mirror.flush().unwrap();
        assert_ne!(world.held(0, 0, 6), b"behind");
        assert_eq!(world.held(1, 0, 6), b"behind");
        let mut read = [0; 6];
        (0..4).for_each(|_| world.mirror.read(0, &mut read).unwrap());
        assert_eq!(&read, b"behind");
        let guids = |leaves: Vec<Arc<Leaf>>| leaves.iter().map(|leaf| leaf.guid()).collect::<Vec<_>>();
        assert_eq!(guids(world.mirror.labelled()), [Guid(1)]);
        assert_eq!(guids(world.mirror.committing()), [Guid(1)]);
    }
}

#[test]
fn the_last_complete_member_is_not_faulted() {
    let world = World::new(2);
    world.devices.iter().for_each(|device| device.inject(Fault::failing(Operation::Write)));
    assert!(world.mirror.write(0, b"nowhere").is_err());
    assert_eq!(world.states(), [State::Out, State::Complete]);
    assert!(!world.mirror.degrade(Guid(1), Health::Faulted));
    assert!(!world.mirror.group().put_offline(Guid(1), true));
}

#[test]
fn what_is_good_is_read_wherever_it_is() {
    let world = World::new(2);
    world.mirror.write(0, b"the right ones").unwrap();
    let is_good = |bytes: &[u8]| bytes == b"the right ones";
    let rotten = |device: usize| {
        world.devices[device].inject(Fault::corrupting(DATA_START + 4..DATA_START + 8));
    };
    rotten(0);
    let mut found = Vec::new();
    for _ in 0..6 {
        let mut read = [0; 14];
        found.push(world.mirror.read_checked(0, &mut read, &is_good).unwrap());
        assert!(is_good(&read));
    }
    assert!(found.contains(&Found::Elsewhere) && !found.contains(&Found::Bad));
    let [first, second] = world.checksum_errors()[..] else { panic!("there are two") };
    assert!(first > 0 && second == 0, "{first} and {second}: it is counted where it is");
    let examined = world.mirror.examine(0, 14, &is_good);
    assert_eq!(examined.good.as_deref(), Some(&b"the right ones"[..]));
    assert_eq!(examined.bad.iter().map(|(source, _)| *source).collect::<Vec<_>>(), [Guid(0)]);
    assert_eq!(world.checksum_errors()[0], first, "who examines counts nothing");
    rotten(1);
    assert_eq!(world.mirror.read_checked(0, &mut [0; 14], &is_good).unwrap(), Found::Bad);
}

#[test]
fn a_repair_writes_to_the_bad_member_alone() {
    let world = World::new(2);
    world.mirror.write(0, b"good").unwrap();
    world.devices[0].write_at(DATA_START, b"evil").unwrap();
    let writes = |at: usize| world.mirror.leaves()[at].counters().snapshot().writes;
    let before = writes(1);
    world.mirror.repair(Guid(0), 0, &Arc::new(b"good".to_vec())).unwrap();
    assert_eq!((world.held(0, 0, 4), writes(1)), (b"good".to_vec(), before));
}

#[test]
fn a_reader_faults_a_lost_device_but_not_for_one_bad_sector() {
    let world = World::new(2);
    world.mirror.write(0, b"bytes").unwrap();
    world.devices[0].inject(Fault { range: DATA_START..DATA_START + 5, ..Fault::failing(Operation::Read) });
    let far = |n: u64| world.mirror.read(if n.is_multiple_of(2) { 0 } else { 16 * MIB }, &mut [0; 5]).unwrap();
    (0..8).for_each(far);
    assert!(world.mirror.leaves()[0].counters().snapshot().read_errors > 0);
    assert_eq!(world.states(), [State::Complete; 2]);
    world.devices[0].vanish();
    (0..4).for_each(|n| world.mirror.read(n * 8 * MIB, &mut [0; 5]).unwrap());
    assert_eq!(world.states(), [State::Out, State::Complete]);
}

#[test]
fn a_stream_stays_on_one_member_and_two_streams_are_on_two() {
    let world = World::new(2);
    let mut page = vec![0; 128 << 10];
    let read = |n: u64, page: &mut Vec<u8>| world.mirror.read(n * page.len() as u64, page).unwrap();
    (0..40).for_each(|n| read(n, &mut page));
    let mut one = world.reads();
    one.sort_unstable();
    assert_eq!(one, [0, 40]);
    for n in 0..40 {
        read(40 + n, &mut page);
        read(300 + n, &mut page);
    }
    let mut both = world.reads();
    both.sort_unstable();
    assert!(both[0] >= 38, "{both:?}");
}

#[test]
fn a_stream_far_ahead_moves_and_two_streams_keep_their_members() {
    let world = World::new(2);
    let begin = |megabyte: u64| world.mirror.clone().begin(megabyte * MIB, MIB as usize, Sources::Any);
    let waiting = || {
        let mut waiting: Vec<u64> =
            world.mirror.group().members().iter().map(|member| member.load.waiting() / MIB).collect();
        waiting.sort_unstable();
        waiting
    };
    let mut first: Vec<Begun> = (0..12).map(begin).collect();
    assert_eq!(waiting(), [5, 7], "one seek for many bytes");
    // The reads begun first are fetched, so the first member has nothing outstanding.
    first.drain(..5).for_each(|begun| assert!(begun(&|_| true).is_some()));
    assert_eq!(waiting(), [0, 7]);
    first.extend((12..20).map(begin));
    assert_eq!(waiting(), [7, 8]);
    first.clear();
    assert_eq!(waiting(), [0, 0], "what nobody comes for does not wait either");
    let both: Vec<Begun> = (0..12).flat_map(|megabyte| [begin(megabyte), begin(30 + megabyte)]).collect();
    assert_eq!(waiting(), [12, 12]);
    drop(both);
}

#[test]
fn a_second_stream_ends_up_on_a_member_of_its_own() {
    const FAR: usize = 16;
    let world = World::new(2);
    let members = world.mirror.group().members();
    let waiting = || -> Vec<u64> { members.iter().map(|member| member.load.waiting()).collect() };
    // Begins to read a megabyte, and returns the chosen member.
    let begin = |megabyte: u64| {
        let before = waiting();
        let begun = world.mirror.clone().begin(megabyte * MIB, MIB as usize, Sources::Any);
        (begun, waiting().iter().zip(before).position(|(now, before)| *now > before).unwrap())
    };
    let mut streams = [(0, VecDeque::new(), Vec::new()), (250, VecDeque::new(), Vec::new())];
    let go_on = |(next, ahead, members): &mut (u64, VecDeque<Begun>, Vec<usize>), count: usize| {
        for _ in 0..count {
            let (begun, member) = begin(*next);
            *next += 1;
            ahead.push_back(begun);
            members.push(member);
        }
        while ahead.len() > FAR {
            assert!(ahead.pop_front().is_some_and(|begun| begun(&|_| true).is_some()));
        }
    };
    go_on(&mut streams[0], FAR);
    for _ in 0..FAR {
        go_on(&mut streams[0], 1);
        go_on(&mut streams[1], 2);
    }
    for _ in 0..100 {
        streams.iter_mut().for_each(|stream| go_on(stream, 1));
    }
    let last = streams.each_ref().map(|(_, _, members)| &members[members.len() - 50..]);
    assert!(last.iter().all(|members| members.iter().all(|member| member == &members[0])), "{last:?}");
    assert_ne!(last[0][0], last[1][0]);
}

#[test]
fn a_resilvering_member_gets_new_writes_and_is_not_read() {
    let world = World::new(1);
    world.mirror.write(0, b"old").unwrap();
    let fresh = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("fresh", SIZE))));
    let joined = member(7, fresh.clone(), State::Resilvering);
    world.mirror.group().set_members(vec![world.mirror.group().members()[0].clone(), joined.clone()]);
    world.mirror.write(100, b"new").unwrap();
    let held = |offset: u64| {
        let mut bytes = [0; 3];
        fresh.read_at(DATA_START + offset, &mut bytes).unwrap();
        bytes
    };
    assert_eq!((held(0), &held(100)), ([0; 3], b"new"));
    (0..4).for_each(|_| {
        let mut read = [0; 3];
        world.mirror.read(0, &mut read).unwrap();
        assert_eq!(&read, b"old");
    });
    assert!(!world.mirror.degrade(Guid(0), Health::Faulted), "the new one does not have everything");
    assert_eq!(world.mirror.resilvering(), Some(Txg::ZERO));
    assert_eq!(world.mirror.committing().len(), 1, "no uberblock before it has everything");
    world.mirror.resilver(0, &Arc::new(b"old".to_vec())).unwrap();
    assert!(!world.mirror.group().resilvered(&[Guid(7)], 0), "members have changed since");
    assert!(world.mirror.group().resilvered(&[Guid(7)], world.mirror.group().round()));
    assert_eq!((joined.state(), world.mirror.committing().len()), (State::Resilvered, 2));
    world.mirror.committed();
    assert_eq!(joined.state(), State::Resilvered, "it has no uberblock yet");
    joined.leaf.note_uberblock(Txg(9));
    world.mirror.committed();
    assert_eq!(joined.state(), State::Complete);
    assert!(world.mirror.news().is_some() && world.mirror.degrade(Guid(0), Health::Faulted));
}

#[test]
fn a_writer_waits_while_the_last_member_fails_and_loses_nothing() {
    let world = World::new(2);
    let suspension = Arc::new(Suspension::default());
    suspension.enable();
    world.mirror.join(&suspension);
    world.devices.iter().for_each(|device| device.inject(Fault::failing(Operation::Write)));
    thread::scope(|scope| {
        let writer = scope.spawn(|| world.mirror.write(0, b"kept").and_then(|()| world.mirror.flush()));
        while !suspension.is_suspended() {
            thread::yield_now();
        }
        world.devices.iter().for_each(|device| device.heal());
        world.mirror.labelled().iter().for_each(|leaf| leaf.take_back(leaf.device()).unwrap());
        suspension.resume();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(world.states(), [State::Out, State::Complete]);
    assert_eq!(world.held(1, 0, 4), b"kept");
}

/// A device whose writes and flushes wait until so many are under way on all devices together.
struct Crowded {
    inner: MemoryDevice,
    present: Arc<(Mutex<usize>, Condvar)>,
    wanted: usize,
}

impl Crowded {
    fn wait_for_the_others(&self) {
        let (count, changed) = &*self.present;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        while *count % self.wanted != 0 {
            let before = *count;
            let (after, is_late) = changed.wait_timeout(count, Duration::from_secs(20)).unwrap();
            count = after;
            assert!(!is_late.timed_out() || *count != before, "nobody else comes");
        }
    }
}

impl Device for Crowded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.wait_for_the_others();
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.wait_for_the_others();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

#[test]
fn small_writes_and_flushes_run_on_all_members_in_parallel() {
    let present: Arc<(Mutex<usize>, Condvar)> = Arc::default();
    let members: Vec<Arc<Member>> = (0..3)
        .map(|n| {
            let inner = MemoryDevice::new(format!("disk{n}"), SIZE);
            let device = Arc::new(Crowded { inner, present: present.clone(), wanted: 3 });
            member(n, Arc::new(DeadlineDevice::new(device, Duration::from_secs(60))), State::Complete)
        })
        .collect();
    let mirror = Mirror::new(VdevId(0), Guid(99), members[0].leaf.size(), members);
    mirror.write(0, b"small").unwrap();
    mirror.flush().unwrap();
    assert!(mirror.group().members().iter().all(|member| member.state() == State::Complete));
}

#[test]
fn a_failed_member_can_be_taken_offline_too() {
    let world = World::new(2);
    world.devices[0].vanish();
    world.mirror.write(0, b"without").unwrap();
    let recorded = world.mirror.news().unwrap();
    world.mirror.recorded(recorded);
    assert!(world.mirror.group().put_offline(Guid(0), true));
    let member = world.mirror.group().member(Guid(0)).unwrap();
    assert!(member.is_offline() && member.leaf.health() == Health::Offline);
    assert!(world.mirror.news().is_some(), "the labels have to say so");
}

#[test]
fn a_mirror_is_as_large_as_its_smallest_member_of_now() {
    let device = |n: u64, size: u64| member(n, Arc::new(MemoryDevice::new(format!("disk{n}"), size)), State::Complete);
    let (large, small) = (device(0, SIZE * 2), device(1, SIZE));
    let mirror = Mirror::new(VdevId(0), Guid(99), large.leaf.size(), vec![large.clone()]);
    mirror.group().set_members(vec![large.clone(), small.clone()]);
    assert_eq!(mirror.size(), small.leaf.size());
    assert!(mirror.write(small.leaf.size(), b"outside").is_err());
    assert!(mirror.group().members().iter().all(|member| member.state() == State::Complete), "nobody has failed");
    mirror.group().set_members(vec![large.clone()]);
    assert_eq!(mirror.size(), large.leaf.size());
}

/// A device that runs an action before it has read.
struct Prompting(MemoryDevice, Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Device for Prompting {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let first = self.1.lock().unwrap().take();
        first.into_iter().for_each(|act| act());
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
}

#[test]
fn a_read_is_repeated_if_a_member_leaves_meanwhile() {
    let prompting = Arc::new(Prompting(MemoryDevice::new("disk0", SIZE), Mutex::default()));
    let members = vec![
        member(0, prompting.clone(), State::Complete),
        member(1, Arc::new(MemoryDevice::new("disk1", SIZE)), State::Complete),
    ];
    let mirror = Arc::new(Mirror::new(VdevId(0), Guid(99), members[0].leaf.size(), members));
    mirror.write(0, b"old").unwrap();
    let act = {
        let (mirror, prompting) = (mirror.clone(), prompting.clone());
        move || {
            assert!(mirror.group().put_offline(Guid(0), true));
            mirror.write(0, b"new").unwrap();
            mirror.group().take_back(Guid(0), prompting, Behind::default());
        }
    };
    *prompting.1.lock().unwrap() = Some(Box::new(act));
    while prompting.1.lock().unwrap().is_some() {
        let mut read = [0; 3];
        mirror.read(0, &mut read).unwrap();
        assert!(prompting.1.lock().unwrap().is_some() || &read == b"new");
    }
}

#[test]
fn a_bulk_read_is_void_if_a_member_leaves_meanwhile() {
    for sources in [Sources::Any, Sources::All] {
        // Either member leaves and returns.
        for goes in [0, 1] {
            let world = World::new(2);
            world.mirror.write(0, b"old").unwrap();
            let begin = || world.mirror.clone().begin(0, 3, sources);
            assert_eq!(begin()(&|_| true).as_deref(), Some(&b"old"[..]));
            let begun = begin();
            let device: Arc<dyn Device> = world.devices[goes as usize].clone();
            assert!(world.mirror.group().put_offline(Guid(goes), true));
            world.mirror.write(0, b"new").unwrap();
            world.mirror.group().take_back(Guid(goes), device, Behind::default());
            assert_eq!(begun(&|_| true), None, "{sources:?}, and {goes} went");
        }
    }
}

#[test]
fn a_writer_flushes_a_member_with_much_unflushed() {
    const MANY: u64 = 32;
    let world = World::new(1);
    let suspension = Arc::new(Suspension::default());
    suspension.enable();
    world.mirror.join(&suspension);
    let flushes = || world.mirror.leaves().iter().map(|leaf| leaf.counters().snapshot().flushes).collect::<Vec<_>>();
    let bytes = Arc::new(vec![7; MIB as usize]);
    let write = |n: u64| world.mirror.write_shared(n * MIB, bytes.clone()).unwrap();
    (0..MANY).for_each(write);
    assert_eq!(flushes(), [0], "that much may be kept");
    write(MANY);
    assert_eq!(flushes(), [1]);
    (0..MANY).for_each(write);
    assert_eq!(flushes(), [1], "what is durable is kept no longer");
    // The same holds for resilver writes, on the resilvered member alone.
    world.mirror.flush().unwrap();
    let fresh = Arc::new(MemoryDevice::new("fresh", SIZE));
    let joined = member(7, fresh, State::Resilvering);
    world.mirror.group().set_members(vec![world.mirror.group().members()[0].clone(), joined]);
    (0..=MANY).for_each(|n| world.mirror.resilver(n * MIB, &bytes).unwrap());
    assert_eq!(flushes(), [2, 1]);
}

#[test]
fn a_discard_is_passed_to_all_though_one_refuses() {
    struct Refusing(Arc<Mutex<u32>>, bool);
    impl Device for Refusing {
        fn name(&self) -> &str {
            "refusing"
        }

        fn size(&self) -> u64 {
            SIZE
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            *self.0.lock().unwrap() += 1;
            if self.1 { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
        }
    }
    let count = Arc::new(Mutex::new(0));
    let device = |n: u64| member(n, Arc::new(Refusing(count.clone(), n == 0)), State::Complete);
    let members: Vec<_> = (0..3).map(device).collect();
    let mirror = Mirror::new(VdevId(0), Guid(99), members[0].leaf.size(), members);
    assert!(mirror.clear(0, 4096, Clear::Discard).is_err());
    assert_eq!(*count.lock().unwrap(), 3);
}

#[test]
fn a_lost_resilver_write_is_replayed() {
    let world = World::new(1);
    let suspension = Arc::new(Suspension::default());
    suspension.enable();
    world.mirror.join(&suspension);
    let fresh = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("fresh", SIZE))));
    let joined = member(7, fresh.clone(), State::Resilvering);
    world.mirror.group().set_members(vec![world.mirror.group().members()[0].clone(), joined.clone()]);
    world.mirror.resilver(0, &Arc::new(b"copied".to_vec())).unwrap();
    world.mirror.repair(Guid(7), 100, &Arc::new(b"mended".to_vec())).unwrap();
    fresh.lose_cache();
    joined.leaf.take_back(fresh.clone()).unwrap();
    let held = |offset: u64| {
        let mut bytes = [0; 6];
        fresh.read_at(DATA_START + offset, &mut bytes).unwrap();
        bytes
    };
    assert_eq!((&held(0), &held(100)), (b"copied", b"mended"));
}

#[test]
fn nobody_sees_a_member_out_of_use_before_there_are_news() {
    for _ in 0..300 {
        let world = World::new(2);
        let seen = thread::scope(|scope| {
            let (mirror, member) = (&world.mirror, world.mirror.group().member(Guid(0)).unwrap());
            // Like a flush: skips members out of use, then asks for news.
            let flusher = scope.spawn(move || {
                while member.state() != State::Out {}
                mirror.news()
            });
            thread::yield_now();
            assert!(mirror.degrade(Guid(0), Health::Faulted));
            flusher.join().unwrap()
        });
        assert!(seen.is_some(), "a flush would have returned, and no label been told");
    }
}
