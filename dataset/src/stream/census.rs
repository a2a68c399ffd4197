//! The sender's datasets and their snapshots, by GUID, for a replication.
//!
//! An incremental stream contains additions only, and says nothing of destroyed or renamed datasets and snapshots. So
//! an incremental replication begins with a census of the sender, and a receiver with the right option can follow. A
//! census takes as many records as needed, within a limit. The number of datasets is limited as well, because a name
//! takes far more memory than bytes in a record. So the reader's memory is bounded too.

use pool::{
    format::codec::{Malformed, Reader, Writer, malformed},
    units::Guid,
};

use super::frame::MAX_PAYLOAD;

/// The most records of one census.
pub(super) const MOST_RECORDS: usize = 16;
/// The most datasets in one census; a dataset listed several times counts each time.
const MOST_DATASETS: usize = 1 << 18;
/// The least bytes of a snapshot in a record.
const LEAST_ENTRY: u64 = 10;
/// The most bytes of a coded length.
const MAX_VARINT: usize = 10;

/// The sender's datasets within a replication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The datasets, by their full names in the sending pool. A name may be listed several times.
    pub datasets: Vec<Counted>,
}

/// A dataset in a census.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The full name in the sending pool.
    pub dataset: String,
    /// The snapshots: GUIDs, and names without the dataset's.
    pub snapshots: Vec<(Guid, String)>,
}

impl Census {
    /// All names, of datasets and of snapshots.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.datasets.iter().flat_map(|counted| {
            let snapshots = counted.snapshots.iter().map(|(_, name)| name.as_str());
            snapshots.chain([counted.dataset.as_str()])
        })
    }

    /// The payloads of the records; `None` if a limit is exceeded.
    pub(super) fn encode(&self) -> Option<Vec<Vec<u8>>> {
        let (mut payloads, mut entries) = (vec![Vec::new()], 0);
        for Counted { dataset, snapshots } in &self.datasets {
            let mut rest = snapshots.as_slice();
            loop {
                let last = payloads.last_mut().expect("it begins with one");
                let room = MAX_PAYLOAD.saturating_sub(last.len() + 2 * MAX_VARINT + dataset.len());
                let fitting = fitting(rest, room);
                if room > 0 && (fitting > 0 || rest.is_empty()) {
                    put(last, dataset, &rest[..fitting]);
                    entries += 1;
                    rest = &rest[fitting..];
                    if rest.is_empty() {
                        break;
                    }
                }
                assert!(!last.is_empty(), "names are far shorter than a record");
                payloads.push(Vec::new());
            }
        }
        (payloads.len() <= MOST_RECORDS && entries <= MOST_DATASETS).then_some(payloads)
    }

    /// Appends the content of one record.
    pub(super) fn extend(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        const WHAT: &str = "census of a package";
        let mut reader = Reader::new(payload);
        while reader.remaining() > 0 {
            let dataset = text(&mut reader, WHAT)?;
            let count = reader.varint(WHAT)?;
            let is_vain = count == 0 && self.datasets.last().is_some_and(|last| last.dataset == dataset);
            let is_beyond = count > reader.remaining() as u64 / LEAST_ENTRY || self.datasets.len() == MOST_DATASETS;
            if is_vain || is_beyond {
                return malformed(WHAT);
            }
            let snapshots = (0..count).map(|_| Ok((Guid(reader.u64(WHAT)?), text(&mut reader, WHAT)?)));
            self.datasets.push(Counted { dataset, snapshots: snapshots.collect::<Result<_, Malformed>>()? });
        }
        Ok(())
    }
}

/// The number of `snapshots` that fit into `room` bytes.
fn fitting(snapshots: &[(Guid, String)], room: usize) -> usize {
    let ends = snapshots.iter().scan(0, |end, (_, name)| {
        *end += size_of::<u64>() + MAX_VARINT + name.len();
        Some(*end)
    });
    ends.take_while(|end| *end <= room).count()
}

fn put(out: &mut Vec<u8>, dataset: &str, snapshots: &[(Guid, String)]) {
    out.put_prefixed(dataset.as_bytes());
    out.put_varint(snapshots.len() as u64);
    for (guid, name) in snapshots {
        out.put_u64(guid.0);
        out.put_prefixed(name.as_bytes());
    }
}

fn text(reader: &mut Reader<'_>, what: &'static str) -> Result<String, Malformed> {
    let text = reader.text(what)?;
    if text.is_empty() { malformed(what) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(payloads: &[Vec<u8>]) -> Census {
        let mut read = Census::default();
        for payload in payloads {
            assert!(payload.len() <= MAX_PAYLOAD);
            read.extend(payload).unwrap();
        }
        read
    }

    proptest! {
        #[test]
        fn a_census_round_trips(datasets in prop::collection::vec(
            ("[a-z/]{1,9}", prop::collection::vec((any::<u64>(), "[a-z]{1,9}"), 0..5)), 0..5)
        ) {
            let counted = |(dataset, snapshots): (String, Vec<(u64, String)>)| {
                let snapshots = snapshots.into_iter().map(|(guid, name)| (Guid(guid), name)).collect();
                Counted { dataset, snapshots }
            };
            let mut census = Census { datasets: datasets.into_iter().map(counted).collect() };
            census.datasets.dedup_by(|next, before| next.dataset == before.dataset);
            prop_assert_eq!(read(&census.encode().unwrap()), census);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Census::default().extend(&bytes);
        }
    }

    #[test]
    fn a_census_of_nothing_but_names_is_bounded() {
        let entry = |name: &str| {
            let mut out = Vec::new();
            put(&mut out, name, &[]);
            out
        };
        let read = |payload: &[u8]| Census::default().extend(payload);
        read(&[entry("a"), entry("b")].concat()).unwrap();
        read(&[entry("a"), entry("a")].concat()).unwrap_err();
        let mut census = Census::default();
        let many = [entry("a"), entry("b")].concat().repeat(MOST_DATASETS / 2);
        many.chunks(6 << 16).for_each(|payload| census.extend(payload).unwrap());
        assert_eq!(census.datasets.len(), MOST_DATASETS);
        assert!(census.encode().is_some());
        census.extend(&entry("c")).unwrap_err();
        census.datasets.push(Counted { dataset: "c".into(), snapshots: Vec::new() });
        assert_eq!(census.encode(), None);
    }

    #[test]
    fn many_snapshots_take_several_records_and_too_many_none() {
        let of = |count: u64| {
            let snapshots: Vec<_> = (0..count).map(|guid| (Guid(guid), "n".repeat(200))).collect();
            let few = Counted { dataset: "tank/few".into(), snapshots: vec![(Guid(1), "a".into())] };
            Census { datasets: vec![Counted { dataset: "tank".into(), snapshots }, few] }
        };
        let census = of(20_000);
        let payloads = census.encode().unwrap();
        assert!(payloads.len() > 2);
        let all: Vec<_> = read(&payloads).datasets.into_iter().flat_map(|counted| counted.snapshots).collect();
        let expected: Vec<_> = census.datasets.into_iter().flat_map(|counted| counted.snapshots).collect();
        assert_eq!(all, expected);
        assert_eq!(of(400_000).encode(), None);
    }
}
