//! Golden files: bytes as text, so that a change can be reviewed.
//!
//! A line is an offset in hexadecimal and up to sixteen bytes; lines of zeros are left out; the last line is the length
//! alone.

use std::{fmt::Write, fs, path::PathBuf};

/// Bytes in a line.
const LINE: usize = 16;

/// Whether golden files are to be written instead of compared.
pub(crate) fn blessing() -> bool {
    std::env::var_os("CENOTE_BLESS").is_some_and(|value| value == "1")
}

/// Where a golden file is.
pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// The committed bytes of a structure, after comparing them with the bytes made now.
pub(crate) fn compare(name: &str, coded: &[u8]) -> Vec<u8> {
    let path = path(&format!("{name}.hex"));
    if blessing() {
        fs::write(&path, to_text(coded)).unwrap();
    }
    let committed = load(name);
    assert!(committed == coded, "{name}: the code makes other bytes than {}:\n{}", path.display(), to_text(coded));
    committed
}

/// The committed bytes of a structure.
pub(crate) fn load(name: &str) -> Vec<u8> {
    let path = path(&format!("{name}.hex"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    from_text(&text)
}

/// The names of all structures with a golden file, in order.
pub(crate) fn names() -> Vec<String> {
    let files = fs::read_dir(path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.filter_map(|file| Some(file.strip_suffix(".hex")?.to_owned())).collect();
    names.sort();
    names
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, line) in bytes.chunks(LINE).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        write!(text, "{:06x} ", index * LINE).unwrap();
        line.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    writeln!(text, "{:06x}", bytes.len()).unwrap();
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(number);
        bytes.resize(words.next().expect("a line begins with an offset"), 0);
        bytes.extend(words.map(|byte| byte as u8));
    }
    bytes
}

#[test]
fn bytes_survive_being_text() {
    for len in [0, 1, 16, 100, 1000] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| if at % 300 < 200 { 0 } else { at as u8 }).collect();
        assert_eq!(from_text(&to_text(&bytes)), bytes);
    }
}
