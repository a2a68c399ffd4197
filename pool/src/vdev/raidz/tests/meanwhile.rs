//! Members that leave during a read or write.

use std::{io, thread};

use parking_lot::Mutex;

use super::*;
use crate::vdev::Suspension;

#[test]
fn who_writes_while_one_too_many_fails_waits_and_loses_nothing() {
    let world = World::new(3, 1);
    let suspension = Arc::new(Suspension::default());
    suspension.enable();
    world.raidz.join(&suspension);
    world.devices[..2].iter().for_each(|device| device.inject(Fault::failing(Operation::Write)));
    let block = noise(11, 3 * world.row() as usize);
    thread::scope(|scope| {
        let writer = scope.spawn(|| world.raidz.write(0, &block).and_then(|()| world.raidz.flush()));
        while !suspension.is_suspended() {
            thread::yield_now();
        }
        world.devices.iter().for_each(|device| device.heal());
        world.raidz.labelled().iter().for_each(|leaf| leaf.take_back(leaf.device()).unwrap());
        suspension.resume();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(world.states(), [State::Out, State::Complete, State::Complete]);
    assert_eq!(world.examined(0, &block), (true, vec![]));
}

type Act = Box<dyn FnOnce() + Send>;

/// A device that runs an action before a read, after so many reads.
struct Prompting(Arc<FaultDevice>, Mutex<(u32, Option<Act>)>);

impl Device for Prompting {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let act = match &mut *self.1.lock() {
            (0, act) => act.take(),
            (passed, _) => {
                *passed -= 1;
                None
            }
        };
        act.into_iter().for_each(|act| act());
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
    // During the read of the data, or of all columns because the data did not pass.
    for is_doubted in [false, true] {
        let geometry = Geometry::new(3, 1, SECTOR, REGION).unwrap();
        let prompting = Arc::new(Prompting(device(0), Mutex::default()));
        let leaf = Arc::new(Leaf::new(Guid(0), prompting.clone()));
        let config = LeafConfig { guid: Guid(0), size: leaf.size(), path: "disk0".to_owned() };
        let first = Arc::new(Member::new(leaf, State::Complete, &MemberConfig::whole(config)));
        let (second, third) = (device(1), device(2));
        let members = vec![first, member(1, 1, &second, State::Complete), member(2, 2, &third, State::Complete)];
        let raidz = Arc::new(RaidZ::new(VdevId(0), Guid(99), Zones::whole(geometry), MIB, members));
        let (old, new) = (noise(1, 1024), noise(2, 1024));
        raidz.write(0, &old).unwrap();
        let act = {
            let (raidz, prompting, new) = (raidz.clone(), prompting.clone(), new.clone());
            move || {
                assert!(raidz.group.put_offline(Guid(0), true));
                raidz.write(0, &new).unwrap();
                raidz.group.take_back(Guid(0), prompting, Behind::default());
            }
        };
        if is_doubted {
            second.inject(Fault { times: 1, ..Fault::corrupting(DATA_START..DATA_START + 8) });
        }
        *prompting.1.lock() = (u32::from(is_doubted), Some(Box::new(act)));
        let mut read = vec![0; 1024];
        // Without a checksum every read passes.
        let found = raidz.read_checked(0, &mut read, &|read| !is_doubted || read == old || read == new).unwrap();
        assert!(read == new && found != Found::Bad && prompting.1.lock().1.is_none(), "{found:?}");
    }
}

#[test]
fn a_bulk_read_is_void_if_a_member_leaves_meanwhile() {
    // Read from the data columns, from all columns, and from all because a data column is missing.
    for (sources, is_away) in [(Sources::Any, false), (Sources::All, false), (Sources::Any, true)] {
        let world = World::new(4, 2);
        let [old, new] = [1, 2].map(|seed| noise(seed, 2 * world.row() as usize));
        world.raidz.write(0, &old).unwrap();
        let data: Vec<usize> = {
            let rows = world.raidz.rows_of(0, old.len() as u64).unwrap();
            let stretch = rows.stretches().next().unwrap();
            (0..2).map(|role| rows.shape.column(&stretch, role)).collect()
        };
        if is_away {
            assert!(world.raidz.degrade(Guid(data[0] as u64), Health::Faulted));
        }
        assert!(begun(&world.raidz, 0, &old, sources));
        let begun = world.raidz.clone().begin(0, old.len(), sources);
        let goes = data[1];
        let device: Arc<dyn Device> = world.devices[goes].clone();
        assert!(world.raidz.group.put_offline(Guid(goes as u64), true));
        world.raidz.write(0, &new).unwrap();
        world.raidz.group.take_back(Guid(goes as u64), device, Behind::default());
        assert!(begun(&|_| true).is_none(), "{sources:?}, {is_away}");
    }
}
