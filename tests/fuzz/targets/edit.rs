//! Edits of trees: the encoding of items and their new bodies.
//!
//! ```text
//! edit := number of an existing item (1), or 255, object (1), kind (1), offset (8);  length of the body (1), body
//! ```

use pool::{
    format::key::Key,
    tree::{Entry, Miss},
    txg::{Head, Plain},
};

/// The number for a new item.
const NEW: u8 = 0xff;

/// The keys of a tree's items, in order.
pub(super) fn keys(head: &Head) -> Vec<Key> {
    let all = head.read(|view| -> Result<Vec<Key>, Plain> {
        let entries = view.range(Key::MIN..Key::MAX).collect::<Result<Vec<_>, Miss>>()?;
        Ok(entries.iter().map(Entry::key).collect())
    });
    all.expect("memory does not fail")
}

/// Takes an edit off the input; `None` at its end. `known` are the keys of the existing items.
pub(super) fn take<'a>(input: &mut &'a [u8], known: &[Key]) -> Option<(Key, &'a [u8])> {
    let key = match *input.split_off_first()? {
        NEW => {
            let [object, kind, offset @ ..] = *input.split_off(..10)?.first_chunk::<10>()?;
            Key::new(object.into(), kind, u64::from_le_bytes(offset))
        }
        number => known[usize::from(number) % known.len()],
    };
    let len = usize::from(*input.split_off_first()?);
    Some((key, input.split_off(..len)?)).filter(|(key, _)| *key < Key::MAX)
}
