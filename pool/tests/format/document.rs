//! `pool/FORMAT.md` agrees with the code.
//!
//! Three things in the document are checked here; everything else is prose:
//! * A table row that begins with a name in backticks of capitals or with `::` is a constant, and its value follows.
//! * A table whose head begins with ``at in `name` `` is a byte table of the golden structure of that name. Rows with
//!   numbers follow each other without a gap; a magic and a version have the value in the bytes.
//! * A fence that begins with `dump name` shows the golden structure of that name: offset, bytes, and after a semicolon
//!   their meaning. Only zeros are left out between its lines.

use std::collections::BTreeMap;

use pool::{
    admin::MIN_DEVICE,
    device::TEAR_UNIT,
    format::{
        cache_segment, gang, intent,
        label::{
            self, Compatibility, PoolState, away, caches,
            classes::VdevClass,
            ends,
            out_of_use::{self, OutOfUse},
            sections, spares,
        },
        node,
        pointer::{self, Checksum, Compression},
        space::{self, Class, log, table},
        uberblock,
        vdev_config::{self, VdevTree},
    },
};

use crate::golden;

const DOCUMENT: &str = include_str!("../../FORMAT.md");

fn constants() -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("TEAR_UNIT", TEAR_UNIT),
        ("MIN_DEVICE", MIN_DEVICE),
        ("LABEL_SIZE", label::LABEL_SIZE),
        ("DATA_START", label::DATA_START),
        ("BACK_LABELS", label::BACK_LABELS),
        ("LABELS", label::LABELS as u64),
        ("BODY_AT", label::BODY_AT),
        ("BODY_SIZE", label::BODY_SIZE as u64),
        ("RING_AT", label::RING_AT),
        ("RING_SIZE", label::RING_SIZE as u64),
        ("MAX_POOL_NAME", label::MAX_POOL_NAME as u64),
        ("MAX_NAME", label::MAX_NAME as u64),
        ("MAX_FEATURES", label::MAX_FEATURES as u64),
        ("MAX_SECTIONS", sections::MAX_SECTIONS as u64),
        ("MAX_SPARES", spares::MAX_SPARES as u64),
        ("MAX_CACHES", caches::MAX_CACHES as u64),
        ("MAX_ENDS", ends::MAX_ENDS as u64),
        ("MAX_OUT_OF_USE", out_of_use::MAX_OUT_OF_USE as u64),
        ("MAX_AWAY", away::MAX_AWAY as u64),
        ("OutOfUse::Offline", OutOfUse::Offline.code().into()),
        ("OutOfUse::TooManyErrors", OutOfUse::TooManyErrors.code().into()),
        ("SEGMENT_SIZE", cache_segment::SEGMENT_SIZE),
        ("SEGMENT_HEADER", cache_segment::SEGMENT_HEADER),
        ("MAX_CACHED", cache_segment::MAX_CACHED as u64),
        ("SEQUENCE_LIMIT", cache_segment::SEQUENCE_LIMIT),
        ("VdevClass::Log", VdevClass::Log.code().into()),
        ("VdevClass::Special", VdevClass::Special.code().into()),
        ("VdevClass::Archive", VdevClass::Archive.code().into()),
        ("PoolState::Active", PoolState::Active as u64),
        ("PoolState::Exported", PoolState::Exported as u64),
        ("PoolState::Destroyed", PoolState::Destroyed as u64),
        ("Compatibility::Read", Compatibility::Read as u64),
        ("Compatibility::None", Compatibility::None as u64),
        ("MAX_VDEVS", vdev_config::MAX_VDEVS as u64),
        ("MAX_PATH", vdev_config::MAX_PATH as u64),
        ("RAIDZ_COLUMNS", vdev_config::RAIDZ_COLUMNS as u64),
        ("MAX_ZONES", vdev_config::MAX_ZONES as u64),
        ("BAND", pool::vdev::raidz::geometry::BAND),
        ("UBERBLOCK_SIZE", uberblock::UBERBLOCK_SIZE as u64),
        ("RING_SLOTS", uberblock::RING_SLOTS),
        ("MAX_SPACE", uberblock::MAX_SPACE as u64),
        ("MAX_COUNTERS", uberblock::MAX_COUNTERS as u64),
        ("FRAME_HEADER", intent::FRAME_HEADER as u64),
        ("MAX_BLOCK", pointer::MAX_BLOCK.into()),
        ("MAX_POINTER", pointer::MAX_POINTER as u64),
        ("Compression::Off", Compression::Off as u64),
        ("Compression::Lz4", Compression::Lz4 as u64),
        ("Compression::Zstd", Compression::Zstd as u64),
        ("Compression::Zlib", Compression::Zlib as u64),
        ("Checksum::Off", Checksum::Off as u64),
        ("Checksum::Blake3", Checksum::Blake3 as u64),
        ("Checksum::Xxh3", Checksum::Xxh3 as u64),
        ("Checksum::Sha256", Checksum::Sha256 as u64),
        ("MAX_PIECES_512", gang::max_pieces(0, 512) as u64),
        ("MAX_PIECES_4096", gang::max_pieces(0, 4096) as u64),
        ("NODE_TARGET", node::NODE_TARGET as u64),
        ("NODE_MAX", node::NODE_MAX as u64),
        ("MAX_BODY", node::MAX_BODY as u64),
        ("MAX_LEVEL", node::MAX_LEVEL.into()),
        ("MAX_SPACE_ROOT", space::MAX_SPACE_ROOT as u64),
        ("MAX_PHYSICAL_POINTER", space::MAX_PHYSICAL_POINTER as u64),
        ("Class::Data", Class::Data as u64),
        ("Class::Metadata", Class::Metadata as u64),
        ("MAX_UNIT", table::MAX_UNIT.into()),
        ("ROWS_PER_PAGE", table::ROWS_PER_PAGE as u64),
        ("MAX_LOG_HEAD", log::MAX_LOG_HEAD as u64),
    ])
}

/// The cells of a table's row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The text between the first two backticks.
fn quoted(cell: &str) -> Option<&str> {
    cell.split('`').nth(1)
}

fn number(cell: &str) -> Option<u64> {
    cell.replace(',', "").parse().ok()
}

/// The name and value of a row with a constant.
fn constant(line: &str) -> Option<(&str, u64)> {
    let cells = cells(line)?;
    let name = cells[0].strip_prefix('`')?.strip_suffix('`')?;
    let capitals = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    (capitals || name.contains("::")).then(|| (name, number(cells[1]).expect(line)))
}

#[test]
fn its_constants_are_those_of_the_code() {
    let mut stated = BTreeMap::new();
    for (name, value) in DOCUMENT.lines().filter_map(constant) {
        assert!(stated.insert(name, value).is_none(), "{name} is stated twice");
    }
    assert_eq!(stated, constants());
}

#[test]
fn its_kinds_of_vdevs_are_those_of_the_code() {
    for kind in 1..7 {
        let name = VdevTree::Other { kind, payload: Vec::new() }.kind_name();
        assert!(DOCUMENT.contains(&format!("| {kind} | {name} |")), "kind {kind} is {name}");
    }
}

struct ByteTable {
    structure: String,
    rows: Vec<Vec<String>>,
}

fn byte_tables() -> Vec<ByteTable> {
    let mut tables = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("| at in ").and_then(quoted) else { continue };
        let rows = lines.by_ref().skip(1).map_while(cells);
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect()).collect();
        tables.push(ByteTable { structure: name.to_owned(), rows });
    }
    tables
}

#[test]
fn its_byte_tables_have_no_gaps_and_the_structures_lengths() {
    for ByteTable { structure, rows } in byte_tables() {
        let mut expected = Some(0);
        for row in &rows {
            let (at, size) = (number(&row[0]), number(&row[1]));
            if let Some(at) = at {
                assert_eq!(Some(at), expected, "{structure}: {row:?}");
            }
            expected = at.zip(size).map(|(at, size)| at + size);
        }
        if let Some(end) = expected {
            assert_eq!(end, golden::load(&structure).len() as u64, "the end of {structure}");
        }
    }
}

#[test]
fn its_magics_and_versions_are_those_of_the_bytes() {
    let mut checked = 0;
    for ByteTable { structure, rows } in byte_tables() {
        let bytes = golden::load(&structure);
        for row in rows.iter().filter(|row| row[2] == "magic" || row[2] == "version") {
            let (at, size) = (number(&row[0]).unwrap() as usize, number(&row[1]).unwrap() as usize);
            let (found, stated) = (&bytes[at..at + size], quoted(&row[3]).expect("a value in backticks"));
            match number(stated) {
                Some(version) => assert_eq!(found, &version.to_le_bytes()[..size], "{structure}: {row:?}"),
                None => assert_eq!(found, stated.as_bytes(), "{structure}: {row:?}"),
            }
            checked += 1;
        }
    }
    assert!(checked >= 16, "{checked} magics and versions were found");
}

/// The dumps by structure: each line's offset and bytes.
fn dumps() -> BTreeMap<&'static str, Vec<(usize, Vec<u8>)>> {
    let mut dumps = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```dump ") else { continue };
        let shown = lines.by_ref().take_while(|line| *line != "```").map(dump_line).collect();
        assert!(dumps.insert(name, shown).is_none(), "{name} is shown twice");
    }
    dumps
}

fn dump_line(line: &str) -> (usize, Vec<u8>) {
    let hex = |word: &str| usize::from_str_radix(word, 16).unwrap_or_else(|_| panic!("not hexadecimal: {line}"));
    let mut words = line.split(';').next().unwrap_or_default().split_whitespace().map(hex);
    (words.next().expect(line), words.map(|byte| byte as u8).collect())
}

#[test]
fn its_dumps_are_the_golden_bytes() {
    for (name, lines) in dumps() {
        let mut shown = Vec::new();
        for (at, bytes) in lines {
            assert!(at >= shown.len(), "{name}: {at:#x} comes too late");
            shown.resize(at, 0);
            shown.extend(bytes);
        }
        let golden = golden::load(name);
        shown.resize(golden.len().max(shown.len()), 0);
        let different = shown.iter().zip(&golden).position(|(one, other)| one != other);
        assert!(shown == golden, "{name} differs from byte {different:?} on");
    }
}

#[test]
fn every_golden_structure_is_shown() {
    let shown: Vec<String> = dumps().into_keys().map(str::to_owned).collect();
    assert_eq!(shown, golden::names());
}
