//! How much a step of background work takes on: as much as can be done in a moment, which is longer where nobody else is at
//! work.
//!
//! With large steps a disk goes through much of its content before its head moves on, and with small ones nobody waits long
//! behind them. How long a step takes depends on the devices and on who else uses them, so that is looked at, step by step.

use std::time::Duration;

/// The least that a step takes on, in bytes.
const LEAST: u64 = 1 << 20;
/// The most.
const MOST: u64 = 1 << 30;

/// About how long a step takes while others are at work, and when nobody else is.
#[derive(Clone, Copy, Debug)]
struct Moments {
    beside: Duration,
    alone: Duration,
}

/// Of a scrub, for which nearly nobody has to wait,
const SCRUB: Moments = Moments { beside: Duration::from_millis(100), alone: Duration::from_secs(1) };
/// and of what copies while commits wait.
const COPYING: Moments = Moments { beside: Duration::from_millis(50), alone: Duration::from_millis(400) };

/// How much the next step takes on.
#[derive(Debug)]
pub struct Stride {
    bytes: u64,
    moments: Moments,
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

    fn new(moments: Moments) -> Stride {
        Stride { bytes: 4 * LEAST, moments, is_alone: false }
    }

    /// About how many bytes the next step is to do.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes whether nobody else is at work. Who has come finds steps at once that are as short as they are beside others.
    pub fn set_alone(&mut self, is_alone: bool) {
        if std::mem::replace(&mut self.is_alone, is_alone) && !is_alone {
            let times = self.moments.alone.as_millis() / self.moments.beside.as_millis();
            self.bytes = (self.bytes / times as u64).max(LEAST);
        }
    }

    /// Notes how long a step took that had something to do.
    pub fn took(&mut self, time: Duration) {
        let moment = if self.is_alone { self.moments.alone } else { self.moments.beside };
        // What lies ahead may be slower, or not as slow: half or twice as much at a time.
        let times = (moment.as_secs_f64() / time.as_secs_f64()).clamp(0.5, 2.0);
        self.bytes = ((self.bytes as f64 * times) as u64).clamp(LEAST, MOST);
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
        assert_eq!(settled(&mut stride, 1 << 30), MOST);
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
