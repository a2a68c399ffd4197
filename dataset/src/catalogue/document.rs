//! Compares `dataset/FORMAT.md` with the code: the kinds of rows, and the bytes of the trickier rows.

use pool::units::Txg;

use super::{
    DamageRow, DefragmentRow, MoveState, PaceRow, RebalanceRow, RemovalRow, ResizeRow, Row, ScrubPosition, ScrubRow,
    ScrubState, kind,
};

const DOCUMENT: &str = include_str!("../../FORMAT.md");

/// The kinds of rows in the document's table of keys.
fn documented() -> Vec<(u8, String)> {
    let rows = DOCUMENT.lines().filter(|line| line.starts_with('|'));
    let second = rows.filter_map(|line| line.split('|').nth(2)?.trim().split_once(' '));
    let kinds = second.filter_map(|(number, name)| Some((number.parse().ok()?, name)));
    // A kind may have several rows, each with a key of its own.
    let mut kinds: Vec<(u8, &str)> = kinds.collect();
    kinds.dedup();
    kinds
        .into_iter()
        .filter(|(_, name)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .map(|(n, s)| (n, s.into()))
        .collect()
}

#[test]
fn the_document_lists_every_kind_of_row() {
    let kinds = [
        (kind::MASTER, "MASTER"),
        (kind::DATASET, "DATASET"),
        (kind::CHILD, "CHILD"),
        (kind::PROPERTY, "PROPERTY"),
        (kind::RECEIVED, "RECEIVED"),
        (kind::SNAPSHOT, "SNAPSHOT"),
        (kind::SNAPSHOT_NAME, "SNAPSHOT_NAME"),
        (kind::SNAPSHOT_TXG, "SNAPSHOT_TXG"),
        (kind::CLONE, "CLONE"),
        (kind::HOLD, "HOLD"),
        (kind::BOOKMARK, "BOOKMARK"),
        (kind::DEADLIST, "DEADLIST"),
        (kind::LINK, "LINK"),
        (kind::PAGE, "PAGE"),
        (kind::WORK, "WORK"),
        (kind::HISTORY, "HISTORY"),
        (kind::SCRUB, "SCRUB"),
        (kind::DAMAGE, "DAMAGE"),
        (kind::SHARED, "SHARED"),
        (kind::SHARING, "SHARING"),
        (kind::REMOVAL, "REMOVAL"),
        (kind::REBALANCE, "REBALANCE"),
        (kind::PACE, "PACE"),
        (kind::DEFRAGMENT, "DEFRAGMENT"),
        (kind::RESIZE, "RESIZE"),
        (kind::RECEIVING, "RECEIVING"),
    ];
    assert_eq!(documented(), kinds.map(|(number, name)| (number, name.to_owned())));
}

#[test]
fn removals_are_coded_as_the_document_says() {
    let (state, name) = (MoveState::NoRoom, "ab".to_owned());
    let row = RemovalRow { state, vdev: 3, name, start: 1, end: 2, total: 4, copied: 5, errors: 6 };
    let times = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(row.encode(), [&[1, 5, 3, 2, b'a', b'b'], &times[..], &[4, 5, 6]].concat());
}

#[test]
fn rebalances_are_coded_as_the_document_says() {
    let row = RebalanceRow { state: MoveState::Canceled, start: 1, end: 2, total: 4, copied: 5, errors: 6 };
    let times = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(row.encode(), [&[1, 3], &times[..], &[4, 5, 6]].concat());
    assert_eq!(PaceRow { paused: true, limit: 7 }.encode(), [1, 1, 7]);
}

#[test]
fn defragmentations_are_coded_as_the_document_says() {
    let (state, counts) = (MoveState::NoRoom, DefragmentRow { wanted: 7, emptied: 8, taken: 9, ..Default::default() });
    let row = DefragmentRow { state, start: 1, end: 2, total: 4, copied: 5, errors: 6, ..counts };
    let times = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(row.encode(), [&[1, 5], &times[..], &[4, 5, 6, 7, 8, 9]].concat());
}

#[test]
fn resizes_are_coded_as_the_document_says() {
    let (state, name, ends) =
        (MoveState::NoRoom, "ab".to_owned(), ResizeRow { start: 1, end: 2, ..Default::default() });
    let row = ResizeRow { state, vdev: 3, name, regions: 7, size: 8, total: 4, copied: 5, errors: 6, ..ends };
    let times = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(row.encode(), [&[1, 5, 3, 2, b'a', b'b', 7, 8], &times[..], &[4, 5, 6]].concat());
}

#[test]
fn scrubs_and_damage_are_coded_as_the_document_says() {
    let position = ScrubPosition::Datasets { dataset: 7, done: Txg(8), member: 9, cursor: (10, 11, 12) };
    let state = ScrubState::Paused;
    let counts =
        ScrubRow { elapsed: 3, limit: Txg(4), total: 5, examined: 6, repaired: 1, errors: 2, ..Default::default() };
    let row = ScrubRow { state, start: 1, end: 2, position, ..counts };
    let times = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(row.encode(), [&[1, 2], &times[..], &[3, 4, 5, 6, 1, 2], &[3, 7, 8, 9, 10, 11, 12]].concat());
    let coded = |position| ScrubRow { position, ..ScrubRow::default() }.encode()[24..].to_vec();
    assert_eq!(coded(ScrubPosition::Labels), [0]);
    assert_eq!(coded(ScrubPosition::Space { vdev: 1, offset: 2 }), [1, 1, 2]);
    assert_eq!(coded(ScrubPosition::Catalogue { cursor: (3, 4, 5) }), [2, 3, 4, 5]);
    let row = DamageRow { tree: 3, first: 4, last: 5, time: 1, seen: Txg(6) };
    assert_eq!(row.encode(), [&[1, 3, 4, 5], &times[..8], &[6]].concat());
}
