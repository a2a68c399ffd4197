//! The program that libFuzzer drives: it makes up inputs, and this hands them to the target that the environment names.
//!
//! It stands outside of the workspace, because it is built with instrumentation and libFuzzer needs a C++ compiler. `run`
//! beside it builds it and knows its options; what is tested is in `targets`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "targets/mod.rs"]
mod targets;

/// Names the target.
const VARIABLE: &str = "CENOTE_FUZZ_TARGET";

static TARGET: LazyLock<&targets::Target> = LazyLock::new(|| {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let names: Vec<&str> = targets::TARGETS.iter().map(|target| target.name).collect();
    targets::find(&name).unwrap_or_else(|| panic!("{VARIABLE} must be one of {}", names.join(", ")))
});

fuzz_target!(|input: &[u8]| {
    (TARGET.run)(input);
});
