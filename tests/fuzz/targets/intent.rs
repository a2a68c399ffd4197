//! The intent log. The input is the payload of a frame; the uberblock's fields about the log are fuzzed with the
//! uberblock.

use pool::{
    format::{
        intent::{self, FrameId},
        uberblock::Epoch,
    },
    units::Guid,
};

const FRAME: FrameId = FrameId { pool: Guid(0x1122_3344_5566_7788), epoch: Epoch(77), sequence: 5 };

pub(super) fn run(payload: &[u8]) -> bool {
    let frame = intent::encode_frame(FRAME, payload);
    assert_eq!(intent::frame_len(&frame, FRAME), Some(frame.len()));
    let entries = intent::decode_frame(&frame).expect("the checksum is right");
    let Ok(entries) = entries else { return false };
    for entry in &entries {
        assert!(entry.base <= entry.txg);
        assert!(entry.parts.iter().all(|part| part.range().end <= part.len as usize));
        assert!(entry.items.is_sorted_by(|one, two| one.0 < two.0));
    }
    let again = intent::encode_frame(FRAME, &intent::encode_payload(&entries));
    assert_eq!(intent::decode_frame(&again), Some(Ok(entries)));
    true
}
