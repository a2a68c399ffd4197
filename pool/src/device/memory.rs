//! A device in memory: sparse, so that a test can have a large one, and cheap to copy, so that it can have many.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::RwLock;

use super::{Device, check_range};

/// The unit in which memory is taken and shared between snapshots, in bytes.
const PAGE: u64 = 64 << 10;

type Pages = BTreeMap<u64, Arc<Vec<u8>>>;

/// A sparse device in memory. What was never written reads as zeros.
#[derive(Debug)]
pub struct MemoryDevice {
    name: String,
    size: u64,
    pages: RwLock<Pages>,
}

impl MemoryDevice {
    /// A device of `size` zeros.
    pub fn new(name: impl Into<String>, size: u64) -> MemoryDevice {
        MemoryDevice { name: name.into(), size, pages: RwLock::default() }
    }

    /// A second device with the content that this one has now. Pages are shared until one of the two changes them.
    pub fn snapshot(&self) -> MemoryDevice {
        MemoryDevice { name: self.name.clone(), size: self.size, pages: RwLock::new(self.pages.read().clone()) }
    }

    /// How much memory the content takes, in bytes.
    pub fn resident(&self) -> u64 {
        self.pages.read().len() as u64 * PAGE
    }
}

/// Cuts `[offset, offset + len)` at page borders: page number, start in the page, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let piece = (at < end).then(|| (at / PAGE, (at % PAGE) as usize, (PAGE - at % PAGE).min(end - at) as usize))?;
        at += piece.2 as u64;
        Some(piece)
    })
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size, offset, buf.len() as u64)?;
        let pages = self.pages.read();
        let mut rest = &mut *buf;
        for (page, start, len) in pieces(offset, rest.len()) {
            let (head, tail) = rest.split_at_mut(len);
            match pages.get(&page) {
                Some(content) => head.copy_from_slice(&content[start..start + len]),
                None => head.fill(0),
            }
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_range(self.size, offset, bytes.len() as u64)?;
        let mut pages = self.pages.write();
        let mut rest = bytes;
        for (page, start, len) in pieces(offset, bytes.len()) {
            let (head, tail) = rest.split_at(len);
            let content = pages.entry(page).or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
            Arc::make_mut(content)[start..start + len].copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size, offset, len)?;
        let mut pages = self.pages.write();
        for page in offset.div_ceil(PAGE)..(offset + len) / PAGE {
            pages.remove(&page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_an_array(writes in prop::collection::vec((0u64..400_000, 0usize..200_000, any::<u8>()), 0..8)) {
            const SIZE: u64 = 500_000;
            let device = MemoryDevice::new("memory", SIZE);
            let mut model = vec![0u8; SIZE as usize];
            for (offset, len, byte) in writes {
                let result = device.write_at(offset, &vec![byte; len]);
                let end = offset as usize + len;
                prop_assert_eq!(result.is_ok(), end as u64 <= SIZE);
                if result.is_ok() {
                    model[offset as usize..end].fill(byte);
                }
            }
            let mut content = vec![1u8; SIZE as usize];
            device.read_at(0, &mut content).unwrap();
            prop_assert!(content == model);
        }
    }

    #[test]
    fn a_snapshot_is_independent() {
        let device = MemoryDevice::new("memory", PAGE * 4);
        device.write_at(PAGE - 2, b"abcd").unwrap();
        let snapshot = device.snapshot();
        device.write_at(PAGE - 1, b"XX").unwrap();
        let mut buf = [0; 4];
        snapshot.read_at(PAGE - 2, &mut buf).unwrap();
        assert_eq!(&buf, b"abcd");
        assert_eq!(device.resident(), 2 * PAGE);
    }

    #[test]
    fn discarding_frees_whole_pages_only() {
        let device = MemoryDevice::new("memory", PAGE * 4);
        device.write_at(0, &vec![7; PAGE as usize * 3]).unwrap();
        device.discard(1, PAGE * 2).unwrap();
        assert_eq!(device.resident(), 2 * PAGE);
        let mut byte = [0];
        device.read_at(PAGE * 2, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}
