//! What crosses the socket of a pool's service. The input is what arrives: frames of calls, or, read by a client, replies.

use std::fmt::Debug;

use cli::{
    protocol::{Call, Reply},
    service::frame::{self, MAX_CALL},
};
use serde::{Serialize, de::DeserializeOwned};

pub(super) fn run(input: &[u8]) -> bool {
    let calls = comes_back::<Call>(input);
    let replies = comes_back::<Reply>(input);
    calls || replies
}

/// Reads frames as long as there are any; what they hold must cross the socket unchanged. Both ends use the same bound
/// here: the one for replies is beyond what a fuzzer makes.
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
