//! The label: each device's description of its pool.
//!
//! A device carries four labels of 256 KiB, two at its front and two at its end, so that two survive an overwrite of
//! either end:
//!
//! ```text
//! device:  | L0 | L1 | reserved | space of the pool ...            | L2 | L3 | rest below 256 KiB |
//!          0   256K 512K        1M                            size-512K     size (rounded down to 256 KiB)
//!
//! label:   | boot area | body                 | ring of uberblocks   |
//!          0           4 KiB                  128 KiB (32 slots)     256 KiB
//!
//! body:    | magic "CENOTELB" | version u32 | length u32 | payload | sections, then zeros | BLAKE3, 32 bytes |
//!          0                  8             12           16        16 + length            126,944      126,976
//! ```
//!
//! The checksum covers the whole body and the body's offset on the device, so a label copied or written to the wrong
//! place is refused. The payload names the pool, its features and all of its devices. Version and features alone decide
//! whether this program may open the pool; [`Label::check_supported`] decides. Everything beyond vdevs stands in
//! [sections].
//!
//! How labels are written so that a crash always leaves a good pair is in [`crate::vdev::labels`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    env::Nanos,
    error::{Error, Result},
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        label::{classes::VdevClass, out_of_use::OutOfUse, sections::Sections},
        uberblock::{Epoch, UBERBLOCK_SIZE, slot},
        vdev_config::{self, Behind, MemberConfig, VdevConfig},
    },
    units::{Guid, KIB, MIB, Txg, VdevId},
};

pub mod away;
mod by_guid;
pub mod caches;
pub mod classes;
pub mod ends;
pub mod out_of_use;
pub mod sections;
pub mod spares;

/// The size of a label, in bytes.
pub const LABEL_SIZE: u64 = 256 * KIB;
/// Where the pool's space starts on a device, in bytes: behind the front labels and a reserve, well aligned.
pub const DATA_START: u64 = MIB;
/// The size of the two labels at the end of a device, in bytes.
pub const BACK_LABELS: u64 = 2 * LABEL_SIZE;
/// How many labels a device has.
pub const LABELS: usize = 4;
/// Where the body starts in a label, in bytes. Below is the boot area.
pub const BODY_AT: u64 = 4 * KIB;
/// The length of the body, in bytes.
pub const BODY_SIZE: usize = 124 << 10;
/// Where the ring of uberblocks starts in a label, in bytes.
pub const RING_AT: u64 = 128 * KIB;
/// The length of the ring, in bytes.
pub const RING_SIZE: usize = 128 << 10;

/// The longest name of a pool, in bytes.
pub const MAX_POOL_NAME: usize = 255;
/// The longest name of a host or a feature, in bytes.
pub const MAX_NAME: usize = 255;
/// The largest region, in bytes.
pub const MAX_REGION: u64 = 1 << 40;
/// The most features of a pool.
pub const MAX_FEATURES: usize = 256;

/// The features known to this version: it opens pools with no others.
pub const KNOWN_FEATURES: &[&str] = &[
    ALLOCATION_CLASSES,
    ARCHIVE,
    BLOCK_CLONING,
    CACHE_DEVICES,
    DEFRAGMENT,
    DEVICE_REMOVAL,
    FILE_ATTRIBUTES,
    PACKED_CHUNKS,
    PROJECT_QUOTA,
    RAIDZ,
    RAIDZ_EXPANSION,
    RAIDZ_SIZES,
    REBALANCE,
    RESUMABLE_RECEIVE,
    SHRUNKEN_DEVICES,
    SPACES_IN_NAMES,
    SPARES,
    ZFS_OBJECTS,
];

/// Vdevs with [classes](classes::VdevClass). Old software finds every block at its address, but would allocate any
/// block on any vdev.
pub const ALLOCATION_CLASSES: &str = "allocation_classes";

/// Archives, present or former. Old software would allocate any block on an archive, and takes rows of chunks with
/// second places for damage.
pub const ARCHIVE: &str = "archive";

/// Blocks with several references, see [`Shared`](crate::format::pointer::Shared). Old software cannot read their
/// pointers.
pub const BLOCK_CLONING: &str = "block_cloning";

/// [Cache devices](caches::CacheConfig), present or former. Old software would silently leave them out of use.
pub const CACHE_DEVICES: &str = "cache_devices";
/// Defragmented pools. Old software takes the job's row in the catalogue for damage.
pub const DEFRAGMENT: &str = "defragment";

/// Pools with removed devices, or a removal under way. Old software cannot read the rows of moved chunks, takes rows of
/// a removed device for damage, and would allocate on a device about to leave.
pub const DEVICE_REMOVAL: &str = "device_removal";

/// Files with attributes. Old software cannot read the inodes.
pub const FILE_ATTRIBUTES: &str = "file_attributes";

/// [Packed](crate::format::space::packing) chunks. Old software cannot read their rows.
pub const PACKED_CHUNKS: &str = "packed_chunks";

/// File systems with accounts of users, groups and projects, or with projects. Old software would change files without
/// updating the accounts.
pub const PROJECT_QUOTA: &str = "project_quota";

/// [RAID-Z](vdev_config::RaidZConfig) vdevs. Old software does not know the kind of vdev.
pub const RAIDZ: &str = "raidz";

/// An expanded RAID-Z, or a RAID-Z with devices of different sizes. Old software finds rows of two widths, and region
/// numbers without rows.
pub const RAIDZ_EXPANSION: &str = "raidz_expansion";

/// A RAID-Z whose devices contribute different amounts. Old software finds rows behind the end of the smallest device,
/// and would accept a device of that size in any column.
pub const RAIDZ_SIZES: &str = "raidz_sizes";

/// Rebalanced pools, and pools with a paused or limited job. Old software takes the jobs' rows in the catalogue for
/// damage.
pub const REBALANCE: &str = "rebalance";

/// Receives that can be resumed. Old software takes their rows in the catalogue for damage, and would destroy what they
/// have stored.
pub const RESUMABLE_RECEIVE: &str = "resumable_receive";

/// Shrunken devices, or a shrink under way. Old software takes rows of chunks behind the new end for damage, looks for
/// labels at the old end, and would allocate in the space about to be given up.
pub const SHRUNKEN_DEVICES: &str = "shrunken_devices";

/// Names of datasets, snapshots or bookmarks with spaces. Old software takes such a name for damage.
pub const SPACES_IN_NAMES: &str = "spaces_in_names";

/// [Spares](spares::SpareConfig), present or former. Old software would drop them from the labels, and take a spare in
/// use for a regular replacement.
pub const SPARES: &str = "spares";

/// Datasets received from OpenZFS, which keep its objects beside their files, and may have longer names. Old software
/// takes both for damage.
pub const ZFS_OBJECTS: &str = "zfs_objects";

const MAGIC: [u8; 8] = *b"CENOTELB";
const VERSION: u32 = 2;
const HEADER: usize = 16;
const CHECKSUM_AT: usize = BODY_SIZE - 32;

/// Where the four labels of a device of `size` bytes start: L0, L1, L2, L3.
///
/// # Panics
/// If the device is too small for four labels.
pub fn label_offsets(size: u64) -> [u64; LABELS] {
    let end = size - size % LABEL_SIZE;
    assert!(end >= LABELS as u64 * LABEL_SIZE, "a device of {size} bytes has no room for labels");
    [0, LABEL_SIZE, end - 2 * LABEL_SIZE, end - LABEL_SIZE]
}

/// The bytes that a device of `size` bytes contributes to the pool: without labels; zero if too small.
pub fn usable_size(size: u64) -> u64 {
    (size - size % LABEL_SIZE).saturating_sub(DATA_START + BACK_LABELS)
}

/// The least size of a device that contributes `usable` bytes to the pool: the rest behind whole labels is unused.
pub fn device_size(usable: u64) -> u64 {
    let size = usable.saturating_add(DATA_START + BACK_LABELS);
    size.checked_next_multiple_of(LABEL_SIZE).unwrap_or(size)
}

/// Where the uberblock of a transaction group stands in the label at `label`, in bytes from the start of the device.
pub fn uberblock_offset(label: u64, txg: Txg) -> u64 {
    label + RING_AT + slot(txg) * UBERBLOCK_SIZE as u64
}

/// The pool's state of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PoolState {
    /// Imported, or left so by a crash of its host.
    Active = 1,
    /// Closed in order: any host may import it.
    Exported = 2,
    /// Destroyed; can still be brought back until its devices are used again.
    Destroyed = 3,
}

/// The access allowed to a program that does not know a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compatibility {
    /// The program may open the pool read-only.
    Read = 1,
    /// The program may not open the pool.
    None = 2,
}

/// A label in decoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The pool's name, at most [`MAX_POOL_NAME`] bytes.
    pub pool_name: String,
    /// The GUID of the pool.
    pub pool: Guid,
    /// The pool's state of use.
    pub state: PoolState,
    /// The transaction group at the time of writing.
    pub txg: Txg,
    /// The import that wrote the label.
    pub epoch: Epoch,
    /// The host that wrote the label.
    pub host_id: u64,
    /// The host's name, for messages.
    pub host_name: String,
    /// The sector of the pool is `1 << ashift` bytes.
    pub ashift: u8,
    /// The size of a region, in bytes.
    pub region_size: u64,
    /// When the pool was created.
    pub created: Nanos,
    /// The features in use, by name.
    pub features: BTreeMap<String, Compatibility>,
    /// The device with this label.
    pub device: Guid,
    /// The top-level vdev of the device.
    pub vdev: VdevId,
    /// All top-level vdevs of the pool, by ascending id.
    pub vdevs: Vec<VdevConfig>,
    /// Everything beyond vdevs.
    pub sections: Sections,
}

impl Label {
    /// Whether `body` claims to be a label, good or damaged.
    pub fn claims(body: &[u8]) -> bool {
        body.starts_with(&MAGIC)
    }

    /// Whether this label overrides the label `other` of another device: the later label does.
    ///
    /// Two labels of one group occur before a pool was ever opened: a label with more devices then belongs to a device
    /// that is being added and not yet part of the pool.
    pub fn supersedes(&self, other: &Label) -> bool {
        (self.txg, Reverse(self.vdevs.len())) > (other.txg, Reverse(other.vdevs.len()))
    }

    /// Whether a vdev member is out of use because of too many errors.
    pub fn had_too_many_errors(&self, member: &MemberConfig) -> bool {
        member.is_offline && self.sections.out_of_use.get(&member.leaf.guid) == Some(&OutOfUse::TooManyErrors)
    }

    /// Drops the sections' entries of devices that the label no longer names.
    pub(crate) fn forget_gone(&mut self) {
        let Sections { ends, out_of_use, away, caches, .. } = &mut self.sections;
        let leaves: BTreeSet<Guid> =
            self.vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).map(|leaf| leaf.guid).collect();
        ends.retain(|device, _| leaves.contains(device));
        away.retain(|device, _| leaves.contains(device));
        let is_cache = |device: &Guid| caches.iter().any(|cache| cache.leaf.guid == *device);
        out_of_use.retain(|device, _| leaves.contains(device) || is_cache(device));
    }

    /// Whether this device is a spare, in use or not.
    pub fn is_spare(&self, device: Guid) -> bool {
        self.sections.spares.iter().any(|spare| spare.leaf.guid == device)
    }

    /// Whether this device is a cache device.
    pub fn is_cache(&self, device: Guid) -> bool {
        self.sections.caches.iter().any(|cache| cache.leaf.guid == device)
    }

    /// The end of a shrunken device, in bytes.
    pub fn end_of(&self, device: Guid) -> Option<u64> {
        self.sections.ends.get(&device).copied()
    }

    /// The progress of an incomplete device; `None` if complete.
    pub fn behind(&self, device: Guid) -> Option<Behind> {
        let mut members = self.vdevs.iter().flat_map(|vdev| vdev.tree.members());
        members.find(|member| member.leaf.guid == device)?.behind
    }

    /// The bytes that a vdev contributes to the pool.
    pub fn size_of(&self, vdev: &VdevConfig) -> u64 {
        vdev.tree.size(1 << self.ashift, self.region_size)
    }

    /// Fails if this version may not open the pool: because of a feature it cannot read or, with `writable`, could not
    /// keep intact. The error names the feature.
    pub fn check_supported(&self, writable: bool) -> Result<()> {
        let refuses = |compatibility| compatibility == Compatibility::None || writable;
        let unknown = |(name, _): &(&String, &Compatibility)| !KNOWN_FEATURES.contains(&name.as_str());
        if let Some((name, compatibility)) = self.features.iter().filter(unknown).find(|(_, c)| refuses(**c)) {
            let hint = if *compatibility == Compatibility::Read { "; it can be opened read-only" } else { "" };
            return Err(Error::Unsupported {
                what: format!("pool {}", self.pool_name),
                problem: format!("it uses the feature {name}, which this version of Cenote does not know{hint}"),
            });
        }
        self.vdevs.iter().try_for_each(|vdev| vdev.tree.check_supported())?;
        match self.sections.classes.iter().find(|(_, class)| matches!(class, VdevClass::Other(_))) {
            None => Ok(()),
            Some((id, class)) => Err(Error::Unsupported {
                what: format!("pool {}", self.pool_name),
                problem: format!(
                    "its vdev {id} is of class {}, which this version of Cenote does not know",
                    class.code()
                ),
            }),
        }
    }

    /// The body as written at `offset` bytes from the start of the device.
    ///
    /// # Errors
    /// If the description of the pool does not fit: too many devices, or overlong names.
    ///
    /// # Panics
    /// If a class names a missing vdev.
    pub fn encode(&self, offset: u64) -> Result<Vec<u8>> {
        self.check_bounds()?;
        assert!(self.has_all_classed(), "the label of {} gives a class to a vdev that is not there", self.pool_name);
        let payload = self.encode_payload();
        let mut sections = Vec::new();
        self.sections.encode(&mut sections);
        if payload.len() + sections.len() > CHECKSUM_AT - HEADER {
            return Err(Error::Request(format!("the devices of pool {} do not fit into a label", self.pool_name)));
        }
        let mut body = Vec::with_capacity(BODY_SIZE);
        body.put_bytes(&MAGIC);
        body.put_u32(VERSION);
        body.put_u32(payload.len() as u32);
        body.put_bytes(&payload);
        body.put_bytes(&sections);
        body.resize(CHECKSUM_AT, 0);
        let checksum = checksum(&body, offset);
        body.put_bytes(&checksum);
        Ok(body)
    }

    fn check_bounds(&self) -> Result<()> {
        let long = [
            (self.pool_name.len() > MAX_POOL_NAME, "the pool's name"),
            (self.host_name.len() > MAX_NAME, "the host's name"),
            (self.features.keys().any(|name| name.len() > MAX_NAME), "a feature's name"),
            (self.features.len() > MAX_FEATURES, "the list of features"),
            (self.vdevs.len() > vdev_config::MAX_VDEVS, "the list of devices"),
            (self.paths().any(|path| path.len() > vdev_config::MAX_PATH), "a device's path"),
            (self.sections.spares.len() > spares::MAX_SPARES, "the list of spares"),
            (self.sections.caches.len() > caches::MAX_CACHES, "the list of cache devices"),
            (self.sections.ends.len() > ends::MAX_ENDS, "the list of devices that were made smaller"),
            (self.sections.out_of_use.len() > out_of_use::MAX_OUT_OF_USE, "the list of devices out of use"),
            (self.sections.away.len() > away::MAX_AWAY, "the list of devices of archives that are away"),
        ];
        match long.iter().find(|(too_long, _)| *too_long) {
            Some((_, what)) => Err(Error::Request(format!("{what} is too long for a label"))),
            None => Ok(()),
        }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let Sections { spares, caches, .. } = &self.sections;
        let members = self.vdevs.iter().flat_map(|vdev| vdev.tree.leaves());
        let others = spares.iter().map(|spare| &spare.leaf).chain(caches.iter().map(|cache| &cache.leaf));
        members.chain(others).map(|leaf| leaf.path.as_str())
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_prefixed(self.pool_name.as_bytes());
        out.put_u64(self.pool.0);
        out.put_u8(self.state as u8);
        out.put_u64(self.txg.0);
        out.put_u64(self.epoch.0);
        out.put_u64(self.host_id);
        out.put_prefixed(self.host_name.as_bytes());
        out.put_u8(self.ashift);
        out.put_u64(self.region_size);
        out.put_u64(self.created.cast_unsigned());
        out.put_varint(self.features.len() as u64);
        for (name, compatibility) in &self.features {
            out.put_prefixed(name.as_bytes());
            out.put_u8(*compatibility as u8);
        }
        out.put_u64(self.device.0);
        out.put_varint(u64::from(self.vdev.0));
        vdev_config::encode_all(&self.vdevs, &mut out);
        out
    }

    /// Verifies and decodes a body of [`BODY_SIZE`] bytes read at `offset` bytes from the start of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a good label of another version, [`Error::Damaged`] for anything else.
    pub fn decode(body: &[u8], offset: u64) -> Result<Label> {
        let damaged = |problem: Malformed| Error::damaged(format!("label at byte {offset}"), problem);
        let (version, payload, behind) = verify(body, offset).map_err(damaged)?;
        if version != VERSION {
            return Err(Error::Unsupported { what: "the label".to_owned(), problem: format!("format {version}") });
        }
        let mut reader = Reader::new(payload);
        let label = Label::decode_payload(&mut reader).map_err(damaged)?;
        reader.finish("end of a label").map_err(damaged)?;
        label.with_sections(behind).map_err(damaged)
    }

    /// The label with the sections behind its payload. A body full of vdevs has none.
    fn with_sections(mut self, behind: &[u8]) -> Result<Label, Malformed> {
        if !behind.is_empty() {
            self.sections = Sections::decode(&mut Reader::new(behind))?;
        }
        if self.has_all_classed() { Ok(self) } else { malformed("class of a vdev that is not there") }
    }

    /// Whether each vdev with a class exists.
    fn has_all_classed(&self) -> bool {
        let is_there = |id: &VdevId| self.vdevs.iter().any(|vdev| vdev.id == *id);
        self.sections.classes.keys().all(is_there)
    }

    fn decode_payload(reader: &mut Reader<'_>) -> Result<Label, Malformed> {
        Ok(Label {
            pool_name: text(reader, MAX_POOL_NAME, "pool's name")?,
            pool: Guid(reader.u64("pool's guid")?),
            state: decode_state(reader.u8("pool's state")?)?,
            txg: decode_txg(reader.u64("label's transaction group")?)?,
            epoch: Epoch(reader.u64("label's epoch")?),
            host_id: reader.u64("host's id")?,
            host_name: text(reader, MAX_NAME, "host's name")?,
            ashift: decode_ashift(reader.u8("sector size")?)?,
            region_size: decode_region_size(reader.u64("region size")?)?,
            created: reader.u64("creation time")?.cast_signed(),
            features: decode_features(reader)?,
            device: Guid(reader.u64("device's guid")?),
            vdev: VdevId(reader.varint32("device's vdev")?),
            vdevs: vdev_config::decode_all(reader)?,
            sections: Sections::default(),
        })
    }
}

/// The checksum of a body without its checksum, at an offset of the device.
fn checksum(content: &[u8], offset: u64) -> [u8; 32] {
    *blake3::Hasher::new().update(&offset.to_le_bytes()).update(content).finalize().as_bytes()
}

/// Verifies a body's checksum, and returns the version, the payload, and the bytes behind the payload.
fn verify(body: &[u8], offset: u64) -> Result<(u32, &[u8], &[u8]), Malformed> {
    if body.len() != BODY_SIZE {
        return malformed("size of a label");
    }
    if !Label::claims(body) {
        return malformed("magic of a label");
    }
    let (content, expected) = body.split_at(CHECKSUM_AT);
    if checksum(content, offset) != expected {
        return malformed("checksum of a label");
    }
    let mut header = Reader::new(&content[MAGIC.len()..]);
    let version = header.u32("version of a label")?;
    let len = header.u32("length of a label")? as usize;
    Ok((version, header.bytes(len, "length of a label")?, header.rest()))
}

fn text(reader: &mut Reader<'_>, max: usize, what: &'static str) -> Result<String, Malformed> {
    match reader.text(what)? {
        long if long.len() > max => malformed(what),
        text => Ok(text.to_owned()),
    }
}

fn decode_state(code: u8) -> Result<PoolState, Malformed> {
    match code {
        1 => Ok(PoolState::Active),
        2 => Ok(PoolState::Exported),
        3 => Ok(PoolState::Destroyed),
        _ => malformed("pool's state"),
    }
}

fn decode_txg(txg: u64) -> Result<Txg, Malformed> {
    if txg < Txg::LIMIT.0 { Ok(Txg(txg)) } else { malformed("label's transaction group") }
}

/// Sectors are 512 bytes to 64 KiB.
fn decode_ashift(ashift: u8) -> Result<u8, Malformed> {
    if (9..=16).contains(&ashift) { Ok(ashift) } else { malformed("sector size") }
}

/// A region is a power of two, so that every sector size divides it, and has less than 2^32 sectors.
fn decode_region_size(size: u64) -> Result<u64, Malformed> {
    if size.is_power_of_two() && (64 * KIB..=MAX_REGION).contains(&size) { Ok(size) } else { malformed("region size") }
}

fn decode_features(reader: &mut Reader<'_>) -> Result<BTreeMap<String, Compatibility>, Malformed> {
    const WHAT: &str = "features";
    let count = reader.varint(WHAT)?;
    if count > MAX_FEATURES as u64 {
        return malformed(WHAT);
    }
    let mut features = BTreeMap::new();
    for _ in 0..count {
        let name = text(reader, MAX_NAME, WHAT)?;
        let compatibility = match reader.u8(WHAT)? {
            1 => Compatibility::Read,
            2 => Compatibility::None,
            _ => return malformed(WHAT),
        };
        if features.last_key_value().is_some_and(|(last, _)| *last >= name) {
            return malformed(WHAT);
        }
        features.insert(name, compatibility);
    }
    Ok(features)
}

#[cfg(test)]
#[path = "label_tests.rs"]
pub(crate) mod tests;
