//! The checker: recomputes everything in the catalogue from the trees.
//!
//! Reads every node of every tree, so the time is proportional to the metadata. No counter and no deadlist is trusted:
//! the blocks dropped by a member of a line are found by comparing the reachable blocks of the member and its
//! predecessor. Every block in use is entered into a ledger, for comparison with the space maps: blocks of trees,
//! blocks still to be freed, and pages of lists. The catalogue's own nodes are entered elsewhere.
//!
//! ```text
//! rows     all rows of the catalogue, by kind
//! trees    the blocks reachable from a root
//! names    names, lines, clones, holds: do the rows fit together?
//! space    trees, deadlists, counters and background work
//! shared   blocks with several references
//! state    whether a state is complete enough for a rewind
//! ```
//!
//! The pool must not change during a check: run it on a pool just opened, or with all datasets closed and committed.

mod names;
mod rows;
mod shared;
mod space;
pub mod state;
mod trees;

use std::fmt;

use pool::{
    check::{Code, Ledger},
    txg::Engine,
};

use crate::error::Result;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// All problems found, in the order of discovery.
    pub findings: Vec<Finding>,
}

/// A problem, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// The id of the dataset, snapshot, list or piece of work.
    pub object: u64,
    /// The value found and the value expected.
    pub detail: String,
}

/// The kinds of findings. The numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum FindingKind {
    /// A row cannot be decoded, or is of an unknown kind.
    Row = 1,
    /// A dataset and its name below its parent do not match.
    Name = 2,
    /// Snapshots, their order and their neighbours do not match.
    Line = 3,
    /// A clone and its origin do not match.
    Clone = 4,
    /// Holds and their count do not match.
    Hold = 5,
    /// A node of a tree cannot be read.
    Node = 6,
    /// A tree has an impossible block: older than the previous snapshot, and not in the previous snapshot.
    Intruder = 7,
    /// `referenced` is not the sum of the reachable blocks.
    Referenced = 8,
    /// A dropped block is missing from the deadlist.
    NotDead = 9,
    /// A block on the deadlist was not dropped, or is listed twice.
    Dead = 10,
    /// A block is in the wrong bucket.
    Bucket = 11,
    /// The totals of a bucket or deadlist are not the sums of its blocks.
    DeadTotal = 12,
    /// A page of a list cannot be read.
    Page = 13,
    /// A list without an owner, or with two owners.
    List = 14,
    /// `used` or a part of `used` is wrong.
    Used = 15,
    /// The pool's totals are wrong.
    Total = 16,
    /// A block queued for freeing is in use.
    Freed = 17,
    /// The number of references to a block differs from its count, or the count is about another block.
    References = 18,
    /// The totals of shared blocks are wrong.
    Sharing = 19,
}

/// Lists the kinds; a missing kind does not compile.
macro_rules! kinds {
    ($($kind:ident),*) => {
        impl FindingKind {
            /// All kinds, by number.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind),*];

            const fn is_listed(self) -> bool {
                match self {
                    $(FindingKind::$kind => true,)*
                }
            }
        }
    };
}

kinds!(
    Row, Name, Line, Clone, Hold, Node, Intruder, Referenced, NotDead, Dead, Bucket, DeadTotal, Page, List, Used,
    Total, Freed, References, Sharing
);
const _: () = assert!(FindingKind::Row.is_listed());

impl FindingKind {
    /// The number, as in the documents.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The corresponding code in the check of the whole pool.
    pub fn code(self) -> Code {
        match self {
            FindingKind::Node | FindingKind::Page => Code::UnreadableNode,
            FindingKind::Referenced | FindingKind::Used | FindingKind::Total | FindingKind::Sharing => Code::Counter,
            FindingKind::References => Code::References,
            FindingKind::NotDead
            | FindingKind::Dead
            | FindingKind::Bucket
            | FindingKind::DeadTotal
            | FindingKind::List
            | FindingKind::Freed => Code::Deadlist,
            _ => Code::Catalogue,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{:02} object {}: {}", self.kind.number(), self.object, self.detail)
    }
}

impl Report {
    /// Enters the findings into the ledger of a pool's check.
    pub fn enter(self, ledger: &mut Ledger) {
        for finding in self.findings {
            ledger.find(pool::check::Finding::new(finding.kind.code(), finding.to_string()));
        }
    }

    fn find(&mut self, kind: FindingKind, object: u64, detail: impl Into<String>) {
        self.findings.push(Finding { kind, object, detail: detail.into() });
    }

    fn expect<T: PartialEq + fmt::Debug>(&mut self, kind: FindingKind, object: u64, what: &str, has: T, should: T) {
        if has != should {
            self.find(kind, object, format!("{what} is {has:?}, should be {should:?}"));
        }
    }
}

/// Checks the datasets of a pool, and enters their blocks into the ledger. Problems go to the report; only an
/// unreadable catalogue is an error.
pub fn check(engine: &Engine, ledger: &mut Ledger) -> Result<Report> {
    let mut report = Report::default();
    let pinned = engine.pin();
    let rows = rows::load(engine, &mut report)?;
    names::check(&rows, &mut report);
    space::check((engine, pinned), &rows, ledger, &mut report);
    Ok(report)
}
