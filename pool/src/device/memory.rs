//! A device in memory: sparse, so that a test can use a large one, and cheap to copy, so that a test can use many.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;

use super::interface::{Device, check_range};

/// The unit of allocation, and of sharing between snapshots, in bytes.
const PAGE: u64 = 64 << 10;

type Pages = BTreeMap<u64, Arc<Vec<u8>>>;

/// A sparse device in memory. Unwritten bytes read as zeros.
#[derive(Debug)]
pub struct MemoryDevice {
    name: String,
    /// Physical size in bytes.
    there: AtomicU64,
    /// Whether the device can be truncated, like an image.
    is_image: AtomicBool,
    /// Size in use, in bytes.
    size: AtomicU64,
    pages: RwLock<Pages>,
}

impl MemoryDevice {
    /// A device of `size` zeros.
    pub fn new(name: impl Into<String>, size: u64) -> MemoryDevice {
        MemoryDevice {
            name: name.into(),
            there: AtomicU64::new(size),
            is_image: AtomicBool::new(false),
            size: AtomicU64::new(size),
            pages: RwLock::default(),
        }
    }

    /// The same device as an image, which can be [truncated](Device::truncate).
    pub fn as_image(self) -> MemoryDevice {
        self.is_image.store(true, Ordering::Relaxed);
        self
    }

    /// Changes the physical size to `there` bytes, like a change of an image or volume by another program: content
    /// behind is lost, and added bytes are zeros, not yet in use.
    pub fn make(&self, there: u64) {
        let mut pages = self.pages.write();
        drop(pages.split_off(&there.div_ceil(PAGE)));
        if let Some(last) = pages.get_mut(&(there / PAGE)) {
            Arc::make_mut(last)[(there % PAGE) as usize..].fill(0);
        }
        self.there.store(there, Ordering::Relaxed);
        self.size.fetch_min(there, Ordering::Relaxed);
    }

    /// A copy of the current content, all of its physical size in use. Pages are shared until either device changes
    /// them.
    pub fn snapshot(&self) -> MemoryDevice {
        let pages = RwLock::new(self.pages.read().clone());
        let is_image = AtomicBool::new(self.is_image.load(Ordering::Relaxed));
        let there = self.there.load(Ordering::Relaxed);
        MemoryDevice { pages, is_image, ..MemoryDevice::new(self.name.clone(), there) }
    }

    /// Memory for the content, in bytes.
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
        self.size.load(Ordering::Relaxed)
    }

    fn measure(&self) -> io::Result<u64> {
        Ok(self.there.load(Ordering::Relaxed))
    }

    fn resize(&self, size: u64) {
        self.size.store(size.min(self.there.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        let is_image = self.is_image.load(Ordering::Relaxed);
        if is_image && self.there.load(Ordering::Relaxed) > size {
            self.make(size);
        }
        Ok(is_image)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
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
        check_range(self.size(), offset, bytes.len() as u64)?;
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
        check_range(self.size(), offset, len)?;
        let mut pages = self.pages.write();
        let range = offset / PAGE..(offset + len).div_ceil(PAGE);
        let there: Vec<u64> = pages.range(range).map(|(page, _)| *page).collect();
        for page in there {
            let (start, end) = (offset.max(page * PAGE), (offset + len).min((page + 1) * PAGE));
            match pages.get_mut(&page).filter(|_| end - start < PAGE) {
                Some(content) => {
                    Arc::make_mut(content)[(start - page * PAGE) as usize..(end - page * PAGE) as usize].fill(0);
                }
                None => drop(pages.remove(&page)),
            }
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
    fn a_lengthened_device_has_zeros_and_a_truncated_one_forgets() {
        let device = MemoryDevice::new("memory", PAGE * 2);
        device.write_at(0, &vec![7; PAGE as usize * 2]).unwrap();
        device.make(PAGE * 3);
        assert_eq!((device.size(), device.measure().unwrap()), (PAGE * 2, PAGE * 3));
        assert!(device.write_at(PAGE * 2, &[7]).is_err(), "that is not used yet");
        device.resize(PAGE * 3);
        device.write_at(PAGE * 2, &[7]).unwrap();
        assert!(!device.truncate(10).unwrap() && device.measure().unwrap() == PAGE * 3, "it is no image");
        let image = device.snapshot().as_image();
        assert!(image.snapshot().truncate(10).unwrap() && image.truncate(PAGE + 10).unwrap());
        assert_eq!((image.size(), image.measure().unwrap(), image.resident()), (PAGE + 10, PAGE + 10, PAGE * 2));
        image.make(PAGE * 3);
        image.resize(PAGE * 3);
        let mut bytes = vec![1; PAGE as usize * 2];
        image.read_at(PAGE, &mut bytes).unwrap();
        assert!(bytes[..10] == [7; 10] && bytes[10..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_discarded_is_zeros_and_whole_pages_of_it_are_freed() {
        let device = MemoryDevice::new("memory", PAGE * 5);
        device.write_at(0, &vec![7; PAGE as usize * 3]).unwrap();
        device.discard(1, PAGE * 2).unwrap();
        assert_eq!(device.resident(), 2 * PAGE);
        let mut bytes = vec![1; PAGE as usize * 3];
        device.read_at(0, &mut bytes).unwrap();
        let zeros = 1..PAGE as usize * 2 + 1;
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if zeros.contains(&at) { 0 } else { 7 }));
        device.discard(5, 0).unwrap();
        device.discard(PAGE * 3, PAGE * 2).unwrap();
        assert_eq!(device.resident(), 2 * PAGE);
    }
}
