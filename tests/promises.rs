//! Checks that the tests named in `PROMISES.md` and `docs/src/security.md` exist.

use std::{fs, path::Path};

/// The links of a page: names and targets.
fn links(page: &str) -> Vec<(&str, &str)> {
    let starts = page.split("[`").skip(1);
    starts
        .filter_map(|rest| rest.split_once("`]("))
        .filter_map(|(name, rest)| Some((name, rest.split_once(')')?.0)))
        .collect()
}

/// Asserts that each test named by a page in this folder exists; returns the number of names.
fn check_links(page: &str, folder: &Path) -> usize {
    let links = links(page);
    for (name, path) in &links {
        let file = fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_folder = folder.parent().unwrap().join(name).is_dir();
        assert!(is_folder || file.contains(&format!("fn {name}(")), "{path} has no test {name}");
    }
    links.len()
}

#[test]
fn each_statement_on_security_names_tests_that_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
    let page = fs::read_to_string(here.join("security.md")).unwrap();
    assert!(check_links(&page, &here) > 20);
    let is_statement = |line: &&str| line.starts_with("| ") && !line.starts_with("| ---");
    for statement in page.lines().filter(is_statement) {
        let is_heading = ["| path |", "| what |", "| variable |"].iter().any(|head| statement.starts_with(head));
        assert!(is_heading || statement.ends_with(") |"), "no test: {statement}");
    }
}

#[test]
fn each_promise_names_tests_that_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let page = fs::read_to_string(here.join("PROMISES.md")).unwrap();
    assert!(check_links(&page, &here) > 40);
    let mut count = 0;
    for section in page.split("\n## ").skip(1) {
        let promised = section.split("\nNot promised").next().unwrap();
        for promise in promised.split("\n* ").skip(1) {
            assert!(promise.contains("\n  Shown by [`"), "no test: {promise}");
            count += 1;
        }
    }
    assert!(count > 140, "{count} promises");
}
