use proptest::prelude::*;

use super::*;
use crate::units::MIB;

/// Regions of 256 sectors.
fn layout() -> Layout {
    Layout::new(4096, MIB)
}

/// A vdev of so many regions, some of them used.
fn shelf(vdev: u32, regions: u32, used: &[u32]) -> Shelf {
    of_unit(1, vdev, regions, used)
}

/// As [`shelf`], with this unit.
fn of_unit(unit: u32, vdev: u32, regions: u32, used: &[u32]) -> Shelf {
    let held = |(region, sectors)| Held { region, sectors, unit, is_loose: true, is_host: false };
    let chunks: Vec<Held> = (0..).zip(used.iter().map(|used| used / unit * unit)).map(held).collect();
    let used_all = chunks.iter().map(|held| u64::from(held.sectors)).sum();
    let spare = regions - chunks.iter().filter(|held| held.sectors > 0).count() as u32;
    let size = u64::from(regions) * u64::from(256 / unit * unit);
    Shelf { vdev: VdevId(vdev), units: BTreeSet::from([unit]), size, used: used_all, chunks, spare }
}

/// Chooses among vdevs of the same unit.
fn choose(shelves: Vec<Shelf>, most: u32, layout: &Layout) -> Vec<Choice> {
    let level = Level::of(&shelves);
    super::choose(shelves, level, most, layout)
}

/// The fill of the vdevs after the choices, in percent.
fn after(shelves: &[Shelf], choices: &[Choice]) -> Vec<u64> {
    let percent = |shelf: &Shelf| {
        let of = |is_meant: &dyn Fn(&&Choice) -> bool| {
            choices.iter().filter(is_meant).map(|choice| u64::from(choice.sectors)).sum::<u64>()
        };
        let (gone, come) = (of(&|choice| choice.from.0 == shelf.vdev), of(&|choice| choice.to == shelf.vdev));
        (shelf.used + come - gone) * 100 / shelf.size
    };
    shelves.iter().map(percent).collect()
}

#[test]
fn a_vdev_that_was_added_gets_its_share() {
    let full = vec![250; 60];
    let shelves = [shelf(0, 100, &full), shelf(1, 100, &full), shelf(2, 200, &[])];
    let choices = choose(shelves.to_vec(), u32::MAX, &layout());
    let is_level = |choices: &[Choice]| after(&shelves, choices).iter().all(|percent| (28..=30).contains(percent));
    assert!(is_level(&choices));
    assert!(choices.iter().all(|choice| choice.to == VdevId(2)));
    // Some at a time lead to the same.
    let mut some = shelves.to_vec();
    let mut moved = Vec::new();
    for _ in 0..100 {
        for choice in choose(some.clone(), 3, &layout()) {
            moved.push(choice);
            let find = |vdev| some.iter().position(|shelf| shelf.vdev == vdev).unwrap();
            let (from, to) = (find(choice.from.0), find(choice.to));
            some[from].used -= u64::from(choice.sectors);
            some[from].chunks.retain(|held| held.region != choice.from.1);
            some[to].used += u64::from(choice.sectors);
            some[to].spare -= 1;
        }
    }
    assert!(is_level(&moved));
    assert_eq!(moved.len(), choices.len());
}

#[test]
fn what_is_level_or_has_no_peer_stays() {
    let level = [shelf(0, 100, &[256; 50]), shelf(1, 50, &[250; 25])];
    assert_eq!(choose(level.to_vec(), u32::MAX, &layout()), []);
    assert_eq!(choose(vec![shelf(0, 100, &[256; 90])], u32::MAX, &layout()), []);
    assert_eq!(choose(Vec::new(), u32::MAX, &layout()), []);
    let crumbs = [shelf(0, 100, &[3; 100]), shelf(1, 100, &[])];
    assert_eq!(choose(crumbs.to_vec(), u32::MAX, &layout()), [], "no chunk is worth a region");
    let full = [shelf(0, 100, &[200; 100]), shelf(1, 100, &[1; 100])];
    assert_eq!(choose(full.to_vec(), u32::MAX, &layout()), [], "no empty chunk is left");
}

proptest! {
    /// Whatever lies where, choices come to an end, each brings the vdevs nearer to the average, and none is undone.
    #[test]
    fn choices_bring_vdevs_together(
        used in prop::collection::vec(prop::collection::vec(0u32..=256, 0..40), 1..6),
        spare in prop::collection::vec(0u32..40, 6),
    ) {
        let shelves: Vec<Shelf> = (0..).zip(used.iter().zip(&spare))
            .map(|(vdev, (used, spare))| shelf(vdev, used.len() as u32 + spare, used))
            .filter(|shelf| shelf.size > 0)
            .collect();
        let (size, all) = shelves.iter().fold((0, 0), |sums, shelf| (sums.0 + shelf.size, sums.1 + shelf.used));
        let off = |used: &[u64]| -> i128 {
            let excess = |(shelf, used): (&Shelf, &u64)| {
                (i128::from(*used) * i128::from(size) - i128::from(all) * i128::from(shelf.size)).abs()
            };
            shelves.iter().zip(used).map(excess).sum()
        };
        let mut used: Vec<u64> = shelves.iter().map(|shelf| shelf.used).collect();
        let (mut left, mut from) = (off(&used), BTreeSet::new());
        for choice in choose(shelves.clone(), u32::MAX, &layout()) {
            let find = |vdev| shelves.iter().position(|shelf| shelf.vdev == vdev).unwrap();
            used[find(choice.from.0)] -= u64::from(choice.sectors);
            used[find(choice.to)] += u64::from(choice.sectors);
            let now = off(&used);
            // The average is a whole number of sectors in there.
            prop_assert!(now <= left + 4 * i128::from(size));
            left = now;
            prop_assert!(from.insert(choice.from));
        }
    }
}

/// The quantity that falls with each step: the number of used chunks that are no hosts, and steepness times all sizes.
fn potential(shelves: &[Shelf]) -> (usize, i128) {
    let is_fresh = |held: &&Held| held.sectors > 0 && !held.is_host;
    let fresh = shelves.iter().flat_map(|shelf| &shelf.chunks).filter(is_fresh).count();
    let sizes: i128 = shelves.iter().map(|shelf| i128::from(shelf.size)).product();
    let steep = |shelf: &Shelf| i128::from(shelf.used).pow(2) * (sizes / i128::from(shelf.size));
    (fresh, shelves.iter().map(steep).sum())
}

/// Carries out the choices; the blocks of packed chunks are rounded up by so many eighths of the largest rounding.
fn carry_out(choices: &[Choice], shelves: &mut [Shelf], eighths: u32) {
    let find = |shelves: &[Shelf], vdev| shelves.iter().position(|shelf| shelf.vdev == vdev).unwrap();
    let (to, mut packed) = (find(shelves, choices[0].to), 0);
    for choice in choices {
        let (from, to) = (find(shelves, choice.from.0), find(shelves, choice.to));
        let at = shelves[from].chunks.iter().position(|held| held.region == choice.from.1).unwrap();
        let held = shelves[from].chunks.swap_remove(at);
        shelves[from].used -= u64::from(held.sectors);
        shelves[from].spare += 1;
        if choice.packs == Packs::Never {
            assert!(shelves[from].is_like(&shelves[to]));
            settle(Held { region: 1000 * choice.from.0.0 + held.region, ..held }, &mut shelves[to]);
            continue;
        }
        let unit = *shelves[to].units.first().unwrap();
        let most = held.sectors / held.unit * held.unit.next_multiple_of(unit);
        packed += held.sectors + (most.saturating_sub(held.sectors) * eighths / 8);
    }
    let unit = *shelves[to].units.first().unwrap();
    let capacity = 256 / unit * unit;
    let mut region = 1_000_000 + shelves[to].chunks.len() as u32;
    packed = packed.next_multiple_of(unit);
    while packed > 0 {
        let sectors = packed.min(capacity);
        packed -= sectors;
        region += 1;
        settle(Held { region, sectors, unit, is_loose: true, is_host: true }, &mut shelves[to]);
    }
}

fn settle(held: Held, shelf: &mut Shelf) {
    shelf.used += u64::from(held.sectors);
    shelf.spare = shelf.spare.checked_sub(1).expect("there is an empty chunk");
    shelf.chunks.push(held);
}

/// Repeats until nothing is left to do; returns the moved sectors.
fn level_out(shelves: &mut [Shelf], most: u32, may_pack: bool, eighths: u32) -> u64 {
    let (mut before, mut moved) = (potential(shelves), 0);
    loop {
        let choices = next(shelves, most, may_pack, &layout());
        if choices.is_empty() {
            return moved;
        }
        assert!(may_pack || choices.iter().all(|choice| choice.packs == Packs::Never));
        moved += choices.iter().map(|choice| u64::from(choice.sectors)).sum::<u64>();
        carry_out(&choices, shelves, eighths);
        let after = potential(shelves);
        assert!(after < before, "{after:?} after {before:?}");
        before = after;
    }
}

fn percents(shelves: &[Shelf]) -> Vec<u64> {
    shelves.iter().map(|shelf| shelf.used * 100 / shelf.size).collect()
}

#[test]
fn chunks_are_packed_between_vdevs_of_different_units() {
    let full = vec![252; 60];
    let narrow = || vec![of_unit(2, 0, 100, &full), of_unit(2, 1, 100, &full), of_unit(3, 2, 200, &[])];
    let mut shelves = narrow();
    assert_eq!(level_out(&mut shelves, BATCH, false, 0), 0);
    let moved = level_out(&mut shelves, 7, true, 0);
    assert!(percents(&shelves).iter().all(|percent| (28..=31).contains(percent)), "{:?}", percents(&shelves));
    assert!(moved < 62 * 252, "{moved}: nothing moves twice");
    // Two equally full vdevs of one unit, and two others, one of them empty: no chunk moves between the first two.
    let mut shelves = vec![of_unit(1, 0, 100, &full), of_unit(1, 1, 100, &full), shelf(2, 100, &[])];
    shelves.push(of_unit(3, 3, 100, &[]));
    let moved = level_out(&mut shelves, BATCH, true, 0);
    assert!(percents(&shelves).iter().all(|percent| (28..=31).contains(percent)), "{:?}", percents(&shelves));
    assert!(moved < 62 * 252, "{moved}: nothing moves twice");
    // Without packing, vdevs of the same unit become level.
    let mut shelves = vec![of_unit(1, 0, 100, &full), shelf(1, 100, &[]), of_unit(3, 2, 100, &full)];
    level_out(&mut shelves, BATCH, false, 0);
    assert_eq!(percents(&shelves)[2], 59);
    assert!(percents(&shelves)[0].abs_diff(percents(&shelves)[1]) <= 2, "{:?}", percents(&shelves));
}

#[test]
fn it_is_said_why_nothing_moves() {
    let full = vec![252; 60];
    let why = |shelves: &[Shelf], may_pack| why_not(&[shelves.to_vec()], may_pack, &layout());
    let uneven = [of_unit(2, 0, 100, &full), of_unit(3, 1, 100, &[])];
    assert_eq!(why(&uneven, false), Some(Balanced::Unpacked));
    // There is no room in a pool without vdevs.
    assert_eq!(why(&uneven, true), Some(Balanced::NoRoom));
    assert_eq!(why(&uneven[..1], true), Some(Balanced::NoPeers));
    assert_eq!(why(&[of_unit(2, 0, 100, &full), of_unit(3, 1, 100, &full)], true), Some(Balanced::Level));
    let mut kept = uneven.clone();
    kept[0].chunks.iter_mut().for_each(|held| held.is_loose = false);
    assert_eq!(why(&kept, true), Some(Balanced::Kept));
    let mut tight = kept.clone();
    tight[1].spare = 0;
    assert_eq!(why(&tight, true), Some(Balanced::NoRoom));
}

#[test]
fn hosts_are_packed_again_only_if_vdevs_become_more_equal() {
    let hosts = |of: u32, to: u32, there: usize| {
        let mut from = of_unit(of, 0, 100, &[240; 50]);
        from.chunks.iter_mut().for_each(|held| held.is_host = true);
        let mut shelves = vec![from, of_unit(to, 1, 100, &vec![240; there])];
        level_out(&mut shelves, BATCH, true, 8);
        percents(&shelves)
    };
    assert!(hosts(3, 1, 0).iter().all(|percent| (22..=25).contains(percent)), "{:?}", hosts(3, 1, 0));
    assert!(hosts(1, 3, 0)[0] > 30 && hosts(1, 3, 0)[1] < 47, "{:?}", hosts(1, 3, 0));
    assert_eq!(hosts(1, 3, 30)[0], 46, "each block may take three times as much there");
}

/// A vdev's chunks as (sectors, kind), its unit, and its number of empty chunks.
type Drawn = (Vec<(u32, u8)>, u32, u32);

proptest! {
    /// Whatever lies where, by whatever units, and however much blocks are rounded up: there is an end, for a number falls
    /// with each step.
    #[test]
    fn there_is_an_end_to_it_where_units_differ(
        used in prop::collection::vec((prop::collection::vec((0u32..=256, 0u8..6), 0..30), 1u32..6, 0u32..30), 1..5),
        most in 1u32..70, eighths in 0u32..=8, may_pack in any::<bool>(),
    ) {
        let made = |(vdev, (held, unit, spare)): (u32, &Drawn)| {
            let sectors: Vec<u32> = held.iter().map(|(sectors, _)| sectors.saturating_sub(4)).collect();
            let mut shelf = of_unit(*unit, vdev, held.len() as u32 + spare, &sectors);
            for (held, (_, kind)) in shelf.chunks.iter_mut().zip(held) {
                (held.is_host, held.is_loose) = (*kind < 2, *kind != 5);
            }
            shelf
        };
        let shelves: Vec<Shelf> = (0..).zip(&used).map(made).filter(|shelf| shelf.size > 0).collect();
        if !shelves.is_empty() {
            level_out(&mut shelves.clone(), most, may_pack, eighths);
        }
    }
}
