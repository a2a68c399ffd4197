//! An independent reader, written from the description of the format and not from the sender.
//!
//! It is strict where ZFS depends on something: framing, checksums, the order of records, sizes of blocks, hash tables
//! of maps, and the access list of a znode.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What a path leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) mode: u32,
    pub(super) links: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) rdev: u64,
    /// Seconds and nanoseconds of access, change of content, change of anything, creation.
    pub(super) times: [(i64, u64); 4],
    /// The content of a regular file, or the target of a symbolic link.
    pub(super) content: Vec<u8>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Files by path.
pub(super) type Files = BTreeMap<Vec<u8>, File>;

/// The head of an applied stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) name: String,
    pub(super) guid: u64,
    pub(super) from: u64,
    pub(super) flags: u32,
    /// How many records of content were sent.
    pub(super) writes: usize,
    pub(super) rest: usize,
}

#[derive(Clone, Debug)]
struct Object {
    type_: u32,
    block: u64,
    bonus: Vec<u8>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

/// The objects of a file system.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects(BTreeMap<u64, Object>);

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The checksum of everything so far, restarted with each stream.
#[derive(Clone, Default)]
struct Sums([u64; 4]);

impl Sums {
    fn feed(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len() % 4, 0);
        for at in (0..bytes.len()).step_by(4) {
            self.0[0] = self.0[0].wrapping_add(u32_at(bytes, at).into());
            for index in 1..4 {
                self.0[index] = self.0[index].wrapping_add(self.0[index - 1]);
            }
        }
    }
}

fn text(field: &[u8]) -> Vec<u8> {
    field[..field.iter().position(|byte| *byte == 0).unwrap()].to_vec()
}

impl Objects {
    /// Applies one stream.
    pub(super) fn apply(&mut self, stream: &[u8]) -> Applied {
        let (mut at, mut sums) = (0, Sums::default());
        let mut applied = Applied { name: String::new(), guid: 0, from: 0, flags: 0, writes: 0, rest: 0 };
        // The last object described, and the last place written.
        let (mut described, mut last) = (0, (0, 0));
        loop {
            let header = &stream[at..at + 312];
            at += 312;
            let type_ = u32_at(header, 0);
            let before = sums.clone();
            sums.feed(&header[..280]);
            if type_ == 0 {
                assert!((u64_at(header, 8), u64_at(header, 16)) == (0x2_f5ba_cbac, 1), "a stream without features");
                assert_eq!(u32_at(header, 32), 2);
                assert_eq!(u32_at(header, 4), 0);
                let name = String::from_utf8(text(&header[56..312])).unwrap();
                (applied.name, applied.flags) = (name, u32_at(header, 36));
                (applied.guid, applied.from) = (u64_at(header, 40), u64_at(header, 48));
                assert_ne!(applied.guid, 0);
                assert_eq!(applied.from == 0, self.0.is_empty());
            } else {
                let stored: Vec<u64> = (0..4).map(|index| u64_at(header, 280 + index * 8)).collect();
                assert_eq!(stored, sums.0, "checksum at byte {at}");
            }
            sums.feed(&header[280..]);
            let guid_at = [0, 40, 24, 40, 32, 40][type_ as usize];
            assert!(type_ == 0 || u64_at(header, guid_at) == applied.guid);
            let (object, mut payload) = (u64_at(header, 8), 0..0);
            let mut take = |len: u64| -> Range<usize> {
                let range = at..at + len as usize;
                at = range.end;
                range
            };
            match type_ {
                0 => {}
                1 => {
                    let bonus = u32_at(header, 28);
                    payload = take(u64::from(bonus.next_multiple_of(8)));
                    assert!(object > described, "objects ascend");
                    described = object;
                    self.describe(object, header, &stream[payload.clone()][..bonus as usize]);
                    last = (object, 0);
                }
                2 => {
                    assert!(object > described && u64_at(header, 16) > 0);
                    let numbers: Vec<u64> =
                        self.0.range(object..object + u64_at(header, 16)).map(|(number, _)| *number).collect();
                    numbers.iter().for_each(|number| drop(self.0.remove(number)));
                }
                3 => {
                    let (offset, len) = (u64_at(header, 24), u64_at(header, 32));
                    payload = take(len);
                    assert!((object, offset) >= last && object == described, "blocks ascend behind their object");
                    last = (object, offset + len);
                    let of = self.0.get_mut(&object).unwrap();
                    assert_eq!((u32_at(header, 16), len, offset % len), (of.type_, of.block, 0));
                    assert_eq!(header[50], 0, "without compression");
                    of.blocks.insert(offset, stream[payload.clone()].to_vec());
                    applied.writes += 1;
                }
                4 => {
                    assert_eq!(object, described);
                    let (offset, len) = (u64_at(header, 16), u64_at(header, 24));
                    let of = self.0.get_mut(&object).unwrap();
                    assert_eq!(offset % of.block, 0);
                    of.blocks.retain(|at, _| *at < offset || *at - offset >= len);
                }
                5 => {
                    let stored: Vec<u64> = (0..4).map(|index| u64_at(header, 8 + index * 8)).collect();
                    assert_eq!(stored, before.0, "checksum of the stream");
                    applied.rest = stream.len() - at;
                    return applied;
                }
                other => panic!("record of type {other}"),
            }
            sums.feed(&stream[payload]);
        }
    }

    fn describe(&mut self, number: u64, header: &[u8], bonus: &[u8]) {
        let (type_, bonus_type, block) = (u32_at(header, 16), u32_at(header, 20), u64::from(u32_at(header, 24)));
        assert!(block > 0 && block % 512 == 0 && block <= 128 << 10);
        assert!((17..=22).contains(&type_));
        assert_eq!(header[34], 1, "one slot");
        assert_eq!(bonus_type, if bonus.is_empty() { 0 } else { 17 });
        assert!(bonus.is_empty() || (264..=320).contains(&bonus.len()));
        let kept = self.0.remove(&number).map(|old| old.blocks).unwrap_or_default();
        self.0.insert(number, Object { type_, block, bonus: bonus.to_vec(), blocks: kept });
    }

    /// The files, by path.
    pub(super) fn files(&self) -> Files {
        let master: BTreeMap<_, _> = self.0[&1].entries().into_iter().collect();
        assert_eq!(master[&b"VERSION"[..]], 4);
        assert!(self.0[&master[&b"DELETE_QUEUE"[..]]].entries().is_empty());
        let (mut files, mut seen) = (Files::new(), BTreeSet::from([1, master[&b"DELETE_QUEUE"[..]]]));
        let root = master[&b"ROOT"[..]];
        self.walk(root, root, Vec::new(), &mut files, &mut seen);
        assert_eq!(seen, self.0.keys().copied().collect(), "no object is lost");
        files
    }

    fn walk(&self, number: u64, parent: u64, path: Vec<u8>, files: &mut Files, seen: &mut BTreeSet<u64>) {
        let object = &self.0[&number];
        let is_new = seen.insert(number);
        let file = self.file(number, parent, seen);
        let mode = file.mode;
        assert!(is_new || mode >> 12 != 4, "a directory has one name");
        files.insert(path.clone(), file);
        if mode >> 12 != 4 {
            return;
        }
        let entries = object.entries();
        assert_eq!(u64_at(&object.bonus, 80), entries.len() as u64 + 2);
        for (name, value) in entries {
            let child = value & ((1 << 48) - 1);
            let mode = u64_at(&self.0[&child].bonus, 72);
            assert_eq!(value >> 60, mode >> 12, "type in the entry");
            let mut path = path.clone();
            path.push(b'/');
            path.extend(name);
            self.walk(child, number, path, files, seen);
        }
    }

    fn file(&self, number: u64, parent: u64, seen: &mut BTreeSet<u64>) -> File {
        let object = &self.0[&number];
        let field = |at| u64_at(&object.bonus, at);
        let mode = field(72) as u32;
        assert_eq!(object.type_, if mode >> 12 == 4 { 20 } else { 19 });
        assert!(field(64) > 0, "a generation");
        assert!(mode >> 12 != 4 || field(88) == parent);
        check_access(mode, &object.bonus);
        let content = match mode >> 12 {
            0o10 => object.content(field(80)),
            0o12 if object.bonus.len() > 264 => object.bonus[264..].to_vec(),
            0o12 => object.content(field(80)),
            _ => Vec::new(),
        };
        assert!(mode >> 12 != 0o12 || content.len() as u64 == field(80));
        let time = |at| (u64_at(&object.bonus, at).cast_signed(), u64_at(&object.bonus, at + 8));
        File {
            mode,
            links: field(96),
            uid: field(128),
            gid: field(136),
            rdev: field(112),
            times: [time(0), time(16), time(32), time(48)],
            content,
            xattrs: self.xattrs(number, field(104), seen),
        }
    }

    fn xattrs(&self, file: u64, hidden: u64, seen: &mut BTreeSet<u64>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        if hidden == 0 {
            return BTreeMap::new();
        }
        let directory = &self.0[&hidden];
        seen.insert(hidden);
        assert_eq!((directory.type_, u64_at(&directory.bonus, 88)), (20, file));
        let value = |(name, value): (Vec<u8>, u64)| {
            let object = &self.0[&(value & ((1 << 48) - 1))];
            seen.insert(value & ((1 << 48) - 1));
            assert_eq!((value >> 60, u64_at(&object.bonus, 120) & 1, u64_at(&object.bonus, 88)), (8, 1, hidden));
            (name, object.content(u64_at(&object.bonus, 80)))
        };
        directory.entries().into_iter().map(value).collect()
    }
}

/// Six entries that deny and allow what the mode denies and allows.
fn check_access(mode: u32, bonus: &[u8]) {
    assert_eq!((u32_at(bonus, 184), u16_at(bonus, 188), u16_at(bonus, 190)), (48, 1, 6));
    for (index, who) in [(0, 0x1000), (1, 0x2040), (2, 0x4000)] {
        let bits = mode >> (6 - 3 * index) & 7;
        let [denied, allowed] = [0, 1].map(|half| {
            let at = 192 + (index as usize * 2 + half) * 8;
            assert_eq!((u16_at(bonus, at), u16_at(bonus, at + 2)), (1 - half as u16, who));
            let mask = u32_at(bonus, at + 4);
            assert_eq!(mask >> 1 & 1, mask >> 2 & 1);
            (mask & 1) << 2 | (mask >> 1 & 1) << 1 | mask >> 5 & 1
        });
        assert_eq!((denied, allowed), (!bits & 7, bits));
    }
}

impl Object {
    fn content(&self, size: u64) -> Vec<u8> {
        assert!(size <= self.block || self.block.is_power_of_two());
        let mut bytes = vec![0; size.next_multiple_of(self.block) as usize];
        for (at, block) in &self.blocks {
            bytes[*at as usize..][..block.len()].copy_from_slice(block);
        }
        assert!(bytes[size as usize..].iter().all(|byte| *byte == 0), "zeros behind the end");
        bytes.truncate(size as usize);
        bytes
    }

    fn entries(&self) -> Vec<(Vec<u8>, u64)> {
        match u64_at(&self.blocks[&0], 0) {
            0x8000_0000_0000_0003 => self.micro(),
            0x8000_0000_0000_0001 => self.fat(),
            other => panic!("map that begins with {other:x}"),
        }
    }

    fn micro(&self) -> Vec<(Vec<u8>, u64)> {
        assert_eq!(self.blocks.len(), 1);
        let salt = u64_at(&self.blocks[&0], 8);
        let (mut entries, mut places) = (Vec::new(), BTreeSet::new());
        for entry in self.blocks[&0][64..].chunks(64).filter(|entry| entry[14] != 0) {
            let name = text(&entry[14..]);
            assert!(places.insert((hash(&name, salt), u32_at(entry, 8))), "equal hashes are told apart");
            entries.push((name, u64_at(entry, 0)));
        }
        entries
    }

    fn fat(&self) -> Vec<(Vec<u8>, u64)> {
        let head = &self.blocks[&0];
        assert_eq!((u64_at(head, 8), self.block), (0x2_f52a_b2ab, 16384));
        let field = |at| u64_at(head, at);
        let shift = field(32);
        let table: Vec<u64> = match field(24) {
            0 => (0..1024).map(|index| field(8192 + index * 8)).collect(),
            count => {
                let block = |index: u64| &self.blocks[&((field(16) + index) * self.block)];
                let entries = |block: &Vec<u8>| (0..2048).map(|index| u64_at(block, index * 8)).collect::<Vec<_>>();
                (0..count).flat_map(|index| entries(block(index))).collect()
            }
        };
        assert_eq!(table.len(), 1 << shift);
        let leaves: BTreeSet<u64> = table.iter().copied().collect();
        assert_eq!((leaves.len() as u64, field(56)), (field(64), 1 + field(24) + field(64)));
        assert_eq!(self.blocks.len() as u64, field(56));
        let mut entries = Vec::new();
        for leaf in leaves {
            let block = &self.blocks[&(leaf * self.block)];
            for (hash, name, value) in leaf_entries(block) {
                assert_eq!(hash, self::hash(&name, field(80)));
                assert_eq!(table[(hash >> (64 - shift)) as usize], leaf, "the table leads to the leaf");
                entries.push((name, value));
            }
        }
        assert_eq!(entries.len() as u64, field(72));
        entries
    }
}

/// The entries of a leaf, each found through the leaf's hash table: hash, name, value.
fn leaf_entries(block: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    let chunk = |index: u16| &block[1072 + usize::from(index) * 24..][..24];
    let prefix_len = u16_at(block, 32);
    assert_eq!((u64_at(block, 0), u32_at(block, 24)), (1 << 63, 0x2ab_1eaf));
    let array = |first: u16, len: usize| {
        let (mut bytes, mut next) = (Vec::new(), first);
        while next != 0xffff {
            assert_eq!(chunk(next)[0], 251);
            bytes.extend(&chunk(next)[1..22]);
            next = u16_at(chunk(next), 22);
        }
        assert!(bytes.len() >= len && bytes.len() < len + 21);
        bytes.truncate(len);
        bytes
    };
    let (mut entries, mut places) = (Vec::new(), BTreeSet::new());
    for slot in 0..512u64 {
        let (mut next, mut collision) = (u16_at(block, 48 + slot as usize * 2), 0);
        while next != 0xffff {
            let entry = chunk(next);
            assert_eq!((entry[0], entry[1], u16_at(entry, 10)), (252, 8, 1));
            let hash = u64_at(entry, 16);
            assert!(prefix_len == 0 || hash >> (64 - prefix_len) == u64_at(block, 16));
            assert_eq!(hash << prefix_len >> 55, slot);
            assert!(u32_at(entry, 12) >= collision, "a chain ascends");
            collision = u32_at(entry, 12);
            assert!(places.insert((hash, collision)));
            let mut name = array(u16_at(entry, 4), u16_at(entry, 6).into());
            assert_eq!(name.pop(), Some(0));
            let value = array(u16_at(entry, 8), 8);
            entries.push((hash, name, u64::from_be_bytes(value.try_into().unwrap())));
            next = u16_at(entry, 2);
        }
    }
    assert_eq!(entries.len(), usize::from(u16_at(block, 30)));
    let (mut free, mut next) = (0, u16_at(block, 34));
    while next != 0xffff {
        assert_eq!(chunk(next)[0], 253);
        (free, next) = (free + 1, u16_at(chunk(next), 22));
    }
    assert_eq!(free, u16_at(block, 28));
    entries
}

/// The upper 28 bits of a reflected CRC of 64 bits.
fn hash(name: &[u8], salt: u64) -> u64 {
    assert_ne!(salt, 0);
    let mut crc = salt;
    for byte in name {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xc96c_5795_d787_0f42 } else { crc >> 1 };
        }
    }
    crc & !((1 << 36) - 1)
}
