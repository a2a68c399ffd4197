//! The types that cross a service's socket, as listed in `cli/protocol/wire.txt`.
//!
//! A service keeps running while the programs on disk are replaced, and executes calls of its own version of the protocol
//! only. So one version has one form of every message. This test fails if the types differ from the list and the version
//! does not. `CENOTE_BLESS=1` writes the list anew, once the version is higher.

use std::{collections::BTreeSet, env, fs};

use crate::source::{self, Line, Source};

/// Folders of types on the socket. Types that only cross a file are in other crates.
const FOLDERS: &[&str] = &["cli/protocol/src", "dataset/src", "pool/src"];

const LIST: &str = "cli/protocol/wire.txt";

#[test]
fn changed_types_on_the_socket_have_a_new_version() {
    let path = source::root().join(LIST);
    let (version, types) = (version(), types());
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let before = listed.lines().next().unwrap_or_default();
    let is_changed = squeezed(listed.split_once('\n').map_or("", |(_, types)| types)) != squeezed(&types);
    let is_new = before != version;
    assert!(is_new || !is_changed, "types on the socket have changed: raise VERSION in cli/protocol/src/version.rs");
    if env::var_os("CENOTE_BLESS").is_some() {
        fs::write(path, format!("{version}\n{types}")).expect("the list can be written");
    } else {
        assert!(!is_new, "the list of types is of {before}, and the code of {version}: CENOTE_BLESS=1 writes the list");
    }
}

/// The version of the protocol, as the first line of the list.
fn version() -> String {
    let sources = source::rust(&["cli/protocol/src/version.rs"]);
    let lines = sources.iter().flat_map(Source::shipped);
    let found = lines.filter_map(|(_, line)| line.code.trim().strip_prefix("pub const VERSION: u32 = "));
    let number = found.last().expect("version.rs has the version").trim_end_matches(';');
    format!("version {number}")
}

/// The definitions of all types on the socket, sorted by their text.
fn types() -> String {
    let sources = source::rust(FOLDERS);
    let all: BTreeSet<String> = sources.iter().flat_map(defined).collect();
    all.into_iter().collect()
}

/// The definitions in one file behind a derived `Serialize` or `Deserialize`, each with the attributes for serde.
fn defined(source: &Source) -> Vec<String> {
    let lines: Vec<&Line> = source.shipped().map(|(_, line)| line).collect();
    let is_derived = |line: &Line| line.code.trim().starts_with("#[derive(") && line.code.contains("erialize");
    let begins = lines.iter().enumerate().filter(|(_, line)| is_derived(line)).map(|(at, _)| at + 1);
    begins.map(|at| definition(&lines[at..])).collect()
}

fn definition(lines: &[&Line]) -> String {
    let (mut item, mut attributes, mut depth) = (String::new(), String::new(), 0);
    for line in lines {
        let code = line.code.trim_end().replace("pub(crate) ", "").replace("pub ", "");
        let is_attribute = code.trim_start().starts_with("#[");
        if is_attribute && depth == 0 {
            // An attribute's literals are part of the form, such as the type that is sent instead.
            attributes += &format!("    {} {}\n", code.trim(), line.literals.join(" ")).replace(" \n", "\n");
            continue;
        }
        if !code.trim().is_empty() {
            item += &format!("{code} {}\n", line.literals.join(" ")).replace(" \n", "\n");
        }
        depth += code.matches(['{', '(']).count() as i64 - code.matches(['}', ')']).count() as i64;
        if depth == 0 && code.ends_with(['}', ';']) {
            break;
        }
    }
    format!("{item}{attributes}")
}

/// Text without blanks and last commas, which the formatter may move.
fn squeezed(text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    text.replace(",}", "}").replace(",)", ")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse;

    fn listed(text: &str) -> String {
        squeezed(&defined(&parse("a.rs".to_owned(), text)).concat())
    }

    #[test]
    fn a_definition_is_listed_without_what_does_not_cross() {
        let text = "/// A call.\n#[derive(Debug, Serialize)]\n#[serde(from = \"Sent\")]\npub struct Call {\n    /// A name.\n    \
                    pub name: Vec<String>,\n}\n#[derive(Debug)]\nstruct Other;\n#[derive(Deserialize)]\npub struct One(pub u8);\n";
        assert_eq!(listed(text), "structCall{name:Vec<String>}#[serde(from=\"\")]SentstructOne(u8);");
    }

    #[test]
    fn a_change_of_form_is_a_change_and_another_layout_is_none() {
        let one = listed("#[derive(Serialize)]\nenum E {\n    A { x: u8 },\n}\n");
        assert_eq!(
            one,
            listed("#[derive(Clone, Serialize)]\npub(crate) enum E {\n    A {\n        x: u8,\n    },\n}\n")
        );
        assert_ne!(one, listed("#[derive(Serialize)]\nenum E {\n    A(u8),\n}\n"));
        assert_ne!(one, listed("#[derive(Serialize)]\n#[serde(untagged)]\nenum E {\n    A { x: u8 },\n}\n"));
    }
}
