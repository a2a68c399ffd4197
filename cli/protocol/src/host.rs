//! Requests about the pools of this machine: which there are, and how they come and go.

use dataset::name::{DatasetName, Name};

use super::record::*;
use super::request::Assignment;

/// A pool by its name or its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSelector {
    /// By name.
    Name(String),
    /// By number.
    Guid(u64),
}

/// What is asked of this machine. The comment on each says which [`HostResponse`] answers.
#[derive(Clone, Debug, PartialEq)]
pub enum HostRequest {
    /// Create a pool, mount its root dataset, and know it from now on. `Layout`
    Create(CreatePool),
    /// Destroy a known pool: unmount, end its service, make its labels invalid. `Done`
    Destroy {
        /// Its name.
        pool: String,
        /// Unmount even what is in use.
        force: bool,
    },
    /// Unmount, commit and close known pools, and forget them. `Done`
    Export {
        /// Their names.
        pools: Vec<String>,
        /// Unmount even what is in use.
        force: bool,
        /// Give up what cannot be written.
        abandon: bool,
    },
    /// The pools that could be imported. `Importable`
    Importable {
        /// Directories and devices to look at; empty for the usual places.
        search: Vec<PathBytes>,
        /// Which of the pools there.
        wanted: Wanted,
    },
    /// What devices hold that belong to no pool. `Foreign`
    Foreign {
        /// Directories and devices to look at.
        search: Vec<PathBytes>,
    },
    /// Import pools, or bring known ones back whose service ended. `Imported`, or `Rewound` if going back was asked for
    Import(ImportPool),
    /// Make a device one that belongs to no pool. `Done`
    ClearLabels {
        /// Its path.
        device: PathBytes,
        /// Although its pool is exported, or may be in use by another host.
        force: bool,
    },
    /// Give a known pool another number. `Done`
    Renumber {
        /// Its name.
        pool: String,
        /// The number; without it, one is drawn.
        guid: Option<u64>,
    },
    /// Verify a pool: one that is imported at its last commit, while work goes on. `Checked`
    Check {
        /// Which.
        pool: PoolSelector,
        /// Directories and devices to look at; empty for the usual places.
        search: Vec<PathBytes>,
    },
}

/// What to look into, of a pool that nobody has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// The labels of one device.
    Labels(PathBytes),
    /// The uberblocks of one device.
    Uberblocks(PathBytes),
    /// A structure of a whole pool.
    Pool {
        /// Which pool.
        pool: PoolSelector,
        /// Directories and devices to look at; empty for the usual places.
        search: Vec<PathBytes>,
        /// At which state; `None` for the newest.
        txg: Option<u64>,
        /// Which structure.
        part: InspectPart,
    },
}

/// A structure of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectPart {
    /// The chunk table and the checkpoints.
    Space,
    /// The space log.
    Log,
    /// The catalogue's tree.
    Catalogue,
    /// The tree of a dataset or a snapshot.
    Tree(Name),
    /// A file's items.
    File(Location),
}

/// A pool to create.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatePool {
    /// Its name.
    pub name: DatasetName,
    /// Its vdevs.
    pub vdevs: Vec<VdevTreeSpec>,
    /// Devices that are to stand by.
    pub spares: Vec<VdevSpec>,
    /// Properties of the pool.
    pub pool_assignments: Vec<Assignment>,
    /// Properties of its root dataset; `-m` is among them.
    pub root_assignments: Vec<Assignment>,
    /// Take a device although it holds something, and mix what keeps unequally much.
    pub force: bool,
    /// Only say what would be.
    pub dry_run: bool,
}

/// Pools to import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportPool {
    /// Which; `None` for all: those found, and those known whose service ended.
    pub which: Option<PoolSelector>,
    /// A new name.
    pub new_name: Option<DatasetName>,
    /// Directories and devices to look at; empty for the usual places.
    pub search: Vec<PathBytes>,
    /// Which of the pools there.
    pub wanted: Wanted,
    /// Although another host seems to have it.
    pub force: bool,
    /// Although its log devices are missing.
    pub without_log: bool,
    /// Do not mount its file systems.
    pub no_mount: bool,
    /// Properties of the pool for as long as it is imported, `readonly` among them.
    pub assignments: Vec<Assignment>,
    /// Go back to an older state first if need be; only for one pool.
    pub rewind: Option<Rewind>,
}

/// Which pools on devices are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that nobody has destroyed.
    Living,
    /// Those that were destroyed and are still there.
    Destroyed,
}

impl Wanted {
    /// The words that say so after `pool import`.
    pub fn flag(self) -> &'static str {
        match self {
            Wanted::Living => "",
            Wanted::Destroyed => " -D",
        }
    }
}

/// To which state a pool is to go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// That of this transaction group; `None` for the newest that can be read.
    pub to: Option<u64>,
    /// Only say what would be.
    pub dry_run: bool,
}

/// What this machine answers.
#[derive(Clone, Debug, PartialEq)]
pub enum HostResponse {
    /// It is done; there is nothing to say.
    Done,
    /// The devices of a pool that was or would be created.
    Layout(Layout),
    /// Pools that could be imported.
    Importable(Vec<ImportablePool>),
    /// Sentences: which device holds what.
    Foreign(Vec<String>),
    /// The names of the pools that were imported.
    Imported(Vec<String>),
    /// How the pool went back before it was imported, or would.
    Rewound(RewindReport),
    /// What a verification found.
    Checked(CheckReport),
}
