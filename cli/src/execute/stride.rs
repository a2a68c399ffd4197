//! How much a step of background work takes on: as much as can be done in a moment.
//!
//! With large steps a disk goes through much of its content before its head moves on, and with small ones nobody waits long
//! behind them. How long a step takes depends on the devices and on who else uses them, so that is looked at, step by step.

use std::time::Duration;

/// The least that a step takes on, in bytes.
const LEAST: u64 = 1 << 20;

/// How much the next step takes on.
pub(super) struct Stride {
    bytes: u64,
    most: u64,
    moment: Duration,
}

impl Stride {
    /// Steps of at most so many bytes that shall take about a moment each.
    pub(super) fn new(most: u64, moment: Duration) -> Stride {
        Stride { bytes: (4 * LEAST).min(most), most, moment }
    }

    /// About how many bytes the next step is to do.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes how long a step took that had something to do.
    pub(super) fn took(&mut self, time: Duration) {
        if time > self.moment * 2 {
            self.bytes = (self.bytes / 2).max(LEAST);
        } else if time < self.moment / 2 {
            self.bytes = (self.bytes * 2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_and_shrink_until_they_take_a_moment() {
        let moment = Duration::from_millis(50);
        let mut stride = Stride::new(32 * LEAST, moment);
        let settled = |stride: &mut Stride, bytes_a_milli: u64| {
            for _ in 0..20 {
                stride.took(Duration::from_millis(stride.bytes() / bytes_a_milli));
            }
            stride.bytes()
        };
        assert_eq!(settled(&mut stride, 1 << 30), 32 * LEAST);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((25..=100).contains(&(bytes / (LEAST / 10))), "{bytes}");
        assert_eq!(settled(&mut stride, 1 << 10), LEAST);
    }
}
