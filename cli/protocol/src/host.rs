//! Requests about the pools of this machine: create, import, export, destroy, check and inspect.

use dataset::name::{DatasetName, Name};

use super::failure::shell_word;
use super::record::*;

/// The directory searched for pools by default.
pub const USUAL_PLACE: &str = "/dev";

/// The searched places, for a message; the default directory if `search` is empty.
pub fn searched(search: &[PathBytes]) -> String {
    match search {
        [] => USUAL_PLACE.to_owned(),
        places => places.iter().map(PathBytes::to_text).collect::<Vec<_>>().join(", "),
    }
}

/// The options of `pool import` for this search, with a space before each; empty for the default directory.
pub fn search_options(search: &[PathBytes]) -> String {
    search.iter().map(|place| format!(" -d {}", shell_word(&place.to_text()))).collect()
}

/// A pool, identified by name or GUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSelector {
    /// Name of the pool, known or found on devices.
    Name(String),
    /// GUID of the pool, from its labels.
    Guid(u64),
}

/// A request to this machine. The comment on each variant ends with the [`HostResponse`] to expect.
#[derive(Clone, Debug, PartialEq)]
pub enum HostRequest {
    /// Create a pool, mount its root dataset, and enter the pool in the registry. `Layout`
    Create(CreatePool),
    /// Destroy a known pool: unmount, end its service, invalidate its labels. `Done`
    Destroy {
        /// Name of the known pool.
        pool: String,
        /// Unmount busy file systems.
        force: bool,
    },
    /// Unmount, commit and close known pools, and remove them from the registry. `Done`
    Export {
        /// Names of the pools.
        pools: Vec<String>,
        /// Unmount busy file systems.
        force: bool,
        /// Discard writes that a suspended pool cannot complete.
        abandon: bool,
    },
    /// The pools available for import. `Importable`
    Importable {
        /// Directories and devices to search; empty for the default directories.
        search: Vec<PathBytes>,
        /// Exported or destroyed pools.
        wanted: Wanted,
    },
    /// Content of devices outside any pool. `Foreign`
    Foreign {
        /// Directories and devices to search.
        search: Vec<PathBytes>,
    },
    /// Sizes and content of devices for a new pool; nothing is taken or created. `Measured`
    Measure {
        /// Name of the planned pool, for messages.
        pool: String,
        /// The devices, present or images to create.
        devices: Vec<VdevSpec>,
    },
    /// Import pools, or restart the services of known pools. `Imported`, or `Rewound` for a rewind.
    Import(ImportPool),
    /// Erase the pool labels from a device. `Done`
    ClearLabels {
        /// Path of the device.
        device: PathBytes,
        /// Erase even if the pool is exported, or may be in use by another host.
        force: bool,
    },
    /// Change the GUID of a known pool. `Done`
    Renumber {
        /// Name of the known pool.
        pool: String,
        /// The new GUID; `None` for a random GUID.
        guid: Option<u64>,
    },
    /// Verify a pool; an imported pool at its last commit, while the pool stays in use. `Checked`
    Check {
        /// Name or GUID of the pool.
        pool: PoolSelector,
        /// Directories and devices to search; empty for the default directories.
        search: Vec<PathBytes>,
    },
}

/// On-disk structures of an exported pool to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// The labels of a device, by its path.
    Labels(PathBytes),
    /// The uberblocks of a device, by its path.
    Uberblocks(PathBytes),
    /// A structure of a whole pool.
    Pool {
        /// Name or GUID of the pool.
        pool: PoolSelector,
        /// Directories and devices to search; empty for the default directories.
        search: Vec<PathBytes>,
        /// Transaction group of the state to read; `None` for the newest.
        txg: Option<u64>,
        /// The structure to show.
        part: InspectPart,
    },
}

/// An on-disk structure of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectPart {
    /// The chunk table and the checkpoints.
    Space,
    /// The space log of the state.
    Log,
    /// The tree of the catalogue.
    Catalogue,
    /// The tree of a dataset or a snapshot.
    Tree(Name),
    /// The items of a file in its tree.
    File(Location),
}

/// A pool to create, with vdevs and properties.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatePool {
    /// Name of the pool, and of its root dataset.
    pub name: DatasetName,
    /// Vdevs and cache devices, in the order of the command line.
    pub vdevs: Vec<VdevTreeSpec>,
    /// Spares, initially available.
    pub spares: Vec<VdevSpec>,
    /// Properties of the pool.
    pub pool_assignments: Vec<Assignment>,
    /// Properties of the root dataset; `-m` sets `mountpoint`.
    pub root_assignments: Vec<Assignment>,
    /// Use devices that contain data, which is destroyed; allow vdevs of different redundancy.
    pub force: bool,
    /// Report the resulting layout, and create nothing.
    pub dry_run: bool,
}

/// Pools to import, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportPool {
    /// A pool; `None` for all pools found, and all known pools without a running service.
    pub which: Option<PoolSelector>,
    /// New name for the pool; `None` keeps the name on the labels.
    pub new_name: Option<DatasetName>,
    /// Directories and devices to search; empty for the default directories.
    pub search: Vec<PathBytes>,
    /// Exported or destroyed pools.
    pub wanted: Wanted,
    /// Import even if another host seems to have the pool imported.
    pub force: bool,
    /// Import without missing log devices, losing synchronous writes since the last commit.
    pub without_log: bool,
    /// Leave file systems unmounted.
    pub no_mount: bool,
    /// Temporary properties until export, such as `readonly`.
    pub assignments: Vec<Assignment>,
    /// Rewind to an older state first, if necessary; only with `which`.
    pub rewind: Option<Rewind>,
}

/// Selects exported or destroyed pools among the pools on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Pools that were not destroyed.
    Living,
    /// Destroyed pools with intact labels.
    Destroyed,
}

impl Wanted {
    /// The option of `pool import` with a space before it; empty for `Living`.
    pub fn flag(self) -> &'static str {
        match self {
            Wanted::Living => "",
            Wanted::Destroyed => " -D",
        }
    }
}

/// A rewind to an older state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// Transaction group of the state; `None` for the newest readable state.
    pub to: Option<u64>,
    /// Report the effect, and change nothing.
    pub dry_run: bool,
}

/// Size and content of a device for a new pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Size of the device, in bytes.
    pub size: u64,
    /// Content that the owner may still need, as text; `None` if the device may be overwritten.
    pub holds: Option<String>,
}

/// The answer of this machine to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum HostResponse {
    /// Success, without further data.
    Done,
    /// The devices of a pool, created or to create.
    Layout(Layout),
    /// Pools available for import.
    Importable(Vec<ImportablePool>),
    /// A sentence for each device with content.
    Foreign(Vec<String>),
    /// The devices measured, in the order of the request.
    Measured(Vec<Measured>),
    /// Names of the imported pools.
    Imported(Vec<String>),
    /// Effect of a rewind, done or planned.
    Rewound(RewindReport),
    /// Result of a verification.
    Checked(CheckReport),
}
