//! How much a step of background work takes on: as much as can be done in a moment, which is longer where nobody else is at
//! work.
//!
//! With large steps a disk goes through much of its content before its head moves on, and with small ones nobody waits long
//! behind them. How long a step takes depends on the devices and on who else uses them, so that is looked at, step by step.

use std::time::Duration;

/// The least that a step takes on, in bytes.
const LEAST: u64 = 1 << 20;
/// The most.
const MOST: u64 = 128 << 20;

/// About how long a step of a scrub takes, and of what copies while commits wait,
const SCRUB: Duration = Duration::from_millis(100);
const COPYING: Duration = Duration::from_millis(50);
/// and of both when nobody else is at work.
const ALONE: Duration = Duration::from_millis(400);

/// How much the next step takes on.
#[derive(Debug)]
pub struct Stride {
    bytes: u64,
    moment: Duration,
    is_alone: bool,
}

impl Stride {
    /// Steps of a scrub.
    pub fn of_scrub() -> Stride {
        Stride::new(SCRUB)
    }

    /// Steps of a resilver, and of whatever else copies.
    pub fn of_copying() -> Stride {
        Stride::new(COPYING)
    }

    fn new(moment: Duration) -> Stride {
        Stride { bytes: 4 * LEAST, moment, is_alone: false }
    }

    /// About how many bytes the next step is to do.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes whether nobody else is at work.
    pub fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Notes how long a step took that had something to do.
    pub fn took(&mut self, time: Duration) {
        let moment = if self.is_alone { ALONE } else { self.moment };
        if time > moment * 2 {
            self.bytes = (self.bytes / 2).max(LEAST);
        } else if time < moment / 2 {
            self.bytes = (self.bytes * 2).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_and_shrink_until_they_take_a_moment() {
        let moment = Duration::from_millis(50);
        let mut stride = Stride::new(moment);
        let settled = |stride: &mut Stride, bytes_a_milli: u64| {
            for _ in 0..20 {
                stride.took(Duration::from_millis(stride.bytes() / bytes_a_milli));
            }
            stride.bytes()
        };
        assert_eq!(settled(&mut stride, 1 << 30), MOST);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((25..=100).contains(&(bytes / (LEAST / 10))), "{bytes}");
        stride.set_alone(true);
        let bytes = settled(&mut stride, LEAST / 10);
        assert!((200..=800).contains(&(bytes / (LEAST / 10))), "alone: {bytes}");
        assert_eq!(settled(&mut stride, 1 << 10), LEAST);
    }
}
