//! Spares: adding and showing spares. Spares step in by themselves in `automatic`.

use pool::{admin::Spare, size::format_apart, vdev::Health};
use protocol::{Failure, State, VdevKind, VdevRecord, VdevSpec};

use super::{devices::NewDevices, open_pool::OpenPool, refusal::OrRefused};
use crate::health::state_from;

impl OpenPool {
    /// Refuses a spare smaller than every device of the pool and every device in `others`, which are added together
    /// with the spares: the spare could replace no device.
    pub(super) fn check_spares(&self, spares: &[VdevSpec], sizes: &[u64], others: &[u64]) -> Result<(), Failure> {
        let least = others.iter().copied().chain([self.pool.least_spare()]).min().unwrap_or(0);
        match spares.iter().zip(sizes).find(|(_, size)| **size < least) {
            Some((spare, size)) => {
                let path = spare.path.to_text();
                let (size, least) = format_apart(*size, least);
                let why = format!("the spare {path} is too small for any vdev: {size}, at least {least} needed");
                Err(Failure::cannot("add to", self.name(), why).hint("use -f to add the spare anyway"))
            }
            None => Ok(()),
        }
    }

    /// Takes devices and adds the devices as spares.
    pub(crate) fn add_spares(&self, spares: &[VdevSpec], force: bool) -> Result<(), Failure> {
        const ACTION: &str = "add to";
        if spares.is_empty() {
            return Ok(());
        }
        let taken = NewDevices::take(spares, ACTION, self.name().as_str(), force)?;
        let devices = taken.devices();
        // From here on a label may name the devices, even after a failure.
        taken.keep();
        self.pool.add_spares(&devices).or_refused(ACTION, self.name())
    }

    /// The spares, as shown by `pool status`.
    pub(super) fn spare_records(&self) -> Vec<VdevRecord> {
        let record = |Spare { leaf, used_in }: Spare| {
            let state = match (used_in, leaf.health()) {
                (Some(_), _) => State::Inuse,
                (None, Health::Online) => State::Avail,
                (None, health) => state_from(health),
            };
            VdevRecord {
                note: used_in.is_some().then(|| "currently in use".to_owned()),
                guid: leaf.guid().0,
                size: leaf.size(),
                ..VdevRecord::idle(leaf.name().to_owned(), state)
            }
        };
        self.pool.spares().into_iter().map(record).collect()
    }

    /// Paths of the AVAIL spares. INUSE spares are members of vdevs.
    pub(super) fn idle_spares(&self) -> Vec<String> {
        let idle = self.pool.spares().into_iter().filter(|spare| spare.used_in.is_none());
        idle.map(|spare| spare.leaf.name().to_owned()).collect()
    }
}

/// Groups each INUSE spare with the failed device for display, as `spare-N` does in OpenZFS.
pub(super) fn beside(members: Vec<VdevRecord>, spared: &dyn Fn(u64) -> Option<u64>) -> Vec<VdevRecord> {
    let (spares, mut shown): (Vec<VdevRecord>, Vec<VdevRecord>) =
        members.into_iter().partition(|member| spared(member.guid).is_some());
    for spare in spares {
        let at = shown.iter().position(|member| {
            spared(spare.guid) == Some(member.guid)
                || member.members.iter().any(|inner| spared(spare.guid) == Some(inner.guid))
        });
        match at {
            Some(at) if shown[at].members.is_empty() => {
                let failed = shown[at].clone();
                let state = if failed.state == State::Online { State::Online } else { State::Degraded };
                shown[at] = VdevRecord {
                    kind: VdevKind::Spare,
                    path: format!("spare-{at}"),
                    note: None,
                    guid: 0,
                    state,
                    read_errors: 0,
                    write_errors: 0,
                    checksum_errors: 0,
                    trim: None,
                    initialization: None,
                    slow: None,
                    members: vec![failed, spare],
                    ..shown[at].clone()
                };
            }
            Some(at) => shown[at].members.push(spare),
            None => shown.push(spare),
        }
    }
    shown
}
