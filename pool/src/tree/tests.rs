//! The tree against `BTreeMap`, with nodes written, evicted and read back between the steps.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use proptest::prelude::*;

use super::*;
use crate::{
    format::{
        key::Key,
        node::NODE_TARGET,
        pointer::{Address, BlockPointer},
    },
    units::Txg,
};

/// A store of coded nodes under invented addresses, and a cache that is emptied at each commit.
#[derive(Default)]
struct Store {
    blocks: RefCell<HashMap<Address, Vec<u8>>>,
    cached: RefCell<HashMap<Address, Arc<Node>>>,
    next: RefCell<u32>,
}

impl NodeSource for Store {
    fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        self.cached.borrow().get(&pointer.addresses[0]).cloned()
    }
}

impl Store {
    fn load(&self, miss: Miss) {
        let bytes = self.blocks.borrow()[&miss.pointer.addresses[0]].clone();
        let (node, txg) = Node::decode(&bytes).expect("what was stored decodes");
        verify_place(&node, txg, &miss).expect("in its place");
        self.cached.borrow_mut().insert(miss.pointer.addresses[0], Arc::new(node));
    }

    fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T, Miss>) -> T {
        loop {
            match attempt() {
                Ok(value) => return value,
                Err(miss) => self.load(miss),
            }
        }
    }

    /// Stores every node of transaction group `txg` under `slot`, children first.
    fn write(&self, slot: &Slot, txg: Txg) {
        let Slot::Dirty(cell) = slot else { return };
        if cell.pointer().is_some() {
            return;
        }
        assert_eq!(cell.txg(), txg);
        let node = cell.node().unwrap();
        for child in node.interior().into_iter().flat_map(|interior| &interior.children) {
            self.write(&child.slot, txg);
        }
        let bytes = node.resolved().encode(txg);
        assert!(bytes.len() <= NODE_TARGET + NODE_TARGET / 4, "{} bytes", bytes.len());
        *self.next.borrow_mut() += 1;
        let mut addresses = [Address::default(); 3];
        addresses[0].sector = *self.next.borrow();
        let len = bytes.len() as u32;
        let pointer = BlockPointer {
            addresses,
            copies: 1,
            logical: len,
            stored: len,
            birth: txg,
            logical_birth: txg,
            ..BlockPointer::default()
        };
        self.blocks.borrow_mut().insert(addresses[0], bytes);
        cell.stored(pointer);
    }

    /// The addresses of all nodes of a stored tree.
    fn reachable(&self, root: &Root) -> HashSet<Address> {
        let mut found = HashSet::new();
        let mut todo = vec![*root.slot.pointer().unwrap()];
        while let Some(pointer) = todo.pop() {
            found.insert(pointer.addresses[0]);
            let (node, _) = Node::decode(&self.blocks.borrow()[&pointer.addresses[0]]).unwrap();
            todo.extend(
                node.interior().into_iter().flat_map(|node| &node.children).map(|child| *child.slot.pointer().unwrap()),
            );
        }
        found
    }
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(Key, Option<Vec<u8>>)>),
    DeleteRange(Key, Key),
    Commit,
    Range(Key, Key),
    LastBefore(Key),
    Away(Key, Key),
}

fn any_key() -> impl Strategy<Value = Key> {
    (0u64..6, 0u8..3, 0u64..60).prop_map(|(object, kind, offset)| Key::new(object, kind, offset))
}

fn any_step() -> impl Strategy<Value = Step> {
    let body = (0usize..2500, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
    let change = (any_key(), prop::option::weighted(0.7, body));
    prop_oneof![
        6 => prop::collection::vec(change, 1..40).prop_map(Step::Batch),
        1 => (any_key(), any_key()).prop_map(|(a, b)| Step::DeleteRange(a.min(b), a.max(b))),
        2 => Just(Step::Commit),
        2 => (any_key(), any_key()).prop_map(|(a, b)| Step::Range(a.min(b), a.max(b))),
        2 => any_key().prop_map(Step::LastBefore),
        2 => (any_key(), any_key()).prop_map(|(a, b)| Step::Away(a.min(b), a.max(b))),
    ]
}

struct Run {
    store: Store,
    root: Root,
    txg: Txg,
    kills: Vec<Kill>,
    model: BTreeMap<Key, Vec<u8>>,
    live: HashSet<Address>,
}

impl Run {
    fn new() -> Run {
        Run {
            store: Store::default(),
            root: Root::empty(Txg(1)),
            txg: Txg(1),
            kills: Vec::new(),
            model: BTreeMap::new(),
            live: HashSet::new(),
        }
    }

    fn apply(&mut self, batch: Batch) {
        let Run { store, root, txg, kills, .. } = self;
        store.retry(|| batch.clone().apply(root, *txg, store, kills));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Batch(changes) => {
                let mut batch = Batch::default();
                for (key, body) in changes {
                    match body {
                        Some(body) => {
                            batch.put(key, body.clone(), None);
                            self.model.insert(key, body);
                        }
                        None => {
                            batch.delete(key);
                            self.model.remove(&key);
                        }
                    }
                }
                self.apply(batch);
            }
            Step::DeleteRange(low, high) => {
                let mut batch = Batch::default();
                let keys: Vec<Key> = self.model.range(low..high).map(|(key, _)| *key).collect();
                for key in keys {
                    batch.delete(key);
                    self.model.remove(&key);
                }
                self.apply(batch);
            }
            Step::Commit => self.commit(),
            Step::Away(low, high) => self.fetch(low..high),
            Step::Range(low, high) => {
                let found = self.store.retry(|| {
                    let view = View::new(&self.root, &self.store, self.txg);
                    view.range(low..high).map(|entry| entry.map(|entry| (entry.key(), entry.body().to_vec()))).collect()
                });
                let found: Vec<_> = found;
                let wanted: Vec<_> = self.model.range(low..high).map(|(key, body)| (*key, body.clone())).collect();
                assert_eq!(found, wanted);
            }
            Step::LastBefore(key) => {
                let found =
                    self.store.retry(|| View::new(&self.root, &self.store, self.txg).last_before(Key::MIN, key));
                let wanted = self.model.range(..key).next_back();
                assert_eq!(
                    found.map(|entry| (entry.key(), entry.body().to_vec())),
                    wanted.map(|(key, body)| (*key, body.clone()))
                );
            }
        }
    }

    /// Checks that [`View::away`] returns exactly the missing nodes of a range, until none is missing.
    fn fetch(&self, range: Range<Key>) {
        loop {
            let view = View::new(&self.root, &self.store, self.txg);
            let away = view.away(range.clone());
            assert_eq!(view.range(range.clone()).find_map(Result::err).as_ref(), away.first());
            let missed: HashSet<Address> = away.iter().map(|miss| miss.pointer.addresses[0]).collect();
            assert_eq!(missed.len(), away.len(), "each once");
            assert!(away.iter().all(|miss| miss.low < range.end && miss.high > range.start), "{away:?} for {range:?}");
            if away.is_empty() {
                return;
            }
            away.into_iter().for_each(|miss| self.store.load(miss));
        }
    }

    /// Writes the tree, empties the cache, and verifies that exactly the killed nodes are gone.
    fn commit(&mut self) {
        self.store.write(&self.root.slot, self.txg);
        self.store.cached.borrow_mut().clear();
        for kill in self.kills.drain(..) {
            let address = kill.pointer().unwrap().addresses[0];
            assert!(self.live.remove(&address), "{address:?} was killed twice or never lived");
        }
        let reachable = self.store.reachable(&self.root);
        assert!(self.live.is_subset(&reachable), "a node was lost without a kill");
        self.live = reachable;
        self.txg = self.txg.next();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_as_a_btreemap(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
        }
        run.step(Step::Range(Key::MIN, Key::MAX));
        run.commit();
        run.step(Step::Range(Key::MIN, Key::MAX));
    }
}

#[test]
fn keys_added_in_order_leave_full_nodes() {
    let mut run = Run::new();
    for offset in 0..20_000 {
        let mut batch = Batch::default();
        batch.put(Key::new(1, 0, offset), [7; 40], None);
        run.apply(batch);
    }
    run.commit();
    let nodes = run.live.len() as u64;
    let bytes: usize = run.store.blocks.borrow().values().map(Vec::len).sum();
    assert!(bytes as u64 / nodes > NODE_TARGET as u64 / 2, "{nodes} nodes of {} bytes", bytes as u64 / nodes);
}

#[test]
fn an_emptied_tree_is_one_node() {
    let mut run = Run::new();
    let key = |offset| Key::new(1, 0, offset);
    run.step(Step::Batch((0..5_000).map(|offset| (key(offset), Some(vec![1; 100]))).collect()));
    run.commit();
    for offset in (0..5_000).step_by(7).chain(0..5_000) {
        run.step(Step::Batch(vec![(key(offset), None)]));
        if offset % 1000 == 0 {
            run.commit();
        }
    }
    run.commit();
    assert_eq!(run.live.len(), 1);
}

#[test]
fn a_frozen_tree_does_not_see_later_changes() {
    let mut run = Run::new();
    run.step(Step::Batch((0..2_000).map(|offset| (Key::new(1, 0, offset), Some(vec![1; 100]))).collect()));
    let frozen = run.root.clone();
    let before = run.model.clone();
    run.txg = run.txg.next();
    run.step(Step::DeleteRange(Key::new(1, 0, 3), Key::new(1, 0, 1_500)));
    let items: Vec<_> = run.store.retry(|| View::new(&frozen, &run.store, Txg(1)).range(Key::MIN..Key::MAX).collect());
    assert_eq!(items.len(), before.len());
}
