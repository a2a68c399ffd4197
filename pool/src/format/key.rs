//! The key of a tree item: object, kind and offset.

use std::fmt;

/// A key, ordered by its fields in this order, so that an object's items are stored together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The object: an inode, a dataset, a list.
    pub object: u64,
    /// The kind of item; the layer that owns the tree numbers its kinds.
    pub kind: u8,
    /// Where: a file offset, a name's hash, a sequence number.
    pub offset: u64,
}

impl Key {
    /// Not above any key.
    pub const MIN: Key = Key::new(0, 0, 0);
    /// Not below any key. Never stored: the exclusive end of a tree.
    pub const MAX: Key = Key::new(u64::MAX, u8::MAX, u64::MAX);

    /// A key from its parts.
    pub const fn new(object: u64, kind: u8, offset: u64) -> Key {
        Key { object, kind, offset }
    }

    /// The next larger key; [`Key::MAX`] stays.
    pub fn successor(self) -> Key {
        match (self.offset.checked_add(1), self.kind.checked_add(1), self.object.checked_add(1)) {
            (Some(offset), _, _) => Key { offset, ..self },
            (None, Some(kind), _) => Key { object: self.object, kind, offset: 0 },
            (None, None, Some(object)) => Key { object, kind: 0, offset: 0 },
            (None, None, None) => Key::MAX,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {:#x})", self.object, self.kind, self.offset)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_carries_into_the_next_field() {
        assert_eq!(Key::new(1, 2, 3).successor(), Key::new(1, 2, 4));
        assert_eq!(Key::new(1, 2, u64::MAX).successor(), Key::new(1, 3, 0));
        assert_eq!(Key::new(1, 255, u64::MAX).successor(), Key::new(2, 0, 0));
        assert_eq!(Key::MAX.successor(), Key::MAX);
    }
}
