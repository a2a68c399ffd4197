//! The place of each sector of a RAID-Z vdev: arithmetic alone, no I/O.
//!
//! To the layers above the vdev is a linear space of data bytes in regions of a power of two, like every vdev. Below, a
//! region is a table of *rows* on `n` devices, its *columns*: a row holds one sector of each column, `d` of them data
//! in order and `p` of them parity. A region of `S` bytes takes `R = ceil(S / sector / d)` rows, so that region `r` has
//! the rows `[r * R, (r + 1) * R)` of all columns; row `i` lies at byte `i * sector` behind the labels of each device.
//!
//! ```text
//! five devices, double parity (d = 3), the first rows of a region whose shift is 0:
//!
//! column     0     1     2     3     4
//! row 0     d0    d1    d2     P     Q
//! row 1     d3    d4    d5     P     Q
//! ...
//! row 64     Q  d192  d193  d194     P       the next band: shifted by one
//! ```
//!
//! The part of a column in a row is its *role*: data 0 to `d - 1`, then parity. Roles rotate: role `c` is at column
//! `(c + shift) % n`, where `shift = (region + row / BAND) % n`. So data and parity spread evenly over all devices,
//! whatever the access pattern, and the rows of a block lie mostly in one band: contiguous, with the same roles.
//!
//! The last row of a region may have room for more sectors than the region. The excess sectors are never written, and
//! count as zeros.
//!
//! A vdev that was expanded, or has devices of different sizes, has several tables, its [zones](super::zones): each
//! begins at a row and a region of its own, and has the first of the columns, or all.

use std::ops::Range;

use crate::format::vdev_config::{RAIDZ_COLUMNS, RAIDZ_PARITY};

/// Neighbouring rows with equal roles.
pub const BAND: u64 = 64;

/// The shape of a RAID-Z vdev, or of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    columns: usize,
    parity: usize,
    sector: u64,
    region: u64,
    /// The device row of the first region.
    first_row: u64,
    /// The number of the first region.
    first_region: u64,
}

/// The rows of one region that some bytes lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Their layout on the columns.
    pub shape: Geometry,
    /// Number of the region in the vdev.
    pub region: u64,
    /// The first row, counted from the first row of the region.
    pub first: u64,
    /// The number of rows: at least one.
    pub count: u64,
    /// Bytes of row data before the requested bytes.
    pub skip: usize,
}

/// Neighbouring rows with equal roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first row, counted from the first of [`Rows`].
    pub first: u64,
    /// The number of rows: at least one.
    pub count: u64,
    /// The rotation of the roles, in columns.
    pub shift: usize,
}

impl Geometry {
    /// A shape of so many columns, `parity` of them parity, with sectors and regions of so many bytes. `None` if
    /// invalid: columns and parity may come from a label.
    pub fn new(columns: usize, parity: usize, sector: u64, region: u64) -> Option<Geometry> {
        let is_one = u8::try_from(parity).is_ok_and(|parity| RAIDZ_PARITY.contains(&parity));
        let is_one = is_one && (parity + 1..=RAIDZ_COLUMNS).contains(&columns);
        let is_even = sector > 0 && region >= sector && region.is_multiple_of(sector);
        (is_one && is_even).then_some(Geometry { columns, parity, sector, region, first_row: 0, first_region: 0 })
    }

    /// The same shape with another number of columns, for a zone that begins at this row and region. `None` if invalid.
    pub fn zone(&self, columns: usize, first_row: u64, first_region: u32) -> Option<Geometry> {
        let shape = Geometry::new(columns, self.parity, self.sector, self.region)?;
        Some(Geometry { first_row, first_region: first_region.into(), ..shape })
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The number of columns that can be lost.
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// The number of data columns: as many must be left.
    pub fn data(&self) -> usize {
        self.columns - self.parity
    }

    /// Bytes of a sector.
    pub fn sector(&self) -> u64 {
        self.sector
    }

    /// Data bytes of a row.
    pub fn row_size(&self) -> u64 {
        self.sector * self.data() as u64
    }

    /// Data bytes of a region.
    pub fn region(&self) -> u64 {
        self.region
    }

    /// Rows in a region; the last may be partial.
    pub fn rows_per_region(&self) -> u64 {
        self.region.div_ceil(self.row_size())
    }

    /// Data bytes of devices, the smallest of which has `least` bytes between its labels: whole regions.
    pub fn space(&self, least: u64) -> u64 {
        (least / (self.rows_per_region() * self.sector)).saturating_mul(self.region)
    }

    /// The rows that bytes lie in. `None` for no bytes, bytes of several regions, or of a region before the first.
    pub fn rows(&self, offset: u64, len: u64) -> Option<Rows> {
        let (region, at) = (offset / self.region, offset % self.region);
        if len == 0 || at.checked_add(len)? > self.region || region < self.first_region {
            return None;
        }
        let first = at / self.row_size();
        let count = (at + len).div_ceil(self.row_size()) - first;
        Some(Rows { shape: *self, region, first, count, skip: (at % self.row_size()) as usize })
    }

    /// The rows that lie wholly in a range, region by region.
    pub fn whole_rows(&self, offset: u64, len: u64) -> impl Iterator<Item = Rows> {
        let end = offset.saturating_add(len);
        let regions = offset / self.region..end.div_ceil(self.region);
        regions.filter_map(move |region| {
            let base = region * self.region;
            let (from, to) = (offset.max(base) - base, end.min(base + self.region) - base);
            let first = from.div_ceil(self.row_size());
            // The last row ends with its region.
            let last = if to == self.region { self.rows_per_region() } else { to / self.row_size() };
            let count = last.checked_sub(first).filter(|count| *count > 0)?;
            Some(Rows { shape: *self, region, first, count, skip: 0 })
        })
    }

    /// The offset of the rows on each device, in bytes behind the labels.
    pub fn place(&self, rows: &Rows) -> u64 {
        let before = (rows.region - self.first_region) * self.rows_per_region();
        (self.first_row + before + rows.first) * self.sector
    }

    /// Splits the rows into stretches.
    pub fn stretches(&self, rows: &Rows) -> impl Iterator<Item = Stretch> + use<> {
        let Rows { region, first, count, .. } = *rows;
        let (end, columns) = (first + count, self.columns as u64);
        (first / BAND..end.div_ceil(BAND)).map(move |band| {
            let (from, to) = (first.max(band * BAND), end.min((band + 1) * BAND));
            let shift = (region + band) % columns;
            Stretch { first: from - first, count: to - from, shift: shift as usize }
        })
    }

    /// The column with a role.
    pub fn column(&self, stretch: &Stretch, role: usize) -> usize {
        (role + stretch.shift) % self.columns
    }

    /// The role of a column.
    pub fn role(&self, stretch: &Stretch, column: usize) -> usize {
        (column + self.columns - stretch.shift) % self.columns
    }
}

impl Rows {
    /// The offset of the rows on each device, in bytes behind the labels.
    pub fn place(&self) -> u64 {
        self.shape.place(self)
    }

    /// Splits the rows into stretches.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> + use<> {
        self.shape.stretches(self)
    }
}

impl Stretch {
    /// The byte range of the stretch within a device's part of the [`Rows`].
    pub fn on_device(&self, sector: u64) -> Range<usize> {
        let bytes = |rows: u64| (rows * sector) as usize;
        bytes(self.first)..bytes(self.first + self.count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        format::vdev_config::{LeafConfig, MemberConfig, RaidZConfig, RaidZMember},
        units::{GIB, Guid, KIB, MIB},
    };

    fn geometry() -> impl Strategy<Value = Geometry> {
        let shape = (1usize..=3).prop_flat_map(|parity| (Just(parity), parity + 1..=12));
        (shape, 9u32..=12, 0u32..=8).prop_map(|((parity, columns), ashift, more)| {
            Geometry::new(columns, parity, 1 << ashift, 1 << (ashift + more)).unwrap()
        })
    }

    /// The content of each sector of each device for the first regions: the number of a data sector, or of a parity.
    fn model(geometry: &Geometry, regions: u64) -> BTreeMap<(usize, u64), (bool, u64)> {
        let (n, d) = (geometry.columns as u64, geometry.data() as u64);
        let sectors = geometry.region / geometry.sector;
        let mut held = BTreeMap::new();
        for region in 0..regions {
            let rows = sectors.div_ceil(d);
            for row in 0..rows {
                let shift = region + row / 64;
                for role in 0..n {
                    let column = ((role + shift) % n) as usize;
                    let what = match role < d {
                        true => (true, region * sectors + row * d + role),
                        false => (false, role - d),
                    };
                    held.insert((column, region * rows + row), what);
                }
            }
        }
        held
    }

    proptest! {
        #[test]
        fn every_sector_lies_where_the_plain_model_has_it(
            geometry in geometry(), region in 0u64..4, from in any::<u64>(), len in any::<u64>(),
        ) {
            let offset = region * geometry.region + from % geometry.region;
            let len = 1 + len % (geometry.region - from % geometry.region);
            let rows = geometry.rows(offset, len).unwrap();
            let model = model(&geometry, region + 1);
            let place = geometry.place(&rows);
            prop_assert_eq!(place % geometry.sector, 0);
            let mut covered = 0;
            for stretch in geometry.stretches(&rows) {
                prop_assert_eq!(stretch.first, covered);
                covered += stretch.count;
                prop_assert_eq!(stretch.on_device(geometry.sector).start as u64, stretch.first * geometry.sector);
                for (row, role) in (0..stretch.count).flat_map(|row| (0..geometry.columns).map(move |role| (row, role))) {
                    let at = place / geometry.sector + stretch.first + row;
                    let (is_data, what) = model[&(geometry.column(&stretch, role), at)];
                    prop_assert_eq!(is_data, role < geometry.data());
                    if is_data {
                        // The sector's number in the vdev, counted from the beginning of the rows.
                        let index = (stretch.first + row) * geometry.data() as u64 + role as u64;
                        let base = (offset - rows.skip as u64) / geometry.sector;
                        prop_assert_eq!(what, base + index);
                    }
                }
            }
            prop_assert_eq!(covered, rows.count);
            // Exactly as many rows as needed.
            let held = rows.count * geometry.row_size();
            prop_assert!(rows.skip < geometry.row_size() as usize);
            prop_assert!(rows.skip as u64 + len <= held && rows.skip as u64 + len > held - geometry.row_size());
        }

        #[test]
        fn devices_are_used_up_to_less_than_a_region(geometry in geometry(), least in 0..64 * GIB) {
            let space = geometry.space(least);
            let end = |last: u64| geometry.place(&geometry.rows(last, 1).unwrap()) + geometry.sector;
            prop_assert_eq!(space % geometry.region, 0);
            prop_assert!(space == 0 || end(space - 1) <= least);
            prop_assert!(end(space + geometry.region - 1) > least);
            // The size computed from a label agrees.
            let member = |n: usize| {
                let leaf = LeafConfig { guid: Guid(n as u64), size: least, path: String::new() };
                RaidZMember { column: n as u32, member: MemberConfig::whole(leaf) }
            };
            let members = (0..geometry.columns).map(member).collect();
            let config = RaidZConfig { guid: Guid(99), parity: geometry.parity as u8, members, zones: Vec::new() };
            prop_assert_eq!(config.size(geometry.sector, geometry.region), space);
        }

        #[test]
        fn whole_rows_are_those_of_which_a_range_leaves_nothing_out(
            geometry in geometry(), offset in 0..4 * MIB, len in 0..4 * MIB,
        ) {
            let end = offset + len;
            let mut last = 0;
            for rows in geometry.whole_rows(offset, len) {
                let base = rows.region * geometry.region;
                let from = base + rows.first * geometry.row_size();
                let to = (base + geometry.region).min(from + rows.count * geometry.row_size());
                prop_assert!(from >= offset.max(last) && to <= end && rows.count > 0);
                // The rows before and behind, if in this region and range at all, are not whole.
                prop_assert!(rows.first == 0 || from < offset + geometry.row_size());
                prop_assert!(to == base + geometry.region || to + geometry.row_size() > end);
                last = to;
            }
        }
    }

    #[test]
    fn the_shift_goes_round_with_regions_and_bands() {
        let geometry = Geometry::new(5, 2, 4 * KIB, 4 * MIB).unwrap();
        let shifts = |region: u64, first: u64, count: u64| {
            let rows = Rows { shape: geometry, region, first, count, skip: 0 };
            geometry.stretches(&rows).map(|stretch| (stretch.count, stretch.shift)).collect::<Vec<_>>()
        };
        assert_eq!(shifts(0, 0, 64), [(64, 0)]);
        assert_eq!(shifts(0, 60, 70), [(4, 0), (64, 1), (2, 2)]);
        assert_eq!(shifts(7, 64, 1), [(1, 3)]);
    }

    #[test]
    fn what_is_no_such_vdev_is_refused() {
        let is_one = |columns, parity| Geometry::new(columns, parity, 4096, MIB).is_some();
        assert!(is_one(2, 1) && is_one(3, 2) && is_one(4, 3) && is_one(32, 3));
        assert!(!is_one(1, 1) && !is_one(3, 3) && !is_one(5, 0) && !is_one(5, 4) && !is_one(33, 1));
        assert!(Geometry::new(3, 1, 4096, 1024).is_none());
    }

    #[test]
    fn bytes_of_two_regions_have_no_rows() {
        let geometry = Geometry::new(3, 1, 4096, MIB).unwrap();
        assert!(geometry.rows(MIB - 4096, 4096).is_some());
        assert_eq!(geometry.rows(MIB - 4096, 4097), None);
        assert_eq!(geometry.rows(0, 0), None);
        assert_eq!(geometry.rows(u64::MAX, u64::MAX), None);
    }
}
