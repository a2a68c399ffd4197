//! Inspecting the structures of a pool that no process has open.
//!
//! Labels and uberblocks have their own checksums and may be read at any time. All other structures are read from a
//! pool locked against writers.

use std::{path::PathBuf, sync::Arc};

use dataset::{
    admin::Datasets,
    fs::Ino,
    inspect,
    name::{DatasetName, Name},
};
use pool::{
    device::{Access, Device, FileDevice},
    inspect::{self as structures, Item, Sink},
    txg::Engine,
    units::Txg,
};
use protocol::{Failure, Inspect, InspectPart, Location, PathBytes};

use super::{
    devices::{self, Closed},
    files,
    refusal::OrRefused,
};

const ACTION: &str = "look into";

fn glance(path: &PathBytes) -> Result<FileDevice, Failure> {
    FileDevice::open(&PathBuf::from(path.as_os_str()), Access::Glance).or_refused(ACTION, path.to_text())
}

/// Writes the labels of a device to `sink`.
pub(crate) fn labels(path: &PathBytes, sink: Sink<'_>) -> Result<(), Failure> {
    Ok(structures::labels(&glance(path)?, sink)?)
}

/// Writes the uberblocks of a device to `sink`.
pub(crate) fn uberblocks(path: &PathBytes, sink: Sink<'_>) -> Result<(), Failure> {
    Ok(structures::uberblocks(&glance(path)?, sink)?)
}

/// A structure of a pool that no process has open.
pub(crate) fn pool(closed: &Closed, what: &Inspect, sink: Sink<'_>) -> Result<(), Failure> {
    let name = closed.name.as_str();
    let Inspect::Pool { txg, part, .. } = what else { return Ok(()) };
    let (devices, txg) = (devices::open_closed(closed, Access::ReadOnly).or_refused(ACTION, name)?, txg.map(Txg));
    match part {
        InspectPart::Space => Ok(structures::space(&devices, txg, sink).or_refused(ACTION, name)??),
        InspectPart::Log => Ok(structures::log(&devices, txg, sink).or_refused(ACTION, name)??),
        InspectPart::Catalogue => Ok(inspect::catalogue(&*open(name, devices, txg)?, sink)?),
        InspectPart::Tree(of) => {
            let (engine, datasets) = open_datasets(name, devices, txg)?;
            let root = inspect::root_of(&datasets, of).or_refused(ACTION, of)?;
            Ok(inspect::dataset(&engine, root, sink)?)
        }
        InspectPart::File(location) => {
            let (engine, datasets) = open_datasets(name, devices, txg)?;
            let root = inspect::root_of(&datasets, &location.name).or_refused(ACTION, &location.name)?;
            let ino = find(&datasets, location)?;
            sink(Item::new(0, "file").with("path", location.path.to_text()).with("inode", ino))?;
            Ok(inspect::object(&engine, root, ino, sink)?)
        }
    }
}

fn open(name: &str, devices: Vec<Arc<dyn Device>>, txg: Option<Txg>) -> Result<Arc<Engine>, Failure> {
    structures::open(devices, txg).or_refused(ACTION, name).map_err(|failure| {
        failure.hint(format!("commands that still work: pool debug space {name}, pool debug log {name}"))
    })
}

fn open_datasets(
    name: &str,
    devices: Vec<Arc<dyn Device>>,
    txg: Option<Txg>,
) -> Result<(Arc<Engine>, Arc<Datasets>), Failure> {
    let engine = open(name, devices, txg)?;
    let name: DatasetName = name.parse().map_err(|error| Failure::name(ACTION, &error))?;
    let datasets = Datasets::open(engine.clone(), name.clone()).or_refused(ACTION, &name)?;
    Ok((engine, datasets))
}

/// The object at a path. A symbolic link at the end is not followed.
fn find(datasets: &Datasets, location: &Location) -> Result<Ino, Failure> {
    let fs = match &location.name {
        Name::Dataset(name) => datasets.open_dataset(name).or_refused(ACTION, name)?.fs().clone(),
        Name::Snapshot(name) => datasets.open_snapshot(name).or_refused(ACTION, name)?.fs,
        Name::Bookmark(name) => return Err(Failure::cannot(ACTION, name, "a bookmark has no files")),
    };
    let found = files::find(&fs, &location.path.0);
    found.map(|attr| attr.ino).map_err(|errno| Failure::cannot(ACTION, location.path.to_text(), files::reason(errno)))
}
