//! Text wrapped between words.

/// The lines of `text`, each at most `width` columns wide unless a single word is wider. No line for an empty text.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let columns = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| columns(line) + 1 + columns(word) <= width) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("wider-than-that a", 5), ["wider-than-that", "a"]);
        assert_eq!(wrapped("ß ß ß", 3), ["ß ß", "ß"]);
        assert!(wrapped(" ", 5).is_empty());
    }
}
