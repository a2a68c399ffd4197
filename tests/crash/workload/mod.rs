//! A random life of a pool, from one seed: every step is applied to the real pool and to the model.
//!
//! Several actors take turns; each works on its own dataset for a while and holds files open. Steps are chosen so that
//! they can succeed, so every refusal is a finding. After each step three things are kept: the model's state, the begin
//! and end of the step in the recorder's log, and the *promise* of the step. A commit or a command promises that
//! everything up to it survives; an fsync promises so for its dataset. See [`History::span`].

mod admin;
mod devices;
pub(crate) mod faults;
mod files;
mod moves;
pub(crate) mod plant;
mod sizes;
mod trim;

use std::sync::Arc;

use dataset::fs::{FileSystem, Ino};
use pool::{
    device::{Device, MemoryDevice, Recorder, RecordingDevice},
    env::{Env, SeededEnv},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

pub(crate) use self::devices::Done;
use self::{faults::Operator, moves::Pending, plant::Plant, trim::Trimming};
use crate::{
    layout::Layout,
    model::{Dataset, Pool},
    observe,
    world::{Outcome, POOL, World},
};

/// The number of steps in a life.
pub(crate) const STEPS: usize = 110;
/// The number of actors.
const ACTORS: usize = 3;

/// One step of a life.
pub(crate) struct Step {
    /// In words.
    pub(crate) what: String,
    /// The number of operations recorded before the step,
    pub(crate) begin: usize,
    /// and after the step.
    pub(crate) end: usize,
    /// The part of everything up to here that survives.
    pub(crate) promise: Promise,
    /// The state after the step,
    pub(crate) state: Pool,
    /// and its digest.
    pub(crate) digest: u64,
    /// The jobs on many devices that were under way after the step.
    pub(crate) under_way: Vec<&'static str>,
}

/// What a returned step promises to survive, of everything up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing.
    Nothing,
    /// The files of this dataset.
    Files(String),
    /// Everything.
    Everything,
}

/// An administrator's operation; `None` if no object was suitable.
type Operated = Outcome<Option<String>>;

/// The steps of a life, and the allowed states after a power failure.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
}

impl History {
    /// The first and last step whose state a power failure at `cut` may leave: not before the last returned step that
    /// promised everything, and not after the last step that had begun to write.
    pub(crate) fn span(&self, cut: usize) -> (usize, usize) {
        let promised = self.steps.iter().rposition(|step| step.promise == Promise::Everything && step.end <= cut);
        let begun = self.steps.iter().rposition(|step| step.begin < cut);
        let promised = promised.expect("cuts come after the pool was made");
        (promised, begun.unwrap_or(promised).max(promised))
    }

    /// The last step that had returned at `cut` and promised the files of a dataset.
    pub(crate) fn promised(&self, dataset: &str, cut: usize) -> Option<usize> {
        let meant = |promise: &Promise| matches!(promise, Promise::Files(name) if name == dataset);
        self.steps.iter().rposition(|step| step.end <= cut && meant(&step.promise))
    }

    /// The earliest cut: the pool has been made.
    pub(crate) fn first_cut(&self) -> usize {
        self.steps[0].end
    }
}

/// An actor: the dataset it works on, and the files it has open.
#[derive(Clone, Default)]
struct Actor {
    dataset: String,
    open: Vec<Ino>,
}

/// A stream that was sent and not received yet.
struct Stream {
    bytes: Vec<u8>,
    snapshot: crate::model::Snapshot,
    /// The GUID of the incremental base.
    base: Option<u64>,
}

/// A living pool, its model, and the record of both.
pub(crate) struct Life {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) history: History,
    devices: Vec<Arc<dyn Device>>,
    /// The same devices, with access to their lengths.
    recorded: Vec<Arc<RecordingDevice>>,
    /// The initial layout of the pool.
    pub(crate) layout: Layout,
    world: World,
    env: Arc<SeededEnv>,
    pub(crate) operator: Arc<Operator>,
    /// Counts of operations on devices, for pools of many devices.
    pub(crate) done: Done,
    /// The job that moves chunks, until it is started.
    pending: Option<Pending>,
    /// The position of the trim under way.
    trimming: Option<Trimming>,
    /// How often the operator has worked on devices.
    seen_to: usize,
    /// The planted defect.
    pub(crate) plant: Option<Plant>,
    model: Pool,
    random: StdRng,
    actors: Vec<Actor>,
    streams: Vec<Stream>,
    /// Numbers for names, never used twice.
    count: u64,
    /// The number of files in a dataset above which none is created.
    most_files: usize,
}

impl Life {
    /// Makes a pool and lives its whole life.
    pub(crate) fn live(seed: u64, steps: usize) -> Outcome<Life> {
        Life::live_with(seed, steps, None)
    }

    /// As [`Life::live`], with a planted defect that the judge has to find.
    pub(crate) fn live_with(seed: u64, steps: usize, plant: Option<Plant>) -> Outcome<Life> {
        let mut life = Life::begin(seed, plant)?;
        for _ in 0..steps {
            life.step()?;
        }
        if life.layout.is_many {
            life.wind_up()?;
        }
        life.judge_live()?;
        Ok(life)
    }

    fn begin(seed: u64, plant: Option<Plant>) -> Outcome<Life> {
        let recorder = Recorder::new();
        let operator = Operator::new(plant);
        let layout = Layout::of(seed, plant.is_some());
        let wrap = |(n, size): (usize, &u64)| Arc::new(recorder.wrap(memory(n, *size)));
        let recorded: Vec<_> = layout.sizes.iter().enumerate().map(wrap).collect();
        let taken_in = |device: &Arc<RecordingDevice>| operator.take_in(plant::planted(device.clone(), plant, false));
        let devices: Vec<_> = recorded.iter().map(taken_in).collect();
        let env = Arc::new(SeededEnv::new(seed));
        let world = World::create(&layout.vdevs(&devices), env.clone());
        operator.attend(&world.pool);
        let mut life = Life {
            recorder,
            history: History::default(),
            devices,
            recorded,
            layout,
            model: Pool::default(),
            random: StdRng::seed_from_u64(env.random()),
            env,
            operator,
            done: Done::new(),
            pending: None,
            trimming: None,
            seen_to: 0,
            plant,
            actors: vec![Actor { dataset: POOL.into(), open: Vec::new() }; ACTORS],
            streams: Vec::new(),
            count: 0,
            most_files: files::FILES,
            world,
        };
        let root = Dataset::default();
        life.model.datasets.insert(POOL.into(), root);
        let files = observe::files(&life.world.fs(POOL), &POOL)?;
        life.model.datasets.get_mut(POOL).expect("it was just put there").tree = Arc::new(files);
        if plant == Some(Plant::NoChecksums) {
            life.set(POOL, "checksum", "off")?;
        }
        // Small records make many blocks of little data.
        let recordsize = ["4096", "4096", "16384", "131072"][life.below(4)];
        life.set(POOL, "recordsize", recordsize)?;
        life.keep("the pool was made".into(), 0, Promise::Everything);
        if life.layout.is_many {
            life.furnish()?;
        }
        match life.below(10) {
            0 | 1 => life.fill()?,
            2 => life.churn()?,
            _ => {}
        }
        Ok(life)
    }

    /// Cleans up and closes the pool, and returns its history.
    pub(crate) fn end(mut self) -> Outcome<History> {
        let begin = self.recorder.len();
        self.actors.iter_mut().for_each(|actor| actor.open.clear());
        // A device that missed an uberblock gets the next.
        self.operator.heal(false);
        self.take_devices_back()?;
        self.expect("close", self.world.datasets.close_all())?;
        self.world.clean_up()?;
        self.expect("commit", self.world.engine().commit_anyway())?;
        self.keep("the end".into(), begin, Promise::Everything);
        Ok(self.history)
    }

    /// Chooses a step, does it, and keeps the state after it.
    fn step(&mut self) -> Outcome<()> {
        let begin = self.recorder.len();
        let actor = self.below(ACTORS);
        let is_mirrored = self.layout.is_mirrored();
        if is_mirrored && self.one_in(6) {
            self.as_step(Promise::Nothing, |life| life.see_to_the_mirror())?;
        }
        if self.layout.is_many && self.one_in(2) {
            self.as_step(Promise::Nothing, |life| life.see_to_the_devices())?;
        }
        let begin = if is_mirrored || self.layout.is_many { self.recorder.len() } else { begin };
        let done = match self.below(100) {
            0..60 => self.touch_files(actor)?,
            60..68 => self.make_durable(actor)?,
            _ => self.administer(actor)?,
        };
        if let Some((what, promise)) = done {
            self.keep(what, begin, promise);
        }
        Ok(())
    }

    /// Does a step and keeps the state after it.
    fn as_step(&mut self, promise: Promise, act: impl FnOnce(&mut Life) -> Outcome<String>) -> Outcome<()> {
        let begin = self.recorder.len();
        let what = act(self)?;
        self.keep(what, begin, promise);
        Ok(())
    }

    fn keep(&mut self, what: String, begin: usize, promise: Promise) {
        let (state, digest, end) = (self.model.clone(), self.model.digest(), self.recorder.len());
        let under_way = if self.layout.is_many { self.under_way() } else { Vec::new() };
        self.history.steps.push(Step { what, begin, end, promise, state, digest, under_way });
    }

    /// Whether the live pool equals the model.
    fn judge_live(&self) -> Outcome<()> {
        let found = observe::pool(&self.world, &self.world.list()?)?;
        match self.model.differences(&found) {
            differences if differences.is_empty() => Ok(()),
            differences => Err(format!("without any crash the pool is not as the model: {}", differences.join("\n  "))),
        }
    }

    /// Fails unless the real pool did what the model allows.
    fn expect<T, E: std::fmt::Display>(&self, what: &str, result: Result<T, E>) -> Outcome<T> {
        result.map_err(|error| format!("step {}: {what} fails: {error}", self.history.steps.len()))
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        (!among.is_empty()).then(|| among[self.below(among.len())].clone())
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn dataset_of(&self, actor: usize) -> (String, Arc<FileSystem>) {
        let name = self.actors[actor].dataset.clone();
        let fs = self.world.fs(&name);
        (name, fs)
    }
}

/// The device of this number. Every other device is an image, which can be truncated.
fn memory(number: usize, size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(format!("disk{number}"), size);
    if number.is_multiple_of(2) { device } else { device.as_image() }
}
