//! Foreign content of a device: examined before a pool is created on it.
//!
//! A signature is a few fixed bytes at a fixed place, as the owners' formats define them. A device without a signature
//! is not proven empty; a signature is reason enough to refuse until the user insists.

use crate::{
    device::Device,
    error::{Error, Result},
    units::KIB,
};

/// Fixed bytes at a fixed place.
struct Signature {
    at: u64,
    magic: &'static [u8],
    name: &'static str,
}

const fn signature(at: u64, magic: &'static [u8], name: &'static str) -> Signature {
    Signature { at, magic, name }
}

/// More telling signatures come first: a device may show several.
const SIGNATURES: &[Signature] = &[
    signature(0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    signature(0, b"XFSB", "an XFS file system"),
    signature(0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    signature(0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    signature(0, b"hsqs", "a SquashFS file system"),
    signature(0x8001, b"CD001", "an ISO 9660 file system"),
    signature(0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    signature(0, b"LABELONE", "an LVM physical volume"),
    signature(512, b"LABELONE", "an LVM physical volume"),
    signature(1024, b"LABELONE", "an LVM physical volume"),
    signature(1536, b"LABELONE", "an LVM physical volume"),
    signature(0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
    signature(4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
    signature(4086, b"SWAPSPACE2", "swap space"),
    signature(4086, b"SWAP-SPACE", "swap space"),
    signature(16374, b"SWAPSPACE2", "swap space"),
    signature(65526, b"SWAPSPACE2", "swap space"),
    signature(3, b"NTFS    ", "an NTFS file system"),
    signature(3, b"EXFAT   ", "an exFAT file system"),
    signature(54, b"FAT12   ", "a FAT file system"),
    signature(54, b"FAT16   ", "a FAT file system"),
    signature(82, b"FAT32   ", "a FAT file system"),
    signature(512, b"EFI PART", "a GPT partition table"),
    signature(4096, b"EFI PART", "a GPT partition table"),
];

/// Bytes examined at the front of a device: all signatures lie within.
const FRONT: u64 = 256 * KIB;

/// The magic number of a ZFS uberblock, in either byte order, at the start of any 1 KiB slot in the second half of the
/// first label.
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;
const ZFS_RING: u64 = 128 * KIB;

/// Names foreign content of the device, for a sentence such as "/dev/sdb holds an XFS file system". Cenote labels are
/// not meant here: see [`crate::vdev::labels::read_label`].
///
/// # Errors
/// If the front of the device cannot be read.
pub fn probe_foreign(device: &dyn Device) -> Result<Option<&'static str>> {
    let mut front = vec![0; device.size().min(FRONT) as usize];
    let failed = |source| Error::Device { device: device.name().to_owned(), action: "read", source };
    device.read_at(0, &mut front).map_err(failed)?;
    Ok(foreign_content(&front))
}

fn foreign_content(front: &[u8]) -> Option<&'static str> {
    let known = SIGNATURES.iter().find(|signature| has(front, signature.at, signature.magic));
    known
        .map(|signature| signature.name)
        .or_else(|| is_zfs(front).then_some("a ZFS pool"))
        .or_else(|| is_partitioned(front).then_some("an MBR partition table"))
}

fn has(front: &[u8], at: u64, magic: &[u8]) -> bool {
    front.get(at as usize..).is_some_and(|rest| rest.starts_with(magic))
}

fn is_zfs(front: &[u8]) -> bool {
    let ring = front.get(ZFS_RING as usize..).unwrap_or_default();
    ring.chunks(KIB as usize)
        .any(|slot| slot.starts_with(&ZFS_UBERBLOCK.to_le_bytes()) || slot.starts_with(&ZFS_UBERBLOCK.to_be_bytes()))
}

/// True for a boot sector's mark with at least one of the four partitions in use.
fn is_partitioned(front: &[u8]) -> bool {
    const TYPES: [usize; 4] = [450, 466, 482, 498];
    has(front, 510, &[0x55, 0xaa]) && TYPES.iter().any(|at| front[*at] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::MemoryDevice, units::MIB};

    fn holding(at: u64, bytes: &[u8]) -> Option<&'static str> {
        let device = MemoryDevice::new("disk", MIB);
        device.write_at(at, bytes).unwrap();
        probe_foreign(&device).unwrap()
    }

    #[test]
    fn each_signature_is_named() {
        for Signature { at, magic, name } in SIGNATURES {
            assert_eq!(holding(*at, magic), Some(*name), "{magic:?} at {at}");
        }
        assert_eq!(holding(140 * KIB, &ZFS_UBERBLOCK.to_be_bytes()), Some("a ZFS pool"));
        assert_eq!(holding(255 * KIB, &ZFS_UBERBLOCK.to_le_bytes()), Some("a ZFS pool"));
    }

    #[test]
    fn an_empty_device_and_an_empty_boot_sector_are_nothing() {
        assert_eq!(holding(0, &[]), None);
        assert_eq!(holding(510, &[0x55, 0xaa]), None);
        let mut sector = [0; 512];
        (sector[450], sector[510], sector[511]) = (0x83, 0x55, 0xaa);
        assert_eq!(holding(0, &sector), Some("an MBR partition table"));
    }

    #[test]
    fn a_tiny_device_is_probed_as_far_as_it_goes() {
        let device = MemoryDevice::new("tiny", 600);
        assert_eq!(probe_foreign(&device).unwrap(), None);
        device.write_at(512, b"EFI PART").unwrap();
        assert_eq!(probe_foreign(&device).unwrap(), Some("a GPT partition table"));
    }
}
