//! The layouts worth comparing for a number of disks: kinds, widths and spares, without sizes.

use pool::format::vdev_config::RAIDZ_COLUMNS;

use crate::record::VdevKind;

/// Spares to try if the user has no wish.
const USUAL_SPARES: usize = 2;
/// Largest RAID-Z among several: more width only makes the resilver longer.
const WIDE: usize = 16;
/// Most disks for which RAID-Z vdevs of unequal width are tried too.
const FEW: usize = 12;

/// A layout without sizes and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Kind of all vdevs.
    pub(super) kind: VdevKind,
    /// Number of disks of each vdev, the widest first.
    pub(super) widths: Vec<usize>,
    /// Number of spares besides the vdevs.
    pub(super) spares: usize,
}

/// All shapes of `disks` disks, with no disk left over; `survive` is the wished number of failures to survive, and `spares` of
/// spares, if any is wished.
pub(super) fn shapes(disks: usize, survive: usize, spares: Option<usize>) -> Vec<Shape> {
    let counts = spares.map_or(0..=USUAL_SPARES, |count| count..=count);
    counts.filter(|spares| *spares < disks).flat_map(|spares| with_spares(disks - spares, survive, spares)).collect()
}

fn with_spares(disks: usize, survive: usize, spares: usize) -> Vec<Shape> {
    let shape = |kind: VdevKind, widths: Vec<usize>| Shape { kind, widths, spares };
    // A spare copies from the redundancy of its vdev, so a stripe has none.
    let stripe = (spares == 0).then(|| shape(VdevKind::Disk, vec![1; disks]));
    let mut members = vec![2, 3];
    members.extend(Some(survive.saturating_add(1)).filter(|wanted| *wanted > 3));
    members.retain(|width| VdevKind::Mirror.devices().contains(width) && disks.is_multiple_of(*width));
    let mirrors = members.into_iter().map(|width| shape(VdevKind::Mirror, vec![width; disks / width]));
    let raidz = [VdevKind::RaidZ1, VdevKind::RaidZ2, VdevKind::RaidZ3].into_iter().flat_map(|kind| {
        let parity = usize::from(kind.parity().unwrap_or_default());
        splits(disks, parity + 2).into_iter().map(move |widths| shape(kind, widths))
    });
    stripe.into_iter().chain(mirrors).chain(raidz).collect()
}

/// Splits `disks` disks into RAID-Z vdevs of at least `least` disks, as evenly as possible.
fn splits(disks: usize, least: usize) -> Vec<Vec<usize>> {
    let split = |vdevs: usize| {
        let (width, wider) = (disks / vdevs, disks % vdevs);
        (0..vdevs).map(|vdev| width + usize::from(vdev < wider)).collect::<Vec<_>>()
    };
    let fits = |widths: &Vec<usize>| widths[0] <= if widths.len() == 1 { RAIDZ_COLUMNS } else { WIDE };
    let all: Vec<Vec<usize>> = (1..=disks / least).map(split).filter(fits).collect();
    let is_even = |widths: &&Vec<usize>| widths.first() == widths.last();
    match disks > FEW && all.iter().filter(is_even).any(|widths| widths.len() > 1) {
        true => all.iter().filter(is_even).cloned().collect(),
        false => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raidz_vdevs_are_of_equal_width_where_possible() {
        assert_eq!(splits(7, 3), [vec![7], vec![4, 3]]);
        assert_eq!(splits(24, 4).iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
        let prime = splits(37, 5);
        assert!(prime.iter().all(|widths| widths.iter().sum::<usize>() == 37 && widths[0] <= WIDE), "{prime:?}");
        assert_eq!(prime[0], [13, 12, 12]);
        assert!(splits(2, 3).is_empty());
    }

    #[test]
    fn every_disk_has_a_place() {
        for disks in 1..=64 {
            for spares in [None, Some(0), Some(1), Some(5)] {
                for shape in shapes(disks, 4, spares) {
                    assert_eq!(shape.widths.iter().sum::<usize>() + shape.spares, disks, "{shape:?}");
                    let widths = shape.kind.devices();
                    assert!(shape.widths.iter().all(|width| widths.contains(width)), "{shape:?}");
                    assert!(shape.spares == 0 || shape.kind != VdevKind::Disk);
                }
            }
        }
        let mirrors = |shape: &&Shape| shape.kind == VdevKind::Mirror;
        let of_five: Vec<Shape> = shapes(10, 4, Some(0)).iter().filter(mirrors).cloned().collect();
        assert_eq!(of_five.iter().map(|shape| shape.widths[0]).collect::<Vec<_>>(), [2, 5]);
    }
}
