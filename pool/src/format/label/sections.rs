//! Sections: what a label says about a pool beyond its top-level vdevs.
//!
//! They stand behind the payload, where old labels have zeros and so no section. A program that does not know sections
//! skips them, and learns from the name of a feature that it must not. So the writer of the first section of a kind
//! names a feature in the same label, unless old programs may [ignore](super::out_of_use) the section.
//!
//! ```text
//! sections := count varint, sections
//! section  := kind u8, length varint, payload
//! ```
//!
//! Kinds ascend, and an empty section is left out, so re-encoding a decoded label gives the same bytes. A section of a
//! kind unknown to this version is kept unchanged, so a program that only renames a pool loses nothing.

use crate::format::{
    codec::{Malformed, Reader, Writer, malformed},
    label::{
        away::{self, AllAway},
        caches::{self, CacheConfig},
        classes::{self, VdevClasses},
        ends::{self, DeviceEnds},
        out_of_use::{self, AllOutOfUse},
        spares::{self, SpareConfig},
    },
};

/// The most sections of a label.
pub const MAX_SECTIONS: usize = 16;

const CLASSES: u8 = 1;
const SPARES: u8 = 2;
const CACHES: u8 = 3;
const ENDS: u8 = 4;
const OUT_OF_USE: u8 = 5;
const AWAY: u8 = 6;

/// All sections of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// The log, special and archive vdevs.
    pub classes: VdevClasses,
    /// The spares, in use or available.
    pub spares: Vec<SpareConfig>,
    /// The cache devices.
    pub caches: Vec<CacheConfig>,
    /// The ends of shrunken devices.
    pub ends: DeviceEnds,
    /// Devices out of use, as far as no other field says why.
    pub out_of_use: AllOutOfUse,
    /// Devices of archives that are away.
    pub away: AllAway,
    /// Sections unknown to this version: kind and payload.
    pub others: Vec<(u8, Vec<u8>)>,
}

impl Sections {
    /// Appends the coded form: nothing at all if there is no section.
    pub fn encode(&self, out: &mut impl Writer) {
        let known = [
            (!self.classes.is_empty()).then(|| (CLASSES, classes::encoded(&self.classes))),
            (!self.spares.is_empty()).then(|| (SPARES, spares::encoded(&self.spares))),
            (!self.caches.is_empty()).then(|| (CACHES, caches::encoded(&self.caches))),
            (!self.ends.is_empty()).then(|| (ENDS, ends::encoded(&self.ends))),
            (!self.out_of_use.is_empty()).then(|| (OUT_OF_USE, out_of_use::encoded(&self.out_of_use))),
            (!self.away.is_empty()).then(|| (AWAY, away::encoded(&self.away))),
        ];
        let mut sections: Vec<_> = known.into_iter().flatten().chain(self.others.iter().cloned()).collect();
        sections.sort_by_key(|(kind, _)| *kind);
        if sections.is_empty() {
            return;
        }
        out.put_varint(sections.len() as u64);
        for (kind, payload) in sections {
            out.put_u8(kind);
            out.put_prefixed(&payload);
        }
    }

    /// Takes the sections off the reader, which must not be empty. Bytes behind them are left.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Sections, Malformed> {
        const WHAT: &str = "sections of a label";
        let count = reader.varint(WHAT)?;
        if count > MAX_SECTIONS as u64 {
            return malformed(WHAT);
        }
        let mut sections = Sections::default();
        let mut last = 0;
        for _ in 0..count {
            let kind = reader.u8(WHAT)?;
            let payload = reader.prefixed(WHAT)?;
            if kind <= last {
                return malformed("order of sections");
            }
            last = kind;
            match kind {
                CLASSES => sections.classes = classes::decode(payload)?,
                SPARES => sections.spares = spares::decode(payload)?,
                CACHES => sections.caches = caches::decode(payload)?,
                ENDS => sections.ends = ends::decode(payload)?,
                OUT_OF_USE => sections.out_of_use = out_of_use::decode(payload)?,
                AWAY => sections.away = away::decode(payload)?,
                kind => sections.others.push((kind, payload.to_vec())),
            }
        }
        Ok(sections)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        format::{
            label::{LABEL_SIZE, classes::VdevClass, out_of_use::OutOfUse},
            uberblock::Epoch,
            vdev_config::{Behind, LeafConfig, Mark},
        },
        units::{Guid, Txg, VdevId},
    };

    fn leaf(guid: u64, path: String) -> LeafConfig {
        LeafConfig { guid: Guid(guid), size: guid.rotate_left(7), path }
    }

    fn encoded(sections: &Sections) -> Vec<u8> {
        let mut out = Vec::new();
        sections.encode(&mut out);
        out
    }

    fn decoded(bytes: &[u8]) -> Result<Sections, Malformed> {
        let mut reader = Reader::new(bytes);
        let sections = Sections::decode(&mut reader)?;
        reader.finish("end of sections")?;
        Ok(sections)
    }

    #[test]
    fn nothing_to_say_is_no_byte() {
        assert_eq!(encoded(&Sections::default()), []);
        assert_eq!(decoded(&[0]), Ok(Sections::default()));
    }

    #[test]
    fn what_no_program_writes_is_refused() {
        let end = |end: u8| [1, 4, 10, 1, 5, 0, 0, 0, 0, 0, 0, 0, end];
        let away = |devices: &[u8]| {
            let mut bytes = vec![1, 6, 1 + 26 * devices.len() as u8, devices.len() as u8];
            for device in devices {
                bytes.extend([*device, 0, 0, 0, 0, 0, 0, 0]);
                bytes.extend([[1, 0, 0, 0, 0, 0, 0, 0, 9], [1, 0, 0, 0, 0, 0, 0, 0, 10]].as_flattened());
            }
            bytes
        };
        let (ascending, twice, descending) = (away(&[7, 8]), away(&[7, 7]), away(&[8, 7]));
        assert_eq!(decoded(&ascending).map(|sections| sections.away.len()), Ok(2));
        let refused: [(&[u8], &str); 21] = [
            (&[17], "sections of a label"),
            (&[1, 4, 2, 0], "sections of a label"),
            (&[1, 0, 0], "order of sections"),
            (&[2, 9, 0, 8, 0], "order of sections"),
            (&[2, 9, 0, 9, 0], "order of sections"),
            (&[1, 1, 1, 0], "classes of vdevs"),
            (&[1, 1, 3, 1, 5, 0], "class of a vdev"),
            (&[1, 1, 5, 2, 5, 1, 5, 2], "order of classes"),
            (&[1, 2, 1, 0], "number of spares"),
            (&[1, 4, 1, 0], "ends of devices"),
            (&end(7), "end of a device"),
            (&[1, 5, 1, 0], "devices out of use"),
            (&[1, 5, 10, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0], "devices out of use"),
            (&[1, 5, 11, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0], "end of devices out of use"),
            (&[1, 5, 19, 2, 7, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1], "devices out of use"),
            (&[1, 6, 1, 0], "devices of archives that are away"),
            (&[1, 6, 2, 0x81, 2], "devices of archives that are away"),
            (&twice, "devices of archives that are away"),
            (&descending, "devices of archives that are away"),
            (&[&[1, 6, 28], &ascending[3..30], &[0]].concat(), "devices of archives that are away"),
            (&[&[1, 6, 28, 1], &ascending[4..30], &[0]].concat(), "end of the devices that are away"),
        ];
        for (bytes, what) in refused {
            assert_eq!(decoded(bytes), Err(Malformed { what }), "{bytes:?}");
        }
    }

    #[test]
    fn a_kind_of_later_is_kept() {
        let bytes = [2, 1, 3, 1, 4, 2, 200, 2, 0xaa, 0xbb];
        let sections = decoded(&bytes).unwrap();
        assert_eq!(sections.others, [(200, vec![0xaa, 0xbb])]);
        assert_eq!(encoded(&sections), bytes);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn round_trips(
            classes in prop::collection::btree_map(any::<u32>(), 1u8..9, 0..8),
            spares in prop::collection::btree_map(any::<u64>(), ".{0,40}", 0..6),
            caches in prop::collection::btree_map(any::<u64>(), ".{0,40}", 0..6),
            ends in prop::collection::btree_map(any::<u64>(), 6u64..1 << 40, 0..6),
            out_of_use in prop::collection::btree_map(any::<u64>(), 1u8..9, 0..6),
            away in prop::collection::btree_map(any::<u64>(), any::<(u64, u32, u64, u32)>(), 0..6),
            others in prop::collection::btree_map(7u8.., prop::collection::vec(any::<u8>(), 0..20), 0..6),
        ) {
            let class = |code| VdevClass::from_code(code).unwrap();
            let why = |code| OutOfUse::from_code(code).unwrap();
            let mark = |epoch, txg: u32| Mark { epoch: Epoch(epoch), txg: Txg(txg.into()) };
            let sections = Sections {
                classes: classes.into_iter().map(|(id, code)| (VdevId(id), class(code))).collect(),
                spares: spares.into_iter().map(|(guid, path)| SpareConfig { leaf: leaf(guid, path) }).collect(),
                caches: caches.into_iter().map(|(guid, path)| CacheConfig { leaf: leaf(guid, path) }).collect(),
                ends: ends.into_iter().map(|(guid, end)| (Guid(guid), end * LABEL_SIZE)).collect(),
                out_of_use: out_of_use.into_iter().map(|(guid, code)| (Guid(guid), why(code))).collect(),
                away: (away.into_iter())
                    .map(|(guid, (has, at, may, then))| (Guid(guid), Behind { has: mark(has, at), may_have: mark(may, then) }))
                    .collect(),
                others: others.into_iter().collect(),
            };
            let mut bytes = encoded(&sections);
            if bytes.is_empty() {
                bytes.push(0);
            }
            prop_assert_eq!(decoded(&bytes), Ok(sections));
        }

        #[test]
        fn garbage_never_panics_and_is_read_as_what_it_is_written_as(
            bytes in prop::collection::vec(prop_oneof![0u8..7, any::<u8>()], 1..80),
        ) {
            let mut reader = Reader::new(&bytes);
            if let Ok(sections) = Sections::decode(&mut reader) {
                let again = encoded(&sections);
                prop_assert_eq!(decoded(if again.is_empty() { &[0] } else { &again }), Ok(sections));
            }
        }
    }
}
