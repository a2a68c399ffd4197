//! Zones: the number of columns of each row of a RAID-Z.
//!
//! A new RAID-Z has rows of all its columns. After an expansion by a column the existing rows form a *zone* and stay as
//! they are; rows of all columns, in a zone of their own, take the place of rows that are no longer used:
//!
//! ```text
//! rows of the devices      0 ------------------------------------------------------------> end
//! as created               | regions 0 .. 63, four columns                               |
//! one more column          | regions 0 .. 63, four columns                               |
//! 0 to 23 unused           | 64 .. 93, five columns | regions 24 .. 63, four columns      |
//! all unused               | regions 64 .. 149, five columns                             |
//! ```
//!
//! Rows are given up from the beginning of a zone, and the wider zone before takes them over. Its regions get fresh
//! numbers, so that a number never means two places: an older state with blocks in a given-up region is recognized by
//! the region's number. Nothing moves a region. So there are two zones while rows are given up, and one before and
//! after; if another column joins in between, there is one more.
//!
//! Devices of different sizes have rows of all columns as far as the smallest device reaches. Behind these are rows of
//! the columns that go on, as long as more columns than parity do. The columns are then in order of size, the largest
//! first:
//!
//! ```text
//! column 0, 40 GB          | regions 0 .. 59, four columns        | 60 .. 79, three columns | 80 .. 89, two columns |
//! column 1, 40 GB          |                                      |                         |                       |
//! column 2, 30 GB          |                                      |                         |
//! column 3, 20 GB          |                                      |
//! ```
//!
//! So the *reach* of a column is the size of the smallest device in it and the columns before it. Each zone ends within
//! the reach of its last column. A zone is *narrow* only if the reach of a further column covers at least one of its
//! regions: a column has joined since, or devices have grown. Rows behind the reach of the further columns stay as they
//! are, so widening comes to an end.
//!
//! A zone has the first of the columns. So enough columns for the widest zone are enough for each.

use std::{cmp::Reverse, ops::Range};

use super::geometry::{Geometry, Rows};
use crate::{
    format::vdev_config::{MAX_ZONES, RAIDZ_COLUMNS, RaidZConfig, Zone},
    vdev::group::Quorum,
};

/// The layout of the rows of a RAID-Z.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// All columns, from the first row on.
    whole: Geometry,
    /// Empty on devices of one size without an expansion: there are as many regions as fit.
    zones: Vec<(Geometry, Range<u64>)>,
    is_narrow: bool,
}

impl Zones {
    /// Rows of all columns.
    pub fn whole(whole: Geometry) -> Zones {
        Zones { whole, zones: Vec::new(), is_narrow: false }
    }

    /// The rows of a RAID-Z that a label describes, in a pool with these sectors and regions. `None` if columns, zones
    /// and sizes do not fit together.
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

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.whole.columns()
    }

    /// The number of columns that can be lost.
    pub fn parity(&self) -> usize {
        self.whole.parity()
    }

    /// The columns of the widest rows, and how many of them are needed. Columns behind hold nothing.
    pub(crate) fn quorum(&self) -> Quorum {
        let widest = self.zones.iter().map(|(shape, _)| shape.columns()).max().unwrap_or(self.whole.columns());
        Quorum { columns: widest, needed: widest - self.whole.parity() }
    }

    /// The largest unit of allocation in sectors, now or when all rows have all columns.
    pub fn unit(&self) -> u32 {
        self.whole.data() as u32
    }

    /// True if rows could have more columns.
    pub fn is_narrow(&self) -> bool {
        self.is_narrow
    }

    /// Bytes from the first region to the last, on devices the smallest of which has `least` bytes.
    pub fn space(&self, least: u64) -> u64 {
        match self.zones.iter().map(|(_, regions)| regions.end).max() {
            Some(end) => end.saturating_mul(self.whole.region()),
            None => self.whole.space(least),
        }
    }

    /// The rows that bytes lie in. `None` for no bytes, bytes of several regions, or of a given-up region.
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

/// The zones after an expansion by one column: existing rows stay as they are, in as many regions as the devices have,
/// or as the zones say.
///
/// `None` if there are more regions than a label can hold.
pub fn with_column(config: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    if !config.zones.is_empty() {
        return Some(config.zones.clone());
    }
    let regions = u32::try_from(config.size(sector, region) / region).ok()?;
    let columns = u8::try_from(config.columns()).ok()?;
    Some(vec![Zone { columns, first_row: 0, first_region: 0, regions }])
}

/// The zones of a new RAID-Z on devices of these sizes, in bytes, in the order of the columns; none if only rows of all
/// columns fit.
pub fn on_sizes(sizes: &[u64], parity: u8, sector: u64, region: u64) -> Vec<Zone> {
    let reaches = |columns: usize| sizes[..columns].iter().min().copied().unwrap_or(0) / sector;
    let zones = behind(Vec::new(), sizes.len(), usize::from(parity), sector, region, reaches).unwrap_or_default();
    match &zones[..] {
        [all, _, ..] if usize::from(all.columns) == sizes.len() => zones,
        _ => Vec::new(),
    }
}

/// Orders the devices of a new RAID-Z as its columns. If there will be zones, the order is by size in bytes, the
/// largest first; otherwise unchanged.
pub fn in_order<T: Clone>(devices: Vec<T>, size: impl Fn(&T) -> u64, parity: u8, sector: u64, region: u64) -> Vec<T> {
    let mut sorted = devices.clone();
    sorted.sort_by_key(|device| Reverse(size(device)));
    let sizes: Vec<u64> = sorted.iter().map(size).collect();
    if on_sizes(&sizes, parity, sector, region).is_empty() { devices } else { sorted }
}

/// Bytes of space of a new RAID-Z on devices of these sizes, in bytes and any order. The remainder of a region behind
/// its last whole row is not counted.
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

/// Device bytes of a new RAID-Z that no region can use, because too few devices are as large. Sizes are in bytes and
/// any order. A remainder of less than a region on the smallest device of a zone is not counted.
pub fn unused_on(sizes: Vec<u64>, parity: u8, sector: u64, region: u64) -> u64 {
    let sizes = in_order(sizes, |size| *size, parity, sector, region);
    let zones = on_sizes(&sizes, parity, sector, region);
    let least = sizes.iter().min().copied().unwrap_or(0);
    let used = |column: usize| {
        // Each zone has the first columns, as far as the smallest of them reaches.
        let zone = zones.iter().rfind(|zone| column < usize::from(zone.columns));
        zone.map_or(least, |zone| sizes[usize::from(zone.columns) - 1])
    };
    sizes.iter().enumerate().map(|(column, size)| size.saturating_sub(used(column))).sum()
}

/// Rows within the reach of the first `columns` columns.
fn reach(config: &RaidZConfig, columns: usize, sector: u64) -> u64 {
    config.reach(columns) / sector
}

/// Rows of a region of so many columns.
fn rows_of(columns: usize, parity: usize, sector: u64, region: u64) -> Option<u64> {
    Geometry::new(columns, parity, sector, region).map(|shape| shape.rows_per_region())
}

/// The row behind the last row of a zone.
fn end_of(zone: &Zone, parity: usize, sector: u64, region: u64) -> Option<u64> {
    let rows = rows_of(usize::from(zone.columns), parity, sector, region)?;
    zone.first_row.checked_add(u64::from(zone.regions).checked_mul(rows)?)
}

/// Extends the zones behind the last one as far as the devices reach, each row with as many columns as reach there. The
/// last zone is extended if the next region numbers are fresh.
///
/// `None` if the region numbers run out.
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
    /// Index of the zone.
    at: usize,
    /// Possible number of columns of its first rows.
    columns: usize,
    /// Regions in these rows: at least one.
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

/// The regions to give up next: the ones of the first narrow zone whose rows could have more columns.
pub fn narrow(config: &RaidZConfig, sector: u64, region: u64) -> Option<Zone> {
    let Narrow { at, regions, .. } = find_narrow(config, sector, region)?;
    Some(Zone { regions, ..config.zones[at] })
}

/// Rows that can have as many columns as rows of the first narrow zone could.
pub fn wide_end(config: &RaidZConfig, sector: u64, region: u64) -> Option<u64> {
    find_narrow(config, sector, region).map(|narrow| reach(config, narrow.columns, sector))
}

/// The zones after the first `count` regions of the first narrow zone are given up, and their rows have all columns
/// that reach there.
///
/// `None` if there are fewer regions, or the region numbers run out.
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
    // The widened rows end at the rest of this zone, at the next zone, or at the end of the devices.
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

/// The number of regions once no zone is narrow.
pub fn regions_when_wide(config: &RaidZConfig, sector: u64, region: u64) -> u64 {
    let mut config = config.clone();
    while let Some(zone) = narrow(&config, sector, region)
        && let Some(zones) = widened(&config, zone.regions, sector, region)
    {
        config.zones = zones;
    }
    config.zones.iter().map(|zone| u64::from(zone.regions)).sum()
}

/// The zones of a RAID-Z that already has zones, after devices have grown to the sizes in `grown`: there are rows
/// behind the last zone, of as many columns as reach there. Earlier zones may become narrow.
///
/// `None` if a zone is narrow already: a zone behind would take the region numbers that the wide zone before needs
/// next. Also `None` if there is no change, the region numbers run out, or the RAID-Z [is outgrown](is_outgrown).
pub fn lengthened(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    longer(config, grown, sector, region).filter(|zones| zones.len() <= MOST_LENGTHENED)
}

/// The zones of a RAID-Z with only rows of all columns, after some devices have grown to the sizes in `grown`: the
/// existing rows with their region numbers, and behind them rows of fewer columns.
///
/// `None` if there is no room for rows of fewer columns: they need the first columns, and more columns than parity.
pub fn divided(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> Option<Vec<Zone>> {
    let zones = with_column(config, sector, region)?;
    let is_whole = |zone: &Zone| usize::from(zone.columns) == config.columns() && zone.regions > 0;
    let whole = RaidZConfig { zones, ..config.clone() };
    let divided = lengthened(&whole, grown, sector, region).filter(|_| whole.zones.iter().all(is_whole))?;
    divided.iter().any(|zone| !is_whole(zone)).then_some(divided)
}

/// True if growing would make so many zones that widening could exceed the maximum.
pub fn is_outgrown(config: &RaidZConfig, grown: &RaidZConfig, sector: u64, region: u64) -> bool {
    longer(config, grown, sector, region).is_some_and(|zones| zones.len() > MOST_LENGTHENED)
}

/// The zone limit after growing. It leaves room for zones of wider rows: one for each column that may join.
const MOST_LENGTHENED: usize = MAX_ZONES - RAIDZ_COLUMNS;

/// The zones of [`lengthened`], without the limit.
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

    /// The rows of a region, as bytes of the devices, and their number of columns.
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
    fn rows_behind_the_last_zone_have_all_columns_when_all_are_wide() {
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
        // Used region numbers are not reused.
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
    fn devices_of_different_sizes_end_in_rows_of_fewer_columns() {
        // 128 sectors of a region are 128 rows of one data column, 64 of two, 43 of three.
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let config = unequal(1, &[1300, 1300, 700, 400]);
        assert_eq!(config.zones, [zone(4, 0, 0, 9), zone(3, 387, 9, 4), zone(2, 643, 13, 5)]);
        assert!(Zones::of(&config, SECTOR, REGION).is_some_and(|zones| !zones.is_narrow()));
        assert_eq!((config.widest(), config.size(SECTOR, REGION)), (4, 18 * REGION));
        // Two columns with double parity are impossible.
        assert_eq!(unequal(2, &[1300, 1300, 700, 400]).zones, [zone(4, 0, 0, 6), zone(3, 384, 6, 2)]);
        assert_eq!(unequal(1, &[9000, 700, 400]).zones, [zone(3, 0, 0, 6), zone(2, 384, 6, 2)]);
    }

    #[test]
    fn small_differences_or_the_wrong_order_make_no_zones() {
        for sizes in
            [&[400, 400, 400, 400][..], &[442, 442, 400, 400], &[9000, 400, 400], &[400, 9000, 9000], &[9000, 42]]
        {
            assert_eq!(unequal(1, sizes).zones, [], "{sizes:?}");
        }
        // No row of all columns fits.
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
    fn rows_become_wider_as_far_as_a_larger_device_reaches() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let small = unequal(1, &[1300, 1300, 400]);
        assert_eq!(small.zones, [zone(3, 0, 0, 6), zone(2, 384, 6, 7)]);
        let mut config = small.clone();
        config.members[2].member.leaf.size = 1000 * SECTOR;
        config.zones = lengthened(&small, &config, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, small.zones, "nothing is behind the last zone");
        // Rows 384 to 1000 hold four regions of 128 rows.
        assert_eq!(narrow(&config, SECTOR, REGION), Some(zone(2, 384, 6, 4)));
        assert_eq!(widened(&config, 5, SECTOR, REGION), None);
        config.zones = widened(&config, 1, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(3, 0, 0, 6), zone(3, 384, 13, 2), zone(2, 512, 7, 6)]);
        config.zones = widened(&config, 3, SECTOR, REGION).unwrap();
        assert_eq!(config.zones, [zone(3, 0, 0, 6), zone(3, 384, 13, 8), zone(2, 896, 10, 3)]);
        assert_eq!(narrow(&config, SECTOR, REGION), None, "104 rows are less than a region");
    }

    #[test]
    fn narrower_rows_follow_where_only_the_first_columns_have_grown() {
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
        // Columns up to the number of parities hold nothing, and columns count from the first.
        for sectors in [[400, 400, 400], [900, 400, 400], [400, 900, 900], [900, 900, 900], [500, 500, 400]] {
            assert_eq!(divided(sectors), None, "{sectors:?}");
        }
        // An expanded RAID-Z is divided in the same way.
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
    fn zones_beyond_the_last_region_number_are_refused() {
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
        /// Columns join and rows become wider in any steps: no two regions share a row, no number means two places,
        /// kept regions stay in place, and unused rows amount to less than a region.
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
                    // A column may join before all rows have the previous column.
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

        /// Like the test above, on devices of different sizes that may grow: all rows lie on devices that reach there,
        /// and rows that could be wider are found.
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
            // Widening comes to an end.
            for _ in 0..1000 {
                let Some(zone) = narrow(&config, SECTOR, REGION) else { break };
                config.zones = widened(&config, zone.regions.min(3), SECTOR, REGION).unwrap();
            }
            prop_assert_eq!(narrow(&config, SECTOR, REGION), None);
        }
    }
}
