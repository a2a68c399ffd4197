//! Tests of the label's coding: round trips, damage anywhere, garbage, and the rules for opening.

use proptest::prelude::*;

use super::*;
use crate::{
    error::ErrorKind,
    format::vdev_config::{LeafConfig, VdevTree},
};

/// A label of a pool of two devices, for tests here and of label I/O.
pub(crate) fn sample(txg: u64) -> Label {
    let leaf = |id: u32| VdevConfig {
        id: VdevId(id),
        tree: VdevTree::Leaf(LeafConfig { guid: Guid(1000 + u64::from(id)), size: 1 << 30, path: format!("/d/{id}") }),
    };
    Label {
        pool_name: "tank".to_owned(),
        pool: Guid(77),
        state: PoolState::Active,
        txg: Txg(txg),
        epoch: Epoch(5),
        host_id: 99,
        host_name: "well".to_owned(),
        ashift: 12,
        region_size: 16 * MIB,
        created: 1_767_225_600_000_000_000,
        features: BTreeMap::new(),
        device: Guid(1000),
        vdev: VdevId(0),
        vdevs: vec![leaf(0), leaf(1)],
        sections: Sections::default(),
    }
}

/// `body` with another content and a matching checksum.
fn resealed(mut body: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut body);
    body.truncate(CHECKSUM_AT);
    let checksum = checksum(&body, BODY_AT);
    body.put_bytes(&checksum);
    body
}

#[test]
fn the_parts_of_a_label_fill_it_without_overlap() {
    assert_eq!(BODY_AT + BODY_SIZE as u64, RING_AT);
    assert_eq!(RING_AT + RING_SIZE as u64, LABEL_SIZE);
    assert_eq!(RING_SIZE, crate::format::uberblock::RING_SLOTS as usize * UBERBLOCK_SIZE);
    const { assert!(2 * LABEL_SIZE <= DATA_START) };
    let size = 64 * MIB + 1000;
    let [l0, l1, l2, l3] = label_offsets(size);
    assert_eq!((l0, l1, l3 + LABEL_SIZE), (0, LABEL_SIZE, 64 * MIB));
    assert_eq!(DATA_START + usable_size(size), l2);
    assert_eq!(usable_size(100), 0);
    assert_eq!(uberblock_offset(l1, Txg(33)), LABEL_SIZE + RING_AT + 4096);
}

#[test]
fn every_flipped_byte_is_noticed() {
    let mut body = sample(7).encode(BODY_AT).unwrap();
    for at in 0..body.len() {
        // The padding is covered by the same hash; checking it in strides keeps the test quick.
        if (1024..CHECKSUM_AT).contains(&at) && at % 61 != 0 {
            continue;
        }
        body[at] ^= 1 << (at % 8);
        assert!(Label::decode(&body, BODY_AT).is_err(), "byte {at}");
        body[at] ^= 1 << (at % 8);
    }
    assert_eq!(Label::decode(&body, BODY_AT).unwrap(), sample(7));
}

#[test]
fn a_label_in_the_wrong_place_is_refused() {
    let body = sample(7).encode(BODY_AT).unwrap();
    let error = Label::decode(&body, LABEL_SIZE + BODY_AT).unwrap_err();
    assert_eq!(error.to_string(), "damaged label at byte 266240: malformed checksum of a label");
}

#[test]
fn another_version_is_unsupported_and_not_damaged() {
    let body = resealed(sample(7).encode(BODY_AT).unwrap(), |body| body[8] = 9);
    assert_eq!(Label::decode(&body, BODY_AT).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn numbers_beyond_all_bounds_are_damage() {
    for label in [sample(Txg::LIMIT.0), sample(u64::MAX), Label { region_size: 2 * MAX_REGION, ..sample(7) }] {
        let read = Label::decode(&label.encode(BODY_AT).unwrap(), BODY_AT);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Damage);
    }
}

#[test]
fn a_device_that_is_being_added_does_not_outvote_the_pool() {
    let added = sample(0);
    let [mut fresh, mut used] = [sample(0), sample(9)];
    fresh.vdevs.truncate(1);
    used.vdevs.truncate(1);
    assert!(fresh.supersedes(&added) && !added.supersedes(&fresh));
    assert!(used.supersedes(&added) && sample(10).supersedes(&used));
    assert!(!used.supersedes(&used));
}

#[test]
fn an_unknown_feature_is_refused_by_name_or_opened_read_only() {
    let mut label = sample(7);
    label.features.insert("later:holograms".to_owned(), Compatibility::Read);
    assert!(label.check_supported(false).is_ok());
    let error = label.check_supported(true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("later:holograms") && error.to_string().contains("read-only"));
    label.features.insert("later:time".to_owned(), Compatibility::None);
    assert!(label.check_supported(false).unwrap_err().to_string().contains("later:time"));
}

#[test]
fn an_unknown_kind_of_vdev_is_read_and_refused_by_name() {
    let mut label = sample(7);
    label.vdevs[1].tree = VdevTree::Other { kind: 4, payload: vec![0; 40] };
    let read = Label::decode(&label.encode(BODY_AT).unwrap(), BODY_AT).unwrap();
    assert_eq!(read, label);
    assert!(read.check_supported(false).unwrap_err().to_string().contains("draid"));
}

/// A label with a section of each kind, and one of a later version.
fn sectioned() -> Label {
    let leaf = |guid| LeafConfig { guid: Guid(guid), size: 1 << 20, path: "/d/x".to_owned() };
    let sections = Sections {
        ends: Default::default(),
        classes: BTreeMap::from([(VdevId(1), VdevClass::Special)]),
        spares: vec![spares::SpareConfig { leaf: leaf(1) }],
        caches: vec![caches::CacheConfig { leaf: leaf(2) }],
        others: vec![(9, vec![1, 2, 3])],
        ..Sections::default()
    };
    Label { sections, ..sample(7) }
}

#[test]
fn sections_stand_behind_the_payload_and_old_programs_skip_them() {
    let (with, without) = (sectioned().encode(BODY_AT).unwrap(), sample(7).encode(BODY_AT).unwrap());
    assert_eq!(Label::decode(&with, BODY_AT).unwrap(), sectioned());
    let (_, payload, behind) = verify(&with, BODY_AT).unwrap();
    assert_eq!(payload, verify(&without, BODY_AT).unwrap().1);
    assert!(behind.starts_with(&[4, 1]));
    assert!(verify(&without, BODY_AT).unwrap().2.iter().all(|&byte| byte == 0));
}

#[test]
fn a_body_that_vdevs_fill_has_no_room_for_sections() {
    let mut label = sample(7);
    let empty = verify(&label.encode(BODY_AT).unwrap(), BODY_AT).unwrap().2.len();
    let filler = |len: usize| VdevConfig { id: VdevId(9), tree: VdevTree::Other { kind: 5, payload: vec![0; len] } };
    // The id, the kind and three bytes of length.
    label.vdevs.push(filler(empty - 5));
    let full = label.encode(BODY_AT).unwrap();
    assert_eq!(verify(&full, BODY_AT).unwrap().2.len(), 0);
    assert_eq!(Label::decode(&full, BODY_AT).unwrap(), label);
    label.sections.others.push((9, Vec::new()));
    assert_eq!(label.encode(BODY_AT).unwrap_err().kind(), ErrorKind::Request);
}

#[test]
fn a_class_of_a_missing_vdev_is_damage_and_unknown_is_refused() {
    let absent = resealed(sectioned().encode(BODY_AT).unwrap(), |body| {
        let at = HEADER + verify(body, BODY_AT).unwrap().1.len();
        assert_eq!(body[at..at + 6], [4, 1, 3, 1, 1, 2]);
        body[at + 4] = 5;
    });
    let error = Label::decode(&absent, BODY_AT).unwrap_err();
    assert_eq!(error.to_string(), "damaged label at byte 4096: malformed class of a vdev that is not there");
    let mut later = sectioned();
    assert!(later.check_supported(true).is_ok());
    later.sections.classes.insert(VdevId(0), VdevClass::Other(7));
    let read = Label::decode(&later.encode(BODY_AT).unwrap(), BODY_AT).unwrap();
    assert!(read.check_supported(false).unwrap_err().to_string().contains("class 7"));
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_written() {
    let mut label = sample(7);
    label.pool_name = "x".repeat(MAX_POOL_NAME + 1);
    assert_eq!(label.encode(BODY_AT).unwrap_err().kind(), ErrorKind::Request);
    let mut label = sample(7);
    let path = "p".repeat(vdev_config::MAX_PATH);
    label.vdevs = (0..40)
        .map(|id| VdevConfig {
            id: VdevId(id),
            tree: VdevTree::Leaf(LeafConfig { guid: Guid(1), size: 1, path: path.clone() }),
        })
        .collect();
    assert_eq!(label.encode(BODY_AT).unwrap_err().kind(), ErrorKind::Request);
    label.vdevs.truncate(20);
    assert!(label.encode(BODY_AT).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trips(
        name in ".{0,60}", host in ".{0,60}", numbers: [u64; 6], ashift in 9u8..=16, region in 16u32..=40,
        state in 1u8..=3, created: i64, features in prop::collection::btree_map(".{0,20}", any::<bool>(), 0..8),
        paths in prop::collection::vec(".{0,80}", 0..20), offset: u64,
    ) {
        let compatibility = |read| if read { Compatibility::Read } else { Compatibility::None };
        let vdevs = paths.into_iter().enumerate().map(|(n, path)| VdevConfig {
            id: VdevId(n as u32 * 3),
            tree: VdevTree::Leaf(LeafConfig { guid: Guid(numbers[0] ^ n as u64), size: numbers[1], path }),
        }).collect();
        let label = Label {
            pool_name: name,
            pool: Guid(numbers[0]),
            state: decode_state(state).unwrap(),
            txg: Txg(numbers[1] % Txg::LIMIT.0),
            epoch: Epoch(numbers[2]),
            host_id: numbers[3],
            host_name: host,
            ashift,
            region_size: 1 << region,
            created,
            features: features.into_iter().map(|(name, read)| (name, compatibility(read))).collect(),
            device: Guid(numbers[4]),
            vdev: VdevId(numbers[5] as u32),
            vdevs,
            sections: Sections::default(),
        };
        let body = label.encode(offset).unwrap();
        prop_assert_eq!(body.len(), BODY_SIZE);
        prop_assert_eq!(Label::decode(&body, offset).unwrap(), label);
    }

    #[test]
    fn garbage_under_a_good_checksum_never_panics(
        garbage in prop::collection::vec(any::<u8>(), 1..200), at in 12usize..300,
    ) {
        let body = resealed(sample(7).encode(BODY_AT).unwrap(), |body| {
            body[at..at + garbage.len()].copy_from_slice(&garbage);
        });
        if let Ok(label) = Label::decode(&body, BODY_AT) {
            prop_assert_eq!(Label::decode(&label.encode(BODY_AT).unwrap(), BODY_AT).unwrap(), label);
        }
    }

    #[test]
    fn garbage_and_truncation_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), len in 0..BODY_SIZE) {
        prop_assert!(Label::decode(&bytes, 0).is_err());
        prop_assert!(Label::decode(&sample(7).encode(BODY_AT).unwrap()[..len], BODY_AT).is_err());
    }
}
