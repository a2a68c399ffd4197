//! Lives of pools with parity: files are written, kept and removed while devices fail, rot, return and are replaced,
//! never more at a time than the parity covers.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    check::Code,
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation},
    env::SeededEnv,
    format::{label::DATA_START, pointer::BlockPointer},
    space::{Regions, Targets},
    units::MIB,
    vdev::raidz::geometry::Rows,
};
use rustix::io::Errno;

use super::world::{Files, World, name, noise, settings};
use crate::{
    admin::{Datasets, Progress},
    fs::ROOT,
    jobs::{Expanding, Pause},
};

const SIZE: u64 = 96 * MIB;
pub(super) const BUDGET: u64 = 256 << 10;

pub(super) type Disk = Arc<FaultDevice>;

fn disk(number: usize) -> Disk {
    disk_of(number, SIZE)
}

pub(super) fn disk_of(number: usize, size: u64) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(format!("disk{number}"), size))))
}

/// A pool with parity, and its expected files.
pub(crate) struct Life {
    pub(crate) pool: Pool,
    pub(crate) world: World,
    pub(super) disks: Vec<Disk>,
    /// The missing devices, by their index among the disks.
    pub(super) away: Vec<usize>,
    parity: usize,
    made: usize,
    pub(super) files: Files,
    snapshots: BTreeMap<String, Files>,
    random: u64,
    steps: usize,
}

impl Life {
    fn new(count: usize, parity: u8, seed: u64) -> Life {
        Life::of(&vec![SIZE; count], parity, seed)
    }

    /// A pool on disks of the given sizes.
    pub(super) fn of(sizes: &[u64], parity: u8, seed: u64) -> Life {
        let disks: Vec<Disk> = sizes.iter().enumerate().map(|(number, size)| disk_of(number, *size)).collect();
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let vdev = NewVdev::RaidZ { parity, devices: devices.clone() };
        let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let world = World { devices, engine, datasets };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(world.create(name).unwrap()));
        let (files, snapshots) = (Files::new(), BTreeMap::new());
        let parity = usize::from(parity);
        Life {
            pool,
            world,
            disks,
            away: Vec::new(),
            parity,
            made: sizes.len(),
            files,
            snapshots,
            random: seed * 2 + 1,
            steps: 0,
        }
    }

    /// Opens the pool on the given disks, with the expected files.
    pub(super) fn opened(disks: Vec<Disk>, parity: u8, files: Files, seed: u64) -> Life {
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        let world = World { devices, engine, datasets };
        let (away, made, parity) = (Vec::new(), disks.len(), usize::from(parity));
        let random = seed * 2 + 1;
        Life { pool, world, disks, away, parity, made, files, snapshots: BTreeMap::new(), random, steps: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    pub(super) fn step(&mut self) {
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

    /// The circumstances of a finding.
    fn summary(&self) -> String {
        format!("after {} steps, {} files, without {:?}", self.steps, self.files.len(), self.away)
    }

    pub(super) fn write(&mut self) {
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

    pub(super) fn take_back(&mut self) {
        let Some(at) = self.away.pop() else { return };
        self.disks[at].heal();
        let found: Arc<dyn Device> = self.disks[at].clone();
        // A device not missed yet is still in use.
        self.pool.put_online(self.disks[at].name(), &|_| Ok(found.clone())).unwrap();
        self.finish();
    }

    fn replace(&mut self) {
        let Some(at) = self.away.pop() else { return };
        self.made += 1;
        let new = disk_of(self.made, self.disks[at].size());
        self.pool.attach(self.disks[at].name(), new.clone(), true).unwrap();
        self.disks[at] = new;
        self.finish();
    }

    /// Overwrites parts of as many devices as the parity covers, at different places of each.
    fn rot(&mut self) {
        if !self.away.is_empty() {
            return;
        }
        self.world.engine.commit().unwrap();
        let count = self.disks.len();
        let first = self.below(count);
        for at in (first..first + self.parity).map(|at| at % count) {
            let from = DATA_START + self.below((self.disks[at].size() - 8 * MIB) as usize) as u64;
            self.disks[at].write_at(from, &noise(self.random, 4 << 20)).unwrap();
        }
        self.world.engine.forget_read();
        self.verify();
        self.world.datasets.scrub().start().unwrap();
        while self.world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {}
        assert_eq!(self.world.datasets.damage().unwrap().len(), 0, "everything was repaired");
    }

    pub(super) fn reopen(&mut self) {
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

    /// Does all background work of a service.
    pub(super) fn finish(&self) {
        self.world.work();
        while self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
        self.pool.finish_replacing().unwrap();
        assert!(self.world.engine.resilvering().is_none(), "everything could be copied");
    }

    pub(super) fn verify(&self) {
        assert!(self.world.files("tank/a") == self.files, "{}", self.summary());
        for (snapshot, files) in &self.snapshots {
            assert!(self.world.files(snapshot) == *files, "{snapshot}, {}", self.summary());
        }
    }

    /// Fails if the check finds anything; devices may have errors.
    pub(super) fn judge(&self) {
        // Missing devices are noticed by now: the check reads all devices in use.
        self.world.engine.commit_anyway().unwrap();
        self.world.engine.forget_read();
        self.world.judge_damaged();
        self.verify();
    }
}

fn live(count: usize, parity: u8, seed: u64) {
    lived(Life::new(count, parity, seed));
}

pub(super) fn lived(mut life: Life) {
    for step in 0..60 {
        life.step();
        if step % 6 == 5 {
            life.judge();
        }
    }
    while !life.away.is_empty() {
        life.take_back();
    }
    // Any devices may be lost now.
    let first = life.below(life.disks.len());
    life.away = (first..first + life.parity).map(|at| at % life.disks.len()).collect();
    life.reopen();
    life.judge();
}

#[test]
fn single_parity_keeps_files_whatever_befalls_its_devices() {
    (0..3).for_each(|seed| live(3, 1, seed));
    (3..5).for_each(|seed| live(2, 1, seed));
}

#[test]
fn double_parity_keeps_files_whatever_befalls_its_devices() {
    (10..14).for_each(|seed| live(5, 2, seed));
}

#[test]
fn triple_parity_keeps_files_whatever_befalls_its_devices() {
    (20..22).for_each(|seed| live(7, 3, seed));
    live(4, 3, 22);
}

/// The rows of a block.
pub(super) fn rows(world: &World, block: &BlockPointer) -> Rows {
    let storage = world.engine.storage();
    let (vdev, offset) = storage.space.resolve(block.addresses[0], block.stored).unwrap();
    let vdev = storage.vdevs.get(vdev).unwrap();
    vdev.as_raidz().unwrap().zones().rows(offset, u64::from(block.stored)).unwrap()
}

/// The content of each file, or the error.
fn each_file(world: &World, files: &Files) -> BTreeMap<String, Result<Vec<u8>, Errno>> {
    let fs = world.fs("tank/a");
    let read = |file: &String| {
        let mut content = Vec::new();
        let inode = fs.lookup(ROOT, file.as_bytes())?;
        while content.len() < inode.size as usize {
            fs.read(inode.ino, content.len() as u64, inode.size as usize - content.len(), &mut content)?;
        }
        Ok(content)
    };
    files.keys().map(|file| (file.clone(), read(file))).collect()
}

#[test]
fn rot_beyond_parity_loses_and_names_one_file_only() {
    for (count, parity) in [(3, 1), (5, 2), (6, 3)] {
        let mut life = Life::new(count, parity, 40 + u64::from(parity));
        for number in 0..8 {
            let (file, content) = (format!("file{number}"), noise(number + 1, 300_000));
            life.world.write("tank/a", &file, &content);
            life.files.insert(file, content);
        }
        life.world.engine.commit().unwrap();
        let rows = rows(&life.world, &life.world.extent("tank/a", "file3"));
        let rotten = vec![0x5a; (rows.count * rows.shape.sector()) as usize];
        for (at, disk) in life.disks.iter().enumerate().take(life.parity + 1) {
            assert!(each_file(&life.world, &life.files)["file3"].as_ref() == Ok(&life.files["file3"]), "{at} devices");
            disk.write_at(DATA_START + rows.place(), &rotten).unwrap();
            life.world.engine.forget_read();
        }
        let judge = |life: &Life| {
            for (file, read) in each_file(&life.world, &life.files) {
                match &*file {
                    "file3" => assert!(read == Err(Errno::IO), "{count}, {parity}: it is made up"),
                    _ => assert!(read.as_ref() == Ok(&life.files[&file]), "{count}, {parity}: {file}"),
                }
            }
        };
        judge(&life);
        // Readers and scrubs report the damage, and make nothing worse.
        while life.world.datasets.repair_step().unwrap() == Progress::Worked {}
        assert_eq!(life.world.datasets.damaged_names().unwrap(), ["tank/a:/file3"]);
        life.world.datasets.scrub().start().unwrap();
        while life.world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {}
        let status = life.world.datasets.scrub().status().unwrap().unwrap();
        assert_eq!((status.errors, status.repaired), (1, 0), "{status:?}");
        assert_eq!(life.world.datasets.damaged_names().unwrap(), ["tank/a:/file3"]);
        life.world.engine.forget_read();
        let found = life.world.all_findings();
        assert!(!found.is_empty() && found.iter().all(|one| one.code == Code::DamagedCopy), "{found:?}");
        life.reopen();
        judge(&life);
    }
}

/// Expands the rows of the first vdev as far as space permits.
pub(super) fn expand(life: &Life) {
    let datasets = &life.world.datasets;
    for _ in 0..20_000 {
        let Some(widening) = life.pool.widening() else { return };
        life.world.work();
        match datasets.expansion().advance(widening.vdev, &widening.narrow, BUDGET).unwrap() {
            Expanding::Went(Progress::Worked) => {}
            Expanding::Went(Progress::Idle) => match datasets.expansion().status().pause {
                Some(_) => return,
                None => drop(life.world.engine.commit_anyway().unwrap()),
            },
            Expanding::Widens(vdev, count) => {
                life.pool.widen(vdev, count).unwrap();
                datasets.expansion().has_widened();
            }
        }
    }
    panic!("the expansion does not end: {:?}", datasets.expansion().status());
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
    let (widening, status) = (life.pool.widening(), life.world.datasets.expansion().status());
    assert!(widening.is_none(), "{:?} are left, {status:?}", widening.map(|widening| widening.narrow));
    life.judge();
    // Everything is there without any one device.
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
fn a_second_expansion_waits_for_its_round() {
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
    while life.world.datasets.expansion().status().regions == 0 {
        let widening = life.pool.widening().unwrap();
        life.world.datasets.expansion().advance(widening.vdev, &widening.narrow, BUDGET).unwrap();
    }
    let new = more(&mut life, 1).remove(0);
    life.pool.attach_column("raidz1-0", new).unwrap();
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    life.judge();
    life.reopen();
    life.judge();
}

/// A RAID-Z with the given number of files and a new column, about to be expanded.
fn widening(files: u64, seed: u64) -> Life {
    let mut life = Life::new(3, 1, seed);
    for number in 0..files {
        let (file, content) = (format!("file{number}"), noise(number + 1, 400_000));
        life.world.write("tank/a", &file, &content);
        life.files.insert(file, content);
    }
    life.world.engine.commit().unwrap();
    add_column(&mut life);
    life
}

fn add_column(life: &mut Life) {
    let new = disk(3);
    life.disks.push(new.clone());
    life.world.devices.push(new.clone());
    life.pool.attach_column("raidz1-0", new).unwrap();
    life.world.engine.commit_anyway().unwrap();
}

/// Makes a step of the expansion; returns the result and the reason for a pause.
fn step(life: &Life) -> (Expanding, Option<Pause>) {
    let widening = life.pool.widening().unwrap();
    let datasets = &life.world.datasets;
    let expanding = datasets.expansion().advance(widening.vdev, &widening.narrow, BUDGET).unwrap();
    (expanding, datasets.expansion().status().pause)
}

const IDLE: Expanding = Expanding::Went(Progress::Idle);
const WORKED: Expanding = Expanding::Went(Progress::Worked);

/// Finishes the expansion, and checks that everything is there without any one device.
fn finish_expansion(life: &mut Life) {
    expand(life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    life.judge();
    for gone in 0..life.disks.len() {
        life.away = vec![gone];
        life.reopen();
        life.verify();
        life.away.clear();
        life.reopen();
    }
}

#[test]
fn an_expansion_waits_for_incomplete_devices_around_each_round() {
    let away = |life: &mut Life| {
        life.disks[1].vanish();
        life.world.engine.commit_anyway().unwrap();
        life.away.push(1);
    };
    let mut life = widening(12, 50);
    away(&mut life);
    assert_eq!(step(&life), (IDLE, Some(Pause::Degraded)));
    assert_eq!(life.world.datasets.expansion().status().regions, 0);
    life.take_back();
    assert_eq!(step(&life), (WORKED, None));
    assert!(life.world.datasets.expansion().status().regions > 0);
    away(&mut life);
    // Everything is copied, but no row is widened.
    let paused = (0..1000).map(|_| step(&life)).find(|(expanding, _)| *expanding != WORKED).unwrap();
    assert_eq!(paused, (IDLE, Some(Pause::Degraded)));
    assert_eq!(step(&life), paused);
    life.take_back();
    let (expanding, pause) = step(&life);
    assert!(matches!(expanding, Expanding::Widens(..)) && pause.is_none(), "{expanding:?}");
    finish_expansion(&mut life);
}

#[test]
fn an_unreadable_block_defers_an_expansion_to_the_next_import() {
    let mut life = widening(12, 51);
    assert_eq!(step(&life), (WORKED, None));
    life.world.engine.forget_read();
    let rows = rows(&life.world, &life.world.extent("tank/a", "file3"));
    let at = DATA_START + rows.place();
    life.world.engine.forget_read();
    for disk in &life.disks[..2] {
        disk.inject(Fault { range: at..at + 1, ..Fault::failing(Operation::Read) });
    }
    let paused = (0..1000).map(|_| step(&life)).find(|(_, pause)| pause.is_some()).unwrap();
    assert_eq!(paused, (WORKED, Some(Pause::Unreadable)));
    assert_eq!(life.world.datasets.expansion().status().regions, 0);
    life.disks.iter().for_each(|disk| disk.heal());
    life.world.engine.commit_anyway().unwrap();
    assert_eq!(step(&life), (IDLE, Some(Pause::Unreadable)), "not before the pool is opened again");
    life.judge();
    life.reopen();
    finish_expansion(&mut life);
}

#[test]
fn an_expansion_out_of_room_goes_on_with_a_smaller_round() {
    let life = widening(120, 52);
    assert_eq!(step(&life), (WORKED, None));
    let regions = || life.world.datasets.expansion().status().regions;
    let first = regions();
    // A round has begun, and then its target space is taken.
    life.world.fill("tank/b", 1 << 20);
    assert_eq!(step(&life), (WORKED, None), "it is not known yet whether it waits");
    assert_eq!(regions(), 0);
    assert_eq!(step(&life), (WORKED, None));
    assert!((1..first).contains(&regions()), "{} after {first}", regions());
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    life.world.judge();
    life.judge();
}

#[test]
fn an_expansion_of_a_pool_without_room_waits_for_some() {
    let life = widening(40, 53);
    let taken = life.world.fill("tank/b", 1 << 20);
    life.world.engine.commit().unwrap();
    assert_eq!(step(&life), (IDLE, Some(Pause::NoRoom)));
    assert_eq!(step(&life), (IDLE, Some(Pause::NoRoom)), "nothing has changed");
    assert_eq!(life.world.datasets.expansion().status().regions, 0);
    life.judge();
    (0..taken).for_each(|number| life.world.remove("tank/b", &number.to_string()));
    life.world.work();
    life.world.settle();
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    life.judge();
}

/// A pool being expanded in which no narrow region has a target of its width any more.
pub(crate) fn before_packing() -> Life {
    let mut life = Life::new(3, 1, 54);
    let mut files = Files::new();
    let totals = || life.world.engine.space_totals();
    while totals().allocated * 100 < totals().size * 80 {
        let (file, content) = (format!("file{}", files.len()), noise(files.len() as u64, 400_000));
        life.world.write("tank/a", &file, &content);
        life.world.engine.commit().unwrap();
        files.insert(file, content);
    }
    life.files = files;
    add_column(&mut life);
    for _ in 0..5000 {
        let widening = life.pool.widening().unwrap();
        let (datasets, first) = (&life.world.datasets, widening.narrow.first_region);
        let next = Regions::Range(widening.vdev, first..first + 1);
        let plan = life.world.engine.storage().space.moving_plan(&next, &Targets::Anywhere);
        if datasets.expansion().status().regions == 0 && !plan.fits_whole() {
            return life;
        }
        match datasets.expansion().advance(widening.vdev, &widening.narrow, 16 * BUDGET).unwrap() {
            Expanding::Widens(vdev, count) => {
                life.pool.widen(vdev, count).unwrap();
                datasets.expansion().has_widened();
            }
            WORKED => {}
            Expanding::Went(_) => drop(life.world.engine.commit_anyway().unwrap()),
        }
    }
    panic!("all find one: {:?}", life.world.datasets.expansion().status());
}
