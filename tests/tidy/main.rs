//! Rules of CONTRIBUTING.md that a program can check, over all sources and documents.
//!
//! A rule that not all code keeps yet has a bound: the number of exceptions today. A bound may only decrease. A test fails
//! too if fewer exceptions are left than its bound allows, so that the bound is lowered in the same commit.
//!
//! ```text
//! source      Rust files, cut into code, comments, literals and tests
//! imports     which file imports from which
//! words       pronouns in 100 words
//! structure   rules about layers, circles, functions and the clock
//! prose       rules about comments, documents and names
//! wire        types on the socket, whose changes need a new version of the protocol
//! ```

mod imports;
mod prose;
mod source;
mod structure;
mod wire;
mod words;

use source::Source;

/// The sources of the programs.
fn shipped() -> Vec<Source> {
    source::rust(&["pool/src", "dataset/src", "fuse-mount/src", "cli"])
}

/// Fails if there are more exceptions to a rule than are allowed, or fewer.
fn within_bound(what: &str, found: &[String], bound: usize) {
    let some: Vec<&String> = found.iter().take(40).collect();
    assert!(found.len() <= bound, "{} {what}, and at most {bound} are allowed: {some:#?}", found.len());
    assert!(found.len() == bound, "{} {what} are left: lower the bound of {bound} in tests/tidy", found.len());
}
