//! States of pools, vdevs and devices.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a pool, a vdev or a device, named as in OpenZFS. The order is from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// No defect is known.
    Online,
    /// A spare that is ready for use.
    Avail,
    /// A spare that replaces a failed device.
    Inuse,
    /// In use, with reduced redundancy or another defect.
    Degraded,
    /// Taken offline by the administrator.
    Offline,
    /// Out of use after too many errors, or without an answer for too long.
    Faulted,
    /// The image or device node was removed while in use.
    Removed,
    /// I/O waits until the administrator has repaired the devices and cleared the errors.
    Suspended,
    /// The pool or device cannot be opened.
    Unavail,
    /// The state cannot be determined.
    Unknown,
}

impl State {
    /// The states of a pool, and of a device outside the list of spares.
    pub const ALL: [State; 8] = [
        State::Online,
        State::Degraded,
        State::Offline,
        State::Faulted,
        State::Removed,
        State::Suspended,
        State::Unavail,
        State::Unknown,
    ];

    /// The name in output and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Online => "ONLINE",
            State::Avail => "AVAIL",
            State::Inuse => "INUSE",
            State::Degraded => "DEGRADED",
            State::Offline => "OFFLINE",
            State::Faulted => "FAULTED",
            State::Removed => "REMOVED",
            State::Suspended => "SUSPENDED",
            State::Unavail => "UNAVAIL",
            State::Unknown => "UNKNOWN",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_names_of_the_output() {
        for state in State::ALL.into_iter().chain([State::Avail, State::Inuse]) {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
