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
//! Devices of different sizes have rows of all columns as far as the smallest reaches, and behind these, rows of the columns that
//! go on, as long as there are more of them than parity. The columns are then in the order of the sizes, the largest first:
//!
//! ```text
//! column 0, 40 GB          | regions 0 .. 59, four columns        | 60 .. 79, three columns | 80 .. 89, two columns |
//! column 1, 40 GB          |                                      |                         |                       |
//! column 2, 30 GB          |                                      |                         |
//! column 3, 20 GB          |                                      |
//! ```
//!
//! So how far a column *reaches* is the size of the smallest of it and those before it. Each zone ends within the reach of its
//! last column, and is *narrow* only if that of a column behind it covers at least one of its regions: a column has joined since,
//! or devices have become larger. What lies behind the reach of the columns that are wanted stays as it is, so there is an end
//! to narrow zones.
//!
//! A zone has the first of the columns. Whoever has enough columns of the widest zone has enough of each.

use std::{cmp::Reverse, ops::Range};

use super::geometry::{Geometry, Rows};
use crate::{
    format::vdev_config::{MAX_ZONES, RAIDZ_COLUMNS, RaidZConfig, Zone},
    vdev::Quorum,
};

/// How the rows of a RAID-Z lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// All columns, from the first row on.
    whole: Geometry,
    /// None of a vdev of devices of one size that was never expanded: it has as many regions as fit.
    zones: Vec<(Geometry, Range<u64>)>,
    is_narrow: bool,
}

impl Zones {
    /// Rows of all columns.
    pub fn whole(whole: Geometry) -> Zones {
        Zones { whole, zones: Vec::new(), is_narrow: false }
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
            if next_row > reach(config, shape.columns(), sector) {
                return None;
            }
            zones.push((shape, regions));
        }
        let is_narrow = narrow(config, sector, region).is_some();
        (zones.len() <= MAX_ZONES).then_some(Zones { whole, zones, is_narrow })
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

    /// Whether rows have not all columns that they can have.
    pub fn is_narrow(&self) -> bool {
        self.is_narrow
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

/// The zones of a new RAID-Z on devices of such sizes, in bytes, in the order of the columns; none if rows of all columns are all
/// that fits.
pub fn on_sizes(sizes: &[u64], parity: u8, sector: u64, region: u64) -> Vec<Zone> {
    let reaches = |columns: usize| sizes[..columns].iter().min().copied().unwrap_or(0) / sector;
    let zones = behind(Vec::new(), sizes.len(), usize::from(parity), sector, region, reaches).unwrap_or_default();
    match &zones[..] {
        [all, _, ..] if usize::from(all.columns) == sizes.len() => zones,
        _ => Vec::new(),
    }
}

/// Devices of a RAID-Z that is to be made, in the order of the columns: that of their sizes, in bytes, the largest first, if there
/// are zones then, and else as they were.
pub fn in_order<T: Clone>(devices: Vec<T>, size: impl Fn(&T) -> u64, parity: u8, sector: u64, region: u64) -> Vec<T> {
    let mut sorted = devices.clone();
    sorted.sort_by_key(|device| Reverse(size(device)));
    let sizes: Vec<u64> = sorted.iter().map(size).collect();
    if on_sizes(&sizes, parity, sector, region).is_empty() { devices } else { sorted }
}

/// How many bytes a new RAID-Z has on devices of such sizes, in bytes and any order. What is left of a region behind its last
/// whole row is used by nobody.
pub fn space_on(sizes: Vec<u64>, parity: u8, sector: u64, region: u64) -> u64 {
    let sizes = in_order(sizes, |size| *size, parity, sector, region);
    let of = |columns: usize, regions: u64| {
        let shape = Geometry::new(columns, usize::from(parity), sector, region);
        shape.map_or(0, |shape| regions.saturating_mul(region - region % shape.row_size()))
    };
    match &on_sizes(&sizes, parity, sector, region)[..] {
        [] => {
            let whole = Geometry::new(sizes.len(), usize::from(parity), sector, region);
            let space = whole.map_or(0, |whole| whole.space(sizes.iter().min().copied().unwrap_or(0)));
            of(sizes.len(), space / region)
        }
        zones => zones.iter().map(|zone| of(usize::from(zone.columns), zone.regions.into())).sum(),
    }
}

/// How many bytes of a new RAID-Z's devices of such sizes, in bytes and any order, no region can use, because too few of the
/// others are as large. What is less than a region on the smallest of those that have rows together is not counted.
pub fn unused_on(sizes: Vec<u64>, parity: u8, sector: u64, region: u64) -> u64 {
    let sizes = in_order(sizes, |size| *size, parity, sector, region);
    let zones = on_sizes(&sizes, parity, sector, region);
    let least = sizes.iter().min().copied().unwrap_or(0);
    let used = |column: usize| {
        // Each zone is of the first columns, as far as the smallest of them goes.
        let zone = zones.iter().rfind(|zone| column < usize::from(zone.columns));
        zone.map_or(least, |zone| sizes[usize::from(zone.columns) - 1])
    };
    sizes.iter().enumerate().map(|(column, size)| size.saturating_sub(used(column))).sum()
}

/// How many rows the first `columns` columns all have.
fn reach(config: &RaidZConfig, columns: usize, sector: u64) -> u64 {
    config.reach(columns) / sector
}

/// How many rows a region of so many columns takes.
fn rows_of(columns: usize, parity: usize, sector: u64, region: u64) -> Option<u64> {
    Geometry::new(columns, parity, sector, region).map(|shape| shape.rows_per_region())
}

/// The row behind the last one of a zone.
fn end_of(zone: &Zone, parity: usize, sector: u64, region: u64) -> Option<u64> {
    let rows = rows_of(usize::from(zone.columns), parity, sector, region)?;
    zone.first_row.checked_add(u64::from(zone.regions).checked_mul(rows)?)
}

/// These zones, and behind the last of them as many rows as there are, each of as many columns as reach there. Numbers go on in
/// the last zone if nobody had those that follow.
///
/// `None` if numbers do not suffice.
fn behind(
    mut zones: Vec<Zone>,
    columns: usize,
    parity: usize,
    sector: u64,
    region: u64,
    reaches: impl Fn(usize) -> u64,
) -> Option<Vec<Zone>> {
    let mut end = zones.last().map_or(Some(0), |last| end_of(last, parity, sector, region))?;
    let mut first_region = u32::try_from(zones.iter().map(Zone::end_region).max().unwrap_or(0)).ok()?;
    for columns in (parity + 1..=columns).rev() {
        let rows = rows_of(columns, parity, sector, region)?;
        let more = u32::try_from(reaches(columns).saturating_sub(end) / rows).ok()?;
        if more == 0 {
            continue;
        }
        let columns = u8::try_from(columns).ok()?;
        let next_region = first_region.checked_add(more)?;
        match zones.last_mut() {
            Some(last) if last.columns == columns && last.end_region() == u64::from(first_region) => {
                last.regions += more
            }
            _ => zones.push(Zone { columns, first_row: end, first_region, regions: more }),
        }
        end += u64::from(more) * rows;
        first_region = next_region;
    }
    Some(zones)
}

/// A zone whose rows could have more columns.
struct Narrow {
    /// Which.
    at: usize,
    /// How many columns its first rows could have.
    columns: usize,
    /// How many of its regions these rows are: at least one.
    regions: u32,
}

fn find_narrow(config: &RaidZConfig, sector: u64, region: u64) -> Option<Narrow> {
    let parity = usize::from(config.parity);
    config.zones.iter().enumerate().find_map(|(at, zone)| {
        let own = usize::from(zone.columns);
        let rows = rows_of(own, parity, sector, region)?;
        (own + 1..=config.columns()).rev().find_map(|columns| {
            let below = reach(config, columns, sector).saturating_sub(zone.first_row) / rows;
            let regions = u32::try_from(below).unwrap_or(u32::MAX).min(zone.regions);
            (regions > 0).then_some(Narrow { at, columns, regions })
        })
    })
}

/// The regions that are to be given up next: those of the first narrow zone whose rows could have more columns.
pub fn narrow(config: &RaidZConfig, sector: u64, region: u64) -> Option<Zone> {
    let Narrow { at, regions, .. } = find_narrow(config, sector, region)?;
    Some(Zone { regions, ..config.zones[at] })
}

/// So many rows there are that can have as many columns as those of the first narrow zone can.
pub fn wide_end(config: &RaidZConfig, sector: u64, region: u64) -> Option<u64> {
    find_narrow(config, sector, region).map(|narrow| reach(config, narrow.columns, sector))
}

/// The zones when the first `count` regions of the first narrow zone are given up, and their rows have all columns that reach
/// there.
///
/// `None` if there are not so many, or numbers do not suffice.
pub fn widened(config: &RaidZConfig, count: u32, sector: u64, region: u64) -> Option<Vec<Zone>> {
    let Narrow { at, columns, regions } = find_narrow(config, sector, region)?;
    if count > regions {
        return None;
    }
    let mut zones = config.zones.clone();
    let parity = usize::from(config.parity);
    let wide_rows = rows_of(columns, parity, sector, region)?;
    let highest = zones.iter().map(Zone::end_region).max().unwrap_or(0);
    zones[at].regions -= count;
    zones[at].first_region += count;
    zones[at].first_row += u64::from(count) * rows_of(usize::from(zones[at].columns), parity, sector, region)?;
    // What follows begins here, be it the rest of this zone, another one, or the end of the devices.
    let reach = reach(config, columns, sector);
    let end = match (zones[at].regions, zones.get(at + 1)) {
        (1.., _) => zones[at].first_row.min(reach),
        (0, Some(next)) => next.first_row.min(reach),
        (0, None) => reach,
    };
    let is_wide_and_last = |zone: &Zone| usize::from(zone.columns) == columns && zone.end_region() == highest;
    let wide = match at.checked_sub(1) {
        Some(before) if is_wide_and_last(&zones[before]) => before,
        before => {
            let first_row = before.map_or(Some(0), |before| end_of(&zones[before], parity, sector, region))?;
            let first_region = u32::try_from(highest).ok()?;
            zones.insert(at, Zone { columns: u8::try_from(columns).ok()?, first_row, first_region, regions: 0 });
            at
        }
    };
    zones[wide].regions = u32::try_from(end.checked_sub(zones[wide].first_row)? / wide_rows).ok()?;
    u32::try_from(zones[wide].end_region()).ok()?;
    zones.retain(|zone| zone.regions > 0);
    (zones.len() <= MAX_ZONES).then_some(zones)
}

/// How many regions there are when no zone is narrow any more.
pub fn regions_when_wide(config: &RaidZConfig, sector: u64, region: u64) -> u64 {
    let mut config = config.clone();
    while let Some(zone) = narrow(&config, sector, region)
        && let Some(zones) = widened(&config, zone.regions, sector, region)
    {
        config.zones = zones;
    }
    config.zones.iter().map(|zone| u64::from(zone.regions)).sum()
}

/// The zones of a RAID-Z that has some, whose devices have grown to what the members of `grown` say: rows behind the last
/// zone, of as many columns as reach there. Zones before may be narrow by that.
///
/// `None` if some are so already: a zone behind them would keep the wide ones before them from having the numbers
/// that follow theirs. Also if nothing comes of it, numbers do not suffice, or it [is outgrown](is_outgrown).
pub fn lengthened(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    longer(config, grown, sector, region).filter(|zones| zones.len() <= MOST_LENGTHENED)
}

/// The zones of a RAID-Z with rows of all columns only, of whose devices some have grown to what the members of `grown` say:
/// the rows that there are, under the numbers that they have, and behind them those of fewer columns.
///
/// `None` if no rows of fewer columns come of it: they are the first of the columns, more of them than parity.
pub fn divided(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    let zones = with_column(config, sector, region)?;
    let is_whole = |zone: &Zone| usize::from(zone.columns) == config.columns() && zone.regions > 0;
    let whole = RaidZConfig { zones, ..config.clone() };
    let divided = lengthened(&whole, grown, sector, region).filter(|_| whole.zones.iter().all(is_whole))?;
    divided.iter().any(|zone| !is_whole(zone)).then_some(divided)
}

/// Whether that would be so many zones that there could be too many while rows become wider.
pub fn is_outgrown(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> bool {
    longer(config, grown, sector, region).is_some_and(|zones| zones.len() > MOST_LENGTHENED)
}

/// So many zones leave room for those of wider rows: one for each column that may join.
const MOST_LENGTHENED: usize = MAX_ZONES - RAIDZ_COLUMNS;

/// The zones of [`lengthened`], however many they are.
fn longer(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    if config.zones.is_empty() || narrow(config, sector, region).is_some() {
        return None;
    }
    let (columns, parity) = (grown.columns(), usize::from(grown.parity));
    let reaches = |columns| reach(grown, columns, sector);
    let zones = behind(config.zones.clone(), columns, parity, sector, region, reaches)?;
    let is_any = zones != config.zones || narrow(grown, sector, region).is_some();
    is_any.then_some(zones)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        format::vdev_config::{LeafConfig, MemberConfig, RaidZMember},
        units::{GIB, Guid, KIB, MIB},
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
        assert_eq!(lengthened(&config, &config, SECTOR, REGION), None, "rows are narrow");
        config.members.iter_mut().for_each(|member| member.member.leaf.size = 640 * SECTOR);
        config.zones = widened(&config, 10, SECTOR, REGION).unwrap();
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        assert_eq!(
            (&config.zones[..], lengthened(&config, &config, SECTOR, REGION)),
            (&[zone(4, 0, 10, 14)][..], None)
        );
        let small = config.clone();
        config.members.iter_mut().for_each(|member| member.member.leaf.size = 1000 * SECTOR);
        assert_eq!(lengthened(&small, &config, SECTOR, REGION), Some(vec![zone(4, 0, 10, 23)]));
        // Numbers that others had are not given again.
        config.zones = vec![zone(4, 0, 40, 7), zone(4, 301, 10, 7)];
        let longer = lengthened(&config, &config, SECTOR, REGION).unwrap();
        assert_eq!(longer, [zone(4, 0, 40, 7), zone(4, 301, 10, 7), zone(4, 602, 47, 9)]);
        assert!(Zones::of(&RaidZConfig { zones: longer, ..config.clone() }, SECTOR, REGION).is_some());
        config.zones = vec![zone(4, 0, u32::MAX - 5, 5)];
        assert_eq!(lengthened(&config, &config, SECTOR, REGION), None);
    }

    /// A RAID-Z on devices of so many sectors, in this order.
    fn unequal(parity: u8, sectors: &[u64]) -> RaidZConfig {
        let members = sectors.iter().enumerate().map(|(column, count)| member(column, count * SECTOR)).collect();
        let sizes: Vec<u64> = sectors.iter().map(|count| count * SECTOR).collect();
        RaidZConfig { guid: Guid(99), parity, members, zones: on_sizes(&sizes, parity, SECTOR, REGION) }
    }

    #[test]
    fn devices_of_different_sizes_have_rows_of_fewer_columns_behind_those_of_all() {
        // 128 sectors of a region are 128 rows of one data column, 64 of two, 43 of three.
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let config = unequal(1, &[1300, 1300, 700, 400]);
        assert_eq!(config.zones, [zone(4, 0, 0, 9), zone(3, 387, 9, 4), zone(2, 643, 13, 5)]);
        assert!(Zones::of(&config, SECTOR, REGION).is_some_and(|zones| !zones.is_narrow()));
        assert_eq!((config.widest(), config.size(SECTOR, REGION)), (4, 18 * REGION));
        // Two columns with two of parity are none.
        assert_eq!(unequal(2, &[1300, 1300, 700, 400]).zones, [zone(4, 0, 0, 6), zone(3, 384, 6, 2)]);
        assert_eq!(unequal(1, &[9000, 700, 400]).zones, [zone(3, 0, 0, 6), zone(2, 384, 6, 2)]);
    }

    #[test]
    fn what_differs_by_less_than_a_region_or_in_the_wrong_order_makes_no_zones() {
        for sizes in
            [&[400, 400, 400, 400][..], &[442, 442, 400, 400], &[9000, 400, 400], &[400, 9000, 9000], &[9000, 42]]
        {
            assert_eq!(unequal(1, sizes).zones, [], "{sizes:?}");
        }
        // Rows of all columns there are none.
        assert_eq!(unequal(1, &[9000, 9000, 42]).zones, []);
    }

    #[test]
    fn what_a_device_has_to_give_are_the_rows_of_its_column() {
        let config = unequal(1, &[1300, 1300, 700, 400]);
        let needed: Vec<u64> = (0..5).map(|column| config.needed_of(column, SECTOR, REGION) / SECTOR).collect();
        assert_eq!(needed, [1283, 1283, 643, 400, 400]);
        assert!(config.is_unequal() && !unequal(1, &[7, 7]).is_unequal());
        assert_eq!(unequal(1, &[400, 400, 400]).needed_of(1, SECTOR, REGION), 400 * SECTOR);
    }

    #[test]
    fn rows_behind_the_reach_of_a_new_column_are_not_narrow() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let mut config = unequal(1, &[1300, 1300, 700, 400]);
        attach(&mut config);
        assert_eq!(narrow(&config, SECTOR, REGION), Some(zone(4, 0, 0, 9)));
        assert_eq!(wide_end(&config, SECTOR, REGION), Some(400));
        config.zones = widened(&config, 9, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(5, 0, 18, 12), zone(3, 387, 9, 4), zone(2, 643, 13, 5)]);
        assert_eq!((narrow(&config, SECTOR, REGION), widened(&config, 1, SECTOR, REGION)), (None, None));
        assert!(Zones::of(&config, SECTOR, REGION).is_some_and(|zones| !zones.is_narrow()));
    }

    #[test]
    fn rows_that_a_larger_device_reaches_become_wider_as_far_as_it_does() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let small = unequal(1, &[1300, 1300, 400]);
        assert_eq!(small.zones, [zone(3, 0, 0, 6), zone(2, 384, 6, 7)]);
        let mut config = small.clone();
        config.members[2].member.leaf.size = 1000 * SECTOR;
        config.zones = lengthened(&small, &config, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, small.zones, "nothing is behind the last zone");
        // Rows from 384 to 1000: four regions of 128 rows are below that.
        assert_eq!(narrow(&config, SECTOR, REGION), Some(zone(2, 384, 6, 4)));
        assert_eq!(widened(&config, 5, SECTOR, REGION), None);
        config.zones = widened(&config, 1, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(3, 0, 0, 6), zone(3, 384, 13, 2), zone(2, 512, 7, 6)]);
        config.zones = widened(&config, 3, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(3, 0, 0, 6), zone(3, 384, 13, 8), zone(2, 896, 10, 3)]);
        assert_eq!(narrow(&config, SECTOR, REGION), None, "104 rows are less than a region");
    }

    #[test]
    fn rows_of_the_first_columns_follow_those_of_all_where_only_these_have_grown() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let small = raidz(3, 1, 400 * SECTOR);
        let divided = |sectors: [u64; 3]| {
            let mut grown = small.clone();
            let members = grown.members.iter_mut().zip(sectors);
            members.for_each(|(member, sectors)| member.member.leaf.size = sectors * SECTOR);
            let zones = super::divided(&small, &grown, SECTOR, REGION)?;
            assert!(Zones::of(&RaidZConfig { zones: zones.clone(), ..grown }, SECTOR, REGION).is_some());
            Some(zones)
        };
        assert_eq!(divided([900, 900, 400]), Some(vec![zone(3, 0, 0, 6), zone(2, 384, 6, 4)]));
        assert_eq!(divided([900, 900, 500]), Some(vec![zone(3, 0, 0, 7), zone(2, 448, 7, 3)]));
        // As many columns as there is parity hold nothing, and columns are counted from the first.
        for sectors in [[400, 400, 400], [900, 400, 400], [400, 900, 900], [900, 900, 900], [500, 500, 400]] {
            assert_eq!(divided(sectors), None, "{sectors:?}");
        }
        // One that was expanded before is divided like others.
        let mut wide = small.clone();
        attach(&mut wide);
        wide.zones = widened(&wide, 6, SECTOR, REGION).unwrap();
        let mut grown = wide.clone();
        grown.members[..3].iter_mut().for_each(|member| member.member.leaf.size = 900 * SECTOR);
        let zones = super::divided(&wide, &grown, SECTOR, REGION).unwrap();
        assert_eq!(zones, [zone(4, 0, 6, 9), zone(3, 387, 15, 8)]);
    }

    #[test]
    fn zones_behind_the_reach_of_their_columns_are_refused() {
        let mut config = unequal(1, &[1300, 1300, 700, 400]);
        let is_one = |config: &RaidZConfig| Zones::of(config, SECTOR, REGION).is_some();
        assert!(is_one(&config));
        config.members[2].member.leaf.size = 643 * SECTOR;
        assert!(is_one(&config));
        config.members[2].member.leaf.size -= 1;
        assert!(!is_one(&config));
        let mut config = unequal(1, &[1300, 1300, 700, 400]);
        config.members.swap(0, 3);
        config.members.iter_mut().zip(0..).for_each(|(member, column)| member.column = column);
        assert!(!is_one(&config), "the first columns are the largest");
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

    #[test]
    fn what_too_few_devices_have_is_of_no_use() {
        let unused = |sizes: &[u64], parity, region| {
            unused_on(sizes.iter().map(|tenths| tenths * GIB / 10).collect(), parity, SECTOR, region) * 10 / GIB
        };
        assert_eq!(unused(&[200, 200, 200], 1, GIB), 0);
        assert_eq!(unused(&[130, 170, 150], 1, GIB), 20, "rows of two columns reach as far as the second largest");
        assert_eq!(unused(&[130, 170, 150], 2, GIB), 60, "there are no rows of two columns");
        assert_eq!(unused(&[200, 188, 184], 1, MIB), 12);
        assert_eq!(unused(&[200, 188, 184], 1, GIB), 20, "a region of two columns does not go in");
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
                match narrow(&config, SECTOR, REGION) {
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
                if narrow(&config, SECTOR, REGION).is_none() && !config.zones.is_empty() && config.zones.len() == 1 {
                    let fresh = raidz(config.columns(), parity, rows * SECTOR);
                    prop_assert_eq!(config.size(SECTOR, REGION), fresh.size(SECTOR, REGION), "all that fits");
                }
            }
        }

        /// The same of devices of different sizes, which grow, too: all rows are of devices that have them, and what could be
        /// wider is known as such.
        #[test]
        fn rows_are_where_all_of_their_columns_are(
            mut sizes in proptest::collection::vec(100u64..3000, 2..7), parity in 1u8..=3,
            steps in proptest::collection::vec((0u32..12, 0usize..9, 0u64..900), 0..30),
        ) {
            prop_assume!(sizes.len() > usize::from(parity));
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            let mut config = unequal(parity, &sizes);
            let rows = |columns: usize| rows_of(columns, usize::from(parity), SECTOR, REGION).unwrap();
            let mut end = 0;
            for columns in (usize::from(parity) + 1..=sizes.len()).rev().filter(|_| !config.zones.is_empty()) {
                let zone = config.zones.iter().find(|zone| usize::from(zone.columns) == columns);
                end = zone.map_or(end, |zone| zone.first_row + u64::from(zone.regions) * rows(columns));
                prop_assert!(sizes[columns - 1] < end + rows(columns), "less than a region is left");
            }
            let mut given_up: BTreeSet<u32> = BTreeSet::new();
            for (step, device, more) in steps {
                let before = Zones::of(&config, SECTOR, REGION).unwrap();
                let (old, size) = (regions(&config), config.size(SECTOR, REGION));
                match (narrow(&config, SECTOR, REGION), step) {
                    (_, 0) if config.columns() < 9 => attach(&mut config),
                    (_, 1..4) => {
                        let mut grown = config.clone();
                        let device = device % grown.members.len();
                        grown.members[device].member.leaf.size += more * SECTOR;
                        if let Some(zones) = lengthened(&config, &grown, SECTOR, REGION) {
                            config = RaidZConfig { zones, ..grown };
                        }
                    }
                    (Some(zone), _) => {
                        let count = step.clamp(1, zone.regions);
                        config.zones = widened(&config, count, SECTOR, REGION).unwrap();
                        given_up.extend(zone.first_region..zone.first_region + count);
                        prop_assert!(config.size(SECTOR, REGION) >= size);
                    }
                    (None, _) => {}
                }
                let zones = Zones::of(&config, SECTOR, REGION).unwrap();
                prop_assert_eq!(zones.is_narrow(), narrow(&config, SECTOR, REGION).is_some());
                let new = regions(&config);
                prop_assert!(new.is_disjoint(&given_up));
                for region in old.intersection(&new) {
                    prop_assert_eq!(place(&before, *region), place(&zones, *region));
                }
                let mut taken: Vec<_> = new.iter().map(|region| place(&zones, *region).unwrap()).collect();
                taken.sort_by_key(|(rows, _)| rows.start);
                prop_assert!(taken.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start));
                for (rows, columns) in &taken {
                    let devices = &config.members[..*columns];
                    prop_assert!(devices.iter().all(|member| rows.end <= member.member.leaf.size));
                }
                for column in 0..config.columns() as u32 {
                    let own = taken.iter().filter(|(_, columns)| *columns > column as usize);
                    let end = own.map(|(rows, _)| rows.end).max().unwrap_or(0);
                    prop_assert_eq!(config.needed_of(column, SECTOR, REGION), end.max(config.device_size()));
                }
            }
            // There is an end to what is narrow.
            for _ in 0..1000 {
                let Some(zone) = narrow(&config, SECTOR, REGION) else { break };
                config.zones = widened(&config, zone.regions.min(3), SECTOR, REGION).unwrap();
            }
            prop_assert_eq!(narrow(&config, SECTOR, REGION), None);
        }
    }
}
