//! The structures of the space layer. The first byte of an input chooses the structure.

use std::fmt::Debug;

use pool::format::{
    codec::Reader,
    space::{
        SpaceRoot, Span,
        checkpoint::Checkpoint,
        log::{LogBlock, decode_changes, encode_changes},
        packing::{Entry, PackedMap},
        places::Places,
        table::{TableRoot, decode_page, encode_page},
    },
};

pub(super) fn run(input: &[u8]) -> bool {
    let Some((structure, coded)) = input.split_first() else { return false };
    match structure {
        0 => comes_back(
            coded,
            |bytes| SpaceRoot::decode(&mut Reader::new(bytes)).ok(),
            |root| {
                let mut out = Vec::new();
                root.encode(&mut out);
                out
            },
        ),
        1 => comes_back(coded, |bytes| TableRoot::decode(bytes).ok(), TableRoot::encode),
        2 => comes_back(coded, |bytes| decode_page(bytes).ok(), |rows| encode_page(rows)),
        3 => comes_back(coded, |bytes| LogBlock::decode(bytes).ok(), LogBlock::encode),
        4 => comes_back(coded, changes, |changes| encode_changes(changes)),
        5 => checkpoint(coded),
        6 => map(coded),
        7 => places(coded),
        _ => false,
    }
}

fn comes_back<T: Debug + PartialEq>(
    coded: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> bool {
    let Some(value) = decode(coded) else { return false };
    assert_eq!(decode(&encode(&value)).as_ref(), Some(&value));
    true
}

fn changes(coded: &[u8]) -> Option<Vec<pool::format::space::log::ChunkChanges>> {
    let changes = decode_changes(coded).ok()?;
    assert!(changes.is_sorted_by(|one, two| one.chunk < two.chunk));
    changes.iter().for_each(|change| [&change.allocated, &change.freed].into_iter().for_each(|spans| check(spans)));
    Some(changes)
}

/// The input begins with the number of the chunk's sectors, in two bytes, which a real caller knows from elsewhere.
fn checkpoint(input: &[u8]) -> bool {
    let Some((sectors, coded)) = input.split_first_chunk() else { return false };
    let sectors = u32::from(u16::from_le_bytes(*sectors));
    let decode = |bytes: &[u8]| {
        let checkpoint = Checkpoint::decode(bytes, sectors).ok()?;
        check(&checkpoint.free);
        assert!(checkpoint.free.last().is_none_or(|last| last.end() <= sectors));
        Some(checkpoint)
    };
    comes_back(coded, decode, Checkpoint::encode)
}

/// As for a checkpoint.
fn map(input: &[u8]) -> bool {
    let Some((sectors, coded)) = input.split_first_chunk() else { return false };
    let sectors = u32::from(u16::from_le_bytes(*sectors));
    let decode = |bytes: &[u8]| {
        let map = PackedMap::decode(bytes, sectors).ok()?;
        check_entries(&map.entries, sectors);
        Some(map)
    };
    comes_back(coded, decode, PackedMap::encode)
}

/// As for a checkpoint.
fn places(input: &[u8]) -> bool {
    let Some((sectors, coded)) = input.split_first_chunk() else { return false };
    let sectors = u32::from(u16::from_le_bytes(*sectors));
    let decode = |bytes: &[u8]| {
        let places = Places::decode(bytes, sectors).ok()?;
        [&places.homes, &places.seconds].into_iter().for_each(|entries| check_entries(entries, sectors));
        Some(places)
    };
    comes_back(coded, decode, Places::encode)
}

/// Checks that entries ascend inside a chunk of so many sectors.
fn check_entries(entries: &[Entry], sectors: u32) {
    check(&entries.iter().map(|entry| entry.span).collect::<Vec<_>>());
    assert!(entries.last().is_none_or(|last| last.span.end() <= sectors));
}

/// Checks that spans ascend without overlap or overflow.
fn check(spans: &[Span]) {
    assert!(spans.iter().all(|span| span.len > 0 && span.start.checked_add(span.len).is_some()));
    assert!(spans.is_sorted_by(|one, two| one.end() <= two.start));
}
