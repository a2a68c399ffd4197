//! A device was copied onto another one: two devices claim to be the same member.

use super::*;

/// The whole content of a device.
fn content(of: &Disk) -> Vec<u8> {
    let mut content = vec![0; of.size() as usize];
    of.read_at(0, &mut content).unwrap();
    content
}

#[test]
fn an_older_copy_is_neither_used_nor_written_to() {
    for is_copy_first in [false, true] {
        let disks = disks("a b");
        let pool = mirror(&disks);
        disks[1].vanish();
        let before = commit(&pool, 2);
        // No label is written after this, so only uberblocks tell the two apart.
        let copy = copied(&disks[0]);
        let newest = commit(&pool, 3);
        assert!(newest > before);
        drop(pool);
        let held = content(&copy);
        let both = if is_copy_first { [&copy, &disks[0]] } else { [&disks[0], &copy] };
        assert_eq!(shown(opened_with(&both, &reading(None), 3).unwrap().engine()), newest);
        assert_eq!(
            rewind_states(&both.map(|disk| disk.clone() as Arc<dyn Device>), &writing()).unwrap()[0].txg,
            newest
        );
        let pool = opened(&both, 4).unwrap();
        assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Complete, State::Out]));
        assert_eq!(Arc::strong_count(&copy), 1, "nobody holds it, nor keeps it locked");
        let newest = commit(&pool, 2);
        drop(pool);
        assert!(content(&copy) == held, "the copy is as it was");
        assert_eq!(alone(&disks[0]), newest);
    }
}

#[test]
fn a_copy_from_before_the_last_import_is_older_by_its_label() {
    for is_copy_first in [false, true] {
        let disk = disk("a");
        drop(mirror(&[disk.clone(), self::disk("b")]));
        let copy = copied(&disk);
        drop(opened(&[&disk], 3).unwrap());
        let held = content(&copy);
        let both = if is_copy_first { [&copy, &disk] } else { [&disk, &copy] };
        let pool = opened(&both, 4).unwrap();
        let newest = commit(&pool, 1);
        drop(pool);
        assert!(content(&copy) == held);
        assert_eq!(alone(&disk), newest);
    }
}

#[test]
fn of_two_that_are_equally_new_the_first_given_counts() {
    let disks = disks("a b");
    drop(mirror(&disks));
    let same = copied(&disks[0]);
    let held = content(&same);
    let pool = opened(&[&disks[0], &same, &disks[1]], 4).unwrap();
    assert_eq!(states(&pool), [State::Complete; 2]);
    let newest = commit(&pool, 1);
    drop(pool);
    assert!(content(&same) == held);
    assert_eq!((alone(&disks[0]), alone(&disks[1])), (newest, newest));
}
