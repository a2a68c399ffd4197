//! How much a step of background work takes on: as much as can be done in a moment, which is longer where nobody else is at
//! work.
//!
//! With large steps a disk goes through much of its content before its head moves on, and with small ones nobody waits long
//! behind them. How long a step takes depends on the devices and on who else uses them, so that is looked at, step by step.

use std::time::Duration;

/// The least that a step takes on, in bytes.
const LEAST: u64 = 1 << 20;

/// So many times as long is a moment when nobody else is at work.
const ALONE: u32 = 4;

/// How much the next step takes on.
pub(super) struct Stride {
    bytes: u64,
    most: u64,
    moment: Duration,
    is_alone: bool,
}

impl Stride {
    /// Steps of at most so many bytes that shall take about a moment each.
    pub(super) fn new(most: u64, moment: Duration) -> Stride {
        Stride { bytes: (4 * LEAST).min(most), most, moment, is_alone: false }
    }

    /// About how many bytes the next step is to do.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes whether nobody else is at work.
    pub(super) fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Notes how long a step took that had something to do.
    pub(super) fn took(&mut self, time: Duration) {
        let moment = if self.is_alone { self.moment * ALONE } else { self.moment };
        if time > moment * 2 {
            self.bytes = (self.bytes / 2).max(LEAST);
        } else if time < moment / 2 {
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
        stride.set_alone(true);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((100..=400).contains(&(bytes / (LEAST / 10))), "alone: {bytes}");
        assert_eq!(settled(&mut stride, 1 << 10), LEAST);
    }
}
