//! Source files, cut into what a rule looks at: code without literals, comments, literals, and lines of tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The repository's root: this test is a target of the crate in `cli`.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli lies in the repository").to_owned()
}

/// One line of a Rust file, in parts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Line {
    /// The code, literals emptied and comments left out.
    pub(crate) code: String,
    /// The text of comments, without slashes.
    pub(crate) comment: String,
    /// The contents of string literals that begin or go on here.
    pub(crate) literals: Vec<String>,
    /// Whether the line belongs to a test.
    pub(crate) is_test: bool,
}

/// A Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Below the root, with `/`.
    pub(crate) path: String,
    /// Line 1 is the first.
    pub(crate) lines: Vec<Line>,
}

impl Source {
    /// The lines that are not tests, with their numbers.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.is_test).map(|(at, line)| (at + 1, line))
    }

    /// The code outside of tests, with line ends.
    pub(crate) fn shipped_code(&self) -> String {
        self.lines.iter().map(|line| if line.is_test { "\n".to_owned() } else { format!("{}\n", line.code) }).collect()
    }
}

/// All Rust files below some folders, sorted by path. Build products are left out.
pub(crate) fn rust(folders: &[&str]) -> Vec<Source> {
    files(folders, "rs").into_iter().map(|(path, text)| parse(path, &text)).collect()
}

/// All files below some folders whose names end so, with their text, sorted by path.
pub(crate) fn files(folders: &[&str], extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for folder in folders {
        walk(&root.join(folder), extension, &mut found);
    }
    found.sort();
    assert!(!found.is_empty(), "{folders:?} have no .{extension} files");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let below = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        (below, text)
    };
    found.into_iter().map(read).collect()
}

fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    if folder.is_file() {
        found.push(folder.to_owned());
        return;
    }
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "corpus" && !name.starts_with('.') {
                walk(&path, extension, found);
            }
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
}

/// Cuts a file into parts.
pub(crate) fn parse(path: String, text: &str) -> Source {
    let mut lines = cut(text);
    let whole = path.split('/').any(|part| part == "tests" || part == "benches")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs");
    if whole {
        lines.iter_mut().for_each(|line| line.is_test = true);
    } else {
        mark_test_items(&mut lines);
    }
    Source { path, lines }
}

/// Marks the items behind `#[cfg(test)]`: up to the end of their block, or to their semicolon.
fn mark_test_items(lines: &mut [Line]) {
    let mut at = 0;
    while at < lines.len() {
        if !lines[at].code.trim_start().starts_with("#[cfg(test)]") {
            at += 1;
            continue;
        }
        let (mut depth, mut angle) = (0_i32, 0_i32);
        loop {
            let Some(line) = lines.get_mut(at) else { return };
            line.is_test = true;
            let code = line.code.clone();
            at += 1;
            let mut ended = false;
            for letter in code.replace("#[cfg(test)]", "").replace("->", "").chars() {
                match letter {
                    // Outside of brackets, these enclose types.
                    '<' if depth == 0 => angle += 1,
                    '>' if depth == 0 => angle -= 1,
                    '{' | '(' | '[' => depth += 1,
                    '}' | ')' | ']' => {
                        depth -= 1;
                        ended |= depth == 0 && letter == '}';
                    }
                    ';' | ',' => ended |= depth == 0 && angle == 0,
                    _ => {}
                }
            }
            if ended {
                break;
            }
        }
    }
}

enum Within {
    Code,
    Comment(u32),
    Text { raw: Option<usize> },
}

/// Cuts text into lines of code, comments and literals.
fn cut(text: &str) -> Vec<Line> {
    let mut within = Within::Code;
    text.lines().map(|line| cut_line(line, &mut within)).collect()
}

fn cut_line(text: &str, within: &mut Within) -> Line {
    let letters: Vec<char> = text.chars().collect();
    let starts =
        |at: usize, with: &str| with.chars().enumerate().all(|(n, letter)| letters.get(at + n) == Some(&letter));
    let (mut line, mut at) = (Line::default(), 0);
    let mut literal = matches!(within, Within::Text { .. }).then(String::new);
    while at < letters.len() {
        let letter = letters[at];
        match within {
            Within::Comment(depth) => {
                if starts(at, "*/") {
                    *depth -= 1;
                    if *depth == 0 {
                        *within = Within::Code;
                    }
                    at += 2;
                    continue;
                }
                if starts(at, "/*") {
                    *depth += 1;
                }
                line.comment.push(letter);
            }
            Within::Text { raw } => {
                let closing = raw.map_or_else(|| "\"".to_owned(), |hashes| format!("\"{}", "#".repeat(hashes)));
                if starts(at, &closing) {
                    at += closing.len();
                    *within = Within::Code;
                    line.code.push('"');
                    line.literals.extend(literal.take());
                    continue;
                }
                let content = literal.get_or_insert_default();
                content.push(letter);
                if raw.is_none() && letter == '\\' {
                    content.extend(letters.get(at + 1));
                    at += 1;
                }
            }
            Within::Code => {
                if starts(at, "//") {
                    let comment: String = letters[at..].iter().collect();
                    let slashes = comment.trim_start_matches('/');
                    line.comment.push_str(slashes.strip_prefix('!').unwrap_or(slashes));
                    break;
                }
                if starts(at, "/*") {
                    *within = Within::Comment(1);
                    at += 2;
                    continue;
                }
                if let Some(past) = character(&letters, at) {
                    line.code.push_str("' '");
                    at = past;
                    continue;
                }
                if let Some((past, raw)) = opening(&letters, at) {
                    *within = Within::Text { raw };
                    literal = Some(String::new());
                    line.code.push('"');
                    at = past;
                    continue;
                }
                line.code.push(letter);
            }
        }
        at += 1;
    }
    line.literals.extend(literal);
    line
}

/// Where a character literal ends that begins here. A lifetime is none.
fn character(letters: &[char], at: usize) -> Option<usize> {
    if letters[at] != '\'' {
        return None;
    }
    if letters.get(at + 1) == Some(&'\\') {
        return letters[at + 2..].iter().skip(1).position(|letter| *letter == '\'').map(|n| at + n + 4);
    }
    (letters.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// Where the content of a string literal begins that opens here, and how many hashes it has if it is raw.
fn opening(letters: &[char], at: usize) -> Option<(usize, Option<usize>)> {
    let is_word = at > 0 && (letters[at - 1].is_alphanumeric() || letters[at - 1] == '_');
    match letters[at] {
        '"' => Some((at + 1, None)),
        'r' if !is_word || letters[at - 1] == 'b' => {
            let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
            (letters.get(at + 1 + hashes) == Some(&'"')).then_some((at + hashes + 2, Some(hashes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_into_its_parts() {
        let text = "let a = \"x // y\"; // why\nlet b = r#\"p \"q\" '\"#; let c: &'a str = '\"';\n/* one\ntwo */ three \"four\nfive\"";
        let lines = cut(text);
        assert_eq!(lines[0].code, "let a = \"\"; ");
        assert_eq!((lines[0].comment.as_str(), lines[0].literals.as_slice()), (" why", &["x // y".to_owned()][..]));
        assert_eq!(lines[1].code, "let b = \"\"; let c: &'a str = ' ';");
        assert_eq!(lines[2].comment, " one");
        assert_eq!((lines[3].comment.as_str(), lines[3].code.as_str()), ("two ", " three \""));
        assert_eq!((lines[4].code.as_str(), lines[4].literals[0].as_str()), ("\"", "five"));
    }

    #[test]
    fn items_of_tests_are_distinguished() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse x::{\n  y,\n};\nfn d() {}\n#[cfg(test)]\nfn e() -> A<B, C> {\n}\nfn f() {}";
        let source = parse("pool/src/a.rs".to_owned(), text);
        let shipped: Vec<usize> = source.shipped().map(|(at, _)| at).collect();
        assert_eq!(shipped, [1, 6, 11, 15]);
        assert!(parse("pool/src/a_tests.rs".to_owned(), text).shipped().next().is_none());
    }
}
