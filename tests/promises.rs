//! `PROMISES.md` names a test for each promise: whether these tests exist.

use std::{fs, path::Path};

/// The links of a page: what they are called, and where they lead.
fn links(page: &str) -> Vec<(&str, &str)> {
    let starts = page.split("[`").skip(1);
    starts
        .filter_map(|rest| rest.split_once("`]("))
        .filter_map(|(name, rest)| Some((name, rest.split_once(')')?.0)))
        .collect()
}

#[test]
fn each_promise_names_tests_that_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let page = fs::read_to_string(here.join("PROMISES.md")).unwrap();
    let links = links(&page);
    assert!(links.len() > 40, "{} links", links.len());
    for (name, path) in links {
        let file = fs::read_to_string(here.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_folder = here.parent().unwrap().join(name).is_dir();
        assert!(is_folder || file.contains(&format!("fn {name}(")), "{path} has no test {name}");
    }
    let promises = page.lines().filter(|line| line.starts_with("| ")).filter(|line| line.ends_with(") |"));
    assert!(promises.count() > 25, "most rows name tests");
}
