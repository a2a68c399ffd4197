//! The description of a pool's vdevs in each label.
//!
//! A pool spreads space over its top-level vdevs. Each is a tree: a single device (a leaf), several devices with the
//! same content (a mirror), or several with data and parity (a RAID-Z). Other kinds have numbers already, and a length,
//! so that this version can skip their trees and refuse the pool by the kind's name instead of calling the label
//! damaged.
//!
//! ```text
//! vdev   := id varint, kind u8, length varint, payload
//! leaf   := guid u64, size varint, path text (payload of kind 1)
//! mirror := guid u64, count varint, members (payload of kind 2)
//! member := flags u8, [mark, mark if it is behind], [guid u64 if it replaces another], length varint, leaf
//! mark   := epoch u64, txg varint
//! ```

use std::{collections::BTreeSet, ops::RangeInclusive};

mod raidz;

pub use raidz::{MAX_ZONES, RAIDZ_COLUMNS, RAIDZ_PARITY, RaidZConfig, RaidZMember, Zone};

use crate::{
    error::{Error, Result},
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        uberblock::Epoch,
    },
    units::{Guid, Txg, VdevId},
};

/// The most top-level vdevs.
pub const MAX_VDEVS: usize = 1024;
/// The longest path of a device, in bytes, as in Linux.
pub const MAX_PATH: usize = 4096;

/// The fewest members of a mirror, and the most.
pub const MIRROR_MEMBERS: RangeInclusive<usize> = 2..=16;

const LEAF: u8 = 1;
const MIRROR: u8 = 2;
const RAIDZ: u8 = 3;
const ZONED_RAIDZ: u8 = 6;

/// Flags of a member of a mirror or a RAID-Z.
const OFFLINE: u8 = 1;
const BEHIND: u8 = 2;
const REPLACES: u8 = 4;
/// The names of the kinds, by their number.
const KINDS: [&str; 7] = ["none", "disk", "mirror", "raidz", "draid", "object store", "expanded raidz"];

/// A top-level vdev: its number, and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdevConfig {
    /// Its position in the pool, never reused.
    pub id: VdevId,
    /// The devices, with their roles.
    pub tree: VdevTree,
}

/// The devices of a vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdevTree {
    /// A single device, without redundancy.
    Leaf(LeafConfig),
    /// Several devices, each with a full copy.
    Mirror(MirrorConfig),
    /// Several devices with redundancy: each has one sector of a row, data or parity.
    RaidZ(RaidZConfig),
    /// A kind unknown to this version: its number and its coded form.
    Other {
        /// The number of the unknown kind.
        kind: u8,
        /// The coded form, kept when the label is rewritten.
        payload: Vec<u8>,
    },
}

/// A device of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafConfig {
    /// Its name for life.
    pub guid: Guid,
    /// The space contributed to the pool, in bytes, without labels.
    pub size: u64,
    /// The last known path. Only a hint: devices move.
    pub path: String,
}

/// A mirror: each member has a full copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Its name for life.
    pub guid: Guid,
    /// Its devices: as many as [`MIRROR_MEMBERS`] says.
    pub members: Vec<MemberConfig>,
}

/// A device of a mirror or a RAID-Z, and its state there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The device, described as a single one.
    pub leaf: LeafConfig,
    /// The operator took the device offline.
    pub is_offline: bool,
    /// The state of an incomplete device; `None` if complete.
    pub behind: Option<Behind>,
    /// The member that leaves once this device is complete.
    pub replaces: Option<Guid>,
}

/// An uberblock that a device may have, by import and transaction group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The import that wrote the uberblock.
    pub epoch: Epoch,
    /// The transaction group of the uberblock.
    pub txg: Txg,
}

/// How up to date a device was when it became incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The newest uberblock that the device certainly has.
    pub has: Mark,
    /// A newer uberblock that the device may have: the write was issued, but not confirmed.
    pub may_have: Mark,
}

impl Behind {
    /// A device with this newest uberblock.
    pub fn at(mark: Mark) -> Behind {
        Behind { has: mark, may_have: mark }
    }

    /// Whether `newest` can be the device's newest uberblock if no import has changed the device since.
    pub fn knows(&self, newest: Mark) -> bool {
        [self.has, self.may_have].iter().any(|known| known.epoch == newest.epoch && newest.txg <= known.txg)
    }

    /// Appends the coded form: both marks.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        for Mark { epoch, txg } in [self.has, self.may_have] {
            out.put_u64(epoch.0);
            out.put_varint(txg.0);
        }
    }

    /// Takes both marks off the reader.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Behind, Malformed> {
        Ok(Behind { has: Mark::decode(reader)?, may_have: Mark::decode(reader)? })
    }
}

impl MemberConfig {
    /// A complete member, online.
    pub fn whole(leaf: LeafConfig) -> MemberConfig {
        MemberConfig { leaf, is_offline: false, behind: None, replaces: None }
    }
}

impl VdevTree {
    /// The kind's name, such as `mirror`, or its number if unknown.
    pub fn kind_name(&self) -> String {
        let number = match self {
            VdevTree::Leaf(_) => LEAF,
            VdevTree::Mirror(_) => MIRROR,
            VdevTree::RaidZ(_) => RAIDZ,
            VdevTree::Other { kind, .. } => *kind,
        };
        KINDS.get(usize::from(number)).map_or_else(|| format!("kind {number}"), |name| (*name).to_owned())
    }

    /// The devices of the vdev, as far as this version knows.
    pub fn leaves(&self) -> impl Iterator<Item = &LeafConfig> {
        let alone = if let VdevTree::Leaf(leaf) = self { Some(leaf) } else { None };
        alone.into_iter().chain(self.members().map(|member| &member.leaf))
    }

    /// The members of a mirror or a RAID-Z; none for a leaf.
    pub fn members(&self) -> impl Iterator<Item = &MemberConfig> {
        let (mirrored, columns) = match self {
            VdevTree::Mirror(mirror) => (&mirror.members[..], &[][..]),
            VdevTree::RaidZ(raidz) => (&[][..], &raidz.members[..]),
            VdevTree::Leaf(_) | VdevTree::Other { .. } => (&[][..], &[][..]),
        };
        mirrored.iter().chain(columns.iter().map(|member| &member.member))
    }

    /// As [`VdevTree::members`], mutable.
    pub fn members_mut(&mut self) -> impl Iterator<Item = &mut MemberConfig> {
        let (mirrored, columns) = match self {
            VdevTree::Mirror(mirror) => (&mut mirror.members[..], &mut [][..]),
            VdevTree::RaidZ(raidz) => (&mut [][..], &mut raidz.members[..]),
            VdevTree::Leaf(_) | VdevTree::Other { .. } => (&mut [][..], &mut [][..]),
        };
        mirrored.iter_mut().chain(columns.iter_mut().map(|member| &mut member.member))
    }

    /// The members with their columns; a mirror has the single column 0.
    pub fn in_columns(&self) -> Vec<(usize, &MemberConfig)> {
        match self {
            VdevTree::RaidZ(raidz) => raidz.members.iter().map(|one| (one.column as usize, &one.member)).collect(),
            tree => tree.members().map(|member| (0, member)).collect(),
        }
    }

    /// How many columns must have a complete device.
    pub fn needed(&self) -> usize {
        if let VdevTree::RaidZ(raidz) = self { raidz.widest().saturating_sub(raidz.parity.into()) } else { 1 }
    }

    /// How many columns count towards [`VdevTree::needed`]: later columns are still empty.
    pub fn counted(&self) -> usize {
        if let VdevTree::RaidZ(raidz) = self { raidz.widest() } else { 1 }
    }

    /// Whether devices of these columns are enough to read everything.
    pub fn suffice(&self, columns: impl IntoIterator<Item = usize>) -> bool {
        let counted: BTreeSet<usize> = columns.into_iter().filter(|column| *column < self.counted()).collect();
        counted.len() >= self.needed()
    }

    /// The name of a mirror or a RAID-Z, by kind and number, such as `raidz2-0`.
    pub fn group_name(&self, id: VdevId) -> Option<String> {
        match self {
            VdevTree::Mirror(_) => Some(format!("mirror-{id}")),
            VdevTree::RaidZ(raidz) => Some(format!("raidz{}-{id}", raidz.parity)),
            VdevTree::Leaf(_) | VdevTree::Other { .. } => None,
        }
    }

    /// The GUID of a mirror or a RAID-Z.
    pub fn guid(&self) -> Option<Guid> {
        match self {
            VdevTree::Mirror(mirror) => Some(mirror.guid),
            VdevTree::RaidZ(raidz) => Some(raidz.guid),
            VdevTree::Leaf(_) | VdevTree::Other { .. } => None,
        }
    }

    /// The bytes that the smallest device contributes.
    pub fn device_size(&self) -> u64 {
        self.leaves().map(|leaf| leaf.size).min().unwrap_or(0)
    }

    /// The least contribution in bytes of a replacement for a device: the smallest device's, and in a RAID-Z all rows
    /// of the column.
    pub fn needed_in_place_of(&self, device: Guid, sector: u64, region: u64) -> u64 {
        let VdevTree::RaidZ(raidz) = self else { return self.device_size() };
        let member = raidz.members.iter().find(|member| member.member.leaf.guid == device);
        member.map_or(u64::MAX, |member| raidz.needed_of(member.column, sector, region))
    }

    /// The space contributed to a pool with these sectors and regions, in bytes: that of the smallest device or, in a
    /// RAID-Z, that of its rows.
    pub fn size(&self, sector: u64, region: u64) -> u64 {
        match self {
            VdevTree::RaidZ(raidz) => raidz.size(sector, region),
            _ => self.device_size(),
        }
    }

    /// How many sectors are allocated and written together: a whole row of a RAID-Z.
    pub fn unit(&self) -> u32 {
        match self {
            // With rows of different widths, the unit of the widest that there will be.
            VdevTree::RaidZ(raidz) => raidz.data_columns() as u32,
            _ => 1,
        }
    }

    /// Sets the contribution of each device, in bytes: no device may be smaller.
    pub fn set_device_size(&mut self, size: u64) {
        let note = |member: &mut MemberConfig| member.leaf.size = size;
        match self {
            VdevTree::Leaf(leaf) => leaf.size = size,
            VdevTree::Mirror(mirror) => mirror.members.iter_mut().for_each(note),
            VdevTree::RaidZ(raidz) => raidz.members.iter_mut().for_each(|member| note(&mut member.member)),
            VdevTree::Other { .. } => {}
        }
    }

    /// Fails, with the kind's name, if this version does not know the kind.
    pub fn check_supported(&self) -> Result<()> {
        match self {
            VdevTree::Leaf(_) | VdevTree::Mirror(_) | VdevTree::RaidZ(_) => Ok(()),
            VdevTree::Other { .. } => Err(Error::Unsupported {
                what: format!("a {} vdev", self.kind_name()),
                problem: "this version of Cenote knows single devices, mirrors and raidz only".to_owned(),
            }),
        }
    }
}

impl VdevConfig {
    /// Appends the coded form.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_varint(u64::from(self.id.0));
        match &self.tree {
            VdevTree::Leaf(leaf) => {
                out.put_u8(LEAF);
                out.put_prefixed(&leaf.encoded());
            }
            VdevTree::Mirror(mirror) => {
                out.put_u8(MIRROR);
                out.put_prefixed(&mirror.encoded());
            }
            VdevTree::RaidZ(raidz) => {
                out.put_u8(if raidz.zones.is_empty() { RAIDZ } else { ZONED_RAIDZ });
                out.put_prefixed(&raidz.encoded());
            }
            VdevTree::Other { kind, payload } => {
                out.put_u8(*kind);
                out.put_prefixed(payload);
            }
        }
    }

    /// Takes a vdev off the reader.
    pub fn decode(reader: &mut Reader<'_>) -> Result<VdevConfig, Malformed> {
        let id = VdevId(reader.varint32("vdev's id")?);
        let kind = reader.u8("vdev's kind")?;
        let payload = reader.prefixed("vdev")?;
        let tree = match kind {
            0 => return malformed("vdev's kind"),
            LEAF => VdevTree::Leaf(LeafConfig::decode(payload)?),
            MIRROR => VdevTree::Mirror(MirrorConfig::decode(payload)?),
            RAIDZ => VdevTree::RaidZ(RaidZConfig::decode(payload)?),
            ZONED_RAIDZ => VdevTree::RaidZ(RaidZConfig::decode_zoned(payload)?),
            kind => VdevTree::Other { kind, payload: payload.to_vec() },
        };
        Ok(VdevConfig { id, tree })
    }
}

impl MirrorConfig {
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.guid.0);
        out.put_varint(self.members.len() as u64);
        self.members.iter().for_each(|member| member.encode(&mut out));
        out
    }

    fn decode(payload: &[u8]) -> Result<MirrorConfig, Malformed> {
        let mut reader = Reader::new(payload);
        let guid = Guid(reader.u64("mirror's guid")?);
        let count = usize::try_from(reader.varint("number of members")?).unwrap_or(usize::MAX);
        if !MIRROR_MEMBERS.contains(&count) {
            return malformed("number of members");
        }
        let members = (0..count).map(|_| MemberConfig::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        reader.finish("end of a mirror")?;
        let mirror = MirrorConfig { guid, members };
        match mirror.members.iter().all(|member| mirror.may_replace(member)) {
            true => Ok(mirror),
            false => malformed("member of a mirror"),
        }
    }

    /// Whether a member replaces no member, or a member that is itself no replacement and has no other replacement.
    fn may_replace(&self, member: &MemberConfig) -> bool {
        let Some(replaced) = member.replaces else { return true };
        let is_it = |other: &&MemberConfig| other.leaf.guid == replaced;
        let rivals = self.members.iter().filter(|other| other.replaces == Some(replaced)).count();
        rivals == 1 && self.members.iter().find(is_it).is_some_and(|other| other.replaces.is_none())
    }
}

impl MemberConfig {
    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let (behind, replaces) = (flag(self.behind.is_some(), BEHIND), flag(self.replaces.is_some(), REPLACES));
        out.put_u8(flag(self.is_offline, OFFLINE) | behind | replaces);
        if let Some(behind) = self.behind {
            behind.encode(out);
        }
        if let Some(replaced) = self.replaces {
            out.put_u64(replaced.0);
        }
        out.put_prefixed(&self.leaf.encoded());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<MemberConfig, Malformed> {
        const WHAT: &str = "member";
        let flags = reader.u8(WHAT)?;
        if flags & !(OFFLINE | BEHIND | REPLACES) != 0 {
            return malformed(WHAT);
        }
        let has = |flag: u8| flags & flag != 0;
        let behind = match has(BEHIND) {
            true => Some(Behind::decode(reader)?),
            false => None,
        };
        let replaces = if has(REPLACES) { Some(Guid(reader.u64(WHAT)?)) } else { None };
        let leaf = LeafConfig::decode(reader.prefixed(WHAT)?)?;
        Ok(MemberConfig { leaf, is_offline: has(OFFLINE), behind, replaces })
    }
}

impl Mark {
    fn decode(reader: &mut Reader<'_>) -> Result<Mark, Malformed> {
        const WHAT: &str = "state of a member";
        let mark = Mark { epoch: Epoch(reader.u64(WHAT)?), txg: Txg(reader.varint(WHAT)?) };
        if mark.txg < Txg::LIMIT { Ok(mark) } else { malformed(WHAT) }
    }
}

impl LeafConfig {
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.guid.0);
        out.put_varint(self.size);
        out.put_prefixed(self.path.as_bytes());
        out
    }

    /// The device of a coded form.
    pub(super) fn decode(payload: &[u8]) -> Result<LeafConfig, Malformed> {
        let mut reader = Reader::new(payload);
        let guid = Guid(reader.u64("device's guid")?);
        let size = reader.varint("device's size")?;
        let path = reader.text("device's path")?.to_owned();
        if path.len() > MAX_PATH {
            return malformed("device's path");
        }
        reader.finish("end of a device")?;
        Ok(LeafConfig { guid, size, path })
    }
}

/// Appends the coded form of all vdevs.
pub fn encode_all(vdevs: &[VdevConfig], out: &mut impl Writer) {
    out.put_varint(vdevs.len() as u64);
    vdevs.iter().for_each(|vdev| vdev.encode(out));
}

/// Takes all vdevs off the reader; their ids must ascend, and no guid stand there twice.
pub fn decode_all(reader: &mut Reader<'_>) -> Result<Vec<VdevConfig>, Malformed> {
    let count = reader.varint("number of vdevs")?;
    if count > MAX_VDEVS as u64 {
        return malformed("number of vdevs");
    }
    let vdevs = (0..count).map(|_| VdevConfig::decode(reader)).collect::<Result<Vec<_>, _>>()?;
    if !vdevs.is_sorted_by(|a, b| a.id < b.id) {
        return malformed("order of vdevs");
    }
    let own = |vdev: &VdevConfig| vdev.tree.leaves().map(|leaf| leaf.guid).chain(vdev.tree.guid()).collect::<Vec<_>>();
    let mut guids: Vec<Guid> = vdevs.iter().flat_map(own).collect();
    let count = guids.len();
    guids.sort_unstable();
    guids.dedup();
    if guids.len() == count { Ok(vdevs) } else { malformed("device that stands twice") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn leaf(id: u32) -> VdevConfig {
        let leaf = LeafConfig { guid: Guid(u64::from(id) + 1000), size: 1 << 30, path: format!("/disks/{id}") };
        VdevConfig { id: VdevId(id), tree: VdevTree::Leaf(leaf) }
    }

    fn member(guid: u64) -> MemberConfig {
        MemberConfig::whole(LeafConfig { guid: Guid(guid), size: 1 << 30, path: format!("/disks/{guid}") })
    }

    fn mirror(members: Vec<MemberConfig>) -> VdevConfig {
        VdevConfig { id: VdevId(5), tree: VdevTree::Mirror(MirrorConfig { guid: Guid(99), members }) }
    }

    #[test]
    fn a_mirror_round_trips_with_all_that_is_said_of_its_members() {
        let mark = |epoch, txg| Mark { epoch: Epoch(epoch), txg: Txg(txg) };
        let behind = Some(Behind { has: mark(77, 1234), may_have: mark(78, 1235) });
        let offline = MemberConfig { is_offline: true, behind, ..member(2) };
        let new = MemberConfig { behind: Some(Behind::default()), replaces: Some(Guid(2)), ..member(3) };
        let vdevs = vec![mirror(vec![member(1), offline, new])];
        let mut bytes = Vec::new();
        encode_all(&vdevs, &mut bytes);
        assert_eq!(decode_all(&mut Reader::new(&bytes)), Ok(vdevs));
        for len in 0..bytes.len() {
            assert!(decode_all(&mut Reader::new(&bytes[..len])).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_mirror_of_too_few_too_many_or_duplicate_devices_is_refused() {
        let decoded = |members: Vec<MemberConfig>| {
            let mut bytes = Vec::new();
            encode_all(&[mirror(members)], &mut bytes);
            decode_all(&mut Reader::new(&bytes))
        };
        assert!(decoded((0..16).map(member).collect()).is_ok());
        assert_eq!(decoded((0..17).map(member).collect()), malformed("number of members"));
        assert_eq!(decoded(vec![member(1)]), malformed("number of members"));
        assert_eq!(decoded(vec![member(1), member(1)]), malformed("device that stands twice"));
        let liar = Behind::at(Mark { epoch: Epoch(1), txg: Txg::LIMIT });
        let liar = MemberConfig { behind: Some(liar), ..member(2) };
        assert_eq!(decoded(vec![member(1), liar]), malformed("state of a member"));
    }

    #[test]
    fn a_member_replaces_a_member_that_is_no_replacement() {
        let decoded = |replaces: [Option<u64>; 3]| {
            let members = (1..).zip(replaces);
            let members = members.map(|(n, old)| MemberConfig { replaces: old.map(Guid), ..member(n) }).collect();
            let mut bytes = Vec::new();
            encode_all(&[mirror(members)], &mut bytes);
            decode_all(&mut Reader::new(&bytes)).is_ok()
        };
        assert!(decoded([None, None, Some(2)]));
        assert!(!decoded([None, None, Some(3)]), "itself");
        assert!(!decoded([None, None, Some(7)]), "nobody");
        assert!(!decoded([None, Some(1), Some(1)]), "the same as another");
        assert!(!decoded([None, Some(1), Some(2)]), "one that will be gone");
        assert!(!decoded([Some(2), Some(1), None]), "each other");
    }

    #[test]
    fn a_device_that_stands_in_two_vdevs_is_refused() {
        let twice = VdevConfig { id: VdevId(9), tree: leaf(0).tree };
        for vdevs in [vec![leaf(0), twice.clone()], vec![leaf(0), mirror(vec![member(1), member(1000)])]] {
            let mut bytes = Vec::new();
            encode_all(&vdevs, &mut bytes);
            assert_eq!(decode_all(&mut Reader::new(&bytes)), malformed("device that stands twice"));
        }
    }

    #[test]
    fn what_a_device_may_have_is_known_by_two_marks() {
        let mark = |epoch, txg| Mark { epoch: Epoch(epoch), txg: Txg(txg) };
        let behind = Behind { has: mark(1, 9), may_have: mark(2, 12) };
        let known = [mark(1, 9), mark(1, 3), mark(2, 12), mark(2, 11)];
        assert!(known.into_iter().all(|newest| behind.knows(newest)));
        let foreign = [mark(1, 10), mark(2, 13), mark(3, 9), mark(0, 1)];
        assert!(!foreign.into_iter().any(|newest| behind.knows(newest)));
    }

    #[test]
    fn leaves_and_unknown_kinds_round_trip() {
        let draid = VdevConfig { id: VdevId(7), tree: VdevTree::Other { kind: 4, payload: vec![1, 2, 3] } };
        let vdevs = vec![leaf(0), leaf(3), draid];
        let mut bytes = Vec::new();
        encode_all(&vdevs, &mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(decode_all(&mut reader), Ok(vdevs));
        assert_eq!(reader.remaining(), 0);
        for len in 0..bytes.len() {
            assert!(decode_all(&mut Reader::new(&bytes[..len])).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_by_name() {
        let refusal = |kind| VdevTree::Other { kind, payload: Vec::new() }.check_supported().unwrap_err();
        assert_eq!(refusal(4).kind(), ErrorKind::Unsupported);
        assert!(refusal(4).to_string().starts_with("a draid vdev is not supported"));
        assert!(refusal(99).to_string().starts_with("a kind 99 vdev is not supported"));
        assert!(leaf(0).tree.check_supported().is_ok());
    }

    #[test]
    fn a_vdev_that_stands_twice_is_refused() {
        let mut bytes = Vec::new();
        encode_all(&[leaf(1), leaf(1)], &mut bytes);
        assert_eq!(decode_all(&mut Reader::new(&bytes)), malformed("order of vdevs"));
    }
}
