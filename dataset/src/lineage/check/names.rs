//! Names, lines, clones and holds: do the rows fit together?

use std::collections::BTreeSet;

use pool::units::Txg;

use super::{FindingKind, Report, rows::Rows};
use crate::catalogue::{DatasetRow, ROOT, SnapshotRow, Space};

pub(super) fn check(rows: &Rows, report: &mut Report) {
    for (id, (row, _)) in &rows.datasets {
        check_name(rows, *id, row, report);
        check_line(rows, *id, row, report);
        check_origin(rows, *id, row, report);
    }
    for (parent, name, id) in &rows.children {
        let fits = rows.datasets.get(id).is_some_and(|(row, _)| row.parent == *parent && row.name == *name);
        if !fits {
            report.find(FindingKind::Name, *parent, format!("'{name}' leads to {id}, which does not bear it here"));
        }
    }
    for (id, (row, _)) in &rows.snapshots {
        check_snapshot(rows, *id, row, report);
    }
    check_strays(rows, report);
}

fn check_name(rows: &Rows, id: u64, row: &DatasetRow, report: &mut Report) {
    if id != ROOT {
        let named = rows.children.iter().filter(|(_, _, child)| *child == id).count();
        report.expect(FindingKind::Name, id, "the number of its names", named, 1);
    }
    let children = rows.children.iter().filter(|(parent, ..)| *parent == id).count() as u64;
    report.expect(FindingKind::Name, id, "the number of its children", row.children, children);
}

/// Compares a line in the index with the links between its members.
fn check_line(rows: &Rows, id: u64, row: &DatasetRow, report: &mut Report) {
    let line: Vec<(Txg, u64)> =
        rows.lines.get(&id).into_iter().flatten().map(|(txg, snapshot)| (*txg, *snapshot)).collect();
    report.expect(FindingKind::Line, id, "the number of its snapshots", row.snapshots, line.len() as u64);
    let (mut before, mut before_txg) = (row.origin, row.origin_txg);
    for (index, (txg, snapshot)) in line.iter().enumerate() {
        let Some((member, _)) = rows.snapshots.get(snapshot) else {
            report.find(FindingKind::Line, id, format!("its snapshot {snapshot} is missing"));
            continue;
        };
        let next = line.get(index + 1).map_or(0, |(_, next)| *next);
        let has = (member.dataset, member.createtxg, member.previous, member.previous_txg, member.next);
        let should = (id, *txg, before, before_txg, next);
        report.expect(FindingKind::Line, *snapshot, "(dataset, txg, previous, its txg, next)", has, should);
        (before, before_txg) = (*snapshot, *txg);
    }
    let referenced = rows.snapshots.get(&before).map_or(Space::ZERO, |(newest, _)| newest.referenced);
    let has = (row.newest, row.newest_txg, row.newest_referenced);
    report.expect(FindingKind::Line, id, "the newest snapshot", has, (before, before_txg, referenced));
}

fn check_origin(rows: &Rows, id: u64, row: &DatasetRow, report: &mut Report) {
    if row.origin == 0 {
        report.expect(FindingKind::Clone, id, "the origin's txg", row.origin_txg, Txg::ZERO);
        return;
    }
    match rows.snapshots.get(&row.origin) {
        None => report.find(FindingKind::Clone, id, "its origin is missing"),
        Some((origin, _)) => {
            report.expect(FindingKind::Clone, id, "the origin's txg", row.origin_txg, origin.createtxg);
        }
    }
    if !rows.clones.get(&row.origin).is_some_and(|clones| clones.contains(&id)) {
        report.find(FindingKind::Clone, id, "its origin does not know it");
    }
}

fn check_snapshot(rows: &Rows, id: u64, row: &SnapshotRow, report: &mut Report) {
    let none = BTreeSet::new();
    let clones = rows.clones.get(&id).unwrap_or(&none);
    report.expect(FindingKind::Clone, id, "the number of its clones", row.clones, clones.len() as u64);
    for clone in clones {
        if rows.datasets.get(clone).is_none_or(|(row, _)| row.origin != id) {
            report.find(FindingKind::Clone, id, format!("{clone} is not its clone"));
        }
    }
    let holds = rows.holds.get(&id).copied().unwrap_or(0);
    report.expect(FindingKind::Hold, id, "the number of its holds", row.holds, holds);
    let named = rows.snapshot_names.iter();
    let named = named.filter(|(dataset, name, of)| *of == id && *dataset == row.dataset && *name == row.name).count();
    report.expect(FindingKind::Line, id, "the number of its names", named, 1);
    if rows.lines.get(&row.dataset).is_none_or(|line| line.get(&row.createtxg) != Some(&id)) {
        report.find(FindingKind::Line, id, "it has no place in the line of its dataset");
    }
}

/// Finds rows that refer to missing objects.
fn check_strays(rows: &Rows, report: &mut Report) {
    for (dataset, name, id) in &rows.snapshot_names {
        if !rows.snapshots.contains_key(id) {
            report.find(FindingKind::Line, *dataset, format!("'{name}' leads to {id}, which is no snapshot"));
        }
    }
    for (hidden, row) in &rows.receiving {
        if rows.datasets.get(hidden).is_none_or(|(row, _)| !row.hidden) {
            report.find(FindingKind::Name, *hidden, "a receive without its hidden dataset");
        }
        if !rows.datasets.contains_key(&row.target) {
            report.find(FindingKind::Name, *hidden, format!("a receive into {}, which is no dataset", row.target));
        }
    }
    for dataset in rows.lines.keys().filter(|id| !rows.datasets.contains_key(id)) {
        report.find(FindingKind::Line, *dataset, "snapshots of a dataset that is not there");
    }
    for snapshot in rows.clones.keys().chain(rows.holds.keys()).filter(|id| !rows.snapshots.contains_key(id)) {
        report.find(FindingKind::Clone, *snapshot, "clones or holds of a snapshot that is not there");
    }
}
