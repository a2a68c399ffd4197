//! Trees, deadlists, counters and background work.

use std::collections::{BTreeMap, HashMap, HashSet};

use pool::{
    check::Ledger,
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    txg::{Engine, Pinned},
    units::Txg,
};

use super::{
    FindingKind, Report,
    rows::{Rows, With},
    shared::Shared,
    trees::{Blocks, Part, Trees, WHAT},
};
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Space, Task, Work},
    lineage::deadlist,
    name::MAX_DEPTH,
};

/// A member of a line.
struct Member<'a> {
    id: u64,
    root: Option<BlockPointer>,
    level: u8,
    deadlist: u64,
    dead: Space,
    referenced: Space,
    /// The txg of the previous member.
    previous_txg: Txg,
    what: &'a str,
}

impl Member<'_> {
    fn snapshot(id: u64, (row, root): &With<SnapshotRow>) -> Member<'static> {
        let SnapshotRow { level, deadlist, dead, referenced, previous_txg, .. } = *row;
        Member { id, root: *root, level, deadlist, dead, referenced, previous_txg, what: "snapshot" }
    }

    fn head(id: u64, (row, root): &With<DatasetRow>) -> Member<'static> {
        let DatasetRow { level, deadlist, dead, referenced, newest_txg: previous_txg, .. } = *row;
        Member { id, root: *root, level, deadlist, dead, referenced, previous_txg, what: "dataset" }
    }
}

struct Check<'a> {
    engine: &'a Engine,
    rows: &'a Rows,
    ledger: &'a mut Ledger,
    report: &'a mut Report,
    trees: Trees<'a>,
    /// The owner of each list.
    lists: HashMap<u64, u64>,
    /// The blocks referenced by snapshots and datasets.
    live: Blocks,
    /// Other blocks in use: pages of lists, and blocks queued for freeing.
    other: Blocks,
    /// The shared references found.
    shared: Shared,
}

pub(super) fn check((engine, pinned): (&Engine, Pinned), rows: &Rows, ledger: &mut Ledger, report: &mut Report) {
    let (trees, lists, live, other) = (Trees::new(engine, pinned), HashMap::new(), Blocks::new(), Blocks::new());
    let mut check = Check { engine, rows, ledger, report, trees, lists, live, other, shared: Shared::default() };
    for (id, row) in &rows.datasets {
        check.line(*id, row);
    }
    check.charges();
    for (id, (work, root)) in &rows.work {
        check.work(*id, work, *root);
    }
    check.totals();
    check.stray_lists();
    let used = &check.live | &check.other;
    check.shared.judge(rows, check.ledger, &used, engine.sector(), check.report);
}

impl Check<'_> {
    fn block(&self, number: u32) -> &BlockPointer {
        &self.ledger.blocks()[number as usize]
    }

    fn space_of(&self, blocks: impl IntoIterator<Item = u32>) -> Space {
        blocks.into_iter().map(|number| Space::of(self.block(number), self.engine.sector())).sum()
    }

    fn reach(&mut self, id: u64, root: Option<BlockPointer>, level: u8, part: Part) -> Blocks {
        let Some(root) = root else {
            self.report.find(FindingKind::Node, id, "it has no tree");
            return Blocks::new();
        };
        let report = &mut *self.report;
        self.trees.reach(self.ledger, (root, level), part, |place, error| {
            report.find(FindingKind::Node, id, format!("node at {} of level {}: {error}", place.low, place.level));
        })
    }

    /// Checks the line of one dataset, from its origin on.
    fn line(&mut self, id: u64, row: &With<DatasetRow>) {
        let rows = self.rows;
        let mut before = match rows.snapshots.get(&row.0.origin) {
            Some((origin, root)) => self.reach(row.0.origin, *root, origin.level, Part::ALL),
            None => Blocks::new(),
        };
        let snapshots = rows.lines.get(&id).into_iter().flat_map(|line| line.values());
        let snapshots = snapshots.filter_map(|of| rows.snapshots.get(of).map(|row| Member::snapshot(*of, row)));
        let members: Vec<Member<'_>> = snapshots.chain([Member::head(id, row)]).collect();
        let divisions = self.divisions(id);
        let mut used_snapshots = Space::ZERO;
        for member in &members {
            let now = self.reach(member.id, member.root, member.level, Part::ALL);
            used_snapshots += self.member(member, &before, &now, &divisions, row.0.origin_txg);
            self.live |= &now;
            before = now;
        }
        let own: Blocks = before.iter().filter(|&number| self.block(number).entered() > row.0.origin_txg).collect();
        for number in &own {
            self.shared.meet(&self.ledger.blocks()[number as usize], self.engine.sector(), true);
        }
        let used_head = self.space_of(&own);
        self.report.expect(FindingKind::Used, id, "used_head", row.0.used_head, used_head);
        self.report.expect(FindingKind::Used, id, "used_snapshots", row.0.used_snapshots, used_snapshots);
    }

    /// The txgs of the snapshots of a line, including those up to the origin.
    fn divisions(&self, dataset: u64) -> Vec<Txg> {
        let mut found = Vec::new();
        let (mut at, mut until) = (dataset, Txg(u64::MAX));
        loop {
            let line = self.rows.lines.get(&at).into_iter().flat_map(|line| line.keys().copied());
            found.extend(line.filter(|txg| *txg <= until));
            let Some((row, _)) = self.rows.datasets.get(&at).filter(|(row, _)| row.origin != 0) else { return found };
            let Some((origin, _)) = self.rows.snapshots.get(&row.origin) else { return found };
            if origin.createtxg >= until {
                return found;
            }
            (at, until) = (origin.dataset, origin.createtxg);
        }
    }

    /// Compares a member with its predecessor. Returns the space of the dropped blocks that is charged to the line's
    /// snapshots.
    fn member(
        &mut self,
        member: &Member<'_>,
        before: &Blocks,
        now: &Blocks,
        divisions: &[Txg],
        origin_txg: Txg,
    ) -> Space {
        let Member { id, what, .. } = *member;
        for number in now - before {
            let block = self.block(number);
            if block.entered() <= member.previous_txg {
                let (place, birth) = (block.addresses[0], block.entered());
                let text = format!("the {what} has a block at {place:?} that was born in {birth}");
                self.report.find(FindingKind::Intruder, id, text);
            }
        }
        let referenced = self.space_of(now);
        self.report.expect(FindingKind::Referenced, id, "referenced", member.referenced, referenced);
        self.deadlist(member, before - now, divisions, origin_txg)
    }

    fn deadlist(&mut self, member: &Member<'_>, mut lost: Blocks, divisions: &[Txg], origin_txg: Txg) -> Space {
        let rows = self.rows;
        let (mut dead, mut own) = (Space::ZERO, Space::ZERO);
        // An entry of a list does not tell for which key a shared reference was held.
        let mut lost_shared: HashMap<(Address, Txg), u32> = HashMap::new();
        for block in lost.iter().map(|number| self.block(number)).filter(|block| block.shared.is_some()) {
            *lost_shared.entry((block.addresses[0], block.entered())).or_default() += 1;
        }
        let none = BTreeMap::new();
        for (start, bucket) in rows.deadlists.get(&member.deadlist).unwrap_or(&none) {
            let blocks = self.chain(member.id, bucket.first, Some(bucket.last));
            let space = blocks.iter().map(|block| Space::of(block, self.engine.sector())).sum();
            let has = (bucket.count, bucket.space);
            self.report.expect(
                FindingKind::DeadTotal,
                member.id,
                "a bucket's total",
                has,
                (blocks.len() as u64, space),
            );
            dead += space;
            for block in &blocks {
                if block.entered() > origin_txg {
                    self.shared.meet(block, self.engine.sector(), true);
                    own += Space::of(block, self.engine.sector());
                }
                self.dead_block(member.id, *start, block, (&mut lost, &mut lost_shared), divisions);
            }
        }
        let first = lost.iter().map(|number| self.block(number)).filter(|block| block.shared.is_none());
        let first = first.map(|block| (block.addresses[0], block.birth));
        let missing: Vec<_> =
            first.chain(lost_shared.into_iter().filter(|(_, left)| *left > 0).map(|(which, _)| which)).collect();
        for (place, birth) in missing {
            let text = format!("the block at {place:?}, born in {birth}, is missing");
            self.report.find(FindingKind::NotDead, member.id, text);
        }
        self.report.expect(FindingKind::DeadTotal, member.id, "dead", member.dead, dead);
        own
    }

    fn dead_block(
        &mut self,
        id: u64,
        start: Txg,
        block: &BlockPointer,
        (lost, lost_shared): (&mut Blocks, &mut HashMap<(Address, Txg), u32>),
        divisions: &[Txg],
    ) {
        let (place, birth) = (block.addresses[0], block.entered());
        let was_lost = match lost_shared.get_mut(&(place, birth)).filter(|_| block.shared.is_some()) {
            Some(left) => left.checked_sub(1).map(|less| *left = less).is_some(),
            None => {
                let number = self.ledger.number(block).filter(|number| lost.remove(*number));
                block.shared.is_none() && number.is_some_and(|number| self.block(number).birth == birth)
            }
        };
        if !was_lost {
            self.report.find(FindingKind::Dead, id, format!("the block at {place:?} was not lost"));
        }
        let is_divided = divisions.iter().any(|txg| start < *txg && *txg < birth);
        if birth <= start || is_divided {
            let text = format!("the block at {place:?}, born in {birth}, is in bucket {start}");
            self.report.find(FindingKind::Bucket, id, text);
        }
    }

    /// The blocks on a chain of lists. The pages count as in use.
    fn chain(&mut self, owner: u64, first: u64, last: Option<u64>) -> Vec<BlockPointer> {
        let mut blocks = Vec::new();
        let (mut list, mut end) = (first, first);
        while list != 0 {
            if let Some(other) = self.lists.insert(list, owner) {
                self.report.find(FindingKind::List, list, format!("it belongs to {other} and to {owner}"));
                break;
            }
            self.pages(list, &mut blocks);
            end = list;
            list = self.rows.links.get(&list).copied().unwrap_or(0);
        }
        if let Some(last) = last {
            self.report.expect(FindingKind::List, owner, "the last list of a bucket", last, end);
        }
        blocks
    }

    fn pages(&mut self, list: u64, blocks: &mut Vec<BlockPointer>) {
        let rows = self.rows;
        for (key, body) in rows.pages.get(&list).into_iter().flatten() {
            let mut read = deadlist::page(*key, &body.bytes);
            if let (Ok(inline), Some(block)) = (&mut read, &body.block) {
                self.other.insert(self.ledger.refer(block, WHAT));
                let stored = self.engine.read_block(block, self.trees.seen()).map_err(Into::into);
                match stored.and_then(|bytes| deadlist::page(*key, &bytes)) {
                    Ok(more) => inline.extend(more),
                    Err(error) => read = Err(error),
                }
            }
            match read {
                Ok(more) => blocks.extend(more),
                Err(error) => self.report.find(FindingKind::Page, list, format!("{key}: {error}")),
            }
        }
    }

    /// Sums the charges of each dataset's children.
    fn charges(&mut self) {
        let mut below: BTreeMap<u64, Space> = BTreeMap::new();
        for (row, _) in self.rows.datasets.values() {
            *below.entry(row.parent).or_default() += row.charge();
        }
        for (id, (row, _)) in &self.rows.datasets {
            let should = below.get(id).copied().unwrap_or_default();
            self.report.expect(FindingKind::Used, *id, "used_children", row.used_children, should);
            if self.depth(*id) > 2 * MAX_DEPTH {
                self.report.find(FindingKind::Name, *id, "it lies below itself");
            }
        }
    }

    fn depth(&self, id: u64) -> usize {
        let above = |id: &u64| self.rows.datasets.get(id).map(|(row, _)| row.parent).filter(|parent| *parent != 0);
        std::iter::successors(Some(id), above).take(2 * MAX_DEPTH + 1).count()
    }

    /// Checks the blocks that a piece of background work still has to free: none may be in use.
    fn work(&mut self, id: u64, work: &Work, root: Option<BlockPointer>) {
        let mut blocks = Blocks::new();
        let mut twice = Blocks::new();
        match work.task {
            Task::Tree { level, after, cursor: (object, kind, offset) } => {
                let part = Part { after, cursor: Key::new(object, kind, offset) };
                let all = self.reach(id, root, level, part);
                let (shared, first): (Vec<u32>, Vec<u32>) =
                    all.iter().partition(|&number| self.block(number).shared.is_some());
                for number in shared {
                    self.shared.meet(&self.ledger.blocks()[number as usize], self.engine.sector(), false);
                }
                blocks.extend(first);
            }
            Task::Lists { first, blocks: are_freed } => {
                for block in self.chain(id, first, None).iter().filter(|_| are_freed) {
                    if block.shared.is_some() {
                        self.shared.meet(block, self.engine.sector(), false);
                        self.ledger.hold(block);
                        continue;
                    }
                    let number = self.ledger.refer(block, WHAT);
                    if !blocks.insert(number) {
                        twice.insert(number);
                    }
                }
            }
        }
        for number in twice | (&blocks & (&self.live | &self.other)) {
            let place = self.block(number).addresses[0];
            self.report.find(FindingKind::Freed, id, format!("the block at {place:?} is in use"));
        }
        self.other |= blocks;
    }

    fn totals(&mut self) {
        let rows = self.rows;
        let first = self.live.iter().filter(|&number| self.block(number).shared.is_none());
        let physical = self.space_of(first) + self.shared.charged;
        self.report.expect(FindingKind::Total, 0, "what all datasets take", rows.master.physical, physical);
        let freeing: Space = rows.work.values().map(|(work, _)| work.remaining).sum();
        self.report.expect(FindingKind::Total, 0, "what is to be freed", rows.master.freeing, freeing);
        let ids = rows.datasets.keys().chain(rows.snapshots.keys()).chain(rows.pages.keys()).chain(rows.work.keys());
        let highest = ids.max().copied().unwrap_or(0);
        if highest >= rows.master.next_id {
            self.report.find(FindingKind::Total, highest, "its id has not been drawn yet");
        }
    }

    fn stray_lists(&mut self) {
        let rows = self.rows;
        for list in rows.pages.keys().chain(rows.links.keys()).filter(|list| !self.lists.contains_key(list)) {
            self.report.find(FindingKind::List, *list, "it belongs to nothing");
        }
        let snapshots = rows.snapshots.values().map(|(row, _)| row.deadlist);
        let known: HashSet<u64> = rows.datasets.values().map(|(row, _)| row.deadlist).chain(snapshots).collect();
        for stray in rows.deadlists.keys().filter(|id| !known.contains(id)) {
            self.report.find(FindingKind::List, *stray, "a deadlist that belongs to nothing");
        }
    }
}
