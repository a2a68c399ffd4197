//! Rules about words: in comments, in documents, in names of tests.

use crate::{source::Source, within_bound, words::Count};

/// The most pronouns in 1,000 words of comments, for each folder.
const PRONOUNS: &[(&str, u64)] =
    &[("pool", 48), ("dataset", 30), ("fuse-mount", 48), ("cli", 28), ("tests", 48), ("benches", 42)];

#[test]
fn comments_name_what_they_mean() {
    for (folder, bound) in PRONOUNS {
        let mut count = Count::default();
        for line in crate::source::rust(&[folder]).iter().flat_map(|source| &source.lines) {
            count.add(&line.comment);
        }
        let found = count.in_thousand();
        assert!(
            found <= *bound,
            "comments in {folder} have {found} pronouns in 1,000 words, and at most {bound} are allowed"
        );
        assert!(
            found + 5 >= *bound,
            "comments in {folder} have {found} pronouns in 1,000 words: lower the bound of {bound}"
        );
    }
}

/// Words that do not say who acts, or that the glossary has another word for; and how many lines with them there are.
const AVOIDED: &[(&str, usize)] = &[
    ("data set", 0),
    ("data sets", 0),
    ("whoever", 3),
    ("nobody", 47),
    ("somebody", 10),
    ("anybody", 5),
    ("everybody", 2),
];

#[test]
fn avoided_words_become_fewer() {
    let sources = crate::source::rust(&["pool", "dataset", "fuse-mount", "cli", "tests", "benches"]);
    for (word, bound) in AVOIDED {
        let lines = sources.iter().filter(|source| !source.path.starts_with("tests/tidy/")).flat_map(|source| {
            let has = |line: &&crate::source::Line| {
                has_word(&line.comment, word) || line.literals.iter().any(|text| has_word(text, word))
            };
            let lines: Vec<_> =
                source.lines.iter().filter(has).map(|line| format!("{}: {}", source.path, line.comment)).collect();
            lines
        });
        within_bound(&format!("lines with '{word}'"), &lines.collect::<Vec<_>>(), *bound);
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.match_indices(word).any(|(at, _)| {
        let bounds = [text[..at].chars().next_back(), text[at + word.len()..].chars().next()];
        bounds.iter().all(|letter| letter.is_none_or(|letter| !letter.is_alphanumeric()))
    })
}

/// Old words for what the glossary and OpenZFS have a name for, and how many times names in the code have them.
/// (Resilver; repair; faulted, offline, degraded; recorded, acknowledged, notified; prefetch; spare in use, available.)
const OLD_NAMES: &[(&str, usize)] = &[
    ("filling", 0),
    ("mend", 0),
    ("mended", 0),
    ("put_out", 0),
    ("do_without", 0),
    ("done_without", 0),
    ("told", 0),
    ("untold", 0),
    ("flight", 0),
    ("flights", 0),
    ("stand_by", 0),
    ("stand_in", 0),
    ("step_in", 0),
    ("stepped_in", 0),
];

#[test]
fn names_in_code_follow_the_glossary() {
    let sources = crate::source::rust(&["pool", "dataset", "fuse-mount", "cli", "tests", "benches"]);
    for (word, bound) in OLD_NAMES {
        let lines = sources.iter().flat_map(|source| source.lines.iter().map(move |line| (source, line)));
        let found = lines.flat_map(|(source, line)| {
            let names = line.code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            names.filter(|name| name_has(name, word)).map(|name| format!("{}: {name}", source.path)).collect::<Vec<_>>()
        });
        within_bound(&format!("names with '{word}'"), &found.collect::<Vec<_>>(), *bound);
    }
}

/// Whether a name has a word, or several joined by `_`, as whole parts: `is_put_out` and `PutOut` have `put_out`.
fn name_has(name: &str, word: &str) -> bool {
    let (mut parts, mut before) = (String::from("_"), '_');
    for letter in name.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            parts.push('_');
        }
        parts.extend(letter.to_lowercase());
        before = letter;
    }
    parts.push('_');
    parts.contains(&format!("_{word}_"))
}

/// The longest line of a document, in characters: a longer paragraph is wrapped.
const LONGEST_LINE: usize = 300;

#[test]
fn documents_have_lines_that_a_terminal_shows() {
    let documents = crate::source::files(
        &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "pool", "dataset", "tests", "benches"],
        "md",
    );
    let mut long = Vec::new();
    for (path, text) in documents {
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > LONGEST_LINE);
        long.extend(lines.map(|(at, line)| format!("{path}:{}: {} characters", at + 1, line.chars().count())));
    }
    within_bound(&format!("lines of documents with more than {LONGEST_LINE} characters"), &long, 0);
}

#[test]
fn the_readme_is_short() {
    let (most_lines, most_columns) = (250, 120);
    let (_, text) = crate::source::files(&["README.md"], "md").pop().expect("there is a README");
    assert!(text.lines().count() < most_lines, "{} lines", text.lines().count());
    let wide: Vec<String> =
        text.lines().filter(|line| line.chars().count() > most_columns).map(str::to_owned).collect();
    within_bound(&format!("lines of the README with more than {most_columns} characters"), &wide, 0);
}

/// A shorter doc comment says nothing that the name does not.
const SHORTEST_DOC: usize = 18;

#[test]
fn doc_comments_say_something() {
    // Doc comments of arguments are help, which has rules of its own.
    let is_help = |source: &Source| source.lines.iter().any(|line| line.code.contains("clap"));
    let found: Vec<String> = crate::shipped().iter().filter(|source| !is_help(source)).flat_map(short_docs).collect();
    within_bound(&format!("doc comments of less than {SHORTEST_DOC} characters"), &found, 0);
}

/// Doc comments of one short line.
fn short_docs(source: &Source) -> Vec<String> {
    let is_comment =
        |at: usize| source.lines.get(at).is_some_and(|line| line.code.trim().is_empty() && !line.comment.is_empty());
    let alone = |at: usize| is_comment(at) && !is_comment(at + 1) && (at == 0 || !is_comment(at - 1));
    let lines = source.lines.iter().enumerate().filter(|(at, line)| !line.is_test && alone(*at));
    let short = lines.filter(|(_, line)| line.comment.trim().chars().count() < SHORTEST_DOC);
    short.map(|(at, line)| format!("{}:{}: {}", source.path, at + 1, line.comment.trim())).collect()
}

/// The longest name of a test, in characters.
const LONGEST_TEST: usize = 60;

#[test]
fn names_of_tests_are_short() {
    let sources = crate::source::rust(&["pool", "dataset", "fuse-mount", "cli", "tests"]);
    let mut long = Vec::new();
    for source in &sources {
        for pair in source.lines.windows(2).filter(|pair| pair[0].code.trim_start().starts_with("#[test]")) {
            let name = pair[1].code.trim().trim_start_matches("fn ").split('(').next().unwrap_or_default();
            if name.len() > LONGEST_TEST {
                long.push(format!("{}: {name}", source.path));
            }
        }
    }
    within_bound(&format!("names of tests with more than {LONGEST_TEST} characters"), &long, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse;

    #[test]
    fn words_are_found_whole() {
        assert!(has_word("Nobody waits", "nobody") && has_word("for (nobody)", "nobody"));
        assert!(!has_word("nobodys", "nobody"));
    }

    #[test]
    fn words_of_names_are_found_in_either_case() {
        assert!(
            name_has("is_put_out", "put_out") && name_has("MAX_PUT_OUT", "put_out") && name_has("PutOut", "put_out")
        );
        assert!(!name_has("output_outer", "put_out") && !name_has("untold", "told"));
    }

    #[test]
    fn a_short_doc_comment_is_found() {
        let text = "/// Its name.\npub a: u8,\n/// The length of it,\n/// in bytes.\npub b: u8,\n/// In bytes, below 2^40.\npub c: u8,\n";
        assert_eq!(short_docs(&parse("a.rs".to_owned(), text)), ["a.rs:1: Its name."]);
    }
}
