//! The label of a device. The input is a label's payload.

use pool::format::label::{BODY_SIZE, Label};

use super::seal;

/// The offset of the label on the device, which its checksum covers.
const OFFSET: u64 = 4096;

pub(super) fn run(payload: &[u8]) -> bool {
    let Some(body) = seal::block(b"CENOTELB", 2, payload, BODY_SIZE, &OFFSET.to_le_bytes()) else { return false };
    let Ok(label) = Label::decode(&body, OFFSET) else { return false };
    let again = label.encode(OFFSET).expect("what was read can be written");
    assert_eq!(Label::decode(&again, OFFSET).expect("and read again"), label);
    assert!(!label.supersedes(&label));
    let (reads, writes) = (label.check_supported(false).is_ok(), label.check_supported(true).is_ok());
    assert!(reads || !writes, "a pool that may be written may be read");
    for vdev in &label.vdevs {
        assert!(!vdev.tree.kind_name().is_empty());
    }
    true
}
