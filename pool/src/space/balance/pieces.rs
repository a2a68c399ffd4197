//! The choice of chunks to pack onto another vdev that has no empty chunks of their unit.
//!
//! Only data is packed, as in [`super::super::holes`]: copies of a metadata block would come to lie side by side. All
//! chunks of a batch go to one vdev, the furthest below the average. Each comes from the vdev furthest above the
//! average at that point.
//!
//! Blocks rounded up to units here may be rounded up further there: a vdev with a unit of ten sectors stores one-sector
//! blocks in ten times the room. The chunks' maps do not record the sizes of blocks. So the first chunk is chosen as if
//! nothing was rounded, and more only as long as the vdev stays below the average with the largest rounding.
//!
//! *Hosts* hold blocks of packed chunks. A host is packed again only if the vdevs become more equal however much is
//! rounded up. Otherwise a rebalance might move the same blocks to and fro, as they take more room here and less there.
//! So the first packing moves each byte only once, whatever it takes.

use std::collections::BTreeSet;

use super::{Choice, Held, Level, Shelf, is_worth_it, make, nearest};
use crate::{
    space::{
        layout::{Layout, whole_units},
        moving::regions::Packs,
        packing::hosts_for,
    },
    units::VdevId,
};

/// Chooses chunks to pack onto one vdev, into at most `most` hosts if nothing is rounded up.
pub(super) fn choose(shelves: &[Shelf], most: u32, layout: &Layout) -> Vec<Choice> {
    let level = Level::of(shelves);
    let is_target = |shelf: &&Shelf| shelf.spare > 0 && level.excess(shelf) < 0;
    let mut targets: Vec<&Shelf> = shelves.iter().filter(is_target).collect();
    targets.sort_by_key(|shelf| level.share(shelf));
    let choices = targets.into_iter().map(|to| choose_for(to, shelves.to_vec(), most, layout));
    choices.into_iter().find(|choices| !choices.is_empty()).unwrap_or_default()
}

/// As [`choose`], for the vdev `to`.
fn choose_for(to: &Shelf, mut shelves: Vec<Shelf>, most: u32, layout: &Layout) -> Vec<Choice> {
    let (level, region) = (Level::of(&shelves), u64::from(layout.chunk_sectors()));
    // The target with the chosen chunks, with no rounding and with the largest.
    let (mut least, mut most_used) = (to.clone(), to.clone());
    let (mut choices, mut done) = (Vec::new(), BTreeSet::<VdevId>::new());
    loop {
        // Vdevs of the same unit exchange chunks instead.
        let gives = |shelf: &&Shelf| shelf.vdev != to.vdev && !shelf.is_like(to) && !done.contains(&shelf.vdev);
        let Some(from) = shelves.iter().filter(gives).max_by_key(|shelf| level.share(shelf)) else { break };
        let wanted = level.excess(from).min(-level.excess(&least));
        if wanted <= 0 || level.is_near(from, region) && level.is_near(&least, region) {
            break;
        }
        let fits = |held: &Held| {
            let [least, most_used] = [with(&least, held.sectors.into()), with(&most_used, rounded_up(held, to))];
            (choices.is_empty() || level.excess(&most_used) <= 0)
                && hosts(least.used - to.used, to, layout) <= most
                && hosts(most_used.used - to.used, to, layout) <= to.spare
        };
        let may = |held: &&Held| {
            let is_final = !held.is_host || is_downhill(held, from, &most_used);
            held.is_loose && is_worth_it(held, wanted, region) && is_final && fits(held)
        };
        let Some(held) = nearest(from.chunks.iter().filter(may), wanted) else {
            done.insert(from.vdev);
            continue;
        };
        let packs = Packs::IfNeeded;
        let choice = Choice { from: (from.vdev, held.region), to: to.vdev, sectors: held.sectors, packs };
        (least, most_used) = (with(&least, held.sectors.into()), with(&most_used, rounded_up(&held, to)));
        make(&choice, &mut shelves);
        choices.push(choice);
    }
    choices
}

/// The vdev with so many more used sectors.
fn with(shelf: &Shelf, sectors: u64) -> Shelf {
    Shelf { used: shelf.used + sectors, chunks: Vec::new(), units: shelf.units.clone(), ..*shelf }
}

/// How many chunks of a vdev so many sectors take.
fn hosts(sectors: u64, to: &Shelf, layout: &Layout) -> u32 {
    let capacity = to.units.iter().map(|unit| u64::from(layout.capacity(*unit))).min().unwrap_or(1).max(1);
    u32::try_from(hosts_for(sectors, capacity)).unwrap_or(u32::MAX)
}

/// The most sectors that a chunk's content takes on the other vdev.
fn rounded_up(held: &Held, to: &Shelf) -> u64 {
    let of = |unit: &u32| u64::from(held.sectors / held.unit) * u64::from(whole_units(held.unit, *unit));
    to.units.iter().map(of).max().unwrap_or(0)
}

/// Whether steepness falls when a chunk moves between two vdevs with the largest rounding: see [`super`].
fn is_downhill(held: &Held, from: &Shelf, to: &Shelf) -> bool {
    let [gone, come] = [u64::from(held.sectors), rounded_up(held, to)].map(i128::from);
    let [used, size, used_there, size_there] = [from.used, from.size, to.used, to.size].map(i128::from);
    gone * (2 * used - gone) * size_there > come * (2 * used_there + come) * size
}
