//! A real mount: what programs see, what the kernel requests and caches.

mod files;
mod kernel;
mod mounting;
mod requests;
mod snapshots;
mod support;
mod waiting;

use std::{fs, path::Path};

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
