//! Properties as typed: the input is `name=value`; a value alone is a size.

use dataset::property::{
    Precision, Property,
    size::{format_bytes, format_count, parse_size},
};

pub(super) fn run(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    let Some((name, value)) = text.split_once('=') else { return size(text) };
    let found = [Property::of_dataset(name), Property::of_pool(name)];
    let accepted = found.iter().flatten().filter(|property| check(property, value));
    accepted.count() > 0
}

fn check(property: &Property, value: &str) -> bool {
    assert!(!property.column().is_empty());
    let Ok(canonical) = property.parse_value(value, true) else { return false };
    assert_eq!(property.parse_value(&canonical, true).as_ref(), Ok(&canonical), "the canonical text stands for itself");
    let syntax = property.syntax();
    assert_eq!(syntax.print(&canonical, Precision::Exact), canonical);
    syntax.print(&canonical, Precision::Human);
    // A value from another program is shown, too.
    syntax.print(value, Precision::Human);
    true
}

fn size(text: &str) -> bool {
    let Ok(bytes) = parse_size(text) else { return false };
    assert_eq!(parse_size(&bytes.to_string()), Ok(bytes));
    // Printing rounds, but the result stays a size; only values that round up to 16E are too large.
    let shown = format_bytes(bytes);
    assert!(shown.len() <= 5 || shown.ends_with('B'), "{shown}");
    assert!(parse_size(&shown).is_ok() || shown.starts_with("16"), "{shown}");
    format_count(bytes);
    true
}
