//! Messages on the socket of a pool's service. The input is the received bytes: frames of calls, or of replies to a
//! client.

use std::fmt::Debug;

use protocol::{
    Call, Reply,
    frame::{self, MAX_CALL},
};
use serde::{Serialize, de::DeserializeOwned};

pub(super) fn run(input: &[u8]) -> bool {
    let calls = comes_back::<Call>(input);
    let replies = comes_back::<Reply>(input);
    calls || replies
}

/// Reads frames to the end; the messages must cross the socket unchanged. Both ends use the same bound here: the bound
/// for replies is beyond a fuzzer's inputs.
fn comes_back<T: Serialize + DeserializeOwned + Debug + PartialEq>(mut input: &[u8]) -> bool {
    let mut any = false;
    while let Ok(Some(message)) = frame::read::<T>(&mut input, MAX_CALL) {
        let Ok(again) = frame::encode(&message, MAX_CALL) else { continue };
        let read = frame::read::<T>(&mut &again[..], MAX_CALL).expect("what was sent is received");
        assert_eq!(read, Some(message));
        any = true;
    }
    any
}
