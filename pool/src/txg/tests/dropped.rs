//! The space dropped by a tree in the open group: the maintained sum beside a walk of the dropped blocks.

use super::*;

/// The maintained sum, compared with a walk.
fn dropped(head: &Head) -> u64 {
    let sum = head.dropped();
    assert_eq!(sum, head.count_dropped());
    sum
}

#[test]
fn what_was_dropped_is_known_without_a_walk() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 1);
    head.set_newest_snapshot(Txg::ZERO);
    (0..20).for_each(|offset| put(&head, offset, 1, 100_000));
    assert_eq!(dropped(&head), 0, "nothing was stored yet");
    let first = engine.commit().unwrap();
    (0..10).for_each(|offset| put(&head, offset, 2, 100_000));
    let of_ten = dropped(&head);
    assert!(of_ten > 0);
    head.set_newest_snapshot(first);
    assert_eq!(dropped(&head), 0, "a snapshot keeps all of it");
    (10..15).for_each(|offset| put(&head, offset, 2, 100_000));
    assert_eq!(dropped(&head), 0);
    head.set_newest_snapshot(Txg::ZERO);
    assert!(dropped(&head) > of_ten, "the snapshot is gone");
    engine.commit().unwrap();
    assert_eq!(dropped(&head), 0, "the group is written");
    put(&head, 0, 3, 100_000);
    assert!(dropped(&head) > 0);
    engine.commit().unwrap();
    let (root, level) = head.clean_root().unwrap();
    put(&head, 1, 3, 100_000);
    let quiet = head.exclude_changes();
    head.replace(root, level);
    drop(quiet);
    assert_eq!(dropped(&head), 0, "another tree stands there");
}

#[test]
fn the_sum_of_what_was_dropped_is_right_at_every_step() {
    let (engine, head) = create(Arc::new(MemoryDevice::new("disk", 128 * MIB)), 2);
    let random = SeededEnv::new(3);
    for step in 0..600 {
        match random.random() % 16 {
            0 => _ = engine.commit().unwrap(),
            1 => head.set_newest_snapshot(engine.committed().back(random.random() % 3)),
            _ => put(&head, random.random() % 50, step as u8, 1 + (random.random() % 20_000) as usize),
        }
        dropped(&head);
    }
}
