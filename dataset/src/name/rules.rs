//! The rules for valid names, and errors that tell the problem and its position.

use super::DatasetName;

/// The longest name, in bytes, with its snapshot or bookmark part.
pub const MAX_NAME: usize = 255;

/// The deepest nesting of datasets: components in a dataset's name.
pub const MAX_DEPTH: usize = 50;

/// The problem of an invalid name, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (at character {} of '{name}')", .at + 1)]
pub struct NameError {
    /// The invalid text, in full.
    pub name: String,
    /// The offset of the problem in bytes.
    pub at: usize,
    /// The kind of problem.
    pub problem: NameProblem,
}

/// The problems of an invalid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// Longer than [`MAX_NAME`].
    #[error("the name is longer than {MAX_NAME} bytes")]
    TooLong,
    /// More components than [`MAX_DEPTH`].
    #[error("the name has more than {MAX_DEPTH} components")]
    TooDeep,
    /// A character not allowed in names.
    #[error("invalid character {0:?} in name")]
    Character(char),
    /// A space in a pool's name, or at the beginning or end of a component.
    #[error("spaces are only allowed inside names of file systems, snapshots and bookmarks")]
    Space,
    /// Nothing between two delimiters, or after the last.
    #[error("empty component in name")]
    EmptyComponent,
    /// The name begins with a slash: probably a path.
    #[error("leading slash in name")]
    LeadingSlash,
    /// The name ends with a slash.
    #[error("trailing slash in name")]
    TrailingSlash,
    /// A component `.` or `..`.
    #[error("'.' and '..' are not allowed as components of a name")]
    Dots,
    /// A pool's name that does not begin with a letter.
    #[error("the name of a pool must begin with a letter")]
    PoolLetter,
    /// A pool's name that is a keyword of vdev specifications.
    #[error("the name is reserved")]
    PoolReserved,
    /// A second `@` or `#`.
    #[error("more than one '@' or '#' in name")]
    SecondDelimiter,
    /// A snapshot or bookmark where a dataset is expected.
    #[error("the name of a file system has no '{0}'")]
    NotDataset(char),
    /// No `@` where a snapshot is expected.
    #[error("a snapshot's name has an '@': dataset@snapshot")]
    NotSnapshot,
    /// No `#` where a bookmark is expected.
    #[error("a bookmark's name has a '#': dataset#bookmark")]
    NotBookmark,
}

impl NameError {
    pub(super) fn new(name: &str, at: usize, problem: NameProblem) -> NameError {
        NameError { name: name.to_owned(), at, problem }
    }
}

/// Checks the name of a new or renamed pool; existing names are only [`DatasetName`]s.
pub fn check_new_pool(name: &str) -> Result<DatasetName, NameError> {
    let reserved = ["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word))
        || ["log", "cache", "special", "dedup"].contains(&name);
    if reserved {
        return Err(NameError::new(name, 0, NameProblem::PoolReserved));
    }
    if let Some(at) = name.find(['/', '@', '#']) {
        let character = name[at..].chars().next().expect("found there");
        return Err(NameError::new(name, at, NameProblem::Character(character)));
    }
    name.parse()
}

/// Checks the part of a name after the `@` or `#`.
pub fn check_component(component: &str) -> Result<(), NameError> {
    component_problem(component).map_or(Ok(()), |(at, problem)| Err(NameError::new(component, at, problem)))
}

/// The first problem of a component, and its offset.
pub(super) fn component_problem(component: &str) -> Option<(usize, NameProblem)> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | ' ');
    match component {
        "" => Some((0, NameProblem::EmptyComponent)),
        "." | ".." => Some((0, NameProblem::Dots)),
        _ if component.starts_with(' ') => Some((0, NameProblem::Space)),
        _ if component.ends_with(' ') => Some((component.len() - 1, NameProblem::Space)),
        _ => component.char_indices().find(|(_, c)| !is_allowed(*c)).map(|(at, c)| (at, NameProblem::Character(c))),
    }
}

/// Checks the name of a dataset, which is the whole text or a prefix.
pub(super) fn check_dataset(text: &str, whole: &str) -> Result<(), NameError> {
    let fail = |at, problem| Err(NameError::new(whole, at, problem));
    if text.is_empty() {
        return fail(0, if whole.is_empty() { NameProblem::Empty } else { NameProblem::EmptyComponent });
    }
    if text.starts_with('/') {
        return fail(0, NameProblem::LeadingSlash);
    }
    if text.ends_with('/') {
        return fail(text.len() - 1, NameProblem::TrailingSlash);
    }
    let mut start = 0;
    for (depth, component) in text.split('/').enumerate() {
        if depth == MAX_DEPTH {
            return fail(start, NameProblem::TooDeep);
        }
        if let Some((at, problem)) = component_problem(component) {
            return fail(start + at, problem);
        }
        // A pool's name is also a socket's name, and appears among the words of vdev specifications.
        if let Some(at) = component.find(' ').filter(|_| depth == 0) {
            return fail(at, NameProblem::Space);
        }
        start += component.len() + 1;
    }
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return fail(0, NameProblem::PoolLetter);
    }
    Ok(())
}

/// Checks the length of a name with all its parts.
pub(super) fn check_length(text: &str) -> Result<(), NameError> {
    if text.len() > MAX_NAME {
        let at = (0..=MAX_NAME).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        return Err(NameError::new(text, at, NameProblem::TooLong));
    }
    Ok(())
}

/// Checks `dataset<delimiter>component` and returns the delimiter's offset.
pub(super) fn check_pair(text: &str, delimiter: char, missing: NameProblem) -> Result<usize, NameError> {
    check_length(text)?;
    let Some(at) = text.find(['@', '#']) else {
        return Err(NameError::new(text, text.len(), missing));
    };
    if !text[at..].starts_with(delimiter) {
        return Err(NameError::new(text, at, missing));
    }
    check_dataset(&text[..at], text)?;
    let rest = &text[at + 1..];
    match component_problem(rest) {
        None => Ok(at),
        Some((inner, NameProblem::Character('@' | '#'))) => {
            Err(NameError::new(text, at + 1 + inner, NameProblem::SecondDelimiter))
        }
        Some((inner, problem)) => Err(NameError::new(text, at + 1 + inner, problem)),
    }
}
