//! Silent damage to bytes on a device.

use std::sync::Arc;

use pool::device::{Device, MemoryDevice, TEAR_UNIT};
use rand::{Rng, rngs::StdRng};

use super::plan::Extent;

/// A kind of damage.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Some bits are flipped.
    Flip,
    /// Sectors read as zeros.
    Zero,
    /// Sectors read as noise.
    Noise,
    /// The content of two places is swapped.
    Swap,
    /// A write to another place has landed here too.
    Misdirect,
    /// Old content is back: a write was lost.
    Old,
}

/// All kinds.
pub(super) const KINDS: [Kind; 6] = [Kind::Flip, Kind::Zero, Kind::Noise, Kind::Swap, Kind::Misdirect, Kind::Old];

/// The devices to damage, now and at some earlier time.
pub(super) struct Target<'a> {
    pub(super) now: &'a [Arc<MemoryDevice>],
    pub(super) before: &'a [Arc<MemoryDevice>],
}

impl Target<'_> {
    /// Damages an extent. `other` is the place of another thing of the same kind.
    pub(super) fn strike(&self, kind: Kind, at: Extent, other: Extent, random: &mut StdRng) {
        match kind {
            Kind::Flip => {
                let mut bytes = at.content(self.now);
                for _ in 0..random.random_range(1..4) {
                    let place = random.random_range(0..bytes.len());
                    bytes[place] ^= 1 << random.random_range(0..8);
                }
                self.write(at, &bytes);
            }
            Kind::Zero => self.sectors(at, random, |_, part| part.fill(0)),
            Kind::Noise => self.sectors(at, random, |random, part| random.fill(part)),
            Kind::Swap => {
                let len = at.len.min(other.len);
                let (at, other) = (Extent { len, ..at }, Extent { len, ..other });
                let (one, two) = (at.content(self.now), other.content(self.now));
                self.write(at, &two);
                self.write(other, &one);
            }
            Kind::Misdirect => {
                let len = at.len.min(other.len);
                self.write(at, &Extent { len, ..other }.content(self.now));
            }
            Kind::Old => self.write(at, &at.content(self.before)),
        }
    }

    /// Changes a run of the extent's sectors, often all.
    fn sectors(&self, at: Extent, random: &mut StdRng, change: impl Fn(&mut StdRng, &mut [u8])) {
        let mut bytes = at.content(self.now);
        let unit = TEAR_UNIT as usize;
        let count = bytes.len().div_ceil(unit);
        let (first, last) = match random.random_range(0..3) {
            0 => (0, count - 1),
            _ => (random.random_range(0..count), random.random_range(0..count)),
        };
        let end = ((first.max(last) + 1) * unit).min(bytes.len());
        change(random, &mut bytes[first.min(last) * unit..end]);
        self.write(at, &bytes);
    }

    fn write(&self, at: Extent, bytes: &[u8]) {
        let len = bytes.len().min(at.len as usize);
        self.now[at.device].write_at(at.start, &bytes[..len]).expect("an extent lies on its device");
    }
}
