//! `pool iostat` as JSON.

use pool::device::{Flow, IoClass, Waits};
use protocol::IoCounts;
use serde_json::{Map, Value, json};

use super::{Arguments, rates::Rates};

pub(super) fn encode(rates: &[Rates], arguments: &Arguments) -> Value {
    let numbers = |counts: &IoCounts| {
        let mut object = json!({
            "name": counts.name,
            "alloc_space": counts.allocated.to_string(),
            "free_space": counts.free.to_string(),
            "read_ops": counts.reads.to_string(),
            "write_ops": counts.writes.to_string(),
            "read_bytes": counts.read_bytes.to_string(),
            "write_bytes": counts.written_bytes.to_string(),
        });
        add_flow(&mut object, &counts.flow, arguments);
        object
    };
    let pool = |rates: &Rates| {
        let of_vdev = |vdev: &IoCounts| {
            let mut object = numbers(vdev);
            if !vdev.members.is_empty() {
                let members: Map<_, _> = vdev.members.iter().map(|m| (m.name.clone(), numbers(m))).collect();
                object["vdevs"] = Value::Object(members);
            }
            object
        };
        let vdevs: Map<_, _> = rates.vdevs.iter().map(|vdev| (vdev.name.clone(), of_vdev(vdev))).collect();
        let mut object = numbers(&rates.pool);
        object["vdevs"] = Value::Object(vdevs);
        (rates.pool.name.clone(), object)
    };
    Value::Object(rates.iter().map(pool).collect())
}

/// Adds what the options ask for. Bucket `n` of a histogram counts `2^n` up to `2^(n+1) - 1` nanoseconds or bytes; the
/// buckets behind the last are 0.
fn add_flow(object: &mut Value, flow: &Flow, arguments: &Arguments) {
    let by_class = |of: &dyn Fn(usize) -> Value| -> Value {
        Value::Object(IoClass::ALL.iter().map(|class| (class.as_str().to_owned(), of(*class as usize))).collect())
    };
    let both = |of: &dyn Fn(usize) -> Value| json!({ "read": of(0), "write": of(1) });
    let average = |waits: &Waits| waits.average().map(|nanos| nanos.to_string());
    if arguments.latency {
        object["latency"] = json!({
            "total_wait": both(&|at| json!(average(&flow.total_wait[at]))),
            "disk_wait": both(&|at| json!(average(&flow.disk_wait[at]))),
            "queue_wait": by_class(&|at| json!(average(&flow.queue_wait[at]))),
        });
    }
    if arguments.queues {
        let now = |at: usize| json!({ "pend": flow.pending[at].to_string(), "activ": flow.active[at].to_string() });
        object["queues"] = by_class(&now);
    }
    if arguments.waits {
        object["latency_histogram"] = json!({
            "total_wait": both(&|at| texts(&flow.total_wait[at].buckets)),
            "disk_wait": both(&|at| texts(&flow.disk_wait[at].buckets)),
            "queue_wait": by_class(&|at| texts(&flow.queue_wait[at].buckets)),
        });
    }
    if arguments.sizes {
        let sizes = |at: usize| json!({ "ind": texts(&flow.sizes[at].alone), "agg": texts(&flow.sizes[at].merged) });
        object["request_size_histogram"] = by_class(&sizes);
    }
}

fn texts(buckets: &[u64]) -> Value {
    buckets.iter().map(u64::to_string).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use protocol::IoSample;

    use super::{super::rates::tests::sample, *};

    fn mirrored(elapsed: u64, reads: u64) -> IoSample {
        let mut sample = sample(elapsed, reads);
        let device = |name: &str| IoCounts { name: name.into(), ..sample.vdevs[0].clone() };
        sample.vdevs[0].members = vec![device("/a"), device("/b")];
        sample.vdevs[0].name = "mirror-0".into();
        sample
    }

    #[test]
    fn devices_are_below_their_vdev_and_figures_come_when_asked_for() {
        let mut rates = Rates::between(Some(&mirrored(1_000_000_000, 100)), &mirrored(3_000_000_000, 300));
        let of = |rates: &Rates, arguments: &Arguments| {
            encode(std::slice::from_ref(rates), arguments)["tank"]["vdevs"]["mirror-0"].clone()
        };
        let plain = of(&rates, &Arguments::default());
        assert_eq!((&plain["vdevs"]["/b"]["read_ops"], plain.get("latency")), (&json!("100"), None));
        rates.vdevs[0].flow.disk_wait[1] = Waits { nanos: 10, buckets: vec![0, 0, 2] };
        let all = Arguments { latency: true, queues: true, waits: true, sizes: true, ..Arguments::default() };
        let all = of(&rates, &all);
        assert_eq!(all["latency"]["disk_wait"], json!({ "read": null, "write": "5" }));
        assert_eq!(all["latency_histogram"]["disk_wait"]["write"], json!(["0", "0", "2"]));
        assert_eq!(all["queues"]["trim"], json!({ "pend": "0", "activ": "0" }));
        assert_eq!(all["request_size_histogram"]["rebuild"], json!({ "ind": [], "agg": [] }));
    }
}
