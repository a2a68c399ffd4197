//! File names, on terminals and in JSON: arbitrary bytes, chosen by any user.
//!
//! A terminal obeys control characters, so names are escaped there. JSON has only text: a name outside UTF-8 is
//! accompanied by its bytes.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// A name for a terminal: invalid UTF-8, control characters and backslashes are escaped.
pub fn visible(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text += "\\\\",
                c => push_calmly(&mut text, c),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(octal));
    }
    text
}

/// A name for output that is not a terminal: invalid UTF-8 is replaced.
pub fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A message for a terminal: control characters from names are escaped, line ends kept.
pub fn calm(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for c in message.chars() {
        if c == '\n' { text.push(c) } else { push_calmly(&mut text, c) }
    }
    text
}

fn push_calmly(text: &mut String, c: char) {
    match c {
        '\n' => *text += "\\n",
        '\t' => *text += "\\t",
        '\r' => *text += "\\r",
        c if c.is_control() => text.extend(c.to_string().bytes().map(octal)),
        c => text.push(c),
    }
}

fn octal(byte: u8) -> String {
    format!("\\{byte:03o}")
}

/// Stores a name as text under `key`. If the text is not exact, the bytes follow in Base64 under `key` plus `_bytes`.
pub fn put(object: &mut Map<String, Value>, key: &str, name: &[u8]) {
    object.insert(key.to_owned(), Value::from(String::from_utf8_lossy(name)));
    if str::from_utf8(name).is_err() {
        object.insert(format!("{key}_bytes"), Value::from(base64(name)));
    }
}

/// Unique keys for an object with a value per file name. Names in UTF-8 take no memory here.
#[derive(Debug, Default)]
pub struct Keys {
    /// Keys already used by names outside UTF-8 or by look-alikes.
    taken: HashSet<String>,
}

impl Keys {
    /// The key for a name's value: the name itself. For a name outside UTF-8 the value holds the bytes as `name_bytes`;
    /// if two names yield the same text, the second key includes the bytes too.
    pub fn key(&mut self, name: &[u8], value: &mut Value) -> String {
        let mut key = String::from_utf8_lossy(name).into_owned();
        if !key.contains(char::REPLACEMENT_CHARACTER) {
            return key;
        }
        let bytes = base64(name);
        if !self.taken.insert(key.clone()) {
            key += &format!(" ({bytes})");
        }
        if str::from_utf8(name).is_err()
            && let Some(value) = value.as_object_mut()
        {
            value.insert("name_bytes".into(), Value::from(bytes));
        }
        key
    }
}

/// Base64 as in RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            match at <= group.len() {
                true => text.push(char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminal_is_shown_names_and_does_not_obey_them() {
        let shown =
            ["plain name", "a\nb\tc", "\u{1b}[2J", "back\\slash", "ä\u{85}"].map(|name| visible(name.as_bytes()));
        assert_eq!(shown, ["plain name", r"a\nb\tc", r"\033[2J", r"back\\slash", r"ä\302\205"]);
        assert_eq!(visible(b"\xff-"), r"\377-");
        assert_eq!(calm("cannot open 'a\\b\u{1b}[2J':\nno"), "cannot open 'a\\b\\033[2J':\nno");
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        let coded = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(coded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(b"\xff\xfe\xfd"), "//79");
    }

    #[test]
    fn two_names_that_are_no_text_stay_apart() {
        let mut entry = Map::new();
        put(&mut entry, "name", b"a\xff");
        put(&mut entry, "target", b"text");
        assert_eq!(Value::from(entry), json!({ "name": "a\u{fffd}", "name_bytes": "Yf8=", "target": "text" }));
        let (mut files, mut keys) = (Map::new(), Keys::default());
        for name in [&b"a\xff"[..], b"a\xfe", b"a", "a\u{fffd}".as_bytes()] {
            let mut value = json!({ "x": 1 });
            files.insert(keys.key(name, &mut value), value);
        }
        let expected = json!({
            "a": { "x": 1 },
            "a\u{fffd}": { "x": 1, "name_bytes": "Yf8=" },
            "a\u{fffd} (Yf4=)": { "x": 1, "name_bytes": "Yf4=" },
            "a\u{fffd} (Ye+/vQ==)": { "x": 1 },
        });
        assert_eq!(Value::from(files), expected);
    }
}
