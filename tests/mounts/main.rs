//! Mounts and the services behind them, as somebody at a shell meets them: two that want one place, something foreign on
//! top, options that hold for one mount, datasets that come and go, services that have died or do not answer.
//!
//! ```text
//! beneath    what programs with open files see of a rollback or a receive
//! by_hand    what mount(8) mounts, and what umount(8) takes away
//! places     where datasets are mounted, and what is in the way
//! copies     what is copied beneath them
//! strangers  copies from and to directories of other users
//! replaced   commands that have begun with what is replaced then
//! options    what holds for one mount only, and what stays when names change
//! services   pools whose service is gone or stands still
//! trimming   giving free space back, on demand and by itself
//! threads    how many there are, for how many mounts
//! transport  how requests come from the kernel
//! ```

#[path = "../lab/mod.rs"]
mod lab;

mod beneath;
mod by_hand;
mod copies;
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

/// A lab with the mounted pools of these names; `None` where nothing can be mounted.
fn mounted(pools: &[&str]) -> Option<Lab> {
    if !lab::can_mount() {
        return None;
    }
    let lab = Lab::new();
    pools.iter().for_each(|name| lab.create(name, "64M"));
    Some(lab)
}

/// How many mounts there are on a directory, and of which types.
fn mounts_on(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.display().to_string();
    let here = table.lines().filter(|line| line.split(' ').nth(4) == Some(&path));
    here.map(|line| line.split(" - ").nth(1).unwrap().split(' ').next().unwrap().to_owned()).collect()
}
