//! The choice of the mirror member to read.
//!
//! A stream stays on the member that it read last: the disk need not seek, and reads ahead. A read that continues no
//! stream goes to the member with the least outstanding reads, in turn among equals; so a second stream begins on
//! another member, and stays there. With much prefetch, one member may have far more outstanding than another. Then the
//! stream moves to the less loaded member, which is worth a seek: so one stream gets the bandwidth of several disks. A
//! read that has arrived counts as outstanding until it is fetched, since only the fetching thread notices the arrival.
//! Two streams prefetched equally far keep their members.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::Mirror;
use crate::{
    error::Result,
    vdev::{
        group::{
            load::Reading,
            member::{Member, State},
        },
        interface::Vdev,
        leaf::Health,
        reads::{Begun, Check, Examined, Found, Sources},
    },
};

/// A stream leaves a member with so many more bytes outstanding than another member.
const A_LOT: u64 = 4 << 20;

impl Mirror {
    /// The member to read at `offset`, among the complete members whose bit in `tried` is clear.
    fn choose(&self, members: &[Arc<Member>], offset: u64, tried: u32) -> Option<usize> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let eligible = (0..members.len()).map(|n| (n + turn) % members.len());
        let eligible = eligible.filter(|at| tried & 1 << at == 0 && members[*at].state() == State::Complete);
        let waiting = |at: &usize| members[*at].load.waiting();
        let least = eligible.clone().map(|at| waiting(&at)).min()?;
        eligible.min_by_key(|at| {
            let is_left = waiting(at) > least + A_LOT;
            (is_left || !members[*at].load.is_near(offset), waiting(at))
        })
    }

    /// Reads one member after another until one passes. With `counts`, checksum errors are counted.
    pub(super) fn read_one(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>, counts: bool) -> Result<Found> {
        'again: loop {
            let (era, round) = (self.group.era(), self.group.round());
            let members = self.group.members();
            let (mut tried, mut is_bad, mut failure) = (0, false, None);
            while let Some(at) = self.choose(&members, offset, tried) {
                tried |= 1 << at;
                let leaf = &members[at].leaf;
                let reading = Reading::begin(&members[at], offset, buf.len());
                let read = leaf.read(offset, buf);
                drop(reading);
                // A member that left and returned in the meantime is incomplete: its answer is void.
                if self.group.round() != round {
                    continue 'again;
                }
                match read {
                    Ok(()) if is_good(buf) => {
                        return Ok(if is_bad || failure.is_some() { Found::Elsewhere } else { Found::Good });
                    }
                    Ok(()) => {
                        if counts {
                            leaf.counters().count_checksum_error();
                        }
                        is_bad = true;
                    }
                    Err(source) => {
                        let is_lost = leaf.is_lost(&source);
                        let health = Health::after(&source);
                        let is_without = is_lost && self.degrade(leaf.guid(), health);
                        failure = Some((leaf.clone(), leaf.failed("read", source), health, is_lost && !is_without));
                    }
                }
            }
            if is_bad {
                return Ok(Found::Bad);
            }
            let Some((leaf, error, health, is_held)) = failure else {
                // Another member has become complete during the search.
                assert_ne!(self.group.round(), round, "a member is complete at any time");
                continue;
            };
            self.group.hold_reader(era.filter(|_| is_held), &leaf, health, error)?;
        }
    }

    /// Reads one member being resilvered after another until one passes. Counts no checksum errors.
    pub(super) fn read_lacking(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool {
        let members = self.group.members();
        let mut lacking =
            members.iter().filter(|member| matches!(member.state(), State::Resilvering | State::Resilvered));
        lacking.any(|member| member.leaf.read(offset, buf).is_ok() && is_good(buf))
    }

    /// Begins to read one complete member, or every complete member.
    pub(super) fn begin_on(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        let round = self.group.round();
        let members = self.group.members();
        let asked: Vec<&Arc<Member>> = match sources {
            Sources::Any => self.choose(&members, offset, 0).map(|at| &members[at]).into_iter().collect(),
            Sources::All => members.iter().filter(|member| member.state() == State::Complete).collect(),
        };
        let begin = |member: &Arc<Member>| (Reading::begin(member, offset, len), member.leaf.begin_read(offset, len));
        let begun: Vec<_> = asked.into_iter().map(begin).collect();
        Box::new(move |is_good| {
            let end = |(reading, begun): (Reading, _)| reading.member().leaf.end_read(len, begun).ok();
            let read: Vec<Option<Vec<u8>>> = begun.into_iter().map(end).collect();
            let is_whole = read.iter().all(|bytes| bytes.as_ref().is_some_and(|bytes| is_good(bytes)));
            // A member that left and returned in the meantime is incomplete: its answer is void.
            let first = read.into_iter().next().flatten();
            first.filter(|_| is_whole && self.group.round() == round)
        })
    }

    /// Reads every complete member. If none is good and the checksum is `surely` known, also reads members being
    /// resilvered.
    pub(super) fn examine_each(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        let mut examined = Examined::default();
        let members = self.group.members();
        let complete = members.iter().filter(|member| member.state() == State::Complete);
        let begun: Vec<_> = complete.map(|member| (&member.leaf, member.leaf.begin_read(offset, len))).collect();
        for (leaf, begun) in begun {
            let read = leaf.end_read(len, begun).map_err(|source| leaf.failed("read", source));
            examined.add(leaf.guid(), read, is_good);
        }
        if examined.good.is_none() && surely {
            let mut bytes = vec![0; len];
            examined.good = self.read_lacking(offset, &mut bytes, is_good).then_some(bytes);
        }
        examined
    }
}
