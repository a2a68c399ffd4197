//! Mounts and the services behind them, as a shell user sees them: two datasets for a place, foreign mounts on top,
//! options of a single mount, changing datasets, dead or stopped services.
//!
//! ```text
//! beneath    rollback or receive below programs with open files
//! by_hand    mount(8) and umount(8)
//! places     mountpoints of datasets, and obstacles there
//! copies     copies into mounted datasets
//! strangers  copies from and to directories of other users
//! replaced   commands reading files that are replaced meanwhile
//! options    options for one mount only, and mounts during renames
//! services   pools whose service is gone or stopped
//! foreseen   dry runs of changes of properties, names and trees
//! trimming   giving free space back, on demand and automatically
//! threads    the number of threads for many mounts
//! figures    what the commands count of the activity on mounts
//! transport  the kernel's ways of sending requests
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod beneath;
mod by_hand;
mod copies;
mod figures;
mod foreseen;
mod options;
mod places;
mod replaced;
mod services;
mod states;
mod strangers;
mod threads;
mod transport;
mod trimming;

use std::{fs, path::Path};

use lab::Lab;

/// A lab with mounted pools of the given names; `None` if mounting is impossible here.
fn mounted(pools: &[&str]) -> Option<Lab> {
    if !lab::can_mount() {
        return None;
    }
    let lab = Lab::new();
    pools.iter().for_each(|name| lab.create(name, "64M"));
    Some(lab)
}

/// The types of the file systems mounted on a directory, lowest first.
fn mounts_on(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.display().to_string();
    let here = table.lines().filter(|line| line.split(' ').nth(4) == Some(&path));
    here.map(|line| line.split(" - ").nth(1).unwrap().split(' ').next().unwrap().to_owned()).collect()
}
