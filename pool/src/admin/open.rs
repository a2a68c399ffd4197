//! Opening a pool: from labels to the newest committed state.

use std::{mem, sync::Arc};

use super::{
    assemble::{Assembly, ByGuid, assemble},
    caches::open_caches,
    outdated::outdated_logs,
    pool::Pool,
    renumber::was_renumbered,
    shapes::shapes_of,
    spares::available_spares,
    unacknowledged::{Unacknowledged, forget},
    writing::{settle_labels, write_labels_apart},
};
use crate::{
    block::storage::{Storage, Vdevs},
    device::Device,
    env::Env,
    error::{Error, Result},
    format::{
        codec::Reader,
        intent::Entry,
        key::Key,
        label::{Label, PoolState},
        uberblock::{Epoch, Uberblock, slot},
        vdev_config::{Mark, VdevConfig},
    },
    log,
    space::{Regions, Space, SpaceRoot, VdevShape},
    txg::{Ancestry, Engine, Opening, Plain, Settings, state_of},
    units::{Guid, Txg, VdevId},
    vdev::{Health, Leaf, Vdev, labels, uberblocks},
};

/// Options for opening a pool.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Write nothing at all.
    pub read_only: bool,
    /// Open the pool even if its labels say that another host has it open, or that it was destroyed. Not needed for a
    /// read-only open.
    pub force: bool,
    /// Open the pool without its missing log devices: synchronous writes since the last commit are lost. A new name for
    /// the pool.
    pub without_log: bool,
    /// Give it another name.
    pub rename: Option<String>,
    /// This machine: a host id, and its name.
    pub host: (u64, String),
    /// Limits of the cache, of dirty data and of worker threads.
    pub settings: Settings,
    /// The state to show, from the newest state's line, if not the newest: only with `read_only`. To continue from an
    /// older state, see [`rewind`](super::rewind).
    pub state: Option<Txg>,
}

/// Opens the pool that consists of exactly these devices, in any order. All must be present, except members that a
/// mirror or RAID-Z can spare.
///
/// Nothing is written before the roots of the state were found readable. Then devices that lack only the newest
/// uberblock, or have it only at their end, get it, and labels mark the pool as in use by this host.
///
/// | power fails | import finds |
/// | --- | --- |
/// | while devices get the newest uberblock | the same state, and more devices that have it |
/// | while labels are written | labels of two ages, of which each names the same devices and the same state |
pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions, env: Arc<dyn Env>) -> Result<Pool> {
    let Unread { engine, label, newest, unacknowledged } = open_unread(devices, options, env)?;
    check_catalogue(&engine).map_err(|error| Error::Unreadable {
        pool: label.pool_name.clone(),
        txg: engine.committed(),
        problem: error.to_string(),
    })?;
    if !options.read_only {
        forget(&engine.storage().vdevs.all(), &unacknowledged)?;
        catch_up(&engine, &newest)?;
        let label = settle_labels(&engine, &mut label.txg.clone(), label, &[])?;
        write_labels_apart(&engine, &label);
        let pool = Pool::new(engine, label);
        if pool.engine().has_lost_log() {
            // From here on the log lies elsewhere, and the missing one need not be confirmed again.
            pool.engine().leave_lost_log()?;
            pool.engine().commit_anyway()?;
        }
        pool.engine().settle_log();
        return Ok(pool);
    }
    Ok(Pool::new(engine, label))
}

/// Gives the newest uberblock to devices that hold everything it refers to and do not surely have it.
///
/// A device that lacks one uberblock is complete, a device that lacks two is not: see [`super::assemble`]. So all
/// devices must have this uberblock before any has the next. Otherwise a power failure while the next is written could
/// leave some devices with the next and some lacking two, neither group sufficient. Power may also have failed when
/// only back labels had the uberblock; they would not be found on a lengthened device, yet the open pool builds on it.
fn catch_up(engine: &Engine, newest: &Uberblock) -> Result<()> {
    let vdevs = &engine.storage().vdevs;
    let mark = Mark { epoch: newest.epoch, txg: newest.txg };
    let mut given = Vec::new();
    for vdev in &vdevs.all() {
        let lacks = |leaf: &Arc<Leaf>| !uberblocks::is_in_front(&*leaf.device(), newest);
        for leaf in vdev.committing().into_iter().filter(lacks) {
            leaf.set_mark(mark);
            let written = uberblocks::write_uberblock(&[&*leaf.device()], newest).remove(0);
            leaf.count_uberblock(written.as_ref().err());
            match written {
                Ok(()) => given.push(leaf),
                Err(ref error) if vdev.degrade(leaf.guid(), Health::of(error)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    if !given.is_empty() {
        vdevs.flush()?;
        let state = Arc::new(newest.clone());
        for leaf in given {
            leaf.note_uberblock(newest.txg);
            leaf.keep_state(&state);
        }
    }
    Ok(())
}

/// A pool of which only the space tables were read.
pub(crate) struct Unread {
    pub(crate) engine: Arc<Engine>,
    /// The label to write.
    label: Label,
    /// The state to open.
    newest: Uberblock,
    unacknowledged: Vec<Unacknowledged>,
}

/// The first half of [`open`]: writes nothing.
pub(crate) fn open_unread(devices: Vec<Arc<dyn Device>>, options: &OpenOptions, env: Arc<dyn Env>) -> Result<Unread> {
    let (mut label, by_guid) = gather(&devices)?;
    label.check_supported(!options.read_only)?;
    check_state(&label, options)?;
    let Assembly { vdevs, line, unacknowledged } = assemble(&label, &by_guid)?;
    let outdated = outdated_logs(&label, &vdevs, &line, options.read_only)?;
    let newest = match options.state {
        Some(txg) if options.read_only => chosen(&label, &line, txg)?,
        Some(_) => return Err(Error::Request("an older state can only be opened read-only".into())),
        None => &line[0],
    };
    let found = newest.clone();
    let storage = open_storage(&label, Vdevs::new(vdevs), newest)?;
    let has_grown = !options.read_only && complete_vdevs(&storage, &label);
    available_spares(&label, |guid| by_guid.get(&guid).cloned())
        .into_iter()
        .for_each(|leaf| storage.vdevs.add_spare(leaf));
    // A read-only pool shows the committed state: replaying the log would be a change.
    let log = match lost_log(&storage, newest, &outdated) {
        _ if options.read_only => Vec::new(),
        None => log::read(&storage, newest)?,
        Some(_) if options.without_log => Vec::new(),
        Some((paths, problem)) => return Err(Error::LostLog { pool: label.pool_name.clone(), paths, problem }),
    };
    let first = first_txg(&label, &line[0], newest, &log)?;
    let epoch = if options.read_only { newest.epoch } else { Epoch(env.random()) };
    let opening = Opening {
        guid: label.pool,
        storage,
        ancestry: Ancestry { epoch, parent: newest.epoch, forked_at: newest.txg },
        uberblock: Some(newest.clone()),
        first,
        read_only: options.read_only,
        log,
    };
    let engine = Engine::open(opening, env, options.settings);
    open_caches(&engine, &label, &by_guid);
    if has_grown {
        engine.with_open_txg(|_| ());
    }
    if !options.read_only {
        label.state = PoolState::Active;
        label.txg = first;
        label.epoch = epoch;
        (label.host_id, label.host_name) = options.host.clone();
        // An end that is the physical end needs no record: if the device is lengthened later, the new space is meant to
        // be used.
        let ends_there =
            |guid: &Guid, end: u64| by_guid.get(guid).is_some_and(|d| d.measure().is_ok_and(|there| there == end));
        label.sections.ends.retain(|guid, end| !ends_there(guid, *end));
        if let Some(name) = &options.rename {
            label.pool_name.clone_from(name);
        }
    }
    Ok(Unread { engine, label, newest: found, unacknowledged })
}

/// If the intent log lies on a lost or outdated vdev: the paths of its devices, and their problem.
fn lost_log(storage: &Storage, uberblock: &Uberblock, outdated: &[Arc<dyn Vdev>]) -> Option<(String, String)> {
    let area = uberblock.log?.area;
    let vdev = storage.vdevs.get(storage.space.resolve(area, storage.sector).ok()?.0).ok()?;
    let leaves = vdev.leaves();
    let troubles: Vec<String> = leaves.iter().filter_map(|leaf| leaf.trouble()).collect();
    let is_one = leaves.len() == 1;
    let problem = match (vdev.is_lost(), &troubles[..]) {
        (true, []) if is_one => "is missing".to_owned(),
        (true, []) => "are missing".to_owned(),
        (true, _) => format!("cannot be used: {}", troubles.join("; ")),
        (false, _) if outdated.iter().all(|outdated| outdated.id() != vdev.id()) => return None,
        (false, _) if is_one => "is an outdated copy: the pool has been used without it since".to_owned(),
        (false, _) => "are outdated copies: the pool has been used without them since".to_owned(),
    };
    Some((leaves.iter().map(|leaf| leaf.name().to_owned()).collect::<Vec<_>>().join(" and "), problem))
}

/// One state of a pool, as named by its uberblock.
pub(crate) struct State {
    /// The pool's newest label.
    pub(crate) label: Label,
    /// The uberblock of the state.
    pub(crate) uberblock: Uberblock,
    vdevs: Vec<Arc<dyn Vdev>>,
}

impl State {
    /// The vdev of this position.
    pub(crate) fn vdev(&self, id: VdevId) -> Option<&dyn Vdev> {
        self.vdevs.iter().find(|vdev| vdev.id() == id).map(|vdev| &**vdev)
    }
}

/// The newest state, or the state of `txg`; reads no further than the uberblock.
pub(crate) fn read_state(devices: &[Arc<dyn Device>], txg: Option<Txg>) -> Result<State> {
    let (label, by_guid) = gather(devices)?;
    label.check_supported(false)?;
    let Assembly { vdevs, line, .. } = assemble(&label, &by_guid)?;
    let uberblock = match txg {
        Some(txg) => chosen(&label, &line, txg)?.clone(),
        None => line[0].clone(),
    };
    Ok(State { vdevs, label, uberblock })
}

/// Why the devices of an exported pool cannot be assembled, if so: for example a split pool. Reads only labels and
/// uberblocks, and writes nothing.
pub fn obstacle(devices: &[Arc<dyn Device>]) -> Option<Error> {
    read_state(devices, None).err()
}

/// The uberblocks of the newest state's line, newest first: at least one.
pub(super) fn line(label: &Label, devices: &[Arc<dyn Device>]) -> Result<Vec<Uberblock>> {
    let readable: Vec<&dyn Device> = devices.iter().map(|device| &**device).collect();
    let line = uberblocks::find_uberblocks(&readable, label.pool)?.candidates;
    match line.is_empty() {
        true => Err(Error::damaged(format!("pool {}", label.pool_name), "no device holds a valid uberblock")),
        false => Ok(line),
    }
}

/// The state of `txg`, if it is on the line.
pub(super) fn chosen<'a>(label: &Label, line: &'a [Uberblock], txg: Txg) -> Result<&'a Uberblock> {
    line.iter().find(|uberblock| uberblock.txg == txg).ok_or_else(|| {
        let oldest = line.last().map_or(Txg::ZERO, |uberblock| uberblock.txg);
        let kept = format!("the oldest txg kept is {oldest}, the newest {}", line[0].txg);
        Error::Request(format!("pool {} has no state of transaction group {txg}: {kept}", label.pool_name))
    })
}

/// The txg to begin with: above all ever used. Its slot is neither the newest uberblock's nor that of `base`, the one
/// continued from, because a power failure while the first commit overwrites the slot would lose it.
pub(super) fn first_txg(label: &Label, newest: &Uberblock, base: &Uberblock, log: &[Entry]) -> Result<Txg> {
    let logged = log.iter().map(|entry| entry.txg).max();
    let last = newest.txg.max(label.txg).max(logged.unwrap_or_default());
    if last.0 >= Txg::LIMIT.0 / 2 {
        return Err(Error::damaged(
            format!("pool {}", label.pool_name),
            format!("it counts {last} transaction groups"),
        ));
    }
    let mut next = last.next();
    while [newest, base].iter().any(|spared| slot(next) == slot(spared.txg)) {
        next = next.next();
    }
    assert!(next > last, "ADMIN-3: the pool goes on at {next}, and has used {last}");
    Ok(next)
}

/// Reads the catalogue's root.
fn check_catalogue(engine: &Engine) -> Result<()> {
    Ok(engine.catalogue().read(|view| -> Result<_, Plain> { Ok(view.get(Key::MIN)?.is_some()) }).map(drop)?)
}

fn unreadable(label: &Label, uberblock: &Uberblock, problem: &impl ToString) -> Error {
    Error::Unreadable { pool: label.pool_name.clone(), txg: uberblock.txg, problem: problem.to_string() }
}

/// Gives chunks to regions that the labels name and no state knows yet; returns whether there are any. Entries of the
/// intent log may lie there: their txg would have added the chunks to the table.
fn complete_vdevs(storage: &Storage, label: &Label) -> bool {
    let mut has_grown = false;
    // The real size of a lost vdev is unknown.
    let is_there = |config: &&VdevConfig| storage.vdevs.get(config.id).is_ok_and(|vdev| !vdev.is_lost());
    for config in label.vdevs.iter().filter(is_there) {
        let shapes = shapes_of(label, config);
        let regions: u64 = shapes.iter().map(|shape| shape.size / label.region_size).sum();
        if regions > storage.space.chunks_of(config.id) as u64 {
            shapes.iter().for_each(|&shape| storage.space.add_vdev(shape));
            has_grown = true;
        }
    }
    has_grown
}

/// The newest label, and the devices by GUID. All must be of one pool; power may have failed while its GUID was
/// changed. Of devices with equal GUIDs the newest is kept.
pub(super) fn gather(devices: &[Arc<dyn Device>]) -> Result<(Label, ByGuid)> {
    let mut found: Vec<(Label, &Arc<dyn Device>)> = Vec::with_capacity(devices.len());
    for device in devices {
        let label = labels::read_label(&**device)?
            .ok_or_else(|| Error::Request(format!("{} holds no Cenote pool", device.name())))?;
        found.push((label, device));
    }
    let newer = |newest: Label, (label, _): &(Label, _)| if label.supersedes(&newest) { label.clone() } else { newest };
    let (first, others) = found.split_first().ok_or_else(|| Error::Request("a pool has at least one device".into()))?;
    let newest = others.iter().fold(first.0.clone(), &newer);
    let is_of_it = |(label, device): &&(Label, &Arc<dyn Device>)| {
        label.pool == newest.pool || was_renumbered(&newest, label, &***device)
    };
    if !found.iter().all(|one| is_of_it(&one)) {
        let is_other = |(label, _): &&(Label, _)| label.pool != first.0.pool;
        let (label, device) = others.iter().find(is_other).expect("not all are of one pool");
        let problem = format!("{} belongs to another pool, {}", device.name(), label.pool_name);
        return Err(Error::Request(problem));
    }
    let found = without_copies(found, newest.pool);
    let newest = found.iter().fold(found[0].0.clone(), newer);
    found.iter().for_each(|(label, device)| labels::settle_end(&***device, &newest, label.device));
    Ok((newest, found.into_iter().map(|(label, device)| (label.device, device.clone())).collect()))
}

/// Keeps the newest of devices with equal GUIDs, or the first of equally new ones. Such devices are copies, or one
/// device found by two paths. The rest are not written to, and are closed.
fn without_copies(found: Vec<(Label, &Arc<dyn Device>)>, pool: Guid) -> Vec<(Label, &Arc<dyn Device>)> {
    let mut kept: Vec<(Label, &Arc<dyn Device>)> = Vec::with_capacity(found.len());
    for (label, device) in found {
        let Some(same) = kept.iter_mut().find(|(other, _)| other.device == label.device) else {
            kept.push((label, device));
            continue;
        };
        let is_newer = age(&label, &**device, pool) > age(&same.0, &**same.1, pool);
        let passed_over = if is_newer { mem::replace(same, (label, device)).1 } else { device };
        let (name, other) = (passed_over.name(), same.1.name());
        tracing::warn!("{name} is passed over: it is what {other} is by its label, and no newer");
    }
    kept
}

/// The age of a device, to tell it from a copy. First comes its newest uberblock or its label, whichever is later, then
/// the uberblock alone: with each commit the uberblock advances, and a label's txg is at least the one of the state at
/// its writing. The pool may have got the GUID `pool` since the label was written. If the rings are unreadable, the
/// label decides.
fn age(label: &Label, device: &dyn Device, pool: Guid) -> (Txg, Txg) {
    let ring = |pool| uberblocks::read_uberblocks(device, pool).unwrap_or_default();
    let newest = [label.pool, pool].map(|pool| ring(pool).first().map_or(Txg::ZERO, |newest| newest.txg));
    let newest = newest[0].max(newest[1]);
    (newest.max(label.txg), newest)
}

pub(super) fn check_state(label: &Label, options: &OpenOptions) -> Result<()> {
    if options.force {
        return Ok(());
    }
    if label.state == PoolState::Destroyed && !options.read_only {
        return Err(Error::Request(format!("pool {} was destroyed; -f brings it back", label.pool_name)));
    }
    let elsewhere = label.state == PoolState::Active && label.host_id != options.host.0;
    if elsewhere && !options.read_only {
        let problem = format!(
            "pool {} may be in use by host {}; export it there, or use -f if that host is gone",
            label.pool_name, label.host_name
        );
        return Err(Error::Request(problem));
    }
    Ok(())
}

pub(super) fn open_storage(label: &Label, vdevs: Vdevs, uberblock: &Uberblock) -> Result<Storage> {
    let shapes: Vec<VdevShape> = label.vdevs.iter().flat_map(|vdev| shapes_of(label, vdev)).collect();
    let sector = 1u32 << label.ashift;
    if state_of(uberblock) > uberblock.txg {
        return Err(unreadable(label, uberblock, &"it claims to repeat a later state"));
    }
    let root =
        SpaceRoot::decode(&mut Reader::new(&uberblock.space)).map_err(|error| unreadable(label, uberblock, &error))?;
    let space = Space::open(&root, sector, label.region_size, &shapes, state_of(uberblock), &vdevs)
        .map_err(|error| unreadable(label, uberblock, &error))?;
    vdevs.all().iter().filter(|vdev| vdev.is_lost()).for_each(|lost| space.close(&Regions::Vdev(lost.id())));
    Ok(Storage { vdevs, space, sector })
}
