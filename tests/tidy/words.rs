//! Words: how many in 100 of a text lead back to a noun elsewhere.

/// Words whose noun the reader has to look for. OpenZFS's `txg.c` has 3.2 in 100 words of comments, its manual pages 2.5.
const PRONOUNS: [&str; 24] = [
    "it",
    "that",
    "one",
    "ones",
    "who",
    "whom",
    "whose",
    "whoever",
    "what",
    "which",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "they",
    "them",
    "those",
    "these",
    "this",
    "he",
    "him",
    "other",
    "others",
    "such",
];

/// Counts of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// All words.
    pub(crate) words: u64,
    /// Those of them that are pronouns or stand for a noun.
    pub(crate) pronouns: u64,
}

impl Count {
    /// Adds a piece of text. What stands in back quotes is code and is not counted.
    pub(crate) fn add(&mut self, text: &str) {
        let prose = text.split('`').step_by(2);
        for word in prose.flat_map(|part| part.split(|letter: char| !letter.is_ascii_alphabetic())) {
            if !word.is_empty() {
                self.words += 1;
                self.pronouns += u64::from(PRONOUNS.contains(&word.to_ascii_lowercase().as_str()));
            }
        }
    }

    /// Pronouns in 1,000 words.
    pub(crate) fn in_thousand(self) -> u64 {
        self.pronouns * 1000 / self.words.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pronouns_are_counted_and_code_is_not() {
        let mut count = Count::default();
        count.add("The caller that holds `it` waits; others don't.");
        assert_eq!(count, Count { words: 8, pronouns: 2 });
        assert_eq!(count.in_thousand(), 250);
    }
}
