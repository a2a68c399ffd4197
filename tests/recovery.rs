//! What is left when something is broken, and who may touch it: going back to an older state, reading without writing,
//! verifying, and two owners for one pool.
//!
//! The images are damaged here by the engine's own knowledge of where things lie.

mod lab;

use std::{fs, path::Path};

use insta::{Settings, assert_snapshot};
use lab::Lab;
use pool::{
    admin::{OpenOptions, Pool, open},
    device::{Access, Device, FileDevice},
    env::SystemEnv,
    format::{label::DATA_START, pointer::BlockPointer, uberblock::Uberblock},
    vdev::{labels::read_label, uberblocks::read_uberblocks},
};

/// Replaces what differs from run to run.
fn settings() -> Settings {
    let mut settings = Settings::clone_current();
    settings.add_filter(r"/\S*/cenote-lab-\w+", "[LAB]");
    settings.add_filter(r"\b\d{15,20}\b", "[GUID]");
    settings.add_filter(r"\d{4}-\d\d-\d\d[. ]\d\d:\d\d(:\d\d)?", "[DATE]");
    settings.add_filter(r"transaction group \d+", "transaction group [TXG]");
    settings.add_filter(r"\b\d+ seconds?", "[TIME]");
    settings.add_filter(r"process \d+", "process [PID]");
    settings.add_filter(r"-T \d+", "-T [TXG]");
    settings
}

/// What one command line prints, and how it ends.
fn shown(lab: &Lab, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let run = lab.run(words[0], &words[1..]);
    let code = run.code.expect("it ends by itself");
    format!("$ {line}\n{}{}[exit {code}]\n", run.text(), run.stderr)
}

/// The same of several command lines.
fn session(lab: &Lab, lines: &[&str]) -> String {
    lines.iter().map(|line| shown(lab, line)).collect()
}

/// A pool `tank` with a file of each of three days, exported.
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

/// The image of `tank`, as nobody's.
fn image(lab: &Lab) -> FileDevice {
    FileDevice::open(&lab.path("tank.img"), Access::ReadWrite).unwrap()
}

/// The states that the image of `tank` keeps, newest first.
fn states(lab: &Lab) -> Vec<Uberblock> {
    let device = image(lab);
    let label = read_label(&device).unwrap().unwrap();
    read_uberblocks(&device, label.pool).unwrap()
}

/// `tank`, opened behind the back of all commands.
fn opened(lab: &Lab) -> Pool {
    let device = FileDevice::open(&lab.path("tank.img"), Access::ReadOnly).unwrap();
    let options = OpenOptions { read_only: true, force: true, ..OpenOptions::default() };
    open(vec![std::sync::Arc::new(device)], &options, std::sync::Arc::new(SystemEnv)).unwrap()
}

/// Overwrites all copies of a block of `tank`.
fn wreck(lab: &Lab, block: &BlockPointer) {
    let pool = opened(lab);
    let places: Vec<u64> =
        block.addresses().iter().map(|at| pool.engine().storage().space.resolve(*at, block.stored).unwrap().1).collect();
    drop(pool);
    let device = image(lab);
    for place in places {
        device.write_at(DATA_START + place, &[0xee; 64]).unwrap();
    }
}

fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&fs::read(path).unwrap())
}

#[test]
fn a_newest_state_that_cannot_be_read_is_named_and_gone_back_from_only_when_told_to() {
    let (lab, _filters) = (three_days(), settings().bind_to_scope());
    let before = states(&lab);
    wreck(&lab, &before[0].catalogue);
    let damaged = hash(&lab.path("tank.img"));
    assert_snapshot!(session(&lab, &["pool import -d . tank", "pool import -d . -F -n tank"]), @"");
    assert_eq!(hash(&lab.path("tank.img")), damaged);
    assert_snapshot!(session(&lab, &["pool import -d . -F tank", "fs ls tank:/", "pool export tank"]), @"");
    assert_snapshot!(session(&lab, &["pool check -d . tank", "pool import -d . -F -n tank"]), @"");
    assert!(states(&lab).iter().all(|state| state.txg != before[0].txg || state.epoch == before[0].epoch));
}
