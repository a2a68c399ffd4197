//! Why the simulator can be trusted: a life is the same whenever it is lived, and what is planted is found.

use pool::device::{Device, Fate};

use crate::{
    judge::judge_life,
    workload::{
        Life, STEPS,
        plant::{PLANTS, Plant},
    },
    world::{DEVICE_SIZE, Outcome},
};

/// Fails unless a life can be replayed and every planted defect is found in a few lives.
pub(crate) fn check() -> Outcome<()> {
    check_replay(1)?;
    PLANTS.into_iter().try_for_each(check_plant)
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
        let mut bytes = vec![0; DEVICE_SIZE as usize];
        image.read_at(0, &mut bytes).map(|()| bytes).unwrap_or_default()
    };
    images.iter().map(|image| content(image)).collect()
}

fn check_plant(plant: Plant) -> Outcome<()> {
    for seed in 0..4 {
        let life = Life::live_with(seed, STEPS, Some(plant))?;
        if judge_life(&life, seed, &mut |_| {}).is_err() {
            return Ok(());
        }
    }
    Err(format!("{plant:?} was planted and is not found"))
}
