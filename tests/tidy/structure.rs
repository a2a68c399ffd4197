//! Rules about code: layers, circles, functions, the clock.

use std::collections::{BTreeMap, BTreeSet};

use crate::{imports::Graph, source::Source, within_bound};

/// A crate's modules from the bottom to the top: a module imports only from those before it. Modules in one line of the
/// list are one layer.
struct Layers {
    folder: &'static str,
    layers: &'static [&'static str],
}

const LAYERS: &[Layers] = &[
    Layers {
        folder: "pool/src",
        layers: &[
            "size",
            "units",
            "env",
            "error",
            "format",
            "device",
            "vdev",
            "space",
            "block",
            "secondary",
            "tree",
            "log",
            "txg",
            "check",
            "admin",
            "inspect",
        ],
    },
    Layers {
        folder: "dataset/src",
        layers: &[
            "name",
            "property",
            "fs",
            "stream",
            "archive",
            "error",
            "catalogue",
            "lineage",
            "zfs",
            "scrub",
            "underway",
            "admin",
            "jobs",
            "opening",
            "inspect",
        ],
    },
];

#[test]
fn modules_import_from_lower_layers_only() {
    for Layers { folder, layers } in LAYERS {
        let sources = crate::source::rust(&[folder]);
        let mut against: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (file, line, path) in Graph::of(folder, &sources).imports {
            let from = file[folder.len() + 1..].split(['/', '.']).next().unwrap_or_default().to_owned();
            let Some(to) = path.first().cloned().filter(|to| *to != from && from != "lib") else { continue };
            let level = |module: &str| {
                let found = layers.iter().position(|layer| layer.split(' ').any(|name| name == module));
                found.unwrap_or_else(|| {
                    panic!("{folder} has a module {module} that is in no layer of tests/tidy/structure.rs")
                })
            };
            if level(&from) <= level(&to) {
                against.entry((from, to)).or_default().push(format!("{file}:{line}"));
            }
        }
        assert!(against.is_empty(), "{folder}: a module imports from a higher layer: {against:#?}");
    }
}

/// Circles of more files than this are counted.
const SMALL_CIRCLE: usize = 4;

/// The sizes of larger circles that are there, largest first.
const CIRCLES: &[(&str, &[usize])] = &[
    ("pool/src", &[]),
    ("dataset/src", &[]),
    ("fuse-mount/src", &[]),
    ("cli/protocol/src", &[]),
    ("cli/service/src", &[]),
    ("cli/web/src", &[]),
    ("cli/src", &[]),
];

#[test]
fn files_import_from_each_other_in_small_circles_only() {
    for (folder, bounds) in CIRCLES {
        let circles = Graph::of(folder, &crate::source::rust(&[folder])).circles();
        let large: Vec<&BTreeSet<String>> = circles.iter().filter(|circle| circle.len() > SMALL_CIRCLE).collect();
        let sizes: Vec<usize> = large.iter().map(|circle| circle.len()).collect();
        assert_eq!(sizes, *bounds, "{folder}: the sizes of circles changed. They may only shrink: {large:#?}");
    }
}

/// A longer function does more than one thing.
const LONGEST_FUNCTION: usize = 70;

/// Functions that are longer.
const LONG_FUNCTIONS: &[&str] = &[];

#[test]
fn functions_are_short() {
    let long: Vec<String> = crate::shipped().iter().flat_map(long_functions).collect();
    let unexpected: Vec<&String> =
        long.iter().filter(|long| !LONG_FUNCTIONS.iter().any(|name| long.contains(name))).collect();
    assert!(unexpected.is_empty(), "functions of more than {LONGEST_FUNCTION} lines: {unexpected:#?}");
    assert_eq!(long.len(), LONG_FUNCTIONS.len(), "a function that was long is not any more: take it out of the list");
}

fn long_functions(source: &Source) -> Vec<String> {
    let (mut found, mut open, mut depth) = (Vec::new(), None, 0);
    for (at, line) in source.shipped() {
        let code = line.code.trim();
        let begins = code.split('(').next().is_some_and(|head| head.split(' ').any(|word| word == "fn"));
        if open.is_none() && begins && !code.ends_with(';') {
            open = Some((at, depth, code.to_owned()));
        }
        depth += code.matches('{').count() as i64 - code.matches('}').count() as i64;
        if let Some((begin, outer, name)) = open.take() {
            if depth > outer || !code.contains('}') {
                open = Some((begin, outer, name));
            } else if at - begin + 1 > LONGEST_FUNCTION {
                found.push(format!("{}:{begin}: {} lines: {name}", source.path, at - begin + 1));
            }
        }
    }
    found
}

/// What reads a clock or draws a number. The engine and the datasets take both from `pool::env::Env`, so that a simulated
/// pool repeats exactly.
const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now", "rand::", "thread_rng", "getrandom"];

#[test]
fn the_engine_takes_time_and_randomness_from_env() {
    let is_env = |source: &Source| source.path == "pool/src/env.rs" || source.path == "pool/src/device/deadline.rs";
    let mut found = Vec::new();
    for source in crate::source::rust(&["pool/src", "dataset/src"]).iter().filter(|source| !is_env(source)) {
        for (at, line) in source.shipped().filter(|(_, line)| CLOCKS.iter().any(|clock| line.code.contains(clock))) {
            found.push(format!("{}:{at}: {}", source.path, line.code.trim()));
        }
    }
    within_bound("reads of a clock outside of Env", &found, 1);
}

/// Where a message is, whole or in part.
const MESSAGES: &[&str] = &["message", "reason", "hint", "failure.to_string()"];

/// What a program would do to a message that it should not read: errors have kinds.
const READINGS: &[&str] =
    &["strip_prefix", "strip_suffix", "contains", "starts_with", "ends_with", "split_once", "find"];

#[test]
fn programs_go_by_kinds_of_errors_and_not_by_messages() {
    let is_read = |code: &str, message: &str| {
        let call = format!("{message}.");
        code.split(&call).skip(1).flat_map(|rest| rest.split('(').next()).any(|method| READINGS.contains(&method))
    };
    let reads = |code: &str| MESSAGES.iter().any(|message| is_read(code, message));
    let mut found = Vec::new();
    for source in &crate::shipped() {
        for (at, line) in source.shipped().filter(|(_, line)| reads(&line.code)) {
            found.push(format!("{}:{at}: {}", source.path, line.code.trim()));
        }
    }
    within_bound("places that read a message", &found, 0);
}

/// Names of properties that are ordinary words too: keys of JSON, fields of `pool debug`, words of vdevs.
const ORDINARY: &[&str] = &[
    "name",
    "type",
    "size",
    "free",
    "guid",
    "vdevs",
    "version",
    "written",
    "referenced",
    "devices",
    "compression",
    "checksum",
    "capacity",
    "checkpoint",
    "freeing",
    "allocated",
    "alloc",
    "direct",
    "dedup",
    "prefetch",
    "createtxg",
    "sync",
];

#[test]
fn properties_are_named_by_their_rows() {
    let tables = crate::source::rust(&["dataset/src/property"]);
    let rows = tables.iter().flat_map(Source::shipped).filter(|(_, line)| is_row(&line.code));
    let names: BTreeSet<&str> = rows.filter_map(|(_, line)| line.literals.first().map(String::as_str)).collect();
    assert!(names.len() > 60 && names.contains("recordsize"), "the rows of the tables are not found: {names:?}");
    let mut found = Vec::new();
    for source in crate::shipped().iter().filter(|source| !source.path.starts_with("dataset/src/property")) {
        for (at, line) in source.shipped() {
            let named =
                line.literals.iter().filter(|text| names.contains(text.as_str()) && !ORDINARY.contains(&text.as_str()));
            found.extend(named.map(|name| format!("{}:{at}: {name}", source.path)));
        }
    }
    within_bound("names of properties outside their tables", &found, 2);
}

/// Whether this begins a row: `QUOTA: u64 = "quota", ...`.
fn is_row(code: &str) -> bool {
    let name = code.trim().split(':').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_') && code.contains("= \"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse;

    #[test]
    fn a_long_function_is_found() {
        let body = "    a();\n".repeat(70);
        let text = format!("impl X {{\n  fn long(\n    &self) {{\n{body}  }}\n  fn short() {{}}\n}}\n");
        let found = long_functions(&parse("a.rs".to_owned(), &text));
        assert_eq!(found, ["a.rs:2: 73 lines: fn long("]);
    }
}
