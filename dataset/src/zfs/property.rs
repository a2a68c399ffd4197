//! Properties of a package as text: OpenZFS sends words as numbers.
//!
//! Whether a property exists here, and takes the value, is judged by the receiver, as for any other stream.

use super::nvlist::Value;
use crate::property::{
    Limit,
    dataset::{
        ACLTYPE, ATIME, CANMOUNT, CHECKSUM, COMPRESSION, COPIES, DEVICES, EXEC, MOUNTPOINT, PRIMARYCACHE, READONLY,
        RECORDSIZE, RELATIME, SECONDARYCACHE, SETUID, SNAPDIR, SYNC, XATTR,
    },
};

const SWITCH: &[&str] = &["off", "on"];
const CACHED: &[&str] = &["none", "metadata", "all"];

/// The values of a property whose values are words, by number; an empty word is no value of Cenote's.
fn words(name: &str) -> Option<&'static [&'static str]> {
    let all: [(&str, &'static [&'static str]); 14] = [
        (ACLTYPE.name, &["off", "posix", ""]),
        (ATIME.name, SWITCH),
        (CANMOUNT.name, &["off", "on", "noauto"]),
        (CHECKSUM.name, &["", "on", "off", "", "", "", "", "fletcher4", "sha256", "", "", "", "", "", "blake3"]),
        (DEVICES.name, SWITCH),
        (EXEC.name, SWITCH),
        (PRIMARYCACHE.name, CACHED),
        (READONLY.name, SWITCH),
        (RELATIME.name, SWITCH),
        (SECONDARYCACHE.name, CACHED),
        (SETUID.name, SWITCH),
        (SNAPDIR.name, &["hidden", "visible", "disabled"]),
        (SYNC.name, &["standard", "always", "disabled"]),
        (XATTR.name, &["off", "on", "on"]),
    ];
    all.into_iter().find(|(other, _)| *other == name).map(|(_, words)| words)
}

/// The value of a property as text; `None` if it means nothing here.
pub(super) fn text(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) if COMPRESSION.is(name) => compression(*number),
        Value::Number(number) => match words(name) {
            Some(words) => {
                let word = words.get(usize::try_from(*number).ok()?)?;
                (!word.is_empty()).then(|| (*word).to_owned())
            }
            None => Some(number.to_string()),
        },
        // Received properties carry their value in a list, with the source beside it.
        Value::List(list) => text(name, list.get("value")?),
        _ => None,
    }
}

/// The kind of compression in the lowest seven bits, the level above.
fn compression(number: u64) -> Option<String> {
    let level = number >> 7;
    Some(match number & 0x7f {
        1 => "on".to_owned(),
        2 => "off".to_owned(),
        // Both are faster and weaker than anything here but this.
        3 | 14 | 15 => "lz4".to_owned(),
        kind @ 5..=13 => format!("gzip-{}", kind - 4),
        16 => match level {
            0 | 255 => "zstd".to_owned(),
            1..=19 => format!("zstd-{level}"),
            101..=110 => format!("zstd-fast-{}", level - 100),
            111..=119 => format!("zstd-fast-{}", (level - 109) * 10),
            120 => "zstd-fast-500".to_owned(),
            121 => "zstd-fast-1000".to_owned(),
            _ => return None,
        },
        _ => return None,
    })
}

/// The value of a property for ZFS; `None` if ZFS has no such property or value.
pub(super) fn value(name: &str, text: &str) -> Option<Value> {
    if name.contains(':') || MOUNTPOINT.is(name) {
        return Some(Value::Text(text.to_owned()));
    }
    if is_limit(name) || RECORDSIZE.is(name) || COPIES.is(name) {
        return text.parse().ok().map(Value::Number);
    }
    if COMPRESSION.is(name) {
        // The kinds and the levels of zstd, none of which has the word of another.
        let mut numbers = (1..=16).chain((1..=121).map(|level| 16 | level << 7));
        return numbers.rfind(|number| compression(*number).as_deref() == Some(text)).map(Value::Number);
    }
    words(name)?.iter().rposition(|word| *word == text).map(|number| Value::Number(number as u64))
}

/// Whether a property is a quota or a reservation.
pub(super) fn is_limit(name: &str) -> bool {
    Limit::ALL.into_iter().any(|limit| limit.row().name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_numbers() {
        let of = |name, text| match value(name, text) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        assert_eq!(of("compression", "lz4"), Some(15));
        assert_eq!(of("compression", "zstd"), Some(16));
        assert_eq!(of("compression", "zstd-7"), Some(16 | 7 << 7));
        assert_eq!(of("xattr", "on"), Some(2));
        assert_eq!(of("quota", "1024"), Some(1024));
        assert_eq!(of("checksum", "xxh3"), None);
        assert_eq!(value("a:b", "c"), Some(Value::Text("c".into())));
    }

    #[test]
    fn numbers_become_words() {
        let of = |name, number| text(name, &Value::Number(number));
        assert_eq!(of("compression", 16 | 7 << 7).as_deref(), Some("zstd-7"));
        assert_eq!(of("compression", 10).as_deref(), Some("gzip-6"));
        assert_eq!(of("atime", 0).as_deref(), Some("off"));
        assert_eq!(of("checksum", 7).as_deref(), Some("fletcher4"));
        assert_eq!(of("checksum", 11), None);
        assert_eq!(of("recordsize", 4096).as_deref(), Some("4096"));
        assert_eq!(of("sync", 99), None);
        assert_eq!(text("a:b", &Value::Text("c".into())).as_deref(), Some("c"));
    }
}
