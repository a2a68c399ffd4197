//! File types as FUSE has them.

use dataset::fs::{Errno, FileType};
use rustix::fs::FileType as ModeType;

/// The type that `mknod` makes, from the mode's type bits; no type bits mean a regular file.
pub(crate) fn node_type(mode: u32) -> Result<FileType, Errno> {
    match ModeType::from_raw_mode(mode) {
        ModeType::RegularFile => Ok(FileType::Regular),
        ModeType::Fifo => Ok(FileType::Fifo),
        ModeType::Socket => Ok(FileType::Socket),
        ModeType::BlockDevice => Ok(FileType::BlockDevice),
        ModeType::CharacterDevice => Ok(FileType::CharDevice),
        _ if mode & 0o170_000 == 0 => Ok(FileType::Regular),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mknod_makes_everything_but_directories_and_links() {
        assert_eq!(node_type(0o644), Ok(FileType::Regular));
        assert_eq!(node_type(0o100_644), Ok(FileType::Regular));
        assert_eq!(node_type(0o010_644), Ok(FileType::Fifo));
        assert_eq!(node_type(0o140_644), Ok(FileType::Socket));
        assert_eq!(node_type(0o060_644), Ok(FileType::BlockDevice));
        assert_eq!(node_type(0o020_644), Ok(FileType::CharDevice));
        assert_eq!(node_type(0o040_755), Err(Errno::INVAL));
        assert_eq!(node_type(0o120_777), Err(Errno::INVAL));
    }
}
