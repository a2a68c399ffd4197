//! Devices that fail on demand, and power failures anywhere in a recorded sequence of operations.

use std::{ops::Range, sync::Arc};

use pool::{
    device::{Device, Fate, FaultDevice, MemoryDevice, Recorder, all_cuts},
    units::MIB,
};

/// The size of a device that may fail, in MiB.
pub(super) const SIZE: u64 = 128;

pub(super) type Disk = Arc<FaultDevice>;

pub(super) fn disks<const N: usize>(names: [&str; N]) -> [Disk; N] {
    names.map(|name| Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, SIZE * MIB)))))
}

pub(super) fn devices(disks: &[Disk]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
}

/// Devices of the given sizes in MiB, with all operations recorded.
pub(crate) fn recorded(recorder: &Arc<Recorder>, sizes: &[u64]) -> Vec<Arc<dyn Device>> {
    let device = |(name, size): (char, &u64)| {
        Arc::new(recorder.wrap(MemoryDevice::new(name.to_string(), size * MIB))) as Arc<dyn Device>
    };
    ('a'..).zip(sizes).map(device).collect()
}

/// One cut in so many is tried, unless `CENOTE_CUTS=all`: the crash simulator and the cuts of all kinds of job go through
/// the same steps with every change.
const SHARE: usize = 3;

/// Cuts the power at about the given number of places in a range of the recording, after each of the promised writes,
/// and at each of the last operations; of these cuts, every third. The judge gets a description of the place, and the
/// devices in their state at that time.
pub(super) fn wherever_power_fails(
    recorder: &Arc<Recorder>,
    range: Range<usize>,
    places: usize,
    promised: &[usize],
    judge: impl Fn(usize, &str, Vec<Arc<dyn Device>>),
) {
    let Range { start, end } = range;
    let step = ((end - start) / places).max(1);
    let cuts = (start..=end).step_by(step).chain(promised.iter().copied()).chain(end.saturating_sub(30)..=end);
    let share = if all_cuts() { 1 } else { SHARE };
    for (cut, seed) in cuts.zip(0..).step_by(share) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        let images = images.into_iter().map(|image| Arc::new(image) as Arc<dyn Device>).collect();
        judge(cut, &format!("cut {cut} of {start} to {end}, seed {seed}"), images);
    }
}
