//! A device as a small file: its nonzero pages, each after its number, compressed.

use pool::device::{Device, MemoryDevice};

const PAGE: usize = 4096;

/// The file of a device.
pub(crate) fn pack(device: &MemoryDevice) -> Vec<u8> {
    let mut pages = Vec::new();
    let mut page = [0; PAGE];
    for number in 0..(device.size() / PAGE as u64) as u32 {
        device.read_at(u64::from(number) * PAGE as u64, &mut page).unwrap();
        if page != [0; PAGE] {
            pages.extend(number.to_le_bytes());
            pages.extend(page);
        }
    }
    zstd::bulk::compress(&pages, 19).unwrap()
}

/// The device of a file.
pub(crate) fn unpack(packed: &[u8], name: &str, size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(name, size);
    let pages = zstd::bulk::decompress(packed, 2 * size as usize).unwrap();
    for numbered in pages.chunks_exact(4 + PAGE) {
        let (number, page) = numbered.split_first_chunk::<4>().unwrap();
        device.write_at(u64::from(u32::from_le_bytes(*number)) * PAGE as u64, page).unwrap();
    }
    device
}
