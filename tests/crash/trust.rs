//! Why the simulator can be trusted: lives replay exactly, and planted defects are found.

use pool::device::{Device, Fate};

use crate::{
    damage::judge::{Subject, Tally},
    judge::judge_life,
    layout::{COUNT, MANY},
    workload::{Life, STEPS, plant::Plant},
    world::Outcome,
};

/// Fails unless a life can be replayed and every planted defect is found in a few lives.
pub(crate) fn check() -> Outcome<()> {
    check_replay(1)?;
    check_crashes(Plant::LazyFlush)?;
    check_crashes(Plant::EmptyFsync)?;
    check_crashes(Plant::ForgetfulClear)?;
    check_damage(Plant::NoChecksums)?;
    check_many()
}

/// As [`check`], for pools of many devices.
pub(crate) fn check_many() -> Outcome<()> {
    check_replay(MANY.start + 1)?;
    check_losses(Plant::BarrenRows)?;
    check_losses(Plant::SkippedBlocks)?;
    check_losses(Plant::GreedyTrim)?;
    check_losses(Plant::LazyRepair)
}

fn check_losses(plant: Plant) -> Outcome<()> {
    for seed in MANY.start..MANY.start + COUNT {
        // Data missing on a device may be noticed while the pool lives.
        let Ok(life) = Life::live_with(seed, STEPS, Some(plant)) else { return Ok(()) };
        if judge_life(&life, seed, &mut |_| {}).is_err() {
            return Ok(());
        }
    }
    Err(format!("{plant:?} was planted and is not found"))
}

/// The same seed gives the same steps, and the same bytes on the devices.
fn check_replay(seed: u64) -> Outcome<()> {
    let lives = [Life::live(seed, STEPS)?, Life::live(seed, STEPS)?];
    let [one, two] = lives.each_ref().map(|life| {
        let steps = life.history.steps.iter().map(|step| (step.what.clone(), step.begin, step.end, step.digest));
        steps.collect::<Vec<_>>()
    });
    if one != two {
        return Err(format!("seed {seed} does not do the same twice"));
    }
    let [one, two] = lives.map(|life| contents(&life));
    if one == two { Ok(()) } else { Err(format!("seed {seed} does not write the same twice")) }
}

fn contents(life: &Life) -> Vec<Vec<u8>> {
    let images = life.recorder.images_at(life.recorder.len(), &mut || Fate::Kept);
    let content = |image: &dyn Device| {
        let mut bytes = vec![0; image.size() as usize];
        image.read_at(0, &mut bytes).map(|()| bytes).unwrap_or_default()
    };
    images.iter().map(|image| content(image)).collect()
}

fn check_crashes(plant: Plant) -> Outcome<()> {
    check_found(plant, |seed, life| Ok(judge_life(&life, seed, &mut |_| {}).is_err()))
}

fn check_damage(plant: Plant) -> Outcome<()> {
    check_found(plant, |seed, life| {
        let subject = Subject::of(seed, life)?;
        Ok((0..200).any(|case| subject.judge(case, &mut Tally::default()).is_err()))
    })
}

fn check_found(plant: Plant, is_found: impl Fn(u64, Life) -> Outcome<bool>) -> Outcome<()> {
    for seed in 0..4 {
        let life = match Life::live_with(seed, STEPS, Some(plant)) {
            // A reader in the life itself may miss the forgotten data.
            Err(_) if plant == Plant::ForgetfulClear => return Ok(()),
            life => life?,
        };
        if is_found(seed, life)? {
            return Ok(());
        }
    }
    Err(format!("{plant:?} was planted and is not found"))
}
