//! Each structure has one value whose bytes never change within a version.

use std::collections::BTreeMap;

use pool::{
    format::{
        cache_segment::{CachedBlock, SEGMENT_SIZE, SegmentHeader},
        codec::{Reader, Writer},
        gang::{self, Piece},
        intent::{
            Entry, FrameId, Item, ItemBlock, LogHead, Part, decode_frame, encode_frame, encode_payload, frame_len,
        },
        key::Key,
        label::{
            BODY_AT, Compatibility, Label, PoolState, caches::CacheConfig, classes::VdevClass, out_of_use::OutOfUse,
            sections::Sections, spares::SpareConfig,
        },
        node::{Header, NodeReader, NodeWriter},
        pointer::{Address, BlockPointer, Checksum, Compression, Shared},
        space::{
            Class, PhysicalPointer, Place, SpaceRoot, Span,
            checkpoint::Checkpoint,
            log::{ChunkChanges, LogBlock, decode_changes, encode_changes},
            packing::{self, PackedMap},
            places::Places,
            table::{Row, Seat, TableRoot, decode_page, encode_page},
        },
        uberblock::{Epoch, Uberblock},
        vdev_config::{
            self, Behind, LeafConfig, Mark, MemberConfig, MirrorConfig, RaidZConfig, RaidZMember, VdevConfig, VdevTree,
            Zone,
        },
    },
    units::{ChunkId, GIB, Guid, MIB, Txg, VdevId},
    vdev::raidz::zones::Zones,
};

use crate::golden;

/// 2026-01-01 00:00:00 UTC.
const NEW_YEAR: i64 = 1_767_225_600_000_000_000;
/// The sector size of the gang header: the smallest.
const SECTOR: u32 = 512;

/// A checksum that is easy to find in a dump.
fn checksum(byte: u8) -> [u8; 32] {
    [byte; 32]
}

fn address(chunk: u32, sector: u32) -> Address {
    Address { chunk: ChunkId(chunk), sector }
}

fn plain_pointer() -> BlockPointer {
    BlockPointer {
        addresses: [address(3, 200), Address::default(), Address::default()],
        copies: 1,
        logical: 131_072,
        stored: 131_072,
        checksum: checksum(0xb1),
        birth: Txg(1000),
        logical_birth: Txg(1000),
        ..BlockPointer::default()
    }
}

fn full_pointer() -> BlockPointer {
    let mut xxh3 = [0; 32];
    xxh3[..16].fill(0xc3);
    BlockPointer {
        addresses: [address(0, 1), address(300, 70_000), address(u32::MAX, u32::MAX)],
        copies: 3,
        logical: 65_536,
        stored: 20_480,
        gang: true,
        compression: Compression::Zstd,
        checksum_kind: Checksum::Xxh3,
        checksum: xxh3,
        birth: Txg(1000),
        logical_birth: Txg(1007),
        shared: None,
    }
}

fn shared_pointer() -> BlockPointer {
    BlockPointer { logical_birth: Txg(1015), shared: Some(Shared { since: Txg(1012), scope: 17 }), ..plain_pointer() }
}

fn physical(offset: u64, byte: u8) -> PhysicalPointer {
    let place = |vdev, offset| Place { vdev: VdevId(vdev), offset };
    PhysicalPointer {
        places: [place(0, offset), place(1, offset + 4096), Place::default()],
        copies: 2,
        len: 300,
        checksum: checksum(byte),
    }
}

fn leaf(id: u32) -> VdevConfig {
    let path = format!("/dev/disk{id}");
    VdevConfig {
        id: VdevId(id),
        tree: VdevTree::Leaf(LeafConfig { guid: Guid(0x1d00 + u64::from(id)), size: GIB, path }),
    }
}

#[test]
fn a_label() {
    let label = Label {
        pool_name: "tank".to_owned(),
        pool: Guid(0x1122_3344_5566_7788),
        state: PoolState::Exported,
        txg: Txg(4660),
        epoch: Epoch(0xe0e1_e2e3_e4e5_e6e7),
        host_id: 0x0a0b,
        host_name: "well".to_owned(),
        ashift: 12,
        region_size: 16 * MIB,
        created: NEW_YEAR,
        features: BTreeMap::from([("sample".to_owned(), Compatibility::Read)]),
        device: Guid(0x1d00),
        vdev: VdevId(0),
        vdevs: vec![leaf(0)],
        sections: Sections::default(),
    };
    let bytes = golden::compare("label", &label.encode(BODY_AT).unwrap());
    assert_eq!(Label::decode(&bytes, BODY_AT).unwrap(), label);
    assert!(Label::decode(&bytes, BODY_AT + 4096).is_err(), "a label is bound to its place");
}

#[test]
fn the_sections() {
    let device = |id| leaf(id).tree.leaves().next().unwrap().clone();
    let sections = Sections {
        ends: Default::default(),
        classes: BTreeMap::from([(VdevId(1), VdevClass::Special), (VdevId(300), VdevClass::Log)]),
        spares: vec![SpareConfig { leaf: device(4) }],
        caches: vec![CacheConfig { leaf: device(5) }],
        out_of_use: BTreeMap::new(),
        away: BTreeMap::new(),
        others: vec![(9, vec![0xaa, 0xbb])],
    };
    let mut coded = Vec::new();
    sections.encode(&mut coded);
    let bytes = golden::compare("sections", &coded);
    assert_eq!(Sections::decode(&mut Reader::new(&bytes)), Ok(sections));
}

#[test]
fn the_ends_of_devices() {
    let ends = BTreeMap::from([(Guid(0x1d00), 163 * MIB / 2), (Guid(0x1d01), 10 << 30)]);
    let sections = Sections { ends, ..Sections::default() };
    let mut coded = Vec::new();
    sections.encode(&mut coded);
    let bytes = golden::compare("ends", &coded);
    assert_eq!(Sections::decode(&mut Reader::new(&bytes)), Ok(sections));
}

#[test]
fn the_section_of_devices_out_of_use() {
    let out_of_use = BTreeMap::from([(Guid(0x1d02), OutOfUse::TooManyErrors), (Guid(0x1d05), OutOfUse::Offline)]);
    let sections = Sections { out_of_use, others: vec![(7, vec![0xcc]), (9, vec![0xaa, 0xbb])], ..Sections::default() };
    let mut coded = Vec::new();
    sections.encode(&mut coded);
    let bytes = golden::compare("sections-put-out", &coded);
    assert_eq!(Sections::decode(&mut Reader::new(&bytes)), Ok(sections));
}

#[test]
fn the_section_of_archives_that_are_away() {
    let mark = |txg| Mark { epoch: Epoch(0xe001), txg: Txg(txg) };
    let away = BTreeMap::from([
        (Guid(0x1d07), Behind::at(mark(0x1230))),
        (Guid(0x1d08), Behind { has: mark(0x1230), may_have: mark(0x1231) }),
    ]);
    let classes = BTreeMap::from([(VdevId(2), VdevClass::Archive)]);
    let sections = Sections { classes, away, ..Sections::default() };
    let mut coded = Vec::new();
    sections.encode(&mut coded);
    let bytes = golden::compare("sections-away", &coded);
    assert_eq!(Sections::decode(&mut Reader::new(&bytes)), Ok(sections));
}

#[test]
fn the_header_of_a_segment_of_a_cache_device() {
    let block = |chunk: u32, offset: u32, stored: u32| CachedBlock {
        address: address(chunk, 700),
        birth: Txg(0x102),
        offset,
        stored,
    };
    let header = SegmentHeader {
        device: Guid(0x1d05),
        sequence: 9,
        epoch: Epoch(0xe0),
        blocks: vec![block(3, 32768, 131_072), block(4, 163_840, 777)],
    };
    let bytes = golden::compare("cache-segment", &header.encode(2 * SEGMENT_SIZE));
    assert_eq!(SegmentHeader::decode(&bytes, 2 * SEGMENT_SIZE), Ok(header));
}

#[test]
fn the_vdevs() {
    let draid = VdevConfig { id: VdevId(200), tree: VdevTree::Other { kind: 4, payload: vec![0xaa, 0xbb] } };
    let vdevs = vec![leaf(1), draid];
    let mut coded = Vec::new();
    vdev_config::encode_all(&vdevs, &mut coded);
    let bytes = golden::compare("vdevs", &coded);
    assert_eq!(vdev_config::decode_all(&mut Reader::new(&bytes)), Ok(vdevs));
}

#[test]
fn a_mirror() {
    let mark = |epoch: u64, txg| Mark { epoch: Epoch(epoch), txg: Txg(txg) };
    let member = |id| MemberConfig::whole(leaf(id).tree.leaves().next().unwrap().clone());
    let behind = Behind { has: mark(0xd0d1_d2d3_d4d5_d6d7, 1234), may_have: mark(0xe0e1_e2e3_e4e5_e6e7, 1235) };
    let offline = MemberConfig { is_offline: true, behind: Some(behind), ..member(2) };
    let new = MemberConfig { behind: Some(Behind::default()), replaces: Some(Guid(0x1d02)), ..member(3) };
    let members = vec![member(1), offline, new];
    let tree = VdevTree::Mirror(MirrorConfig { guid: Guid(0x3300), members });
    let vdevs = vec![VdevConfig { id: VdevId(1), tree }];
    let mut coded = Vec::new();
    vdev_config::encode_all(&vdevs, &mut coded);
    let bytes = golden::compare("mirror", &coded);
    assert_eq!(vdev_config::decode_all(&mut Reader::new(&bytes)), Ok(vdevs));
}

#[test]
fn a_raidz() {
    let member = |column, member| RaidZMember { column, member };
    let whole = |id| MemberConfig::whole(leaf(id).tree.leaves().next().unwrap().clone());
    let new = MemberConfig { behind: Some(Behind::default()), replaces: Some(Guid(0x1d02)), ..whole(4) };
    let members = vec![member(0, whole(1)), member(1, whole(2)), member(1, new), member(2, whole(3))];
    let tree = VdevTree::RaidZ(RaidZConfig { guid: Guid(0x3300), parity: 1, members, zones: Vec::new() });
    let vdevs = vec![VdevConfig { id: VdevId(1), tree }];
    let mut coded = Vec::new();
    vdev_config::encode_all(&vdevs, &mut coded);
    let bytes = golden::compare("raidz", &coded);
    assert_eq!(vdev_config::decode_all(&mut Reader::new(&bytes)), Ok(vdevs));
}

#[test]
fn a_raidz_that_is_being_expanded() {
    let whole = |id| MemberConfig::whole(leaf(id).tree.leaves().next().unwrap().clone());
    let members = (0..4).map(|column| RaidZMember { column, member: whole(column + 1) }).collect();
    let zones = vec![
        Zone { columns: 4, first_row: 0, first_region: 128, regions: 47 },
        Zone { columns: 3, first_row: 65_536, first_region: 32, regions: 96 },
    ];
    let config = RaidZConfig { guid: Guid(0x3300), parity: 1, members, zones };
    assert!(Zones::of(&config, 4096, 16 * MIB).is_some(), "it is one that can be");
    let vdevs = vec![VdevConfig { id: VdevId(1), tree: VdevTree::RaidZ(config) }];
    let mut coded = Vec::new();
    vdev_config::encode_all(&vdevs, &mut coded);
    let bytes = golden::compare("raidz-zones", &coded);
    assert_eq!(vdev_config::decode_all(&mut Reader::new(&bytes)), Ok(vdevs));
}

#[test]
fn an_uberblock() {
    let mut space = Vec::new();
    let root = SpaceRoot {
        table: physical(MIB, 0x7a),
        log_head: physical(2 * MIB, 0x10),
        log_tail: Txg(4650),
        next_chunk: 64,
        allocated: 1234,
    };
    root.encode(&mut space);
    let uberblock = Uberblock {
        pool: Guid(0x1122_3344_5566_7788),
        txg: Txg(4660),
        epoch: Epoch(0xe0e1_e2e3_e4e5_e6e7),
        parent: Epoch(0xd0d1_d2d3_d4d5_d6d7),
        forked_at: Txg(4600),
        written: NEW_YEAR,
        catalogue: plain_pointer(),
        space,
        log: Some(LogHead {
            area: Address { chunk: ChunkId(5), sector: 256 },
            sectors: 4096,
            position: 12,
            sequence: 345,
        }),
        counters: vec![(0, 1)],
    };
    let bytes = golden::compare("uberblock", &uberblock.encode());
    assert_eq!(Uberblock::decode(&bytes), Ok(uberblock));
}

#[test]
fn a_frame_of_the_intent_log() {
    let id = FrameId { pool: Guid(0x1122_3344_5566_7788), epoch: Epoch(0xe0e1_e2e3_e4e5_e6e7), sequence: 345 };
    let item = |body: &[u8], block| Some(Item { body: body.to_vec(), block });
    let entries = vec![Entry {
        tree: 2,
        txg: Txg(4661),
        base: Txg(4659),
        parts: vec![Part { block: 7, len: 6, at: 4, bytes: b"hi".to_vec() }],
        items: vec![
            (Key::new(5, 0x10, 0), item(b"inode", ItemBlock::None)),
            (Key::new(5, 0x50, 0), item(b"e", ItemBlock::Logged(7))),
            (Key::new(5, 0x50, 131_072), item(b"f", ItemBlock::Stored(plain_pointer()))),
            (Key::new(6, 0x10, 0), None),
        ],
    }];
    let bytes = golden::compare("frame", &encode_frame(id, &encode_payload(&entries)));
    assert_eq!(frame_len(&bytes, id), Some(bytes.len()));
    assert_eq!(decode_frame(&bytes), Some(Ok(entries)));
}

#[test]
fn block_pointers() {
    let pointers = [plain_pointer(), full_pointer(), shared_pointer()];
    for (name, pointer) in ["pointer-plain", "pointer-full", "pointer-shared"].into_iter().zip(pointers) {
        let mut coded = Vec::new();
        pointer.encode(&mut coded);
        let bytes = golden::compare(name, &coded);
        let mut reader = Reader::new(&bytes);
        assert_eq!(BlockPointer::decode(&mut reader), Ok(pointer));
        assert_eq!(reader.remaining(), 0);
    }
}

#[test]
fn a_gang_header() {
    const BLOCK: [u8; 32] = [0xb0; 32];
    let pieces = [
        Piece { address: address(2, 9), bytes: 8 * SECTOR, sum: Some([0xa1; 16]) },
        Piece { address: address(130, 5), bytes: SECTOR, sum: Some([0xa2; 16]) },
        Piece { address: address(130, 40), bytes: 100, sum: Some([0xa3; 16]) },
    ];
    let stored = pieces.iter().map(|piece| piece.bytes).sum();
    let bytes = golden::compare("gang", &gang::encode(0, &BLOCK, &pieces, SECTOR));
    assert_eq!(
        gang::decode(&bytes, Some(&BLOCK), stored, SECTOR),
        Ok(gang::Header { level: 0, pieces: pieces.to_vec() })
    );
}

#[test]
fn a_leaf_node() {
    let header = Header { level: 0, txg: Txg(4660), low: Key::new(1, 0, 0), high: Key::new(9, 0, 0), count: 4 };
    let mut block = Vec::new();
    plain_pointer().encode(&mut block);
    let items: [(Key, &[u8], &[u8]); 4] = [
        (Key::new(1, 0, 5), b"one", &[]),
        (Key::new(1, 0, 300), b"two", &[]),
        (Key::new(1, 4, 7), b"", &block),
        (Key::new(8, 1, 0), b"last", &[]),
    ];
    let mut writer = NodeWriter::new(&header);
    items.iter().for_each(|(key, body, block)| writer.item(*key, body, block));
    let bytes = golden::compare("leaf", &writer.finish());
    let mut reader = NodeReader::new(&bytes).unwrap();
    assert_eq!(*reader.header(), header);
    for expected in items {
        let item = reader.item().unwrap();
        assert_eq!((item.key, item.body, item.block), expected);
    }
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn an_interior_node() {
    let header = Header { level: 1, txg: Txg(4660), low: Key::MIN, high: Key::MAX, count: 2 };
    let children = [(Key::MIN, plain_pointer()), (Key::new(1, 4, 7), full_pointer())];
    let mut writer = NodeWriter::new(&header);
    children.iter().for_each(|(low, pointer)| writer.child(*low, pointer));
    let bytes = golden::compare("interior", &writer.finish());
    let mut reader = NodeReader::new(&bytes).unwrap();
    assert_eq!(*reader.header(), header);
    for child in children {
        assert_eq!(reader.child(), Ok(child));
    }
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn the_chunk_table() {
    let root = TableRoot { chunks: 65, pages: vec![physical(0, 0x01), physical(8192, 0x02)] };
    let bytes = golden::compare("table-root", &root.encode());
    assert_eq!(TableRoot::decode(&bytes), Ok(root));
    let row = |region| Row { seat: Seat::Region { vdev: VdevId(1), region }, ..Row::default() };
    let used = Row {
        class: Some(Class::Metadata),
        described: Txg(4650),
        allocated: 77,
        checkpoint: Some(physical(12_288, 0x0c)),
        ..row(1)
    };
    let moved = Row { seat: Seat::Region { vdev: VdevId(0), region: 5 }, arrived: Txg(4651), ..row(5) };
    let rows = vec![row(0), used.clone()];
    let bytes = golden::compare("table-page", &encode_page(&rows));
    assert_eq!(decode_page(&bytes), Ok(rows));
    let bytes = golden::compare("table-page-moved", &encode_page(std::slice::from_ref(&moved)));
    assert_eq!(decode_page(&bytes), Ok(vec![moved]));
    let rows = vec![Row { unit: 3, arrived: Txg(4600), ..used.clone() }];
    let bytes = golden::compare("table-page-placed", &encode_page(&rows));
    assert_eq!(decode_page(&bytes), Ok(rows));
    let packed = |map| Row { seat: Seat::Packed { map }, ..row(0) };
    let full = Row {
        class: Some(Class::Data),
        arrived: Txg(4651),
        described: Txg(4650),
        allocated: 12,
        checkpoint: used.checkpoint,
        ..packed(Some(physical(16_384, 0x0d)))
    };
    let rows = vec![full.clone(), Row { unit: 3, arrived: Txg(4600), ..packed(None) }];
    let bytes = golden::compare("table-page-packed", &encode_page(&rows));
    assert_eq!(decode_page(&bytes), Ok(rows));
    let places = Some(physical(16_384, 0x0d));
    let seconded = Row { entered: Txg(4652), places, ..used };
    let tiered = Row { seat: Seat::Packed { map: None }, entered: Txg(4652), places, ..full };
    let rows = vec![seconded, tiered, packed(None)];
    let bytes = golden::compare("table-page-places", &encode_page(&rows));
    assert_eq!(decode_page(&bytes), Ok(rows));
}

#[test]
fn checkpoints() {
    let sparse = vec![Span::new(10, 5), Span::new(200, 56)];
    let comb = (0..256).step_by(2).map(|start| Span::new(start, 1)).collect();
    for (name, free) in [("checkpoint-spans", sparse), ("checkpoint-bitmap", comb)] {
        let checkpoint = Checkpoint { chunk: ChunkId(9), described: Txg(4650), sectors: 256, free };
        let bytes = golden::compare(name, &checkpoint.encode());
        assert_eq!(Checkpoint::decode(&bytes, 256), Ok(checkpoint));
    }
}

fn entry(start: u32, len: u32, chunk: u32, sector: u32) -> packing::Entry {
    packing::Entry { span: Span::new(start, len), host: Address { chunk: ChunkId(chunk), sector } }
}

#[test]
fn the_places_of_a_chunk() {
    let homes = vec![entry(0, 8, 3, 64), entry(8, 24, 20, 0)];
    let seconds = vec![entry(0, 8, 20, 24)];
    let places = Places { chunk: ChunkId(9), sectors: 256, since: Txg(4652), homes, seconds };
    let bytes = golden::compare("places", &places.encode());
    assert_eq!(Places::decode(&bytes, 256), Ok(places));
}

#[test]
fn the_map_of_a_packed_chunk() {
    let entries = vec![entry(0, 8, 3, 64), entry(8, 1, 3, 72), entry(40, 3, 12, 0)];
    let map = PackedMap { chunk: ChunkId(9), sectors: 256, entries };
    let bytes = golden::compare("packed-map", &map.encode());
    assert_eq!(PackedMap::decode(&bytes, 256), Ok(map));
}

#[test]
fn the_space_log() {
    let changes = vec![
        ChunkChanges { chunk: ChunkId(3), allocated: vec![Span::new(0, 8), Span::new(200, 1)], freed: vec![] },
        ChunkChanges { chunk: ChunkId(9), allocated: vec![], freed: vec![Span::new(16, 32)] },
    ];
    let piece = encode_changes(&changes);
    let block = LogBlock { txg: Txg(4660), part: 0, previous: Some(physical(4096, 0x09)), piece };
    let mut coded = block.encode();
    // Zeros may follow a block, up to the room allocated for it.
    coded.put_bytes(&[0; 8]);
    let bytes = golden::compare("log-block", &coded);
    assert_eq!(LogBlock::decode(&bytes).as_ref(), Ok(&block));
    assert_eq!(decode_changes(&block.piece), Ok(changes));
}
