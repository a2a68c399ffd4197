//! The program that libFuzzer drives: it passes libFuzzer's inputs to the target named in the environment.
//!
//! The program is outside the workspace, because it is built with instrumentation and libFuzzer needs a C++ compiler.
//! The script `run` builds it and knows its options; the tests are in `targets`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "targets/mod.rs"]
mod targets;

/// The variable with the target's name.
const VARIABLE: &str = "CENOTE_FUZZ_TARGET";

static TARGET: LazyLock<&targets::Target> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let names: Vec<&str> = targets::TARGETS.iter().map(|target| target.name).collect();
    targets::find(&name).unwrap_or_else(|| panic!("{VARIABLE} must be one of {}", names.join(", ")))
});

fuzz_target!(|input: &[u8]| {
    (TARGET.run)(input);
});
