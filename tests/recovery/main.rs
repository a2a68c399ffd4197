//! Recovery of damaged pools, and protection against a second owner: rewind, reading without writing, checking, and two
//! owners of one pool.
//!
//! The tests damage the images by using the engine to locate structures.
//!
//! ```text
//! rewind      rewinding to an older state of a pool
//! readonly    reading a pool without writing a byte of it
//! owners      several candidates for one pool
//! check       the findings of a check, also in a pool in use
//! size        devices whose size has changed
//! debug       the structures of a pool as `pool debug` shows them, intact and damaged
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod check;
mod debug;
mod owners;
mod readonly;
mod rewind;
mod size;

use std::{fs, path::Path};

use insta::Settings;
use lab::Lab;
use pool::{
    admin::{OpenOptions, Pool, open},
    device::{Access, Device, FileDevice},
    env::SystemEnv,
    format::{label::DATA_START, pointer::BlockPointer, uberblock::Uberblock},
    vdev::{labels::read_label, uberblocks::read_uberblocks},
};

/// Replaces values that change from run to run.
fn filters() -> Settings {
    let mut settings = lab::output::filters_for_paths();
    settings.add_filter(r"\b\d+ seconds?", "[TIME]");
    settings.add_filter(r"process \d+", "process [PID]");
    settings.add_filter(r"-T \d+", "-T [TXG]");
    settings.add_filter(r"groups \d+ to \d+", "groups [TXG] to [TXG]");
    settings.add_filter(r"chunk \d+ sector \d+, born in \d+", "chunk [C] sector [S], born in [TXG]");
    settings.add_filter(r"\b\d+ blocks, [\d.]+[KM]", "[N] blocks, [SIZE]");
    settings
}

/// A pool `tank` with a file for each of three days, exported.
fn three_days() -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "64M:tank.img"]);
    for day in ["monday", "tuesday", "wednesday"] {
        fs::write(lab.path("text"), day.repeat(1000)).unwrap();
        lab.fs(&["cp", "text", &format!("tank:/{day}")]);
    }
    lab.pool(&["export", "tank"]);
    lab
}

/// The image of `tank`, locked by this test alone.
fn image(lab: &Lab) -> FileDevice {
    locked(lab, Access::ReadWrite)
}

/// The image, locked. Another test of this process may be starting a program. Until its exec, the child process holds
/// all locks of this process, even locks already released here.
fn locked(lab: &Lab, access: Access) -> FileDevice {
    let mut device = None;
    lab::wait_until("the image is nobody's", || {
        device = FileDevice::open(&lab.path("tank.img"), access).ok();
        device.is_some()
    });
    device.unwrap()
}

/// The states in the image of `tank`, newest first.
fn states(lab: &Lab) -> Vec<Uberblock> {
    let device = image(lab);
    let label = read_label(&device).unwrap().unwrap();
    read_uberblocks(&device, label.pool).unwrap()
}

/// `tank`, opened without the commands' knowledge.
fn opened(lab: &Lab) -> Pool {
    let device = locked(lab, Access::ReadOnly);
    let options = OpenOptions { read_only: true, force: true, ..OpenOptions::default() };
    open(vec![std::sync::Arc::new(device)], &options, std::sync::Arc::new(SystemEnv)).unwrap()
}

/// Overwrites all copies of a block of `tank`.
fn wreck(lab: &Lab, block: &BlockPointer) {
    let pool = opened(lab);
    let places: Vec<u64> = block
        .addresses()
        .iter()
        .map(|at| pool.engine().storage().space.resolve(*at, block.stored).unwrap().1)
        .collect();
    drop(pool);
    let device = image(lab);
    for place in places {
        device.write_at(DATA_START + place, &[0xee; 64]).unwrap();
    }
}

/// A hash of a file's content.
fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&fs::read(path).unwrap())
}
