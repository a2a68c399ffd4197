//! Members being resilvered, and columns with two members.

use super::*;

#[test]
fn a_resilvering_member_gets_its_column_and_is_not_read() {
    let world = World::new(4, 1);
    let old = noise(7, 70 * world.row() as usize - 300);
    world.raidz.write(0, &old).unwrap();
    world.devices[2].vanish();
    let new = noise(8, 2 * world.row() as usize);
    let fresh = device(7);
    let joined = member(7, 2, &fresh, State::Resilvering);
    let members = world.raidz.group.members().iter().cloned().chain([joined.clone()]).collect();
    world.raidz.group.set_members(members);
    let at = 100 * world.row();
    world.raidz.write(at, &new).unwrap();
    assert_eq!(world.states(), [State::Complete, State::Complete, State::Out, State::Complete, State::Resilvering]);
    assert!(!world.raidz.degrade(Guid(0), Health::Faulted), "the new one does not have everything");
    assert_eq!(world.raidz.committing().len(), 3, "no uberblock before it has everything");
    let (is_good, bad) = world.examined(0, &old);
    assert!(is_good && bad.is_empty());
    world.raidz.resilver(0, &Arc::new(old.clone())).unwrap();
    assert!(world.raidz.group.resilvered(&[Guid(7)], world.raidz.group.round()));
    joined.leaf.note_uberblock(Txg(9));
    world.raidz.committed();
    assert_eq!(joined.state(), State::Complete);
    // The new member makes up for the loss of any device.
    assert!(world.raidz.degrade(Guid(0), Health::Faulted));
    assert_eq!((world.examined(0, &old), world.examined(at, &new)), ((true, vec![]), (true, vec![])));
    assert!(!world.raidz.degrade(Guid(7), Health::Faulted));
}

#[test]
fn resilvering_members_help_where_complete_ones_do_not_suffice() {
    for spoil in [Fault::corrupting(0..u64::MAX), Fault::failing(Operation::Read)] {
        let world = World::new(4, 2);
        let block = noise(7, 5 * world.row() as usize);
        world.raidz.write(0, &block).unwrap();
        for gone in [1, 2] {
            let found: Arc<dyn Device> = world.devices[gone as usize].clone();
            world.raidz.degrade(Guid(gone), Health::Faulted);
            world.raidz.group.take_back(Guid(gone), found, Behind::default());
        }
        world.devices[0].inject(spoil.clone());
        let mut bytes = vec![0; block.len()];
        let is_good = |read: &[u8]| read == block;
        let simple = world.raidz.read_checked(0, &mut bytes, &is_good);
        assert!(matches!(simple, Ok(Found::Bad) | Err(_)), "without a checksum it may be anything");
        // One member being resilvered lacks the block, the rest suffice.
        world.spoil(2, 0, block.len());
        assert_eq!(world.raidz.read_surely(0, &mut bytes, &is_good).unwrap(), Found::Elsewhere);
        assert_eq!(bytes, block);
        assert_eq!(world.checksum_errors()[1..3], [0, 0]);
    }
}

#[test]
fn two_members_of_a_column_are_one_that_is_complete() {
    let world = World::new(3, 1);
    let block = noise(9, 6 * world.row() as usize);
    world.twin();
    world.raidz.write(0, &block).unwrap();
    assert!(world.raidz.degrade(Guid(1), Health::Faulted));
    assert!(!world.raidz.degrade(Guid(2), Health::Faulted), "the two that would be left hold the same");
    assert!(world.raidz.degrade(Guid(0), Health::Faulted), "its twin holds the same");
    assert_eq!(world.examined(0, &block), (true, vec![]));
    assert!(!world.raidz.degrade(Guid(7), Health::Faulted));
    assert!(!world.raidz.degrade(Guid(2), Health::Faulted));
}

#[test]
fn each_of_two_members_of_a_column_is_examined() {
    let world = World::new(3, 1);
    let block = noise(9, 6 * world.row() as usize);
    let twin = world.twin();
    world.raidz.write(0, &block).unwrap();
    twin.write_at(DATA_START, &noise(3, 100)).unwrap();
    assert_eq!(world.examined(0, &block), (true, vec![Guid(7)]));
    world.spoil(0, 0, block.len());
    assert_eq!(world.examined(0, &block), (true, vec![Guid(0), Guid(7)]));
}

#[test]
fn a_bulk_read_of_all_fails_if_members_of_a_column_differ() {
    let world = World::new(3, 1);
    let block = noise(9, 6 * world.row() as usize);
    let twin = world.twin();
    world.raidz.write(0, &block).unwrap();
    assert!(begun(&world.raidz, 0, &block, Sources::All));
    twin.inject(Fault::corrupting(DATA_START + SECTOR..DATA_START + SECTOR + 1));
    assert!(!begun(&world.raidz, 0, &block, Sources::All), "what the second one holds is wrong");
    assert!(begun(&world.raidz, 0, &block, Sources::Any), "nobody asks for it");
}

/// A device is being replaced: the new device is complete, the old one returns wrong bytes, nothing is lost.
#[test]
fn the_second_member_of_a_column_is_read_if_the_first_is_bad() {
    let world = World::new(3, 1);
    let block = noise(9, 6 * world.row() as usize);
    world.twin();
    world.raidz.write(0, &block).unwrap();
    world.spoil(0, 0, block.len());
    world.spoil(1, 0, block.len());
    let mut bytes = vec![0; block.len()];
    assert_eq!(world.raidz.read_surely(0, &mut bytes, &|read| read == block).unwrap(), Found::Elsewhere);
    assert_eq!(bytes, block);
    // An examine finds both bad members, and the right content.
    assert_eq!(world.examined(0, &block), (true, vec![Guid(0), Guid(1)]));
    // Without a known checksum only complete members count.
    assert!(world.raidz.examine(0, block.len(), &|read| read == block).good.is_none());
}

/// In one column the second member has the block, in another the first.
#[test]
fn members_of_columns_that_have_two_are_tried_with_each_other() {
    let world = World::new(3, 1);
    let block = noise(11, 6 * world.row() as usize);
    let twins = [device(7), device(8)];
    let doubles = (0..2).map(|column| member(7 + column, column as usize, &twins[column as usize], State::Resilvering));
    world.raidz.group.set_members(world.raidz.group.members().iter().cloned().chain(doubles).collect());
    world.raidz.write(0, &block).unwrap();
    world.raidz.degrade(Guid(2), Health::Faulted);
    world.spoil(0, 0, block.len());
    twins[1].inject(Fault::corrupting(0..u64::MAX));
    let mut bytes = vec![0; block.len()];
    assert_eq!(world.raidz.read_surely(0, &mut bytes, &|read| read == block).unwrap(), Found::Elsewhere);
    assert_eq!(bytes, block);
}

#[test]
fn a_column_alone_is_what_it_is_among_the_others() {
    for (columns, parity) in shapes() {
        let world = World::new(columns, parity);
        let row = world.row();
        // Within a band, over several, and with a last row that is full, short, or a part of a sector.
        for (first, len) in
            [(0, 1), (1, row - 1), (60, 9 * row + SECTOR + 7), (10, 60 * row + 3), (10, 2 * row - SECTOR)]
        {
            let bytes = noise(first, len as usize);
            let rows = world.raidz.whole_rows(first * row, bytes.len()).unwrap();
            let all = world.raidz.columns_of(&rows, &bytes);
            for (column, held) in all.iter().enumerate() {
                assert!(world.raidz.column_of(&rows, &bytes, column) == *held, "{columns}-{parity}: {column} of {len}");
            }
        }
    }
}
