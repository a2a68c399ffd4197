//! Differences of two samples, per second.

use protocol::{IoCounts, IoSample};

/// Rates per second of a pool and its vdevs; allocated and free space are the present values.
#[derive(Debug)]
pub(super) struct Rates {
    pub(super) pool: IoCounts,
    pub(super) vdevs: Vec<IoCounts>,
}

impl Rates {
    pub(super) fn between(before: Option<&IoSample>, now: &IoSample) -> Rates {
        // A restarted service counts from zero again.
        let before = before.filter(|before| before.elapsed < now.elapsed);
        let nanoseconds = now.elapsed - before.map_or(0, |before| before.elapsed);
        let rate = |now: &IoCounts, before: Option<&IoCounts>| per_second(now, before, nanoseconds);
        let vdev = |now: &IoCounts| {
            let before = before.and_then(|before| before.vdevs.iter().find(|vdev| vdev.name == now.name));
            rate(now, before)
        };
        Rates { pool: rate(&now.pool, before.map(|before| &before.pool)), vdevs: now.vdevs.iter().map(vdev).collect() }
    }
}

fn per_second(now: &IoCounts, before: Option<&IoCounts>, nanoseconds: u64) -> IoCounts {
    let rate = |now: u64, before: Option<u64>| {
        let difference = now.saturating_sub(before.unwrap_or(0));
        (u128::from(difference) * 1_000_000_000 / u128::from(nanoseconds.max(1))) as u64
    };
    IoCounts {
        name: now.name.clone(),
        role: now.role,
        allocated: now.allocated,
        free: now.free,
        reads: rate(now.reads, before.map(|before| before.reads)),
        writes: rate(now.writes, before.map(|before| before.writes)),
        read_bytes: rate(now.read_bytes, before.map(|before| before.read_bytes)),
        written_bytes: rate(now.written_bytes, before.map(|before| before.written_bytes)),
        flow: before.map_or_else(|| now.flow.clone(), |before| now.flow.since(&before.flow)),
        members: now
            .members
            .iter()
            .map(|member| {
                let before = before.and_then(|before| before.members.iter().find(|other| other.name == member.name));
                per_second(member, before, nanoseconds)
            })
            .collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use protocol::VdevRole;

    use super::*;

    pub(in super::super) fn sample(elapsed: u64, reads: u64) -> IoSample {
        let counts = |name: &str| IoCounts {
            role: VdevRole::Normal,
            name: name.into(),
            allocated: 3 << 29,
            free: 10 << 30,
            reads,
            writes: 2 * reads,
            read_bytes: reads << 17,
            written_bytes: reads << 18,
            ..IoCounts::default()
        };
        IoSample { elapsed, pool: counts("tank"), vdevs: vec![counts("/srv/tank.img")] }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = Rates::between(Some(&sample(1_000_000_000, 100)), &sample(3_000_000_000, 300));
        assert_eq!((rates.pool.reads, rates.pool.writes), (100, 200));
        let first = Rates::between(None, &sample(2_000_000_000, 100));
        assert_eq!(first.pool.reads, 50);
    }
}
