//! The description of a RAID-Z: its parity, and the column of each member.
//!
//! A RAID-Z has as many *columns* as devices: some for data, the rest for parity. A column has one member, or two
//! during a replacement: both get every write to the column. The number of columns is not stored, because every column
//! has a member.
//!
//! ```text
//! raidz  := guid u64, parity u8, count varint, (column varint32, member) (payload of kind 3)
//! zoned  := count varint, zones, raidz (payload of kind 6)
//! zone   := columns u8, first row varint, first region varint32, regions varint32
//! ```
//!
//! Members are in the order of their columns, a replacing member right behind the replaced one. A RAID-Z that was
//! expanded, or has devices with different contributions, is of kind 6, with the number of columns of each range of
//! rows: see [`crate::vdev::raidz::zones`].

use std::ops::RangeInclusive;

use super::{LeafConfig, MemberConfig};
use crate::{
    format::codec::{Malformed, Reader, Writer, malformed},
    units::Guid,
};

/// How many columns of a RAID-Z may be parity.
pub const RAIDZ_PARITY: RangeInclusive<u8> = 1..=3;
/// The most columns of a RAID-Z. At least one is not parity.
pub const RAIDZ_COLUMNS: usize = 32;
/// The most zones of a RAID-Z.
pub const MAX_ZONES: usize = 64;

const WHAT: &str = "member of a raidz";

/// A RAID-Z: rows of data and parity over its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidZConfig {
    /// Its name for life.
    pub guid: Guid,
    /// How many of its columns are parity: as many may be lost.
    pub parity: u8,
    /// Its devices, by column.
    pub members: Vec<RaidZMember>,
    /// The zones, by row. Empty if the devices contribute equally and the RAID-Z was never expanded: then all rows have
    /// all columns.
    pub zones: Vec<Zone>,
}

/// Consecutive rows of a RAID-Z with the same number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// How many columns the rows have: the first ones.
    pub columns: u8,
    /// The first row, counted from the devices' first.
    pub first_row: u64,
    /// The number of the first region.
    pub first_region: u32,
    /// How many regions there are: at least one.
    pub regions: u32,
}

impl Zone {
    /// The number after the last region's.
    pub fn end_region(&self) -> u64 {
        u64::from(self.first_region) + u64::from(self.regions)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.columns);
        out.put_varint(self.first_row);
        out.put_varint(u64::from(self.first_region));
        out.put_varint(u64::from(self.regions));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Zone, Malformed> {
        const WHAT: &str = "zone of a raidz";
        let zone = Zone {
            columns: reader.u8(WHAT)?,
            first_row: reader.varint(WHAT)?,
            first_region: reader.varint32(WHAT)?,
            regions: reader.varint32(WHAT)?,
        };
        let is_one = zone.regions > 0 && u32::try_from(zone.end_region()).is_ok();
        if is_one { Ok(zone) } else { malformed(WHAT) }
    }
}

/// One device of a RAID-Z.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidZMember {
    /// The device's column.
    pub column: u32,
    /// The device, and its state in the RAID-Z.
    pub member: MemberConfig,
}

impl RaidZConfig {
    /// How many columns the RAID-Z has.
    pub fn columns(&self) -> usize {
        self.members.last().map_or(0, |last| last.column as usize + 1)
    }

    /// How many columns are data: the allocation unit in sectors.
    pub fn data_columns(&self) -> usize {
        self.columns().saturating_sub(usize::from(self.parity))
    }

    /// How many columns the widest rows have: later columns are still empty.
    pub fn widest(&self) -> usize {
        self.zones.iter().map(|zone| usize::from(zone.columns)).max().unwrap_or(self.columns())
    }

    /// The bytes that the smallest device contributes.
    pub fn device_size(&self) -> u64 {
        self.leaves().map(|leaf| leaf.size).min().unwrap_or(0)
    }

    /// The least contribution among the devices of the first `columns` columns, in bytes: the end of rows this wide.
    pub fn reach(&self, columns: usize) -> u64 {
        let first = self.members.iter().filter(|member| (member.column as usize) < columns);
        first.map(|member| member.member.leaf.size).min().unwrap_or(0)
    }

    /// The least contribution in bytes of a device for a column, with these sectors and regions: all rows of the
    /// column, and no less than the smallest device.
    pub fn needed_of(&self, column: u32, sector: u64, region: u64) -> u64 {
        let end = |zone: &Zone| {
            let data = usize::from(zone.columns).saturating_sub(usize::from(self.parity)).max(1);
            let rows = u64::from(zone.regions).saturating_mul((region / sector).div_ceil(data as u64));
            zone.first_row.saturating_add(rows).saturating_mul(sector)
        };
        let own = self.zones.iter().filter(|zone| u32::from(zone.columns) > column);
        own.map(end).max().unwrap_or(0).max(self.device_size())
    }

    /// Whether the devices contribute different amounts.
    pub fn is_unequal(&self) -> bool {
        self.leaves().any(|leaf| leaf.size != self.device_size())
    }

    /// The space of the RAID-Z in a pool with these sectors and regions, in bytes. Regions are whole, and each takes as
    /// many rows on each device as its sectors fill.
    pub fn size(&self, sector: u64, region: u64) -> u64 {
        if !self.zones.is_empty() {
            return self.zones.iter().map(|zone| u64::from(zone.regions)).sum::<u64>().saturating_mul(region);
        }
        let rows = (region / sector).div_ceil(self.data_columns().max(1) as u64);
        (self.device_size() / sector / rows).saturating_mul(region)
    }

    fn leaves(&self) -> impl Iterator<Item = &LeafConfig> {
        self.members.iter().map(|member| &member.member.leaf)
    }

    /// The payload: of kind 6 with zones, else of kind 3.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.zones.is_empty() {
            out.put_varint(self.zones.len() as u64);
            self.zones.iter().for_each(|zone| zone.encode(&mut out));
        }
        out.put_u64(self.guid.0);
        out.put_u8(self.parity);
        out.put_varint(self.members.len() as u64);
        for RaidZMember { column, member } in &self.members {
            out.put_varint(u64::from(*column));
            member.encode(&mut out);
        }
        out
    }

    /// A payload of kind 3.
    pub(super) fn decode(payload: &[u8]) -> Result<RaidZConfig, Malformed> {
        RaidZConfig::decode_behind(Vec::new(), Reader::new(payload))
    }

    /// A payload of kind 6. Whether zones do not overlap shows when sectors and regions are known.
    pub(super) fn decode_zoned(payload: &[u8]) -> Result<RaidZConfig, Malformed> {
        let mut reader = Reader::new(payload);
        let count = usize::try_from(reader.varint("number of zones")?).unwrap_or(usize::MAX);
        if !(1..=MAX_ZONES).contains(&count) {
            return malformed("number of zones");
        }
        let zones = (0..count).map(|_| Zone::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        RaidZConfig::decode_behind(zones, reader)
    }

    fn decode_behind(zones: Vec<Zone>, mut reader: Reader<'_>) -> Result<RaidZConfig, Malformed> {
        let guid = Guid(reader.u64("raidz's guid")?);
        let parity = reader.u8("parity of a raidz")?;
        if !RAIDZ_PARITY.contains(&parity) {
            return malformed("parity of a raidz");
        }
        let count = usize::try_from(reader.varint("number of members")?).unwrap_or(usize::MAX);
        if !(usize::from(parity) + 1..=2 * RAIDZ_COLUMNS).contains(&count) {
            return malformed("number of members");
        }
        let members = (0..count).map(|_| RaidZMember::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        reader.finish("end of a raidz")?;
        let raidz = RaidZConfig { guid, parity, members, zones };
        if !raidz.columns_are_whole() {
            return malformed(WHAT);
        }
        let is_bounded = (usize::from(parity) + 1..=RAIDZ_COLUMNS).contains(&raidz.columns());
        if !is_bounded {
            return malformed("number of members");
        }
        let widths = usize::from(parity) + 1..=raidz.columns();
        match raidz.zones.iter().all(|zone| widths.contains(&usize::from(zone.columns))) {
            true => Ok(raidz),
            false => malformed("zone of a raidz"),
        }
    }

    /// Whether each column in turn has one member that is no replacement, followed by none or by its replacement.
    fn columns_are_whole(&self) -> bool {
        let mut columns = self.members.chunk_by(|one, other| one.column == other.column);
        let mut next = 0..;
        columns.all(|members| {
            let is_next = next.next() == Some(members[0].column);
            let replaced = members.iter().map(|member| member.member.replaces);
            let expected = [None, Some(members[0].member.leaf.guid)];
            is_next && members.len() <= expected.len() && replaced.zip(expected).all(|(one, other)| one == other)
        })
    }
}

impl RaidZMember {
    fn decode(reader: &mut Reader<'_>) -> Result<RaidZMember, Malformed> {
        Ok(RaidZMember { column: reader.varint32(WHAT)?, member: MemberConfig::decode(reader)? })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Behind, VdevConfig, VdevTree, decode_all, encode_all},
        *,
    };
    use crate::{
        format::{label, vdev_config::Mark},
        units::{GIB, MIB, VdevId},
    };

    fn member(guid: u64) -> MemberConfig {
        MemberConfig::whole(LeafConfig { guid: Guid(guid), size: GIB, path: format!("/disks/{guid}") })
    }

    fn raidz(parity: u8, members: &[(u32, MemberConfig)]) -> RaidZConfig {
        let members = members.iter().cloned().map(|(column, member)| RaidZMember { column, member }).collect();
        RaidZConfig { guid: Guid(99), parity, members, zones: Vec::new() }
    }

    fn of(parity: u8, columns: u32) -> RaidZConfig {
        let members: Vec<_> = (0..columns).map(|column| (column, member(u64::from(column) + 1000))).collect();
        raidz(parity, &members)
    }

    fn coded(raidz: RaidZConfig) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_all(&[VdevConfig { id: VdevId(5), tree: VdevTree::RaidZ(raidz) }], &mut bytes);
        bytes
    }

    fn decoded(raidz: RaidZConfig) -> Result<(), Malformed> {
        decode_all(&mut Reader::new(&coded(raidz))).map(drop)
    }

    #[test]
    fn a_raidz_round_trips_with_all_that_is_said_of_its_members() {
        let behind = Some(Behind::at(Mark { epoch: crate::format::uberblock::Epoch(7), txg: crate::units::Txg(12) }));
        let old = MemberConfig { is_offline: true, behind, ..member(2) };
        let new = MemberConfig { behind: Some(Behind::default()), replaces: Some(Guid(2)), ..member(4) };
        let raidz = raidz(1, &[(0, member(1)), (1, old), (1, new), (2, member(3))]);
        assert_eq!((raidz.columns(), raidz.data_columns()), (3, 2));
        let bytes = coded(raidz.clone());
        let vdevs = decode_all(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(vdevs[0].tree, VdevTree::RaidZ(raidz));
        assert_eq!((vdevs[0].tree.leaves().count(), vdevs[0].tree.kind_name()), (4, "raidz".to_owned()));
        for len in 0..bytes.len() {
            assert!(decode_all(&mut Reader::new(&bytes[..len])).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn parity_and_columns_are_bounded() {
        for (parity, columns) in [(1, 2), (2, 3), (3, 4), (1, 32), (3, 32)] {
            assert_eq!(decoded(of(parity, columns)), Ok(()), "{parity} of {columns}");
        }
        for (parity, columns) in [(1, 0), (1, 1), (2, 2), (3, 3), (1, 33), (3, 64)] {
            assert_eq!(decoded(of(parity, columns)), malformed("number of members"), "{parity} of {columns}");
        }
        assert_eq!(decoded(of(0, 5)), malformed("parity of a raidz"));
        assert_eq!(decoded(of(4, 5)), malformed("parity of a raidz"));
    }

    #[test]
    fn each_column_has_one_member_or_a_member_and_its_replacement() {
        let replaces = |guid, old| MemberConfig { replaces: Some(Guid(old)), ..member(guid) };
        let wrong = [
            vec![(1, member(1)), (2, member(2)), (3, member(3))],
            vec![(0, member(1)), (2, member(2)), (3, member(3))],
            vec![(1, member(1)), (0, member(2)), (2, member(3))],
            vec![(0, member(1)), (0, member(2)), (1, member(3))],
            vec![(0, replaces(1, 2)), (0, member(2)), (1, member(3))],
            vec![(0, member(1)), (0, replaces(2, 3)), (1, member(3))],
            vec![(0, member(1)), (1, replaces(2, 1)), (2, member(3))],
            vec![(0, member(1)), (0, replaces(2, 1)), (0, replaces(3, 1)), (1, member(4))],
            vec![(0, member(1)), (1, member(2)), (u32::MAX, member(3))],
        ];
        for members in wrong {
            assert_eq!(decoded(raidz(1, &members)), malformed(WHAT), "{members:?}");
        }
        assert_eq!(decoded(raidz(1, &[(0, member(1)), (0, replaces(2, 1)), (1, member(3))])), Ok(()));
    }

    #[test]
    fn zones_round_trip_and_are_bounded() {
        let zone = |columns, first_row, first_region, regions| Zone { columns, first_row, first_region, regions };
        let zoned = |zones: Vec<Zone>| RaidZConfig { zones, ..of(1, 4) };
        let two = zoned(vec![zone(4, 0, 3048, 2), zone(3, 300, 2, 3046)]);
        assert_eq!((two.columns(), two.widest(), two.size(4096, MIB)), (4, 4, 3048 * MIB));
        let bytes = coded(two.clone());
        let vdevs = decode_all(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((vdevs[0].tree.kind_name(), bytes[2]), ("raidz".to_owned(), 6));
        assert_eq!(vdevs[0].tree, VdevTree::RaidZ(two));
        for len in 0..bytes.len() {
            assert!(decode_all(&mut Reader::new(&bytes[..len])).is_err(), "{len} bytes");
        }
        assert_eq!(zoned(vec![zone(3, 0, 0, 9)]).widest(), 3);
        for wrong in [zone(1, 0, 0, 1), zone(5, 0, 0, 1), zone(4, 0, 0, 0), zone(4, 0, u32::MAX, 1)] {
            assert_eq!(decoded(zoned(vec![wrong])), malformed("zone of a raidz"), "{wrong:?}");
        }
        assert_eq!(decoded(zoned(vec![zone(4, 0, 0, 1); MAX_ZONES])), Ok(()), "that they overlap is found later");
        assert_eq!(decoded(zoned(vec![zone(4, 0, 0, 1); MAX_ZONES + 1])), malformed("number of zones"));
    }

    #[test]
    fn duplicate_guids_of_devices_or_the_raidz_are_refused() {
        let twice = malformed("device that stands twice");
        assert_eq!(decoded(raidz(1, &[(0, member(1)), (1, member(1))])), twice);
        assert_eq!(decoded(raidz(1, &[(0, member(1)), (1, member(99))])), twice);
    }

    #[test]
    fn its_size_is_that_of_the_regions_whose_rows_fit() {
        // 256 sectors of a region lie in 86 rows of three data columns; 1 GiB has 262,144 rows, enough for 3,048
        // regions.
        assert_eq!(of(2, 5).size(4096, MIB), 3048 * MIB);
        assert_eq!(of(1, 2).size(4096, MIB), GIB);
        let mut small = of(1, 3);
        small.members[1].member.leaf.size = 100 * MIB;
        assert_eq!(small.size(4096, MIB), 200 * MIB);
        small.members[1].member.leaf.size = 0;
        assert_eq!(small.size(4096, MIB), 0);
        let mut hostile = of(1, 32);
        hostile.members.iter_mut().for_each(|member| member.member.leaf.size = u64::MAX);
        assert!(hostile.size(1 << 16, label::MAX_REGION) > 0);
    }
}
