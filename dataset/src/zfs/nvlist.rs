//! Lists of names with values: what packages say of their datasets, and the extended attributes of a file.
//!
//! Streams carry the portable coding, XDR, which is big-endian always: each number takes four or eight bytes, and texts
//! are padded to four. A list inside a list nests to a bounded depth. Values of kinds that no stream has are skipped by
//! the length that each pair states.

use pool::format::codec::{Malformed, Reader, malformed};

const WHAT: &str = "list of names and values";
/// The greatest depth of lists in lists.
const MAX_DEPTH: u8 = 8;
const XDR: u8 = 1;

/// The value of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A name without a value, or a value of another kind.
    Present,
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
    Numbers(Vec<u64>),
    List(List),
}

/// Names with values, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List(pub(super) Vec<(Vec<u8>, Value)>);

impl List {
    /// Decodes a list in its envelope.
    pub(super) fn decode(bytes: &[u8]) -> Result<List, Malformed> {
        let mut reader = Reader::new(bytes);
        let [coding, _, _, _] = reader.array::<4>(WHAT)?;
        if coding != XDR {
            return malformed("coding of a list of names and values");
        }
        List::take(&mut reader, 0)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| other == name.as_bytes()).map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self, name: &str) -> Option<&List> {
        match self.get(name) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        }
    }

    /// Encodes the list in its envelope.
    pub(super) fn encode(&self) -> Vec<u8> {
        const LITTLE_ENDIAN: u8 = 1;
        let mut out = vec![XDR, LITTLE_ENDIAN, 0, 0];
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        const VERSION: u32 = 0;
        const UNIQUE_NAMES: u32 = 1;
        put_number(out, VERSION as usize);
        put_number(out, UNIQUE_NAMES as usize);
        for (name, value) in &self.0 {
            let at = out.len();
            put_number(out, 0);
            put_number(out, value.decoded_len(name));
            put_text(out, name);
            value.put(out);
            let len = (out.len() - at) as u32;
            out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        }
        out.extend([0; 8]);
    }

    fn take(reader: &mut Reader<'_>, depth: u8) -> Result<List, Malformed> {
        if depth == MAX_DEPTH || number(reader)? != 0 {
            return malformed(WHAT);
        }
        number(reader)?;
        let mut pairs = Vec::new();
        loop {
            let before = reader.remaining();
            let (len, decoded) = (number(reader)? as usize, number(reader)?);
            if len == 0 && decoded == 0 {
                return Ok(List(pairs));
            }
            let name = text(reader)?.to_vec();
            let value = Value::take(reader, depth)?;
            let taken = before - reader.remaining();
            // A list's length includes the lists inside, but senders disagree whether with their ends.
            if !matches!(value, Value::List(_)) {
                let rest = len.checked_sub(taken).ok_or(Malformed { what: WHAT })?;
                reader.bytes(rest, WHAT)?;
            }
            pairs.push((name, value));
        }
    }
}

impl Value {
    fn put(&self, out: &mut Vec<u8>) {
        let mut head = |kind, count| {
            put_number(out, kind);
            put_number(out, count);
        };
        match self {
            Value::Present => head(1, 0),
            Value::Number(number) => {
                head(8, 1);
                out.extend(number.to_be_bytes());
            }
            Value::Text(text) => {
                head(9, 1);
                put_text(out, text.as_bytes());
            }
            Value::Bytes(bytes) => {
                head(10, bytes.len());
                put_padded(out, bytes);
            }
            Value::Numbers(numbers) => {
                head(16, numbers.len());
                put_number(out, numbers.len());
                out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            }
            Value::List(list) => {
                head(19, 1);
                list.put(out);
            }
        }
    }

    /// The length of a pair in the memory of a program that reads the list: receivers allocate as much.
    fn decoded_len(&self, name: &[u8]) -> usize {
        const PAIR: usize = 16;
        const LIST: usize = 24;
        let value = match self {
            Value::Present => 0,
            Value::Number(_) => 8,
            Value::Text(text) => text.len() + 1,
            Value::Bytes(bytes) => bytes.len(),
            Value::Numbers(numbers) => numbers.len() * 8,
            Value::List(_) => LIST,
        };
        PAIR + (name.len() + 1).next_multiple_of(8) + value.next_multiple_of(8)
    }

    fn take(reader: &mut Reader<'_>, depth: u8) -> Result<Value, Malformed> {
        let (kind, count) = (number(reader)?, number(reader)? as usize);
        Ok(match kind {
            8 => Value::Number(u64::from_be_bytes(reader.array(WHAT)?)),
            9 => Value::Text(String::from_utf8_lossy(text(reader)?).into_owned()),
            10 => Value::Bytes(padded(reader, count)?.to_vec()),
            16 => {
                let len = number(reader)? as usize;
                let bytes = reader.bytes(len.checked_mul(8).ok_or(Malformed { what: WHAT })?, WHAT)?;
                let (numbers, _) = bytes.as_chunks::<8>();
                Value::Numbers(numbers.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect())
            }
            19 => Value::List(List::take(reader, depth + 1)?),
            _ => Value::Present,
        })
    }
}

fn number(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    reader.array(WHAT).map(u32::from_be_bytes)
}

fn padded<'a>(reader: &mut Reader<'a>, len: usize) -> Result<&'a [u8], Malformed> {
    let bytes = reader.bytes(len, WHAT)?;
    reader.bytes(len.wrapping_neg() % 4, WHAT)?;
    Ok(bytes)
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let len = number(reader)? as usize;
    padded(reader, len)
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend((number as u32).to_be_bytes());
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len());
    put_padded(out, text);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list in its envelope, for tests.
    pub(in crate::zfs) fn encode(list: &List) -> Vec<u8> {
        list.encode()
    }

    #[test]
    fn a_pair_states_its_length_in_both_codings() {
        let list = List(vec![(b"fromsnap".to_vec(), Value::Text("s1".into()))]);
        let pair = [
            &[0, 0, 0, 36, 0, 0, 0, 40, 0, 0, 0, 8][..],
            b"fromsnap",
            &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2],
            b"s1\0\0",
        ];
        let head = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(list.encode(), [&head[..], &pair.concat(), &[0; 8]].concat());
    }

    #[test]
    fn lists_with_every_kind_round_trip() {
        let inner = List(vec![(b"a".to_vec(), Value::Number(u64::MAX))]);
        let list = List(vec![
            (b"text".to_vec(), Value::Text("five5".into())),
            (b"bytes".to_vec(), Value::Bytes(vec![1, 2, 3])),
            (b"flag".to_vec(), Value::Present),
            (b"inner".to_vec(), Value::List(inner)),
            (b"numbers".to_vec(), Value::Numbers(vec![1, 2])),
        ]);
        assert_eq!(List::decode(&encode(&list)), Ok(list.clone()));
        assert_eq!(list.text("text"), Some("five5"));
        assert_eq!(list.list("inner").and_then(|inner| inner.get("a")), Some(&Value::Number(u64::MAX)));
        assert!(list.has("flag") && !list.has("flags"));
    }

    #[test]
    fn nesting_has_an_end() {
        let mut list = List::default();
        for _ in 0..MAX_DEPTH {
            list = List(vec![(b"l".to_vec(), Value::List(list))]);
        }
        assert!(List::decode(&encode(&list)).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>) {
            bytes.splice(0..0, [XDR, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let _ = List::decode(&bytes);
        }
    }
}
