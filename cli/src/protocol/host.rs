//! Requests about the pools of this machine: which there are, and how they come and go.

use dataset::name::DatasetName;

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
    /// Create a pool, mount its root data set, and know it from now on. `Layout`
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
    },
    /// Import pools, or bring known ones back whose service ended. `Imported`
    Import(ImportPool),
    /// Verify a pool that is not imported. `Checked`
    Check {
        /// Which.
        pool: PoolSelector,
        /// Directories and devices to look at; empty for the usual places.
        search: Vec<PathBytes>,
    },
}

/// A pool to create.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatePool {
    /// Its name.
    pub name: DatasetName,
    /// Its devices.
    pub vdevs: Vec<VdevSpec>,
    /// Properties of the pool.
    pub pool_assignments: Vec<Assignment>,
    /// Properties of its root data set; `-m` is among them.
    pub root_assignments: Vec<Assignment>,
    /// Take a device although it holds something.
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
    /// Although another host seems to have it.
    pub force: bool,
    /// Do not mount its file systems.
    pub no_mount: bool,
    /// Properties of the pool for as long as it is imported, `readonly` among them.
    pub assignments: Vec<Assignment>,
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
    /// The names of the pools that were imported.
    Imported(Vec<String>),
    /// What a verification found.
    Checked(CheckReport),
}
