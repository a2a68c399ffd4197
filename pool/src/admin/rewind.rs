//! Rewinding to an older state, when the newest cannot be read.
//!
//! A pool's rings keep the uberblocks of its last commits. [`states`] lists the ancestors of the newest one. To rewind,
//! the caller opens them read-only one after the other ([`OpenOptions::state`]), checks them, and passes one to
//! [`rewind`].
//!
//! A rewind is one commit of one block: a new uberblock that repeats the chosen one, under an epoch of its own forked
//! off there, and with a txg above all others seen. It is the newest from then on, and the abandoned states are off its
//! line: no import ranks them, and their txgs are not reused.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before or while it is written | the pool as it was: neither the newest uberblock nor the chosen one was touched |
//! | after the flush of any device that got it | the chosen state; devices with the state but without this uberblock join |
//!
//! A member of a mirror or a RAID-Z joins if its own rings have the chosen state: then it has everything in the state.
//! A member without it, because it was behind or was resilvered only later, must not get the new uberblock, and its own
//! newest state ends up off the line. So labels first record that it is behind, and how far it was; otherwise it would
//! look modified separately. A crash after that leaves a member that is resilvered with blocks it already has.
//!
//! Labels also record how far members out of use were. A member resilvered after the chosen state lacks blocks that the
//! chosen state refers to and a later one does not. Its progress counts up to the last earlier state in its own rings;
//! an absent member is resilvered from the beginning.
//!
//! A RAID-Z rewinds like a mirror, but needs as many members as it has data columns. If too few complete members of a
//! vdev have all of the state, the rewind is refused: blocks of the state would be missing. Only a vdev added after the
//! state joins regardless, because the state refers to nothing on that vdev.
//!
//! A rewind to a state with blocks on a vdev removed since is refused too.
//!
//! The pool is opened for writing only afterwards, so blocks of the abandoned states are not overwritten as long as
//! these states could still be found.
//!
//! No block of the last [`SAFE_STATES`] states since the last rewind was overwritten, so rewinding three txgs always
//! works: space freed in a txg is reused only after this txg and three more were committed. Older states may have lost
//! any block, and must be read completely before they are chosen.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    assemble::{Assembly, ByGuid, assemble},
    open::{OpenOptions, check_state, chosen, first_txg, gather, open_storage},
    unacknowledged::{Unacknowledged, forget},
    writing::write_labels,
};
use crate::{
    block::storage::Vdevs,
    device::Device,
    env::{Env, Nanos},
    error::{Error, Result},
    format::{
        label::{DEVICE_REMOVAL, Label},
        uberblock::{Epoch, Uberblock},
        vdev_config::{Behind, Mark, MemberConfig, VdevTree},
    },
    txg::{REPEATS, state_of},
    units::{Guid, Txg, VdevId},
    vdev::{Group, Leaf, Member, Vdev, uberblocks},
};

pub use crate::space::SAFE_STATES;

/// A committed state that the rings still hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptState {
    /// The txg of the state.
    pub txg: Txg,
    /// The time of the commit.
    pub written: Nanos,
    /// No block of the state was overwritten. Any other state must be read completely before it is chosen.
    pub is_whole: bool,
}

/// The newest state and its ancestors, newest first: at least one. The states themselves are not read.
///
/// # Errors
/// As [`open`](super::open::open) does for devices that are not one whole pool, or a pool in use by another host.
pub fn states(devices: &[Arc<dyn Device>], options: &OpenOptions) -> Result<Vec<KeptState>> {
    let (label, by_guid) = gather(devices)?;
    label.check_supported(!options.read_only)?;
    check_state(&label, options)?;
    let Assembly { line, .. } = assemble(&label, &by_guid)?;
    let whole = whole_states(&line);
    let kept = |(age, uberblock): (usize, &Uberblock)| KeptState {
        txg: uberblock.txg,
        written: uberblock.written,
        is_whole: age < whole,
    };
    Ok(line.iter().enumerate().map(kept).collect())
}

/// How many states of a line, newest first, have lost no block. States before a rewind do not count: the abandoned
/// states may have reused their space.
fn whole_states(line: &[Uberblock]) -> usize {
    let last = line.iter().position(|uberblock| state_of(uberblock) != uberblock.txg);
    last.map_or(SAFE_STATES, |last| SAFE_STATES.min(last + 1))
}

/// Makes the state of txg `to` the newest. The pool must not be open. Returns the txg of the repeating uberblock.
///
/// # Errors
/// As [`states`], and if there is no such state, too few complete devices of a vdev have all of it, or a device cannot
/// be flushed; then the pool is as it was or has rewound.
pub fn rewind(devices: &[Arc<dyn Device>], to: Txg, options: &OpenOptions, env: &dyn Env) -> Result<Txg> {
    if options.read_only {
        return Err(Error::Request(
            "a rewind writes to the pool; an older state can be opened read-only with -T".into(),
        ));
    }
    let (mut label, by_guid) = gather(devices)?;
    label.check_supported(true)?;
    check_state(&label, options)?;
    let Assembly { vdevs, line, unacknowledged } = assemble(&label, &by_guid)?;
    let base = chosen(&label, &line, to)?;
    if label.features.contains_key(DEVICE_REMOVAL) {
        // A vdev of the state may have left the pool: then nothing is written.
        open_storage(&label, Vdevs::new(vdevs.clone()), base)?;
    }
    let going = Going::back(&mut label, &vdevs, &by_guid, (&line, &unacknowledged), base)?;
    // Their txgs are reused. A device that fails the erasure gets no label; the labels of the rest call it behind.
    forget(&vdevs, &unacknowledged)?;
    if going.leaves_some {
        label.txg = label.txg.max(line[0].txg).next();
        write_labels(&vdevs, &label)?;
    }
    let uberblock = Uberblock {
        txg: first_txg(&label, &line[0], base, &[])?,
        epoch: Epoch(env.random()),
        parent: base.epoch,
        forked_at: base.txg,
        written: env.now(),
        counters: repeating(base),
        ..base.clone()
    };
    let devices: Vec<&dyn Device> = going.devices.iter().map(|device| &**device).collect();
    let mut written = uberblocks::write_uberblock(&devices, &uberblock);
    if written.iter().all(Result::is_err) {
        return written.swap_remove(0).map(|()| uberblock.txg);
    }
    for failure in written.into_iter().filter_map(Result::err) {
        tracing::warn!("going back was not noted on every device: {failure}");
    }
    for device in devices {
        let failed = |source| Error::Device { device: device.name().to_owned(), action: "flush", source };
        device.flush().map_err(failed)?;
    }
    Ok(uberblock.txg)
}

/// The devices that rewind.
struct Going {
    devices: Vec<Arc<dyn Device>>,
    /// Some members of mirrors or RAID-Zs stay behind, and labels must record that.
    leaves_some: bool,
}

impl Going {
    /// Finds the devices with the state of `base`, and enters into the label how far the rest is.
    fn back(
        label: &mut Label,
        vdevs: &[Arc<dyn Vdev>],
        by_guid: &ByGuid,
        (line, unacknowledged): (&[Uberblock], &[Unacknowledged]),
        base: &Uberblock,
    ) -> Result<Going> {
        let mut going = Going { devices: Vec::new(), leaves_some: false };
        let described = label.clone();
        for vdev in vdevs {
            let complete = vdev.committing();
            let Some(group) = vdev.as_group() else {
                going.devices.extend(complete.iter().map(|leaf| leaf.device()));
                continue;
            };
            let config = label.vdevs.iter_mut().find(|c| c.id == vdev.id()).expect("it was made from this label");
            let rings = rings_of(&config.tree, described.pool, by_guid, unacknowledged);
            let has = |leaf: &Leaf| rings.get(&leaf.guid()).is_some_and(|ring| has_all(ring, line, base));
            let having: Vec<Guid> = complete.iter().filter(|leaf| has(leaf)).map(|leaf| leaf.guid()).collect();
            let is_later = !group.are_enough(&having);
            if is_later && !is_added_after(&described, vdevs, vdev.id(), base)? {
                return Err(too_few_have(&described, group, base));
            }
            for member in config.tree.members_mut() {
                let leaf = complete.iter().find(|leaf| leaf.guid() == member.leaf.guid);
                if let Some(leaf) = leaf.filter(|leaf| has(leaf) || is_later) {
                    going.devices.push(leaf.device());
                    member.behind = None;
                    continue;
                }
                member.behind = Some(match rings.get(&member.leaf.guid) {
                    Some(ring) => {
                        left(group.member(member.leaf.guid).map(|member| recorded(&member)), ring, line, base)
                    }
                    None => unasked(member, line),
                });
                going.leaves_some = true;
            }
        }
        Ok(going)
    }
}

/// The rings of the present, readable members, without unacknowledged states.
fn rings_of(
    tree: &VdevTree,
    pool: Guid,
    by_guid: &ByGuid,
    unacknowledged: &[Unacknowledged],
) -> BTreeMap<Guid, Vec<Uberblock>> {
    let ring = |member: &MemberConfig| {
        let device = by_guid.get(&member.leaf.guid)?;
        match uberblocks::read_uberblocks(&**device, pool) {
            Ok(mut ring) => {
                let is_unrecorded =
                    |txg: Txg| unacknowledged.iter().any(|own| (own.leaf, own.txg) == (member.leaf.guid, txg));
                ring.retain(|state| !is_unrecorded(state.txg));
                Some((member.leaf.guid, ring))
            }
            Err(error) => {
                tracing::warn!("going back without a device: {error}");
                None
            }
        }
    };
    tree.members().filter_map(ring).collect()
}

/// True if a complete member with this ring has all of the state `base`. Either `base` is the newest, or the member has
/// its uberblock, or lacks only this one uberblock of the line: then power failed while it was written, and everything
/// else had been flushed. A resilver takes two commits, and the first gives the device no uberblock.
fn has_all(ring: &[Uberblock], line: &[Uberblock], base: &Uberblock) -> bool {
    let Some(newer) = line.iter().take_while(|state| state.txg > base.txg).last() else { return true };
    let older = line.iter().find(|state| state.txg < base.txg);
    is_in(ring, base) || (is_in(ring, newer) && older.is_some_and(|older| is_in(ring, older)))
}

/// True if a vdev was added after the state, and so holds none of its blocks.
fn is_added_after(label: &Label, vdevs: &[Arc<dyn Vdev>], id: VdevId, base: &Uberblock) -> Result<bool> {
    let totals = open_storage(label, Vdevs::new(vdevs.to_vec()), base)?.space.totals();
    Ok(totals.vdevs.iter().all(|total| total.vdev != id || total.size == 0))
}

fn too_few_have(label: &Label, group: &Group, base: &Uberblock) -> Error {
    let (pool, txg, name) = (&label.pool_name, base.txg, group.name());
    let problem = match group.needed() {
        1 => format!("no device of {name} has the complete state"),
        needed => format!("fewer than {needed} devices of {name} have the complete state"),
    };
    Error::Request(format!("pool {pool} cannot rewind to transaction group {txg}: {problem}"))
}

fn is_in(ring: &[Uberblock], state: &Uberblock) -> bool {
    ring.iter().any(|own| (own.epoch, own.txg) == (state.epoch, state.txg))
}

/// How far a member was before the rewind.
fn recorded(member: &Member) -> Behind {
    member.behind().unwrap_or_else(|| member.leaf.marks())
}

/// How far a member is that stays behind. A member resilvered to a later state than `base` has everything of that state
/// only: blocks freed before its resilver are missing. So the last state in its own ring counts.
fn left(recorded: Option<Behind>, ring: &[Uberblock], line: &[Uberblock], base: &Uberblock) -> Behind {
    let has = recorded.unwrap_or_default().has;
    let common = mark_of(ring.iter().find(|own| own.txg <= base.txg && line.contains(own)));
    let has_less = common.txg < has.txg && !is_in(ring, base);
    Behind { has: if has_less { common } else { has }, may_have: mark_of(ring.first()) }
}

/// How far a member with unreadable rings is. Even its recorded progress may not be its own: it can be the state from
/// which the import that resilvered it began. Its `may_have` serves to recognize it later.
fn unasked(member: &MemberConfig, line: &[Uberblock]) -> Behind {
    let may_have = member.behind.map_or_else(|| mark_of(line.first()), |behind| behind.may_have);
    Behind { has: Mark::default(), may_have }
}

fn mark_of(uberblock: Option<&Uberblock>) -> Mark {
    uberblock.map_or(Mark::default(), |uberblock| Mark { epoch: uberblock.epoch, txg: uberblock.txg })
}

/// The counters of a state, with the txg that wrote it added.
pub(super) fn repeating(base: &Uberblock) -> Vec<(u8, u64)> {
    let mut counters: Vec<(u8, u64)> = base.counters.iter().copied().filter(|(kind, _)| *kind != REPEATS).collect();
    counters.push((REPEATS, state_of(base).0));
    counters.sort_unstable();
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::open::line,
        admin::stamped::{commit, disk, opened, reading, shown, stamped, writing, writing_pool},
        device::{Fate, MemoryDevice, Recorder, cuts},
        env::SeededEnv,
        error::ErrorKind,
        format::uberblock::slot,
        units::MIB,
    };

    fn go_back(device: &Arc<dyn Device>, to: Txg, seed: u64) -> Result<Txg> {
        rewind(std::slice::from_ref(device), to, &writing(), &SeededEnv::new(seed))
    }

    fn kept(device: &Arc<dyn Device>) -> Vec<Txg> {
        states(std::slice::from_ref(device), &writing()).unwrap().iter().map(|state| state.txg).collect()
    }

    #[test]
    fn of_the_last_states_nothing_was_overwritten() {
        let (device, _) = stamped(disk());
        let pool = writing_pool(&device, 2);
        for _ in 0..40 {
            commit(&pool, 1);
            for state in kept(&device).into_iter().take(SAFE_STATES) {
                assert_eq!(shown(opened(&device, &reading(Some(state)), 3).unwrap().engine()), state);
            }
        }
    }

    #[test]
    fn what_was_given_up_never_comes_back() {
        let (device, newest) = stamped(disk());
        let mut given_up = vec![newest, newest.back(1)];
        for seed in 3..12 {
            let to = kept(&device)[2];
            let at = go_back(&device, to, seed).unwrap();
            assert!(at > given_up[0] && !kept(&device).contains(&given_up[0]) && !kept(&device).contains(&given_up[1]));
            let before = shown(opened(&device, &reading(None), seed).unwrap().engine());
            assert!(!given_up.contains(&before));
            let pool = writing_pool(&device, 100 + seed);
            assert_eq!(shown(pool.engine()), before);
            let newest = commit(&pool, 4);
            assert!(newest > at);
            drop(pool);
            assert_eq!(shown(opened(&device, &reading(None), seed).unwrap().engine()), newest);
            assert_eq!(kept(&device)[..5], [newest, newest.back(1), newest.back(2), newest.back(3), at]);
            given_up = vec![newest, newest.back(1)];
        }
    }

    #[test]
    fn states_before_a_rewind_are_not_taken_for_whole() {
        let (device, newest) = stamped(disk());
        let whole = || {
            let states = states(std::slice::from_ref(&device), &writing()).unwrap();
            states.iter().take_while(|state| state.is_whole).count()
        };
        assert_eq!(whole(), SAFE_STATES);
        go_back(&device, newest.back(2), 5).unwrap();
        assert_eq!(whole(), 1);
        let pool = writing_pool(&device, 6);
        for commits in 2..=SAFE_STATES + 1 {
            commit(&pool, 1);
            assert_eq!(whole(), commits.min(SAFE_STATES));
        }
    }

    #[test]
    fn going_back_twice_to_the_same_state_is_as_once() {
        let (device, newest) = stamped(disk());
        let first = go_back(&device, newest.back(2), 5).unwrap();
        let second = go_back(&device, first, 6).unwrap();
        assert_eq!(kept(&device)[..3], [second, first, newest.back(2)]);
        assert_eq!(shown(writing_pool(&device, 7).engine()), newest.back(2));
    }

    #[test]
    fn wherever_power_fails_the_pool_is_as_it_was_or_has_gone_back() {
        let recorder = Recorder::new();
        let (device, newest) = stamped(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))));
        let begin = recorder.len();
        go_back(&device, newest.back(2), 5).unwrap();
        let gone_back = recorder.len();
        let last = commit(&writing_pool(&device, 6), 2);
        for (cut, seed) in cuts(begin..=recorder.len(), 4) {
            let image: Arc<dyn Device> = Arc::new(recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0));
            let state = shown(opened(&image, &reading(None), 7).unwrap().engine());
            let possible = match cut < gone_back {
                true => vec![newest, newest.back(2)],
                false => vec![newest.back(2), last.back(1), last],
            };
            assert!(possible.contains(&state), "cut {cut}, seed {seed}: {state}");
            assert_eq!(shown(writing_pool(&image, 8).engine()), state);
        }
    }

    #[test]
    fn the_newest_and_the_chosen_uberblock_are_not_overwritten() {
        let (device, newest) = stamped(disk());
        let pool = writing_pool(&device, 2);
        commit(&pool, 40);
        let label = pool.label();
        drop(pool);
        let (label, line) = (label.clone(), line(&label, std::slice::from_ref(&device)).unwrap());
        for base in &line {
            let first = first_txg(&label, &line[0], base, &[]).unwrap();
            assert!(first > line[0].txg && slot(first) != slot(line[0].txg) && slot(first) != slot(base.txg));
        }
        assert!(newest < line[0].txg);
    }

    #[test]
    fn what_cannot_be_is_refused_and_nothing_is_written() {
        let (device, newest) = stamped(disk());
        let before = kept(&device);
        assert_eq!(go_back(&device, newest.next(), 5).unwrap_err().kind(), ErrorKind::Request);
        let options = reading(None);
        let error = rewind(std::slice::from_ref(&device), newest, &options, &SeededEnv::new(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
        let at_a_state = OpenOptions { state: Some(newest), ..writing() };
        assert_eq!(opened(&device, &at_a_state, 5).err().unwrap().kind(), ErrorKind::Request);
        assert_eq!(kept(&device), before);
    }

    #[test]
    fn an_uberblock_that_repeats_a_later_state_is_not_believed() {
        let (device, newest) = stamped(disk());
        let pool = opened(&device, &reading(None), 2).unwrap().label().pool;
        let mut liar = uberblocks::read_uberblocks(&*device, pool).unwrap().remove(0);
        (liar.txg, liar.counters) = (newest.next(), vec![(0, 0), (REPEATS, newest.0 + 2)]);
        uberblocks::write_uberblock(&[&*device], &liar).remove(0).unwrap();
        assert_eq!(opened(&device, &writing(), 3).err().unwrap().kind(), ErrorKind::Damage);
    }
}
