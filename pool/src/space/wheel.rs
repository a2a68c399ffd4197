//! Turns among the devices of one class.
//!
//! A device gets [`TURN`] consecutive bytes, so that its writes are large. Turns are proportional to free space, so
//! that all devices fill up together, and spread evenly (smooth weighted round robin).

use super::layout::{Ground, Layout};
use crate::units::MIB;

/// Bytes allocated on one device before the next has its turn.
const TURN: u64 = MIB;

/// The turns of one class of devices.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    current: usize,
    /// The sectors left of the turn.
    left: u64,
    /// The credit of each device, in sectors of free space.
    credits: Vec<i128>,
}

impl Wheel {
    /// The device for the next `sectors` sectors, among those of `ground`. A wheel always serves the same ground.
    pub(super) fn next(&mut self, layout: &Layout, ground: Ground, sectors: u32) -> usize {
        if self.left == 0 {
            self.turn(layout, ground);
            self.left = (TURN / u64::from(layout.sector)).max(1);
        }
        self.left = self.left.saturating_sub(u64::from(sectors));
        self.current
    }

    fn turn(&mut self, layout: &Layout, ground: Ground) {
        self.credits.resize(layout.vdevs.len(), 0);
        let mut all = 0;
        let is_one = |index: usize| layout.vdevs[index].ground == ground;
        for (_, (credit, vdev)) in
            self.credits.iter_mut().zip(&layout.vdevs).enumerate().filter(|(index, _)| is_one(*index))
        {
            let free = i128::from(vdev.free());
            *credit += free;
            all += free;
        }
        let owed = self.credits.iter().enumerate().filter(|(index, _)| is_one(*index));
        let owed = owed.max_by_key(|&(index, credit)| (credit, std::cmp::Reverse(index)));
        self.current = owed.map_or(0, |(index, _)| index);
        if let Some(credit) = self.credits.get_mut(self.current) {
            *credit -= all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{space::VdevShape, units::VdevId};

    fn vdev(id: u32, size: u64) -> VdevShape {
        VdevShape { vdev: VdevId(id), first_region: 0, size, unit: 1, class: None }
    }

    #[test]
    fn turns_follow_free_space() {
        let layout = Layout::new(4096, MIB).with_vdev(vdev(0, 10 * MIB)).with_vdev(vdev(1, 30 * MIB));
        let mut wheel = Wheel::default();
        let turns: Vec<usize> = (0..8).map(|_| wheel.next(&layout, Ground::Normal, 256)).collect();
        assert_eq!(turns.iter().filter(|&&turn| turn == 1).count(), 6);
        assert_ne!(turns[..4], [1, 1, 1, 0]);
    }

    #[test]
    fn small_blocks_share_a_turn() {
        let layout = Layout::new(4096, MIB).with_vdev(vdev(0, 10 * MIB)).with_vdev(vdev(1, 10 * MIB));
        let mut wheel = Wheel::default();
        let turns: Vec<usize> = (0..512).map(|_| wheel.next(&layout, Ground::Normal, 1)).collect();
        assert!(turns[..256].iter().all(|turn| *turn == turns[0]));
        assert!(turns[256..].iter().all(|turn| *turn != turns[0]));
    }
}
