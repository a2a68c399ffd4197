//! The theme of a life of a pool of many devices: its spares and cache devices, and the job that moves chunks.
//!
//! Jobs started at random seldom do much: lives are short, pools are almost empty and evenly so, and there is nothing
//! to expand or pack. So a life begins with *ballast*, and early in the life a job with good reason is started. The
//! rest is as in all lives, with steps of the job in between.
//!
//! A spare is put in for a failing device. Later it becomes available again when the device is back, or the operator
//! keeps it in use. A cache device gets blocks read after the pool was opened.

use std::sync::Arc;

use dataset::{
    error::Error,
    fs::{Ino, ROOT},
    jobs::Job,
};
use pool::{
    admin::{ClassedVdev, SpareChange},
    device::{Effect, Fault, Operation},
    format::{
        label::usable_size,
        vdev_config::{VdevConfig, VdevTree},
    },
    space::{Regions, SAFE_STATES},
    vdev::{Group, Member, State},
};
use rustix::io::Errno;

use super::{Life, Promise, devices::Operated};
use crate::{
    layout::{Moves, SIZES},
    observe,
    world::{Outcome, POOL},
};

/// The length of a file of ballast, in bytes: one change of the tree, and a sixth of a region.
const LEN: usize = 180 << 10;
/// Of `OF` files that are meant to leave holes, `STAY` stay.
const OF: usize = 5;
const STAY: usize = 2;
/// The job is started before so many turns of the operator.
const LATEST: usize = 12;

/// The number of regions at the end of a vdev, in addition to those of the ballast.
const END: u64 = 6;

/// The most turns for jobs under way at the end of a life.
const ENDING: usize = 40;

/// The job that moves chunks, until it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    moves: Moves,
    /// The operator's turns before the start.
    after: usize,
    /// Whether the target vdev was added.
    is_added: bool,
}

impl Life {
    /// Gives a new pool its spares, cache devices and ballast.
    pub(super) fn furnish(&mut self) -> Outcome<()> {
        let Some(moves) = self.layout.moves else { return Ok(()) };
        self.pending = Some(Pending { moves, after: self.below(LATEST), is_added: false });
        self.as_step(Promise::Everything, |life| life.add_what_stands_beside())?;
        let files = match moves {
            Moves::Rebalance => 14,
            Moves::Expansion | Moves::Removal => 7,
            Moves::Defragment => 25,
            Moves::Shrink => 7,
        };
        let front = if moves == Moves::Shrink || self.one_in(2) { self.front(files) } else { Vec::new() };
        front.iter().for_each(|regions| self.world.engine().close(regions));
        for file in 0..files {
            self.write_ballast(file)?;
        }
        let place = if front.is_empty() { "" } else { " at the end of the vdevs" };
        self.commit_all(&format!("a commit of the ballast{place}"), 1)?;
        for regions in &front {
            assert!(self.world.engine().reopen(regions), "nothing changes places in a new pool");
        }
        if !front.is_empty() {
            *self.done.entry("ballast at the end").or_default() += 1;
        }
        if moves == Moves::Defragment {
            for file in (0..files).filter(|file| file % OF >= STAY) {
                self.remove_ballast(file)?;
            }
            self.as_step(Promise::Nothing, |life| {
                life.world.datasets.reap_files();
                life.expect("background work", life.world.datasets.background_step())?;
                Ok("the ballast's blocks are freed".into())
            })?;
            // Blocks of older states are in use.
            self.commit_all("commits until nobody goes back to the ballast", SAFE_STATES + 1)?;
        }
        self.most_files += files;
        Ok(())
    }

    /// All regions of each vdev but the last: in a RAID-Z, the last are those behind its smallest device, if these
    /// suffice. While the front regions are closed, they act as if full.
    fn front(&self, files: usize) -> Vec<Regions> {
        let label = self.world.pool.label();
        let front = |config: &VdevConfig| {
            // Each of the smallest records takes a row.
            let ballast = (files * LEN) as u64 * u64::from(config.tree.unit());
            let end = (END + ballast.div_ceil(label.region_size)) as u32;
            let regions = (label.size_of(config) / label.region_size) as u32;
            let first_zone = match &config.tree {
                VdevTree::RaidZ(raidz) => raidz.zones.first().map_or(regions, |zone| zone.regions),
                _ => regions,
            };
            Regions::Range(config.id, 0..first_zone.min(regions.saturating_sub(end)))
        };
        label.vdevs.iter().map(front).collect()
    }

    fn add_what_stands_beside(&mut self) -> Outcome<String> {
        let beside = self.layout.beside;
        // A spare smaller than all other devices would never be put in.
        let size = if self.one_in(4) { self.a_size() } else { SIZES[SIZES.len() - 1] };
        let spares: Vec<_> = (0..beside.spares).map(|_| self.new_device(size)).collect();
        if !spares.is_empty() {
            self.expect("add a spare", self.world.pool.add_spares(&spares))?;
        }
        let size = self.a_size();
        let caches: Vec<_> = (0..beside.caches).map(|_| self.new_device(size)).collect();
        if !caches.is_empty() {
            self.expect("add a cache device", self.world.pool.add_caches(&caches))?;
        }
        Ok(format!("the pool gets {beside:?}"))
    }

    /// Finishes the jobs, so that every life gets there, with states under way between the steps. In a pool with a
    /// spare a device fails once more: then the spare is kept, or released.
    pub(super) fn wind_up(&mut self) -> Outcome<()> {
        self.see_all_well()?;
        if self.layout.beside.spares > 0 {
            self.as_counted_step(Life::have_one_fail)?;
            self.see_to_the_end()?;
            if self.layout.has_spares_stay {
                self.as_counted_step(Life::have_a_spare_stay)?;
            }
            self.see_all_well()?;
        }
        Ok(())
    }

    fn see_all_well(&mut self) -> Outcome<()> {
        self.as_counted_step(Life::bring_all_back)?;
        self.see_to_the_end()
    }

    fn see_to_the_end(&mut self) -> Outcome<()> {
        let takes_long = |kind: &&'static str| !kind.ends_with("in use");
        for _ in 0..ENDING {
            self.as_counted_step(Life::tend)?;
            if !self.under_way().iter().any(takes_long) {
                break;
            }
        }
        Ok(())
    }

    fn as_counted_step(&mut self, act: impl FnOnce(&mut Life) -> Operated) -> Outcome<()> {
        self.as_step(Promise::Nothing, |life| match act(life)? {
            Some((kind, what)) => {
                *life.done.entry(kind).or_default() += 1;
                Ok(format!("{kind}: {what}"))
            }
            None => Ok("nothing to do with the devices".into()),
        })
    }

    fn commit_all(&mut self, what: &str, times: usize) -> Outcome<()> {
        self.as_step(Promise::Everything, |life| {
            for _ in 0..times {
                life.expect("commit", life.world.engine().commit_anyway())?;
            }
            Ok(what.into())
        })
    }

    fn write_ballast(&mut self, file: usize) -> Outcome<()> {
        let (place, ino) = self.create_first(name_of(file))?;
        self.as_step(Promise::Nothing, |life| life.fill_file(&place, ino, 0, LEN))
    }

    fn remove_ballast(&mut self, file: usize) -> Outcome<()> {
        let place = self.place_of(POOL);
        let ino: Ino = place.tree.get(ROOT).entries[&name_of(file)];
        self.as_step(Promise::Nothing, |life| {
            life.expect("unlink", place.fs.unlink(ROOT, &name_of(file)))?;
            life.leave(&place, ROOT, &name_of(file), ino)?;
            Ok(format!("remove {ino}, which was ballast"))
        })
    }

    /// Starts the job that moves chunks in this life, if it is time, the job has a reason, and nothing blocks it.
    pub(super) fn begin_moving(&mut self) -> Operated {
        let Some(pending) = &mut self.pending else { return Ok(None) };
        if pending.after > 0 {
            pending.after -= 1;
            return Ok(None);
        }
        let (moves, is_added) = (pending.moves, pending.is_added);
        let operation = match moves {
            Moves::Rebalance if !is_added => {
                let operation = self.add_a_peer()?;
                self.pending = Some(Pending { moves, after: 0, is_added: true });
                return Ok(Some(operation));
            }
            Moves::Rebalance => self.even_out()?,
            Moves::Expansion => self.add_a_column()?,
            Moves::Defragment => self.defragment()?,
            Moves::Removal => self.remove_a_vdev(true)?,
            Moves::Shrink => self.make_one_smaller()?,
        };
        if operation.is_some() {
            self.pending = None;
        }
        Ok(operation)
    }

    fn add_a_peer(&mut self) -> Outcome<(&'static str, String)> {
        self.operator.heal(false);
        let kind = self.layout.peer();
        let sizes: Vec<u64> = (0..kind.devices()).map(|_| self.a_size()).collect();
        let devices = sizes.into_iter().map(|size| self.new_device(size)).collect();
        let added = ClassedVdev { vdev: kind.of(devices), class: None };
        let pool = self.world.pool.clone();
        self.expect("pool add", pool.begin_add(vec![added]).and_then(|addition| addition.finish()))?;
        Ok(("add", format!("{kind}, to which chunks are to go")))
    }

    pub(super) fn even_out(&mut self) -> Operated {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        self.operator.heal(false);
        let begun = self.expect("rebalance", self.world.datasets.rebalance().start(None))?;
        Ok(begun.is_none().then(|| ("rebalance", String::new())))
    }

    pub(super) fn defragment(&mut self) -> Operated {
        if !self.is_nothing_moving() {
            return Ok(None);
        }
        self.operator.heal(false);
        let begun = self.expect("defragment", self.world.datasets.defragment().start(None))?;
        Ok(begun.is_none().then(|| ("defragment", String::new())))
    }

    /// Stops the job that moves chunks, except an expansion, which must finish.
    pub(super) fn give_up_moving(&mut self) -> Operated {
        let datasets = self.world.datasets.clone();
        // A removal that has moved everything can only finish.
        let has_moved_all = |stopped: &Result<(), Error>| {
            stopped.as_ref().is_err_and(|error| error.to_string() == "all data of the vdev has already been moved")
        };
        if datasets.resize().is_under_way() {
            return self.give_up_a_resize();
        }
        let (stopped, what) = match (
            datasets.removal().is_under_way(),
            datasets.rebalance().is_under_way(),
            datasets.defragment().is_under_way(),
        ) {
            (true, _, _) => (datasets.removal().stop(&self.world.pool), "a removal"),
            (_, true, _) => (datasets.rebalance().stop(&self.world.pool), "a rebalance"),
            (_, _, true) => (datasets.defragment().stop(&self.world.pool), "a defragmentation"),
            _ => return Ok(None),
        };
        if datasets.removal().is_under_way() && has_moved_all(&stopped) {
            return Ok(None);
        }
        self.expect("stop", stopped)?;
        Ok(Some(("stop", what.into())))
    }

    /// Stops a resize, if that is possible at the moment.
    fn give_up_a_resize(&mut self) -> Operated {
        self.operator.heal(false);
        let cannot = ["the last blocks are just being moved; try again", "the devices already end there"];
        match self.world.datasets.resize().stop(&self.world.pool) {
            Err(error) if cannot.contains(&error.to_string().as_str()) => Ok(None),
            stopped => self.expect("stop a resize", stopped).map(|()| Some(("stop", "a resize".into()))),
        }
    }

    /// Keeps a complete spare, or makes a device fail; if neither is possible, continues the jobs under way.
    pub(super) fn see_to_a_spare(&mut self) -> Operated {
        let stays = if self.one_in(3) { self.have_a_spare_stay()? } else { None };
        if stays.is_some() {
            return Ok(stays);
        }
        match self.have_one_fail()? {
            None => self.tend(),
            failed => Ok(failed),
        }
    }

    /// Makes a device fail that its vdev does not need, if a suitable spare is available.
    fn have_one_fail(&mut self) -> Operated {
        let spares = self.world.pool.spares();
        let largest = spares.iter().filter(|spare| spare.used_in.is_none()).map(|spare| spare.leaf.size()).max();
        let others_are_enough = |group: &Group, member: &Member| {
            let is_other =
                |other: &&Arc<Member>| other.leaf.guid() != member.leaf.guid() && other.state() == State::Complete;
            let others: Vec<_> = group.members().iter().filter(is_other).map(|other| other.leaf.guid()).collect();
            member.state() == State::Complete && member.replaces().is_none() && group.are_enough(&others)
        };
        let mut found = if largest.is_some() { self.members_where(others_are_enough) } else { Vec::new() };
        found.retain(|(vdev, member)| {
            usable_size(self.least_in_place_of(vdev, member.leaf.guid())) <= largest.unwrap_or(0)
        });
        let Some((_, member)) = self.pick(&found) else { return Ok(None) };
        // The redundancy that the choice relied on must hold until the device is out.
        self.operator.heal(false);
        let name = member.leaf.name().to_owned();
        let Some(device) = self.operator.device(&name) else { return Ok(None) };
        let effect = Effect::Fail(Errno::IO.raw_os_error());
        device.inject(Fault { on: Operation::Write, range: 0..u64::MAX, skip: 0, times: u64::MAX, effect });
        self.expect("commit", self.world.engine().commit_anyway())?;
        match member.state() {
            State::Out => Ok(Some(("fail", name))),
            state => Err(format!("{name} refuses all writes, and is {state:?} after a commit")),
        }
    }

    /// Keeps a complete spare for good, and detaches the replaced device.
    pub(super) fn have_a_spare_stay(&mut self) -> Operated {
        let label = self.world.pool.label();
        let is_spare_in_use = |_: &Group, member: &Member| {
            member.state() == State::Complete && member.replaces().is_some() && label.is_spare(member.leaf.guid())
        };
        let Some((vdev, spare)) = self.pick(&self.members_where(is_spare_in_use)) else { return Ok(None) };
        let failed = spare.replaces().and_then(|old| vdev.as_group()?.member(old)).expect("it stands in for a member");
        self.operator.heal(false);
        self.expect("detach", self.world.pool.detach(failed.leaf.name()))?;
        Ok(Some(("spare stays", format!("{} for {}", spare.leaf.name(), failed.leaf.name()))))
    }

    /// Puts spares in and releases spares, and counts the changes.
    pub(super) fn see_to_spares(&mut self) -> Outcome<()> {
        for change in self.expect("spares", self.world.see_to_spares())? {
            let kind = match change {
                SpareChange::InUse { .. } => "spare in use",
                SpareChange::Available { .. } => "spare available",
                SpareChange::Faulted { .. } => "faulted for a spare",
            };
            *self.done.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// Reads everything, so that cache devices are fed.
    pub(super) fn feed_caches(&mut self) -> Outcome<()> {
        if self.layout.beside.caches == 0 {
            return Ok(());
        }
        self.world.load_caches();
        observe::pool(&self.world, &self.world.list()?)?;
        self.world.feed_caches();
        *self.done.entry("cache fed").or_default() += self.world.caches_in_use() as u64;
        Ok(())
    }
}

fn name_of(file: usize) -> Vec<u8> {
    format!("ballast{file}").into_bytes()
}
