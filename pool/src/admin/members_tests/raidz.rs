//! RAID-Z pools whose devices are missing, fail, return, rot and are replaced, at every power failure.

use super::*;
use crate::{format::vdev_config::VdevConfig, vdev::uberblocks};

/// A pool of one RAID-Z.
pub(in crate::admin) fn raidz_of(parity: u8, devices: Vec<Arc<dyn Device>>) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let vdev = NewVdev::RaidZ { parity, devices };
    let pool = create_of(&[vdev], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

pub(in crate::admin) fn raidz(parity: u8, of: &[Disk]) -> Pool {
    raidz_of(parity, of.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect())
}

pub(in crate::admin) fn names(count: usize) -> Vec<Disk> {
    ["a", "b", "c", "d", "e", "f"][..count].iter().map(|name| disk(name)).collect()
}

/// All sets of at most `most` out of `count`.
pub(in crate::admin) fn sets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let some = (0..1u32 << count).filter(|set| set.count_ones() as usize <= most);
    some.map(|set| (0..count).filter(|at| set & 1 << at != 0).collect()).collect()
}

pub(in crate::admin) fn without<'a>(disks: &'a [Disk], missing: &[usize]) -> Vec<&'a Disk> {
    disks.iter().enumerate().filter(|(at, _)| !missing.contains(at)).map(|(_, disk)| disk).collect()
}

fn described(pool: &Pool) -> Vec<bool> {
    pool.label().vdevs[0].tree.members().map(|member| member.behind.is_some()).collect()
}

const SHAPES: [(usize, u8); 6] = [(2, 1), (4, 1), (3, 2), (5, 2), (4, 3), (6, 3)];

#[test]
fn the_pool_is_whole_without_any_devices_within_parity() {
    for (count, parity) in SHAPES {
        let disks = names(count);
        let pool = raidz(parity, &disks);
        let newest = commit(&pool, 5);
        drop(pool);
        for missing in sets(count, usize::from(parity) + 1).into_iter().filter(|missing| missing.len() < count) {
            let opened = opened_with(&without(&disks, &missing), &reading(None), 7);
            let what = format!("{missing:?} of {count}, parity {parity}");
            match opened {
                Ok(pool) => {
                    assert!(missing.len() <= usize::from(parity), "{what}");
                    assert_eq!(shown(pool.engine()), newest, "{what}");
                }
                Err(error) => {
                    assert_eq!(missing.len(), usize::from(parity) + 1, "{what}: {error}");
                    assert!(matches!(error, Error::Incomplete { .. }), "{what}: {error}");
                }
            }
        }
    }
}

#[test]
fn what_is_missing_is_said_in_words() {
    let disks = names(4);
    drop(raidz(1, &disks));
    let error = opened(&without(&disks, &[1, 3]), 5).err().unwrap();
    let expected = "raidz1-0 of pool tank has fewer than 3 complete devices: b and d are missing";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_degraded_raidz_goes_on_and_resilvers_returning_devices() {
    for on in [Operation::Write, Operation::Flush] {
        let disks = names(5);
        let pool = raidz(2, &disks);
        [1, 4].iter().for_each(|at: &usize| disks[*at].inject(Fault::failing(on)));
        commit(&pool, 5);
        assert_eq!(described(&pool), [false, true, false, false, true]);
        for at in [1, 4] {
            disks[at].lose_cache();
            disks[at].heal();
            assert!(pool.put_online(disks[at].name(), &reopen(&disks[at])).unwrap());
        }
        assert_eq!(states(&pool).iter().filter(|state| **state == State::Resilvering).count(), 2);
        commit(&pool, 3);
        assert!(resilver(&pool) && !resilver(&pool));
        assert_eq!((states(&pool), described(&pool)), (vec![State::Complete; 5], vec![false; 5]));
        let newest = commit(&pool, 2);
        drop(pool);
        for missing in sets(5, 2) {
            let pool = opened_with(&without(&disks, &missing), &reading(None), 7).unwrap();
            assert_eq!(shown(pool.engine()), newest, "{missing:?}");
        }
    }
}

#[test]
fn a_device_that_missed_commits_is_resilvered_at_import() {
    let disks = names(3);
    let pool = raidz(1, &disks);
    disks[0].vanish();
    let newest = commit(&pool, 40);
    drop(pool);
    disks[0].heal();
    let error = opened(&[&disks[0], &disks[1]], 2).err().unwrap();
    assert_eq!(error.to_string(), "raidz1-0 of pool tank has fewer than 2 complete devices: c is missing");
    let pool = opened(&without(&disks, &[]), 3).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)[0]), (newest, State::Resilvering));
    commit(&pool, 2);
    assert!(resilver(&pool));
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(shown(opened_with(&[&disks[0], &disks[2]], &reading(None), 4).unwrap().engine()), newest);
}

#[test]
fn a_commit_counts_only_if_every_device_that_is_needed_has_it() {
    let disks = names(4);
    let pool = raidz(1, &disks);
    disks[3].vanish();
    let before = commit(&pool, 2);
    // It takes data but no uberblock, and is one of three needed devices.
    disks[1].inject(Fault { range: 0..DATA_START, ..Fault::failing(Operation::Write) });
    disks[1].inject(Fault { range: 63 * MIB..64 * MIB, ..Fault::failing(Operation::Write) });
    assert!(pool.engine().commit_anyway().is_err());
    assert_eq!(pool.engine().committed(), before);
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Complete, State::Out]);
}

#[test]
fn what_the_operator_may_not_take_away_is_said() {
    let disks = names(4);
    let pool = raidz(2, &disks);
    let refusal = |result: Result<()>| result.unwrap_err().to_string();
    let attached = refusal(pool.attach("a", disk("new"), false));
    assert_eq!(attached, "a is a device of a raidz; to expand the raidz, name the raidz, such as raidz1-0");
    let detached = refusal(pool.detach("a"));
    assert_eq!(detached, "raidz2-0 cannot lose a device: replace a instead");
    pool.put_offline("a", false).unwrap();
    pool.put_offline("b", true).unwrap();
    let offline = refusal(pool.put_offline("c", false));
    assert_eq!(offline, "raidz2-0 needs 2 complete devices, including c");
    let newest = commit(&pool, 3);
    drop(pool);
    let pool = opened(&without(&disks, &[]), 3).unwrap();
    let expected = [State::Out, State::Resilvering, State::Complete, State::Complete];
    assert_eq!((shown(pool.engine()), states(&pool)), (newest, expected.to_vec()));
}

#[test]
fn a_device_is_replaced_also_when_it_is_away() {
    for is_away in [false, true] {
        let (disks, new) = (names(4), disk("new"));
        let pool = raidz(1, &disks);
        if is_away {
            disks[1].vanish();
            commit(&pool, 1);
        }
        pool.attach("b", new.clone(), true).unwrap();
        assert!(matches!(pool.attach("b", disk("other"), true), Err(Error::Request(_))));
        assert!(matches!(pool.attach("new", disk("other"), true), Err(Error::Request(_))));
        commit(&pool, 2);
        drop(pool);
        disks[1].heal();
        // The replacement survives an interruption.
        let all = [&disks[0], &disks[1], &new, &disks[2], &disks[3]];
        let pool = opened(&all, 4).unwrap();
        assert!(resilver(&pool));
        assert_eq!(states(&pool), [State::Complete; 4]);
        assert!(labels::read_label(&*disks[1]).unwrap().is_none() || is_away, "it is nobody's");
        let newest = commit(&pool, 2);
        drop(pool);
        for missing in [&disks[0], &disks[2], &disks[3], &new] {
            let there: Vec<&Disk> = all.iter().copied().filter(|one| !Arc::ptr_eq(one, missing)).collect();
            let there: Vec<&Disk> = there.into_iter().filter(|one| !Arc::ptr_eq(one, &disks[1])).collect();
            assert_eq!(shown(opened_with(&there, &reading(None), 5).unwrap().engine()), newest);
        }
    }
}

#[test]
fn who_was_to_replace_another_leaves_again() {
    let (disks, new) = (names(3), disk("new"));
    let pool = raidz(1, &disks);
    pool.attach("b", new.clone(), true).unwrap();
    commit(&pool, 1);
    pool.detach("new").unwrap();
    assert_eq!(states(&pool), [State::Complete; 3]);
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(shown(opened_with(&[&disks[0], &disks[1]], &reading(None), 5).unwrap().engine()), newest);
}

#[test]
fn rot_within_parity_is_read_and_repaired() {
    for (count, parity) in SHAPES {
        let disks = names(count);
        let pool = raidz(parity, &disks);
        let newest = commit(&pool, 3);
        drop(pool);
        for rotten in &disks[..usize::from(parity)] {
            rotten.write_at(DATA_START, &vec![0xee; (62 * MIB) as usize]).unwrap();
            rotten.flush().unwrap();
        }
        let pool = opened(&without(&disks, &[]), 3).unwrap();
        assert_eq!(stamp(pool.engine()).0, newest);
        let still = pool.engine().hold_still();
        let space = still.repair_space(OwnCursor::default(), u64::MAX);
        assert!(space.repaired > 0 && space.lost == 0, "{space:?}");
        let again = still.repair_space(OwnCursor::default(), u64::MAX);
        assert!(again.bad.is_empty(), "{again:?}");
        drop(still);
        assert!(pool.engine().storage().read_block(&stamp(pool.engine()).1, Seen::HELD).is_ok());
        let errors = |leaf: &Arc<crate::vdev::Leaf>| leaf.counters().snapshot().checksum_errors;
        let counted: Vec<u64> = pool.engine().storage().vdevs.all()[0].leaves().iter().map(errors).collect();
        assert!(counted[usize::from(parity)..].iter().all(|count| *count == 0), "{counted:?}");
    }
}

#[test]
fn halves_that_were_changed_without_each_other_are_a_split_pool() {
    let disks = names(4);
    drop(raidz(2, &disks));
    commit(&opened(&without(&disks, &[0, 1]), 2).unwrap(), 4);
    commit(&opened(&without(&disks, &[2, 3]), 3).unwrap(), 7);
    let error = opened(&without(&disks, &[]), 4).err().unwrap();
    assert!(matches!(error, Error::Split { .. }), "{error}");
}

/// True if refusing these devices is right: too few are complete by the newest label of all, or by their own.
fn is_not_enough(all: &[Disk], there: &[&Disk]) -> bool {
    let label = |disks: &[&Disk]| -> Option<Label> {
        disks.iter().filter_map(|disk| labels::read_label(&***disk).unwrap()).max_by_key(|label| label.txg)
    };
    let is_there = |path: &str| there.iter().any(|disk| disk.name() == path);
    let too_few = |label: &Label| {
        let VdevConfig { tree: VdevTree::RaidZ(raidz), .. } = &label.vdevs[0] else { return false };
        let complete = raidz.members.iter().filter(|m| m.member.behind.is_none() && is_there(&m.member.leaf.path));
        let columns: std::collections::BTreeSet<u32> = complete.map(|member| member.column).collect();
        !label.vdevs[0].tree.suffice(columns.iter().map(|column| *column as usize))
    };
    [label(&all.iter().collect::<Vec<_>>()), label(there)].iter().flatten().any(too_few)
}

/// Opens the images of a crash without some devices, and requires a whole, lasting state within `span`.
pub(in crate::admin) fn survives(
    images: Vec<MemoryDevice>,
    missing: &[usize],
    span: std::ops::RangeInclusive<Txg>,
    what: &str,
) -> bool {
    let images: Vec<Disk> = images.into_iter().map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
    let belongs = |disk: &&Disk| matches!(labels::read_label(&***disk), Ok(Some(_)));
    let there: Vec<&Disk> = without(&images, missing).into_iter().filter(belongs).collect();
    let pool = match opened(&there, 7) {
        Ok(pool) => pool,
        Err(Error::Incomplete { .. }) if is_not_enough(&images, &there) => return false,
        Err(error) => panic!("{what}: {error}"),
    };
    let state = shown(pool.engine());
    assert!(span.contains(&state), "{what}: {state}");
    resilver(&pool);
    let newest = commit(&pool, 2);
    assert_eq!(shown(pool.engine()), newest, "{what}");
    let label = pool.label();
    let whole = label.vdevs[0].tree.members().filter(|member| member.behind.is_none());
    let columns: Vec<(u32, String)> = match &label.vdevs[0].tree {
        VdevTree::RaidZ(raidz) => raidz.members.iter().map(|m| (m.column, m.member.leaf.path.clone())).collect(),
        _ => Vec::new(),
    };
    let column = |path: &str| columns.iter().find(|(_, name)| name == path).map(|(column, _)| *column);
    let mut whole: Vec<(Option<u32>, String)> =
        whole.map(|member| (column(&member.leaf.path), member.leaf.path.clone())).collect();
    whole.dedup_by_key(|(column, _)| *column);
    let quorum = pool.engine().storage().vdevs.all()[0].as_group().unwrap().quorum();
    // A column behind the widest rows does not count.
    whole.retain(|(column, _)| column.is_some_and(|column| (column as usize) < quorum.columns));
    let needed = quorum.needed;
    drop(pool);
    // Any sufficient set of complete devices has everything: here the first ones, and the last.
    let complete: Vec<&Disk> =
        there.into_iter().filter(|disk| whole.iter().any(|(_, name)| name == disk.name())).collect();
    for some in [&complete[..needed], &complete[complete.len() - needed..]] {
        let pool = opened_with(some, &reading(None), 8).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(shown(pool.engine()), newest, "{what}");
    }
    true
}

#[test]
fn no_commit_is_lost_by_a_crash_and_a_loss_within_parity() {
    for (count, parity) in [(3, 1), (5, 2)] {
        let recorder = Recorder::new();
        let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
        let pool = raidz_of(parity, names(count).iter().map(wrap).collect());
        let mut known = vec![(recorder.len(), pool.engine().committed())];
        for _ in 0..2 {
            commit(&pool, 1);
            known.push((recorder.len(), pool.engine().committed()));
        }
        let last = pool.engine().committed();
        drop(pool);
        let missing = sets(count, usize::from(parity));
        for cut in known[0].0..=recorder.len() {
            let promised = known.iter().rev().find(|(at, _)| *at <= cut).unwrap().1;
            for missing in [&missing[0], &missing[cut % missing.len()]] {
                let images = recorder.images_at(cut, &mut Fate::seeded(cut as u64));
                let what = format!("{count}-{parity}, cut {cut}, without {missing:?}");
                assert!(survives(images, missing, promised..=last, &what), "{what}: too few are complete");
            }
        }
    }
}

#[test]
fn nothing_is_lost_by_a_crash_in_a_failure_or_resilver() {
    let recorder = Recorder::new();
    let wrap = |name: &str| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB)));
    let faulty = Arc::new(FaultDevice::new(wrap("b")));
    let pool = raidz_of(2, vec![wrap("a"), faulty.clone(), wrap("c"), wrap("d")]);
    let mut known = vec![(recorder.len(), pool.engine().committed())];
    let mut note = |pool: &Pool| {
        commit(pool, 1);
        known.push((recorder.len(), pool.engine().committed()));
    };
    note(&pool);
    faulty.inject(Fault { skip: 3, ..Fault::failing(Operation::Write) });
    (0..2).for_each(|_| note(&pool));
    faulty.heal();
    let device: Arc<dyn Device> = faulty.clone();
    assert!(pool.put_online("b", &move |_| Ok(device.clone())).unwrap());
    note(&pool);
    assert!(resilver(&pool));
    note(&pool);
    let last = pool.engine().committed();
    drop(pool);
    // Images are in the order in which the devices were wrapped: b's is the first.
    let mut refused = 0;
    for cut in known[0].0..=recorder.len() {
        let promised = known.iter().rev().find(|(at, _)| *at <= cut).unwrap().1;
        let sets = [vec![], vec![1 + cut % 3], vec![1 + cut % 3, 1 + (cut + 1) % 3]];
        let missing = &sets[cut / 3 % 3];
        let images = recorder.images_at(cut, &mut Fate::seeded(cut as u64));
        let is_open = survives(images, missing, promised..=last, &format!("cut {cut}, without {missing:?}"));
        assert!(is_open || missing.len() == 2, "cut {cut}, without {missing:?}");
        refused += usize::from(!is_open);
    }
    assert!(refused > 0, "with one behind and two missing there are too few");
}

#[test]
fn the_pool_is_whole_after_a_crash_in_a_replacement() {
    let recorder = Recorder::new();
    let wrap = |name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let (members, new) = (vec![wrap("a"), wrap("b"), wrap("c")], wrap("new"));
    let pool = raidz_of(1, members);
    let (begin, first) = (recorder.len(), pool.engine().committed());
    pool.attach("b", new, true).unwrap();
    assert!(resilver(&pool));
    let last = commit(&pool, 1);
    drop(pool);
    for cut in begin..=recorder.len() {
        for missing in [vec![], vec![cut % 3]] {
            let images = recorder.images_at(cut, &mut Fate::seeded(cut as u64));
            survives(images, &missing, first..=last, &format!("cut {cut}, without {missing:?}"));
        }
    }
}

#[test]
fn a_raidz_is_whole_after_a_crash_in_a_rewind() {
    let disks = names(4);
    let pool = raidz(1, &disks);
    let newest = commit(&pool, 5);
    drop(pool);
    let recorder = Recorder::new();
    let devices: Vec<Arc<dyn Device>> =
        disks.iter().map(|disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>).collect();
    rewind(&devices, newest.back(2), &writing(), &SeededEnv::new(9)).unwrap();
    for (cut, seed) in cuts(0..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, &[], newest.back(2)..=newest, &format!("cut {cut}, seed {seed}"));
    }
}

/// The images of power failures at every write from the `from`-th on, each with several fates of unflushed writes.
/// Devices without a pool yet are left out.
fn leavings(recorder: &Recorder, from: usize) -> impl Iterator<Item = (String, Vec<Disk>)> + '_ {
    cuts(from..=recorder.len(), 6).map(|(cut, seed)| {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        let disks: Vec<Disk> = images.into_iter().map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        let is_labelled = |disk: &Disk| matches!(labels::read_label(&**disk), Ok(Some(_)));
        (format!("cut {cut}, seed {seed}"), disks.into_iter().filter(is_labelled).collect())
    })
}

#[test]
fn the_pool_is_whole_after_a_crash_while_adding_a_raidz() {
    whole_while_added([64; 5], 1);
}

#[test]
fn the_pool_is_whole_after_a_crash_while_adding_an_uneven_raidz() {
    whole_while_added([64, 64, 64, 96, 80], 5);
}

/// Adds a RAID-Z of the last three of five devices, with sizes in MiB, to a mirror of the first two; tries every
/// `step`-th power failure.
fn whole_while_added(sizes: [u64; 5], step: usize) {
    let recorder = Recorder::new();
    let wrap =
        |(name, size): (&str, u64)| Arc::new(recorder.wrap(MemoryDevice::new(name, size * MIB))) as Arc<dyn Device>;
    let devices: Vec<Arc<dyn Device>> = ["a", "b", "c", "d", "e"].into_iter().zip(sizes).map(wrap).collect();
    let pool = made(devices[..2].to_vec());
    let first = commit(&pool, 2);
    let begin = recorder.len();
    pool.begin_add(vec![NewVdev::RaidZ { parity: 1, devices: devices[2..].to_vec() }]).unwrap().finish().unwrap();
    let last = commit(&pool, 2);
    let size = pool.engine().space_totals().size;
    let usable: u64 = if sizes[4] > sizes[2] { 125 + 16 } else { 125 };
    assert_eq!(size / MIB - 62, usable);
    drop(pool);
    for (what, disks) in leavings(&recorder, begin).step_by(step) {
        let pool = opened(&disks.iter().collect::<Vec<_>>(), 7).unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = shown(pool.engine());
        assert!((first..=last).contains(&state), "{what}: {state}");
        assert_eq!(commit(&pool, 1), shown(pool.engine()), "{what}");
        let is_added = pool.label().vdevs.len() > 1;
        assert_eq!(pool.engine().space_totals().size == size, is_added, "{what}");
    }
}

#[test]
fn the_pool_is_whole_after_a_crash_in_a_rewind_past_an_addition() {
    let made_of: Vec<Disk> = ["a", "b", "c", "d", "e"].iter().map(|name| disk(name)).collect();
    let as_devices = |disks: &[Disk]| disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect::<Vec<_>>();
    let pool = made(as_devices(&made_of[..2]));
    let before = commit(&pool, 2);
    let raidz = NewVdev::RaidZ { parity: 1, devices: as_devices(&made_of[2..]) };
    pool.begin_add(vec![raidz]).unwrap().finish().unwrap();
    let newest = commit(&pool, 1);
    drop(pool);
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let devices: Vec<Arc<dyn Device>> = made_of.iter().map(wrap).collect();
    rewind(&devices, before, &writing(), &SeededEnv::new(9)).unwrap();
    for (what, disks) in leavings(&recorder, 0) {
        let pool = opened(&disks.iter().collect::<Vec<_>>(), 7).unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = shown(pool.engine());
        assert!([before, newest].contains(&state), "{what}: {state}");
    }
}

#[test]
fn who_is_replaced_stays_as_long_as_nobody_else_has_its_column() {
    let disks = names(3);
    let pool = raidz(1, &disks);
    let new = disk("n");
    pool.attach("b", new.clone(), true).unwrap();
    assert!(pool.detach("b").is_err(), "the other one is being resilvered");
    new.vanish();
    commit(&pool, 2);
    assert!(pool.detach("b").is_err(), "the other one has failed");
    pool.finish_replacing().unwrap();
    let newest = commit(&pool, 1);
    drop(pool);
    for missing in [vec![0], vec![1], vec![2]] {
        let pool = opened_with(&without(&disks, &missing), &reading(None), 7).unwrap();
        assert_eq!(shown(pool.engine()), newest, "{missing:?}");
    }
}

#[test]
fn a_commit_on_few_devices_is_continued_after_two_crashes() {
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let pool = raidz_of(1, names(4).iter().map(wrap).collect());
    let before = pool.engine().committed();
    let begin = recorder.len();
    let last = commit(&pool, 1);
    drop(pool);
    let mut uneven = 0;
    for cut in begin..=recorder.len() {
        // Unflushed writes are lost or kept, a device at a time: so the uberblock is on any of them.
        let mut fates =
            [Fate::Kept, Fate::Kept, Fate::Kept, Fate::Kept, Fate::Dropped].into_iter().cycle().skip(cut % 5);
        let images = recorder.images_at(cut, &mut || fates.next().unwrap());
        let newest = |image: &MemoryDevice| {
            let label = labels::read_label(image).unwrap().unwrap();
            uberblocks::read_uberblocks(image, label.pool).unwrap()[0].txg
        };
        let found: Vec<Txg> = images.iter().map(newest).collect();
        if found.iter().all(|txg| *txg == found[0]) {
            continue;
        }
        uneven += 1;
        let second = Recorder::new();
        let devices: Vec<Disk> =
            images.into_iter().map(|image| Arc::new(FaultDevice::new(Arc::new(second.wrap(image))))).collect();
        let pool = opened(&without(&devices, &[]), 9).unwrap();
        assert!(states(&pool).iter().all(|state| *state == State::Complete), "cut {cut}");
        let newest = commit(&pool, 1);
        drop(pool);
        for again in (cut % 3..=second.len()).step_by(3) {
            let images = second.images_at(again, &mut Fate::seeded((cut * again) as u64));
            let what = format!("cut {cut}, and then {again}");
            assert!(survives(images, &[], before..=newest.max(last), &what), "{what}: too few are complete");
        }
    }
    assert!(uneven > 3, "an uberblock was on some and not on others only {uneven} times");
}
