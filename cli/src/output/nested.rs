//! JSON written piece by piece, for responses larger than memory. The text equals the text of a document printed at
//! once.

use serde_json::Value;

use super::json::output_version;

/// Bytes of text to collect before printing.
const GATHERED: usize = 64 << 10;

/// A document with open objects and arrays.
pub struct Nested {
    text: String,
    /// Closing bracket of each open level, and whether the level has content.
    open: Vec<(char, bool)>,
}

impl Nested {
    /// Begins a document in a command's envelope, inside the object with the content.
    pub fn object(command: &str, key: &str) -> Nested {
        Nested::new(command).within(key, '{')
    }

    /// Begins a document in a command's envelope, inside the array with the content.
    pub fn array(command: &str, key: &str) -> Nested {
        Nested::new(command).within(key, '[')
    }

    fn new(command: &str) -> Nested {
        let mut nested = Nested { text: "{".to_owned(), open: vec![('}', false)] };
        let Value::Object(head) = output_version(command) else { unreachable!("it is one") };
        head.iter().for_each(|(key, value)| nested.value(Some(key), value));
        nested
    }

    fn within(mut self, key: &str, bracket: char) -> Nested {
        self.begin(Some(key), bracket);
        self
    }

    /// Opens an array under a key.
    pub fn begin_array(&mut self, key: &str) {
        self.begin(Some(key), '[');
    }

    fn begin(&mut self, key: Option<&str>, bracket: char) {
        self.next(key);
        self.text.push(bracket);
        self.open.push((if bracket == '{' { '}' } else { ']' }, false));
    }

    /// Closes the innermost open level.
    pub fn end(&mut self) {
        let Some((closer, has_any)) = self.open.pop() else { return };
        if has_any {
            self.line();
        }
        self.text.push(closer);
    }

    /// Adds a value; in an object under a key.
    pub fn value(&mut self, key: Option<&str>, value: &Value) {
        self.next(key);
        let text = serde_json::to_string_pretty(value).expect("a value is JSON");
        // Line breaks in strings are escaped in JSON, so every line break here separates lines.
        let indent = format!("\n{}", "  ".repeat(self.open.len()));
        self.text += &text.replace('\n', &indent);
    }

    /// The collected text, once there is enough to print.
    pub fn ready(&mut self) -> Option<String> {
        (self.text.len() >= GATHERED).then(|| std::mem::take(&mut self.text))
    }

    /// Closes all levels, and returns the remaining text.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text + "\n"
    }

    fn next(&mut self, key: Option<&str>) {
        if let Some((_, has_any)) = self.open.last_mut()
            && std::mem::replace(has_any, true)
        {
            self.text.push(',');
        }
        self.line();
        if let Some(key) = key {
            self.text += &serde_json::to_string(key).expect("text is JSON");
            self.text += ": ";
        }
    }

    fn line(&mut self) {
        self.text.push('\n');
        self.text += &"  ".repeat(self.open.len());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::json::envelope;

    #[test]
    fn it_looks_as_if_printed_at_once() {
        let entries = [json!({ "name": "a\nb", "list": [1, 2], "none": {} }), json!("c")];
        let content = json!({ "tank:/\"": entries, "tank:/empty": [] });
        let whole = serde_json::to_string_pretty(&envelope("fs ls", "files", content)).unwrap() + "\n";
        let mut nested = Nested::object("fs ls", "files");
        nested.begin_array("tank:/\"");
        entries.iter().for_each(|entry| nested.value(None, entry));
        nested.end();
        nested.begin_array("tank:/empty");
        nested.end();
        assert_eq!(nested.finish(), whole);
        let whole = serde_json::to_string_pretty(&envelope("fs diff", "changes", json!([]))).unwrap() + "\n";
        assert_eq!(Nested::array("fs diff", "changes").finish(), whole);
    }
}
