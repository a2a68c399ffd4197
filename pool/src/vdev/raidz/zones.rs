//! Which rows of a RAID-Z have how many columns.
//!
//! A RAID-Z is made with rows of all its columns. One that gets a column more has a *zone* of the rows that it had, and they
//! stay as they are; rows of all columns are made, in a zone of their own, where nothing lies any more:
//!
//! ```text
//! rows of the devices      0 ------------------------------------------------------------> end
//! as it was made           | regions 0 .. 63, four columns                               |
//! a column more            | regions 0 .. 63, four columns                               |
//! nothing in 0 to 23       | 64 .. 93, five columns | regions 24 .. 63, four columns      |
//! nothing in any           | regions 64 .. 149, five columns                             |
//! ```
//!
//! Rows are given up from the beginning of a zone, and the wider zone before them takes them over. Its regions have numbers
//! that none had before, so that a place never means two: an older state that has something in a region that was given up is
//! known by it. No region is moved by any of this. So there are two zones while rows are given up, and one before and after;
//! if another column joins before that, one more.
//!
//! A narrow zone has the first of the columns. Whoever has enough columns of the widest zone has enough of each.

use std::ops::Range;

use super::geometry::{Geometry, Rows};
use crate::{
    format::vdev_config::{MAX_ZONES, RaidZConfig, Zone},
    vdev::Quorum,
};

/// How the rows of a RAID-Z lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// All columns, from the first row on.
    whole: Geometry,
    /// None of a vdev that was never expanded: it has as many regions as fit.
    zones: Vec<(Geometry, Range<u64>)>,
}

impl Zones {
    /// Rows of all columns.
    pub fn whole(whole: Geometry) -> Zones {
        Zones { whole, zones: Vec::new() }
    }

    /// The rows of a RAID-Z that a label describes, of a pool with such sectors and regions. `None` if it cannot be: columns,
    /// zones and sizes are a label's.
    pub fn of(config: &RaidZConfig, sector: u64, region: u64) -> Option<Zones> {
        let whole = Geometry::new(config.columns(), usize::from(config.parity), sector, region)?;
        let mut zones: Vec<(Geometry, Range<u64>)> = Vec::new();
        let mut next_row = 0;
        for zone in &config.zones {
            let shape = whole.zone(usize::from(zone.columns), zone.first_row, zone.first_region)?;
            let regions = u64::from(zone.first_region)..zone.end_region();
            regions.end.checked_mul(region)?;
            let taken = u64::from(zone.regions).checked_mul(shape.rows_per_region())?;
            let is_apart = |other: &Range<u64>| other.end <= regions.start || regions.end <= other.start;
            let are_apart = zones.iter().all(|(_, other)| is_apart(other));
            if zone.first_row < next_row || zone.columns as usize > whole.columns() || !are_apart {
                return None;
            }
            next_row = zone.first_row.checked_add(taken)?;
            zones.push((shape, regions));
        }
        let is_there = next_row <= config.device_size() / sector;
        (is_there && zones.len() <= MAX_ZONES).then_some(Zones { whole, zones })
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.whole.columns()
    }

    /// How many of them can be lost.
    pub fn parity(&self) -> usize {
        self.whole.parity()
    }

    /// The columns of the widest rows, and how many of these there must be. Those behind hold nothing.
    pub(crate) fn quorum(&self) -> Quorum {
        let widest = self.zones.iter().map(|(shape, _)| shape.columns()).max().unwrap_or(self.whole.columns());
        Quorum { columns: widest, needed: widest - self.whole.parity() }
    }

    /// The most sectors that are written together, now or when all rows have all columns.
    pub fn unit(&self) -> u32 {
        self.whole.data() as u32
    }

    /// Whether rows have not all columns.
    pub fn is_narrow(&self) -> bool {
        self.zones.iter().any(|(shape, _)| shape.columns() < self.whole.columns())
    }

    /// How many bytes there are from the first region to the last, on devices of which the smallest has so many.
    pub fn space(&self, least: u64) -> u64 {
        match self.zones.iter().map(|(_, regions)| regions.end).max() {
            Some(end) => end.saturating_mul(self.whole.region()),
            None => self.whole.space(least),
        }
    }

    /// The rows that bytes lie in. `None` if there are none, or they are of several regions, or of one that was given up.
    pub fn rows(&self, offset: u64, len: u64) -> Option<Rows> {
        self.shape_of(offset / self.whole.region())?.rows(offset, len)
    }

    /// The rows that lie wholly in a range, region by region.
    pub fn whole_rows(&self, offset: u64, len: u64) -> Vec<Rows> {
        let (size, end) = (self.whole.region(), offset.saturating_add(len));
        let of_region = |region: u64| {
            let shape = self.shape_of(region)?;
            let (from, to) = (offset.max(region * size), end.min((region + 1) * size));
            shape.whole_rows(from, to - from).next()
        };
        (offset / size..end.div_ceil(size)).filter_map(of_region).collect()
    }

    fn shape_of(&self, region: u64) -> Option<&Geometry> {
        match &self.zones[..] {
            [] => Some(&self.whole),
            zones => zones.iter().find(|(_, regions)| regions.contains(&region)).map(|(shape, _)| shape),
        }
    }
}

/// A column more: the rows that there are stay as they are, in as many regions as the devices have, or as the zones say.
///
/// `None` if there are more regions than can be told.
pub fn with_column(config: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    if !config.zones.is_empty() {
        return Some(config.zones.clone());
    }
    let regions = u32::try_from(config.size(sector, region) / region).ok()?;
    let columns = u8::try_from(config.columns()).ok()?;
    Some(vec![Zone { columns, first_row: 0, first_region: 0, regions }])
}

/// The regions that are to be given up next: those of the first zone that has not all columns.
pub fn narrow(config: &RaidZConfig) -> Option<Zone> {
    config.zones.iter().find(|zone| usize::from(zone.columns) < config.columns()).copied()
}

/// The zones when the first `count` regions of the first narrow zone are given up, and their rows have all columns.
///
/// `None` if there are not so many, or numbers do not suffice.
pub fn widened(config: &RaidZConfig, count: u32, sector: u64, region: u64) -> Option<Vec<Zone>> {
    let columns = config.columns();
    let at = config.zones.iter().position(|zone| usize::from(zone.columns) < columns)?;
    let mut zones = config.zones.clone();
    let parity = usize::from(config.parity);
    let rows = |columns: usize| Geometry::new(columns, parity, sector, region).map(|shape| shape.rows_per_region());
    let (narrow_rows, wide_rows) = (rows(usize::from(zones[at].columns))?, rows(columns)?);
    let highest = zones.iter().map(Zone::end_region).max().unwrap_or(0);
    zones[at].regions = zones[at].regions.checked_sub(count)?;
    zones[at].first_region += count;
    zones[at].first_row += u64::from(count) * narrow_rows;
    // What follows begins here, be it the rest of this zone, another one, or the end of the devices.
    let end = match (zones[at].regions, zones.get(at + 1)) {
        (1.., _) => zones[at].first_row,
        (0, Some(next)) => next.first_row,
        (0, None) => config.device_size() / sector,
    };
    let is_wide_and_last = |zone: &Zone| usize::from(zone.columns) == columns && zone.end_region() == highest;
    let wide = match at.checked_sub(1) {
        Some(before) if is_wide_and_last(&zones[before]) => before,
        before => {
            let first_row = before.map_or(0, |before| {
                let Zone { columns, first_row, regions, .. } = zones[before];
                first_row + u64::from(regions) * rows(usize::from(columns)).unwrap_or(0)
            });
            let first_region = u32::try_from(highest).ok()?;
            zones.insert(at, Zone { columns: u8::try_from(columns).ok()?, first_row, first_region, regions: 0 });
            at
        }
    };
    zones[wide].regions = u32::try_from((end - zones[wide].first_row) / wide_rows).ok()?;
    u32::try_from(zones[wide].end_region()).ok()?;
    zones.retain(|zone| zone.regions > 0);
    (zones.len() <= MAX_ZONES).then_some(zones)
}

/// The zones of a RAID-Z that was expanded, whose devices have grown to what its members say: rows behind the last zone, of
/// all columns. Numbers go on in that zone if nobody had those that follow, and else a zone is added.
///
/// `None` if rows have not all columns yet: a zone behind them would keep the wide ones before them from having the numbers
/// that follow theirs, and each step of the expansion would need one more. Also if there are no more whole regions, or numbers do
/// not suffice.
pub fn lengthened(config: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    let columns = config.columns();
    if narrow(config).is_some() {
        return None;
    }
    let mut zones = config.zones.clone();
    let rows = Geometry::new(columns, usize::from(config.parity), sector, region)?.rows_per_region();
    let highest = zones.iter().map(Zone::end_region).max()?;
    let last = zones.last_mut()?;
    let end = last.first_row.checked_add(u64::from(last.regions).checked_mul(rows)?)?;
    let more = (config.device_size() / sector).checked_sub(end)? / rows;
    let more = u32::try_from(more).ok().filter(|more| *more > 0)?;
    let first_region = u32::try_from(highest).ok()?;
    first_region.checked_add(more)?;
    match last.end_region() == highest {
        true => last.regions += more,
        false => zones.push(Zone { columns: u8::try_from(columns).ok()?, first_row: end, first_region, regions: more }),
    }
    (zones.len() <= MAX_ZONES).then_some(zones)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        format::vdev_config::{LeafConfig, MemberConfig, RaidZMember},
        units::{Guid, KIB},
    };

    const SECTOR: u64 = 512;
    const REGION: u64 = 64 * KIB;

    fn member(column: usize, size: u64) -> RaidZMember {
        let leaf = LeafConfig { guid: Guid(column as u64), size, path: String::new() };
        RaidZMember { column: column as u32, member: MemberConfig::whole(leaf) }
    }

    fn raidz(columns: usize, parity: u8, size: u64) -> RaidZConfig {
        let members = (0..columns).map(|column| member(column, size)).collect();
        RaidZConfig { guid: Guid(99), parity, members, zones: Vec::new() }
    }

    fn attach(config: &mut RaidZConfig) {
        config.zones = with_column(config, SECTOR, REGION).unwrap();
        config.members.push(member(config.columns(), config.device_size()));
    }

    fn regions(config: &RaidZConfig) -> BTreeSet<u32> {
        config.zones.iter().flat_map(|zone| zone.first_region..zone.first_region + zone.regions).collect()
    }

    /// The rows of a region, as bytes of the devices, and how many columns they have.
    fn place(zones: &Zones, region: u32) -> Option<(Range<u64>, usize)> {
        let rows = zones.whole_rows(u64::from(region) * REGION, REGION).pop()?;
        let begin = rows.place();
        Some((begin..begin + rows.count * SECTOR, rows.shape.columns()))
    }

    #[test]
    fn rows_are_given_up_from_the_beginning_and_become_wider() {
        // 128 sectors of a region are 64 rows of two data columns, 43 of three.
        let mut config = raidz(3, 1, 640 * SECTOR + 7);
        attach(&mut config);
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        assert_eq!((&config.zones[..], config.widest()), (&[zone(3, 0, 0, 10)][..], 3));
        config.zones = widened(&config, 3, SECTOR, REGION).unwrap();
        assert_eq!((&config.zones[..], config.widest()), (&[zone(4, 0, 10, 4), zone(3, 192, 3, 7)][..], 4));
        config.zones = widened(&config, 1, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(4, 0, 10, 5), zone(3, 256, 4, 6)]);
        assert_eq!(widened(&config, 7, SECTOR, REGION), None);
        config.zones = widened(&config, 6, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(4, 0, 10, 14)], "14 times 43 rows are 602 of 640");
        assert_eq!(widened(&config, 1, SECTOR, REGION), None);
        attach(&mut config);
        config.zones = widened(&config, 1, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(5, 0, 24, 1), zone(4, 43, 11, 13)]);
    }

    #[test]
    fn rows_behind_the_last_zone_have_all_columns_once_all_others_have() {
        let mut config = raidz(3, 1, 640 * SECTOR);
        attach(&mut config);
        config.members.iter_mut().for_each(|member| member.member.leaf.size = 1000 * SECTOR);
        assert_eq!(lengthened(&config, SECTOR, REGION), None, "rows are narrow");
        config.members.iter_mut().for_each(|member| member.member.leaf.size = 640 * SECTOR);
        config.zones = widened(&config, 10, SECTOR, REGION).unwrap();
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        assert_eq!((&config.zones[..], lengthened(&config, SECTOR, REGION)), (&[zone(4, 0, 10, 14)][..], None));
        config.members.iter_mut().for_each(|member| member.member.leaf.size = 1000 * SECTOR);
        assert_eq!(lengthened(&config, SECTOR, REGION), Some(vec![zone(4, 0, 10, 23)]));
        // Numbers that others had are not given again.
        config.zones = vec![zone(4, 0, 40, 7), zone(4, 301, 10, 7)];
        let longer = lengthened(&config, SECTOR, REGION).unwrap();
        assert_eq!(longer, [zone(4, 0, 40, 7), zone(4, 301, 10, 7), zone(4, 602, 47, 9)]);
        assert!(Zones::of(&RaidZConfig { zones: longer, ..config.clone() }, SECTOR, REGION).is_some());
        config.zones = vec![zone(4, 0, u32::MAX - 5, 5)];
        assert_eq!(lengthened(&config, SECTOR, REGION), None);
    }

    #[test]
    fn numbers_that_do_not_suffice_are_told() {
        let mut config = raidz(3, 1, 640 * SECTOR);
        config.zones = vec![Zone { columns: 2, first_row: 0, first_region: u32::MAX - 10, regions: 10 }];
        assert_eq!(widened(&config, 2, SECTOR, REGION), None);
    }

    #[test]
    fn zones_that_cannot_be_are_refused() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let is_one = |zones: &[Zone]| {
            let config = RaidZConfig { zones: zones.to_vec(), ..raidz(4, 1, 640 * SECTOR) };
            Zones::of(&config, SECTOR, REGION).is_some()
        };
        assert!(is_one(&[]) && is_one(&[zone(4, 0, 10, 4), zone(3, 192, 3, 7)]));
        let wrong = [
            vec![zone(4, 0, 10, 5), zone(3, 192, 3, 7)],
            vec![zone(4, 0, 6, 4), zone(3, 192, 3, 7)],
            vec![zone(3, 192, 3, 7), zone(4, 0, 10, 4)],
            vec![zone(4, 0, 10, 4), zone(3, 192, 3, 8)],
            vec![zone(1, 0, 0, 1)],
            vec![zone(5, 0, 0, 1)],
            vec![zone(4, u64::MAX, 0, 1)],
            vec![zone(4, 0, 0, u32::MAX)],
        ];
        wrong.iter().for_each(|zones| assert!(!is_one(zones), "{zones:?}"));
    }

    proptest! {
        /// Columns join and rows become wider in any steps: no two regions share a row, no number means two places, what was
        /// not given up stays where it was, and rows that are free are used but for less than a region's.
        #[test]
        fn no_two_regions_ever_share_a_row_or_a_number(
            columns in 2usize..6, parity in 1u8..=3, rows in 600u64..4000,
            steps in proptest::collection::vec(0u32..40, 1..40),
        ) {
            let mut config = raidz(columns + usize::from(parity), parity, rows * SECTOR);
            let mut given_up: BTreeSet<u32> = BTreeSet::new();
            for step in steps {
                let before = Zones::of(&config, SECTOR, REGION).unwrap();
                let old = regions(&config);
                match narrow(&config) {
                    None if config.columns() < 12 => attach(&mut config),
                    None => break,
                    // A column may join before all rows have the last one.
                    Some(_) if step == 0 && config.columns() < 12 => attach(&mut config),
                    Some(zone) => {
                        let count = step.clamp(1, zone.regions);
                        config.zones = widened(&config, count, SECTOR, REGION).unwrap();
                        given_up.extend(zone.first_region..zone.first_region + count);
                    }
                }
                let zones = Zones::of(&config, SECTOR, REGION).unwrap();
                let new = regions(&config);
                prop_assert!(new.is_disjoint(&given_up));
                for region in old.intersection(&new) {
                    prop_assert_eq!(place(&before, *region), place(&zones, *region));
                }
                let mut taken: Vec<Range<u64>> = new.iter().map(|region| place(&zones, *region).unwrap().0).collect();
                taken.sort_by_key(|rows| rows.start);
                prop_assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start));
                prop_assert!(taken.last().is_none_or(|last| last.end <= rows * SECTOR));
                for region in &given_up {
                    prop_assert_eq!(place(&zones, *region), None);
                    prop_assert_eq!(zones.rows(u64::from(*region) * REGION, 1), None);
                }
                prop_assert_eq!(config.size(SECTOR, REGION), new.len() as u64 * REGION);
                if narrow(&config).is_none() && !config.zones.is_empty() && config.zones.len() == 1 {
                    let fresh = raidz(config.columns(), parity, rows * SECTOR);
                    prop_assert_eq!(config.size(SECTOR, REGION), fresh.size(SECTOR, REGION), "all that fits");
                }
            }
        }
    }
}
