//! Devices that fail when a test says so, and power that fails anywhere in what a recorder has seen.

use std::{ops::Range, sync::Arc};

use pool::{
    device::{Device, Fate, FaultDevice, MemoryDevice, Recorder},
    units::MIB,
};

/// How large a device is that may fail, in MiB.
pub(super) const SIZE: u64 = 128;

pub(super) type Disk = Arc<FaultDevice>;

pub(super) fn disks<const N: usize>(names: [&str; N]) -> [Disk; N] {
    names.map(|name| Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, SIZE * MIB)))))
}

pub(super) fn devices(disks: &[Disk]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
}

/// Devices of so many MiB of which everything is recorded.
pub(super) fn recorded(recorder: &Arc<Recorder>, sizes: &[u64]) -> Vec<Arc<dyn Device>> {
    let device = |(name, size): (char, &u64)| {
        Arc::new(recorder.wrap(MemoryDevice::new(name.to_string(), size * MIB))) as Arc<dyn Device>
    };
    ('a'..).zip(sizes).map(device).collect()
}

/// Has power fail at about so many places of a range of what was recorded, after each of the promised writes, and at each of
/// the last ones. The judge gets the place with words for it, and the devices as they are then.
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
    for (cut, seed) in cuts.zip(0..) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        let images = images.into_iter().map(|image| Arc::new(image) as Arc<dyn Device>).collect();
        judge(cut, &format!("cut {cut} of {start} to {end}, seed {seed}"), images);
    }
}
