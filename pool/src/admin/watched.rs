//! Which devices return too many bad blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{units::Guid, vdev::Leaf};

/// So many checksum errors within this time are too many, as in OpenZFS.
const TOO_MANY: u64 = 10;
const WITHIN: Duration = Duration::from_secs(600);

/// Checksum errors of the devices, with the time of each count.
#[derive(Debug, Default)]
pub(super) struct Watched {
    since: BTreeMap<Guid, (Duration, u64)>,
    /// Devices with too many errors.
    pub(super) bad: BTreeMap<Guid, u64>,
    /// Spares that stand in by the administrator's wish.
    pub(super) wanted: BTreeSet<Guid>,
}

impl Watched {
    /// Records how many errors a device has had by now; returns whether there are too many. The verdict stays until
    /// errors are cleared.
    pub(super) fn note(&mut self, device: Guid, errors: u64, now: Duration) -> bool {
        if let Some(noted) = self.bad.get(&device) {
            if errors >= *noted {
                return true;
            }
            self.bad.remove(&device);
            self.since.remove(&device);
        }
        let (since, before) = *self.since.entry(device).or_insert((now, 0));
        if errors >= before + TOO_MANY {
            self.bad.insert(device, errors);
            return true;
        }
        if errors < before || now.saturating_sub(since) >= WITHIN {
            self.since.insert(device, (now, errors));
        }
        false
    }

    /// True if a device with `errors` so far has too many. Errors cleared since the verdict do not count, even if the
    /// clearing was not noted yet.
    pub(super) fn is_bad(&self, device: Guid, errors: u64) -> bool {
        self.bad.get(&device).is_some_and(|noted| errors >= *noted)
    }

    /// Like [`Watched::is_bad`], by the device's current count.
    pub(super) fn has_too_many(&self, leaf: &Leaf) -> bool {
        self.is_bad(leaf.guid(), leaf.counters().snapshot().checksum_errors)
    }

    /// Withdraws the verdict on a device that is wanted back: only later errors count.
    pub(super) fn forgive(&mut self, device: Guid, errors: u64, now: Duration) {
        self.bad.remove(&device);
        self.since.insert(device, (now, errors));
    }

    /// Records that the administrator wants a spare to stand in.
    pub(super) fn note_wanted(&mut self, spare: Guid) {
        self.wanted.insert(spare);
    }

    /// Withdraws [`Watched::note_wanted`].
    pub(super) fn forget_wanted(&mut self, spare: Guid) {
        self.wanted.remove(&spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_errors_are_ten_within_ten_minutes_until_cleared() {
        let (mut watched, device) = (Watched::default(), Guid(1));
        let at = |seconds| Duration::from_secs(seconds);
        assert!(!watched.note(device, 9, at(0)));
        assert!(!watched.note(device, 9, at(600)));
        assert!(!watched.note(device, 18, at(700)), "nine since the last window");
        assert!(watched.note(device, 19, at(701)));
        assert!(watched.note(device, 19, at(9000)) && watched.is_bad(device, 19) && !watched.is_bad(device, 0));
        assert!(!watched.note(device, 0, at(9001)) && !watched.is_bad(device, 19));
        // Errors of a device without the verdict can be cleared as well.
        assert!(!watched.note(device, 9, at(9601)));
        assert!(!watched.note(device, 0, at(9602)));
        assert!(watched.note(device, 10, at(9603)));
        watched.forgive(device, 10, at(9604));
        assert!(!watched.note(device, 19, at(9605)) && watched.note(device, 20, at(9606)));
    }
}
