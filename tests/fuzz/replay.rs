//! The committed corpus, without a fuzzer: every interesting input runs through its target on every `cargo test`.
//!
//! `corpus/TARGET` holds *seeds*, which are real encodings, and inputs found by fuzzing. A seed must be accepted: a
//! refused seed is of an older format, and would leave the fuzzer without a start. `CENOTE_BLESS=1` writes the seeds
//! anew. Names of found inputs mean nothing; a file named after a bug says which.

#[path = "seeds.rs"]
mod seeds;
#[path = "targets/mod.rs"]
mod targets;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// The prefix of seed names.
const SEED: &str = "seed-";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus")
}

/// The inputs of a target, in order of their names.
fn inputs(target: &str) -> Vec<(String, PathBuf)> {
    let folder = corpus().join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut inputs: Vec<_> = paths.map(|path| (path.file_name().unwrap().to_string_lossy().into(), path)).collect();
    inputs.sort();
    inputs
}

fn bless() {
    for target in targets::TARGETS {
        fs::create_dir_all(corpus().join(target.name)).unwrap();
        inputs(target.name).iter().filter(|(name, _)| name.starts_with(SEED)).for_each(|(_, path)| {
            fs::remove_file(path).unwrap();
        });
    }
    for seeds::Seed { target, name, bytes } in seeds::all() {
        fs::write(corpus().join(target).join(format!("{SEED}{name}")), bytes).unwrap();
    }
}

#[test]
fn every_input_of_the_corpus_holds() {
    if std::env::var_os("CENOTE_BLESS").is_some_and(|value| value == "1") {
        bless();
    }
    for target in targets::TARGETS {
        let inputs = inputs(target.name);
        assert!(inputs.iter().any(|(name, _)| name.starts_with(SEED)), "{} has no seed", target.name);
        for (name, path) in inputs {
            let bytes = fs::read(&path).unwrap();
            let ran = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
            let Ok(accepted) = ran else { panic!("{} fails: see above", path.display()) };
            let is_stale = name.starts_with(SEED) && !accepted;
            assert!(!is_stale, "{} is refused: CENOTE_BLESS=1 makes seeds of today's format", path.display());
        }
    }
}

#[test]
fn a_corpus_belongs_to_each_target_and_to_nothing_else() {
    let folders = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let unknown: Vec<String> = folders.filter(|name| targets::find(name).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
