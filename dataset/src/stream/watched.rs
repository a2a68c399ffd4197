//! The snapshot being transferred and the size of all, for the progress that a command shows.

use std::sync::Arc;

use parking_lot::Mutex;

/// The state of a transfer, which all clones share.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Empty before the first stream.
    name: String,
    total: Option<u64>,
}

impl Watched {
    /// Notes that the stream of this snapshot begins.
    pub fn set(&self, name: impl Into<String>) {
        self.0.lock().name = name.into();
    }

    /// The name of the last snapshot begun.
    pub fn name(&self) -> Option<String> {
        Some(self.0.lock().name.clone()).filter(|name| !name.is_empty())
    }

    /// Adds the expected bytes of a package.
    pub fn expect(&self, bytes: u64) {
        let total = &mut self.0.lock().total;
        *total = Some(total.unwrap_or(0).saturating_add(bytes));
    }

    /// The expected bytes of the packages begun.
    pub fn total(&self) -> Option<u64> {
        self.0.lock().total
    }
}
