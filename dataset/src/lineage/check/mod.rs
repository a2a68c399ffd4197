//! The judge: recomputes everything the catalogue claims from the trees themselves.
//!
//! Reads every node of every tree, so it takes as long as there is metadata. It trusts no counter and no deadlist: what a member of a line has lost is found by comparing what can be reached
//! from it and from the member before. Every block that is in use is entered into a ledger, for the comparison with the
//! space maps: blocks of trees, blocks still to be freed, and pages of lists. The catalogue's own nodes are not among them.
//!
//! ```text
//! rows     all rows of the catalogue, by what they are
//! trees    what can be reached from a root
//! names    names, lines, clones, holds: do the rows fit together?
//! space    trees, deadlists, counters and background work
//! shared   blocks with several references
//! state    whether a state is whole enough to go back to
//! ```
//!
//! To be used while nothing changes: on a pool that was just opened, or whose datasets are closed and committed.

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

use crate::admin::Result;

/// What the check has found out.
#[derive(Debug, Default)]
pub struct Report {
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The dataset, snapshot, list or piece of work.
    pub object: u64,
    /// What was found, and what was expected.
    pub detail: String,
}

/// The kinds of findings. Their numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum FindingKind {
    /// A row cannot be decoded, or is of no known kind.
    Row = 1,
    /// A dataset and its name below its parent do not fit.
    Name = 2,
    /// Snapshots, their order and their neighbours do not fit.
    Line = 3,
    /// A clone and its origin do not fit.
    Clone = 4,
    /// Holds and their count do not fit.
    Hold = 5,
    /// A node of a tree cannot be read.
    Node = 6,
    /// A tree has a block that it cannot have: older than the snapshot before it, and not in that.
    Intruder = 7,
    /// `referenced` is not what can be reached.
    Referenced = 8,
    /// A block that was dropped is not on the deadlist.
    NotDead = 9,
    /// A block on the deadlist was not dropped, or stands there twice.
    Dead = 10,
    /// A block is in the wrong bucket.
    Bucket = 11,
    /// The totals of a bucket or a deadlist are not the sum of its blocks.
    DeadTotal = 12,
    /// A page of a list cannot be read.
    Page = 13,
    /// A list that belongs to nothing, or to two things.
    List = 14,
    /// `used` or one of its parts is not right.
    Used = 15,
    /// The pool's totals are not right.
    Total = 16,
    /// A block that is to be freed is in use.
    Freed = 17,
    /// A block has other references than are counted, or is another than the one that they are counted of.
    References = 18,
    /// The totals of shared blocks are not right.
    Sharing = 19,
}

/// Lists the kinds; one that is not here does not compile.
macro_rules! kinds {
    ($($kind:ident),*) => {
        impl FindingKind {
            /// All of them, by their numbers.
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
    /// Its number.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// What it counts as in the check of the whole pool.
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

/// Checks the datasets of a pool, and enters their blocks. What is wrong is in the report; only a catalogue that cannot be
/// read is an error.
pub fn check(engine: &Engine, ledger: &mut Ledger) -> Result<Report> {
    let mut report = Report::default();
    let pinned = engine.pin();
    let rows = rows::load(engine, &mut report)?;
    names::check(&rows, &mut report);
    space::check((engine, pinned), &rows, ledger, &mut report);
    Ok(report)
}
