//! Lives of pools with parity: files are written, kept and removed while devices die, rot, come back and are replaced, never
//! more of them at a time than there is parity.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    device::{Device, FaultDevice, MemoryDevice},
    env::SeededEnv,
    format::label::DATA_START,
    units::MIB,
};

use super::world::{Files, World, name, noise, settings};
use crate::{
    admin::{Datasets, Expanding, Progress},
    fs::ROOT,
};

const SIZE: u64 = 96 * MIB;
const BUDGET: u64 = 256 << 10;

type Disk = Arc<FaultDevice>;

fn disk(number: usize) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(format!("disk{number}"), SIZE))))
}

/// A pool with parity, and what it should hold.
struct Life {
    pool: Pool,
    world: World,
    disks: Vec<Disk>,
    /// The devices that are away, by their places among the disks.
    away: Vec<usize>,
    parity: usize,
    made: usize,
    files: Files,
    snapshots: BTreeMap<String, Files>,
    random: u64,
    steps: usize,
}

impl Life {
    fn new(count: usize, parity: u8, seed: u64) -> Life {
        let disks: Vec<Disk> = (0..count).map(disk).collect();
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let vdev = NewVdev::RaidZ { parity, devices: devices.clone() };
        let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let world = World { devices, engine, datasets };
        world.create("tank/a").unwrap();
        let (files, snapshots) = (Files::new(), BTreeMap::new());
        let parity = usize::from(parity);
        Life {
            pool,
            world,
            disks,
            away: Vec::new(),
            parity,
            made: count,
            files,
            snapshots,
            random: seed * 2 + 1,
            steps: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    fn step(&mut self) {
        match self.below(16) {
            0..=5 => self.write(),
            6 => self.remove(),
            7 => self.snapshot(),
            8 => drop(self.world.engine.commit().unwrap()),
            9 | 10 => self.lose(),
            11 | 12 => self.take_back(),
            13 => self.replace(),
            14 => self.rot(),
            _ => self.reopen(),
        }
        self.steps += 1;
    }

    /// Where a finding was made: the seed is of the test's loop.
    fn told(&self) -> String {
        format!("after {} steps, {} files, without {:?}", self.steps, self.files.len(), self.away)
    }

    fn write(&mut self) {
        let (file, len, seed) = (format!("file{}", self.below(12)), self.below(400_000), self.random);
        let content = noise(seed, len);
        self.world.write("tank/a", &file, &content);
        if self.below(3) == 0 {
            let fs = self.world.fs("tank/a");
            fs.fsync(fs.lookup(ROOT, file.as_bytes()).unwrap().ino).unwrap();
        }
        self.files.insert(file, content);
    }

    fn remove(&mut self) {
        if let Some((file, _)) = self.files.pop_first() {
            self.world.remove("tank/a", &file);
        }
    }

    fn snapshot(&mut self) {
        if self.snapshots.len() == 3 {
            let (snapshot, _) = self.snapshots.pop_first().unwrap();
            self.world.destroy(&snapshot, false, false).unwrap();
        }
        self.made += 1;
        let snapshot = format!("tank/a@{:06}", self.made);
        self.world.snapshot(&snapshot).unwrap();
        self.snapshots.insert(snapshot, self.files.clone());
    }

    fn lose(&mut self) {
        let at = self.below(self.disks.len());
        if self.away.len() < self.parity && !self.away.contains(&at) {
            self.disks[at].vanish();
            self.away.push(at);
        }
    }

    fn take_back(&mut self) {
        let Some(at) = self.away.pop() else { return };
        self.disks[at].heal();
        let found: Arc<dyn Device> = self.disks[at].clone();
        // Whoever has not been missed yet is still in use.
        self.pool.put_online(self.disks[at].name(), &|_| Ok(found.clone())).unwrap();
        self.finish();
    }

    fn replace(&mut self) {
        let Some(at) = self.away.pop() else { return };
        self.made += 1;
        let new = disk(self.made);
        self.pool.attach(self.disks[at].name(), new.clone(), true).unwrap();
        self.disks[at] = new;
        self.finish();
    }

    /// As many devices as there is parity hold something else in places of their own.
    fn rot(&mut self) {
        if !self.away.is_empty() {
            return;
        }
        self.world.engine.commit().unwrap();
        let count = self.disks.len();
        let first = self.below(count);
        for at in (first..first + self.parity).map(|at| at % count) {
            let from = DATA_START + self.below((SIZE - 8 * MIB) as usize) as u64;
            self.disks[at].write_at(from, &noise(self.random, 4 << 20)).unwrap();
        }
        self.world.engine.cache().clear();
        self.verify();
        self.world.datasets.start_scrub().unwrap();
        while self.world.datasets.scrub_step(BUDGET).unwrap() == Progress::Worked {}
        assert_eq!(self.world.datasets.damage().unwrap().len(), 0, "everything was mended");
    }

    fn reopen(&mut self) {
        self.world.datasets.close_all().unwrap();
        let there = |(at, disk): (usize, &Disk)| (!self.away.contains(&at)).then(|| disk.clone() as Arc<dyn Device>);
        self.world.devices = self.disks.iter().enumerate().filter_map(there).collect();
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let env = Arc::new(SeededEnv::new(self.random));
        let pool = admin::open(self.world.devices.clone(), &options, env).unwrap();
        let datasets = Datasets::open(pool.engine().clone(), name("tank")).unwrap();
        (self.world.engine, self.world.datasets) = (pool.engine().clone(), datasets);
        self.pool = pool;
        self.finish();
    }

    /// Does what a service does in the background until there is nothing to do.
    fn finish(&self) {
        self.world.work();
        while self.world.datasets.resilver_step(BUDGET).unwrap() == Progress::Worked {}
        self.pool.finish_replacing().unwrap();
        assert!(self.world.engine.filling().is_none(), "everything could be copied");
    }

    fn verify(&self) {
        assert!(self.world.files("tank/a") == self.files, "{}", self.told());
        for (snapshot, files) in &self.snapshots {
            assert!(self.world.files(snapshot) == *files, "{snapshot}, {}", self.told());
        }
    }

    fn judge(&self) {
        // Whoever is away is missed by now: the check asks all that are in use.
        self.world.engine.commit_anyway().unwrap();
        self.world.engine.cache().clear();
        self.world.judge();
        self.verify();
    }
}

fn live(count: usize, parity: u8, seed: u64) {
    let mut life = Life::new(count, parity, seed);
    for step in 0..60 {
        life.step();
        if step % 6 == 5 {
            life.judge();
        }
    }
    while !life.away.is_empty() {
        life.take_back();
    }
    // Whichever are lost now.
    let first = life.below(life.disks.len());
    life.away = (first..first + life.parity).map(|at| at % life.disks.len()).collect();
    life.reopen();
    life.judge();
}

#[test]
fn whatever_befalls_the_devices_of_single_parity_files_are_what_was_written() {
    (0..3).for_each(|seed| live(3, 1, seed));
    (3..5).for_each(|seed| live(2, 1, seed));
}

#[test]
fn whatever_befalls_the_devices_of_double_parity_files_are_what_was_written() {
    (10..14).for_each(|seed| live(5, 2, seed));
}

#[test]
fn whatever_befalls_the_devices_of_triple_parity_files_are_what_was_written() {
    (20..22).for_each(|seed| live(7, 3, seed));
    live(4, 3, 22);
}

/// Has the rows of the first vdev become as wide as it is, as far as there is room.
fn expand(life: &Life) {
    let datasets = &life.world.datasets;
    for _ in 0..20_000 {
        let Some(widening) = life.pool.widening() else { return };
        life.world.work();
        match datasets.expansion_step(widening.vdev, &widening.narrow, BUDGET).unwrap() {
            Expanding::Went(Progress::Worked) => {}
            Expanding::Went(Progress::Idle) => match datasets.expansion_status().pause {
                Some(_) => return,
                None => drop(life.world.engine.commit_anyway().unwrap()),
            },
            Expanding::Widens(vdev, count) => {
                life.pool.widen(vdev, count).unwrap();
                datasets.expansion_done();
            }
        }
    }
    panic!("the expansion does not end: {:?}", datasets.expansion_status());
}

#[test]
fn a_raidz_that_is_more_than_half_full_gets_wide_to_its_end() {
    let mut life = Life::new(3, 1, 30);
    let totals = || life.world.engine.space_totals();
    let mut files = Files::new();
    while totals().allocated * 100 < totals().size * 60 {
        let (file, content) = (format!("full{:03}", files.len()), noise(files.len() as u64, 400_000));
        life.world.write("tank/a", &file, &content);
        life.world.engine.commit().unwrap();
        files.insert(file, content);
    }
    life.files = files;
    life.snapshot();
    let new = disk(3);
    life.disks.push(new.clone());
    life.world.devices.push(new.clone());
    life.pool.attach_column("raidz1-0", new).unwrap();
    life.world.engine.commit_anyway().unwrap();
    expand(&life);
    let (widening, status) = (life.pool.widening(), life.world.datasets.expansion_status());
    assert!(widening.is_none(), "{:?} are left, {status:?}", widening.map(|widening| widening.narrow));
    life.judge();
    // Whichever is lost, everything is there.
    for gone in 0..4 {
        life.away = vec![gone];
        life.reopen();
        life.judge();
        life.away.clear();
        life.reopen();
        life.judge();
    }
}

#[test]
fn one_that_is_expanded_while_another_one_is_waits_for_its_round() {
    let mut life = Life::new(3, 1, 31);
    let more = |life: &mut Life, count: usize| -> Vec<Arc<dyn Device>> {
        let new: Vec<Disk> = (0..count).map(|nth| disk(life.disks.len() + nth)).collect();
        life.disks.extend(new.iter().cloned());
        let new: Vec<Arc<dyn Device>> = new.into_iter().map(|disk| disk as Arc<dyn Device>).collect();
        life.world.devices.extend(new.iter().cloned());
        new
    };
    let devices = more(&mut life, 3);
    life.pool.begin_add(vec![NewVdev::RaidZ { parity: 1, devices }]).unwrap().finish().unwrap();
    for number in 0..60 {
        let (file, content) = (format!("file{number:03}"), noise(number, 400_000));
        life.world.write("tank/a", &file, &content);
        life.world.engine.commit().unwrap();
        life.files.insert(file, content);
    }
    let new = more(&mut life, 1).remove(0);
    life.pool.attach_column("raidz1-1", new).unwrap();
    while life.world.datasets.expansion_status().regions == 0 {
        let widening = life.pool.widening().unwrap();
        life.world.datasets.expansion_step(widening.vdev, &widening.narrow, BUDGET).unwrap();
    }
    let new = more(&mut life, 1).remove(0);
    life.pool.attach_column("raidz1-0", new).unwrap();
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion_status());
    life.judge();
    life.reopen();
    life.judge();
}
