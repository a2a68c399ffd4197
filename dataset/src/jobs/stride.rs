//! The size of a step of background work: as much as fits into a short time, which is longer if no other work uses the
//! devices.
//!
//! With large steps a disk reads much of its content before a seek; with small steps other requests wait briefly. The
//! duration of a step depends on the devices and on other users, so each step is measured.

use std::time::Duration;

/// The least bytes of a step.
const LEAST: u64 = 1 << 20;

/// The target duration of a step, beside other work and alone, and the most bytes of a step.
#[derive(Clone, Copy, Debug)]
struct Moments {
    beside: Duration,
    alone: Duration,
    most: u64,
}

/// For a scrub, which delays hardly any other thread,
const SCRUB: Moments = Moments { beside: Duration::from_millis(100), alone: Duration::from_secs(1), most: 1 << 30 };
/// and for copies, which delay commits. A walk past content that needs no copy is fast and lets steps grow; the bound
/// keeps the first step that copies again below half a second on a disk with 150 MB/s.
const COPYING: Moments =
    Moments { beside: Duration::from_millis(50), alone: Duration::from_millis(400), most: 64 << 20 };

/// The size of the next step, adapted step by step.
#[derive(Debug)]
pub struct Stride {
    bytes: u64,
    moments: Moments,
    is_alone: bool,
}

impl Stride {
    /// For steps of a scrub.
    pub fn of_scrub() -> Stride {
        Stride::new(SCRUB)
    }

    /// For steps of a resilver and of all other jobs that copy.
    pub fn of_copying() -> Stride {
        Stride::new(COPYING)
    }

    fn new(moments: Moments) -> Stride {
        Stride { bytes: 4 * LEAST, moments, is_alone: false }
    }

    /// The approximate number of bytes of the next step.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records whether no other work uses the devices. When other work begins, the size falls at once to the short
    /// duration.
    pub fn set_alone(&mut self, is_alone: bool) {
        if std::mem::replace(&mut self.is_alone, is_alone) && !is_alone {
            let times = self.moments.alone.as_millis() / self.moments.beside.as_millis();
            self.bytes = (self.bytes / times as u64).max(LEAST);
        }
    }

    /// Records the duration of a step with work.
    pub fn took(&mut self, time: Duration) {
        let moment = if self.is_alone { self.moments.alone } else { self.moments.beside };
        // The next content may be slower or faster, so the size changes at most by a factor of two.
        let times = (moment.as_secs_f64() / time.as_secs_f64()).clamp(0.5, 2.0);
        self.bytes = ((self.bytes as f64 * times) as u64).clamp(LEAST, self.moments.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_and_shrink_until_they_take_a_moment() {
        let mut stride = Stride::of_copying();
        let settled = |stride: &mut Stride, bytes_a_milli: u64| {
            for _ in 0..20 {
                stride.took(Duration::from_millis(stride.bytes() / bytes_a_milli));
            }
            stride.bytes()
        };
        assert_eq!(settled(&mut stride, 1 << 30), COPYING.most);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((45..=55).contains(&(bytes / (LEAST / 10))), "{bytes}");
        stride.set_alone(true);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((390..=410).contains(&(bytes / (LEAST / 10))), "alone: {bytes}");
        stride.set_alone(false);
        assert!((45..=55).contains(&(stride.bytes() / (LEAST / 10))), "beside others at once: {bytes}");
        stride.set_alone(true);
        assert_eq!(settled(&mut stride, 1 << 10), LEAST);
    }
}
