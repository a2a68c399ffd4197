//! Which file of a crate imports from which: the graph of `use` declarations, and of paths in code that begin with
//! `crate`, `super` or `self`. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// The files of one crate and what they import from each other.
pub(crate) struct Graph {
    /// Module path (`txg::engine`, or nothing for the crate's root) to the file.
    modules: BTreeMap<Vec<String>, String>,
    /// File to the files that it imports from.
    pub(crate) edges: BTreeMap<String, BTreeSet<String>>,
    /// Each import: file, line, and the path from the crate's root.
    pub(crate) imports: Vec<(String, usize, Vec<String>)>,
}

impl Graph {
    /// Reads the graph of the crate whose sources lie in `folder`, such as `pool/src`.
    pub(crate) fn of(folder: &str, sources: &[Source]) -> Graph {
        let shipped = |source: &&Source| source.path.starts_with(folder) && source.shipped().next().is_some();
        let sources: Vec<&Source> = sources.iter().filter(shipped).collect();
        let modules = sources.iter().map(|source| (module(folder, &source.path), source.path.clone())).collect();
        let mut graph = Graph { modules, edges: BTreeMap::new(), imports: Vec::new() };
        for source in sources {
            graph.read(folder, source);
        }
        graph
    }

    fn read(&mut self, folder: &str, source: &Source) {
        let own = module(folder, &source.path);
        let code = source.shipped_code();
        for (line, path) in uses(&code).into_iter().chain(inline(&code)) {
            let Some(absolute) = resolve(&own, &path).or_else(|| self.child(&own, &path)) else { continue };
            if let Some(file) = self.file(&absolute).filter(|file| *file != source.path) {
                self.edges.entry(source.path.clone()).or_default().insert(file);
            }
            self.imports.push((source.path.clone(), line, absolute));
        }
    }

    /// A path that begins with a module declared in the same file.
    fn child(&self, own: &[String], path: &[String]) -> Option<Vec<String>> {
        let full: Vec<String> = own.iter().chain(path).cloned().collect();
        (self.modules.contains_key(&full[..=own.len()])).then_some(full)
    }

    /// The file of the longest part of a path that is a module.
    fn file(&self, path: &[String]) -> Option<String> {
        (0..=path.len()).rev().find_map(|end| self.modules.get(&path[..end]).cloned())
    }

    /// The circles: sets of files each of which reaches all others of its set. Largest first.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            self.modules.values().map(|file| (file, self.reached_from(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, from) in &reached {
            let circle: BTreeSet<String> =
                from.iter().filter(|other| reached[**other].contains(*file)).map(|other| (*other).clone()).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached_from<'a>(&'a self, file: &'a String) -> BTreeSet<&'a String> {
        let (mut reached, mut ahead) = (BTreeSet::new(), vec![file]);
        while let Some(next) = ahead.pop() {
            ahead.extend(self.edges.get(next).into_iter().flatten().filter(|to| reached.insert(*to)));
        }
        reached
    }
}

/// `pool/src/txg/engine/mod.rs` is `[txg, engine]`.
fn module(folder: &str, path: &str) -> Vec<String> {
    let below = path.trim_start_matches(folder).trim_matches('/').trim_end_matches(".rs");
    let mut parts: Vec<String> = below.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// An imported path from the crate's root, or `None` if it leads out of the crate.
fn resolve(own: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = match path.first().map(String::as_str)? {
        "crate" => Vec::new(),
        "self" => own.to_vec(),
        "super" => own.to_vec(),
        _ => return None,
    };
    let mut rest = path.iter().peekable();
    if path[0] != "super" {
        rest.next();
    }
    while rest.next_if(|part| *part == "super").is_some() {
        base.pop();
    }
    base.extend(rest.cloned());
    Some(base)
}

/// The paths of all `use` declarations, one for each leaf of a group, with the line that each declaration begins in.
fn uses(code: &str) -> Vec<(usize, Vec<String>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(begin) = code[at..].find("use ").map(|n| at + n) {
        at = begin + 4;
        let before = code[..begin].rsplit('\n').next().unwrap_or_default().trim();
        if !(before.is_empty() || before.starts_with("pub")) {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |n| at + n);
        let line = code[..begin].matches('\n').count() + 1;
        let text: String = code[at..end].split_whitespace().map(|word| format!("{word} ")).collect();
        expand(&text, &[], &mut |path| found.push((line, path)));
        at = end;
    }
    found
}

/// The paths outside of `use` declarations that begin with `crate`, `super` or `self`, with their lines.
fn inline(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    for (at, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(begin) = ["crate::", "super::", "self::"].iter().filter_map(|head| rest.find(head)).min() {
            let (before, path) = rest.split_at(begin);
            let path = path.split(|letter| !is_part(letter)).next().unwrap_or_default();
            rest = &rest[begin + path.len()..];
            let is_use = ["use ", "pub(in ", "$"].iter().any(|other| before.ends_with(other));
            if !is_use && !before.ends_with(is_part) {
                found.push((at + 1, path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()));
            }
        }
    }
    found
}

fn expand(text: &str, prefix: &[String], found: &mut impl FnMut(Vec<String>)) {
    for part in split(text) {
        let (path, group) = part.split_once('{').map_or((part, None), |(path, rest)| (path, Some(rest)));
        let path = path.split(" as ").next().unwrap_or_default();
        let mut full = prefix.to_vec();
        full.extend(path.split("::").map(str::trim).filter(|name| !name.is_empty() && *name != "*").map(str::to_owned));
        match group {
            Some(group) => expand(group.rsplit_once('}').map_or(group, |(inner, _)| inner), &full, found),
            None if !part.trim().is_empty() => {
                if full.len() > 1 && full.last().is_some_and(|last| last == "self") {
                    full.pop();
                }
                found(full);
            }
            None => {}
        }
    }
}

/// Cuts at the commas outside of braces.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| parse((*path).to_owned(), text)).collect()
    }

    #[test]
    fn groups_are_expanded() {
        let code = "use crate::{a::{b, c as d}, e::*};\npub(crate) use super::f;\nuse std::fmt;";
        let text: Vec<String> =
            uses(code).into_iter().map(|(line, path)| format!("{line} {}", path.join("::"))).collect();
        assert_eq!(text, ["1 crate::a::b", "1 crate::a::c", "1 crate::e", "2 super::f", "3 std::fmt"]);
    }

    #[test]
    fn paths_in_code_count() {
        let code =
            "use crate::a::b;\npub(in crate::c) fn f(x: &super::d::E) {\n    crate::g::h(self::i::J, core::k());\n}";
        let text: Vec<String> =
            inline(code).into_iter().map(|(line, path)| format!("{line} {}", path.join("::"))).collect();
        assert_eq!(text, ["2 super::d::E", "3 crate::g::h", "3 self::i::J"]);
    }

    #[test]
    fn a_circle_is_found_and_a_line_is_none() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a/mod.rs", "use super::b::{self, Y};"),
            ("x/src/b.rs", "use crate::{c::Z, a::deep::W};"),
            ("x/src/a/deep.rs", "use super::X;"),
            ("x/src/c.rs", "use std::io;\n#[cfg(test)]\nuse crate::a::X;"),
        ];
        let graph = Graph::of("x/src", &sources(&files));
        let circle: BTreeSet<String> =
            ["x/src/a/mod.rs", "x/src/b.rs", "x/src/a/deep.rs"].map(str::to_owned).into_iter().collect();
        assert_eq!(graph.circles(), [circle]);
    }
}
