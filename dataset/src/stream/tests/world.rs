//! Shared by the tests: a pool with numbered trees, a writer that changes a tree at random, and a landing that records
//! its calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use pool::{
    admin::{self, CreateOptions},
    block::compression::CompressionChoice,
    device::MemoryDevice,
    env::{Env, SeededEnv},
    error::Error as EngineError,
    format::{
        key::Key,
        pointer::{Address, BlockPointer, Checksum},
    },
    tree::{Block, Policy},
    txg::{Engine, Head, Plain, Settings, Sync, SyncClient, Written},
    units::{Guid, MIB, Txg},
};

use crate::stream::{
    Base, Begin, Error, Ground, Landing, Package, Received, Result, Source, Start, Watched, receive, send,
};

/// Keeps the roots and dropped blocks of all trees; frees nothing, so that every state stays readable.
#[derive(Default)]
struct Keeper {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    roots: BTreeMap<u64, (BlockPointer, u8)>,
    kills: BTreeMap<u64, Vec<BlockPointer>>,
}

impl SyncClient for Keeper {
    fn sync(&self, _: &mut Sync<'_>, written: Vec<Written>) -> Result<(), EngineError> {
        let mut kept = self.kept.lock();
        for Written { head, root, level, kills, .. } in written {
            kept.roots.insert(head.id(), (root, level));
            kept.kills.entry(head.id()).or_default().extend(kills);
        }
        Ok(())
    }
}

/// A pool with numbered trees.
pub(super) struct World {
    pub(super) engine: Arc<Engine>,
    keeper: Arc<Keeper>,
    pub(super) random: SeededEnv,
    next: u64,
}

/// A committed state of a tree.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) createtxg: Txg,
    pub(super) root: (BlockPointer, u8),
    pub(super) tree: Arc<Head>,
}

/// Items by key, with the content of their blocks.
pub(super) type Model = BTreeMap<Key, (Vec<u8>, Option<Vec<u8>>)>;

impl World {
    /// A pool with `workers` threads.
    pub(super) fn new(seed: u64, workers: usize) -> World {
        let device = Arc::new(MemoryDevice::new("disk", 512 * MIB));
        let settings = Settings { cache: 16 * MIB, dirty: 8 * MIB, workers };
        let options = CreateOptions { settings, ..CreateOptions::new("tank") };
        let pool = admin::create(vec![device], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let (engine, keeper) = (pool.engine().clone(), Arc::new(Keeper::default()));
        engine.set_client(keeper.clone());
        World { engine, keeper, random: SeededEnv::new(seed ^ 0x5eed), next: 1 }
    }

    /// Opens a tree, empty or with the content of a snapshot.
    pub(super) fn open(&mut self, from: Option<&Snapshot>) -> Arc<Head> {
        self.next += 1;
        self.engine.open_head(self.next, from.map(|snapshot| snapshot.root))
    }

    /// Commits, and returns the state of the tree as a snapshot.
    pub(super) fn snapshot(&self, head: &Head, name: &str) -> Snapshot {
        self.engine.commit().unwrap();
        let root = self.keeper.kept.lock().roots[&head.id()];
        let tree = self.engine.open_frozen(u64::MAX, root.0, root.1);
        Snapshot { name: name.into(), createtxg: self.engine.committed(), root, tree }
    }

    /// The first address of each block dropped by a tree, once per drop.
    pub(super) fn kills(&self, head: &Head) -> Vec<Address> {
        let kept = self.keeper.kept.lock();
        kept.kills.get(&head.id()).into_iter().flatten().map(|pointer| pointer.addresses[0]).collect()
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.random() % bound
    }

    /// Bytes of a random length, more or less compressible.
    fn content(&self) -> Vec<u8> {
        let len = 1 + self.below(if self.below(8) == 0 { 200_000 } else { 6000 });
        let spread = [1, 4, 256][self.below(3) as usize];
        (0..len).map(|_| self.below(spread) as u8).collect()
    }

    fn policy(&self) -> Policy {
        let compression = [CompressionChoice::Off, CompressionChoice::Lz4, CompressionChoice::Zstd(1)];
        let checksum = [Checksum::Blake3, Checksum::Xxh3, Checksum::Sha256, Checksum::Off];
        Policy {
            compression: compression[self.below(3) as usize],
            checksum: checksum[self.below(4) as usize],
            copies: 1,
            small_blocks: 0,
            placement: pool::space::Placement::ANYWHERE,
        }
    }

    /// Changes a tree at random, within the keys of some files.
    pub(super) fn scribble(&self, head: &Head, steps: u64) {
        for _ in 0..steps {
            let key = Key::new(self.below(40), self.below(2) as u8, self.below(50) << 12);
            match self.below(10) {
                0 | 1 => self.change(head, |batch| batch.delete(key)),
                2 | 3 => self.put_block(head, key),
                4 => self.cut_off(head, key),
                _ => {
                    let body = vec![self.below(256) as u8; self.below(300) as usize];
                    self.change(head, |batch| batch.put(key, body.clone(), None));
                }
            }
        }
    }

    fn change(&self, head: &Head, change: impl Fn(&mut pool::tree::Batch)) {
        head.admit(1 << 16).unwrap();
        let done = head.update(|_, batch| -> Result<(), Plain> {
            change(batch);
            Ok(())
        });
        done.unwrap();
    }

    fn put_block(&self, head: &Head, key: Key) {
        let (content, policy) = (self.content(), self.policy());
        head.admit(content.len() as u64).unwrap();
        head.update(|view, batch| -> Result<(), Plain> {
            let record = head.record(view.txg(), policy, content.clone());
            batch.put(key, b"block", Some(&Block::Pending(record)));
            Ok(())
        })
        .unwrap();
    }

    /// Simulates overwriting the middle of a record: the rest moves to a new key.
    fn cut_off(&self, head: &Head, near: Key) {
        head.update(|view, batch| -> Result<(), Plain> {
            for entry in view.range(near..Key::MAX) {
                let entry = entry?;
                let Some(Block::Stored(pointer)) = entry.block() else { continue };
                let rest = Key { offset: entry.key().offset + u64::from(pointer.logical) / 2, ..entry.key() };
                if rest > entry.key() && view.get(rest)?.is_none() {
                    let pointer = BlockPointer { logical_birth: view.txg(), ..pointer };
                    batch.put(rest, b"rest", Some(&Block::Stored(pointer)));
                    return Ok(());
                }
            }
            Ok(())
        })
        .unwrap();
    }

    /// The stream of a snapshot.
    pub(super) fn stream(&self, to: &Snapshot, from: Option<&Snapshot>, readers: usize) -> Vec<u8> {
        let package = Package {
            root: "tank/home".into(),
            replicate: false,
            census: None,
            sources: vec![source(to, from)],
            watched: Watched::default(),
        };
        let mut out = Vec::new();
        let sent = send(package, &mut out, readers, &mut |_| {}).unwrap();
        assert_eq!(sent.bytes, out.len() as u64);
        out
    }

    /// Receives a stream into the given tree.
    pub(super) fn receive(&self, bytes: &[u8], head: &Arc<Head>, threads: usize) -> (Result<Received>, Lander) {
        let mut lander = Lander { head: head.clone(), begun: 0, finished: 0, abandoned: 0 };
        let result = receive(&mut &bytes[..], &mut lander, threads, &mut |_| {});
        (result, lander)
    }
}

/// The source for sending a snapshot.
pub(super) fn source(to: &Snapshot, from: Option<&Snapshot>) -> Source {
    let base = from.map(|from| Base { guid: Guid(1), createtxg: from.createtxg, name: from.name.clone() });
    let begin = Begin {
        dataset: "tank/home".into(),
        snapshot: to.name.clone(),
        guid: Guid(2),
        createtxg: to.createtxg,
        creation: 5,
        layout: 1,
        base,
        ..Begin::default()
    };
    Source { begin, tree: to.tree.clone(), until: None, held: None }
}

/// Lands streams in one tree, and counts calls.
pub(super) struct Lander {
    head: Arc<Head>,
    pub(super) begun: u64,
    pub(super) finished: u64,
    pub(super) abandoned: u64,
}

impl Landing for Lander {
    type Error = Error;

    fn package(&mut self) {}

    fn begin(&mut self, _: &Start, _: &Begin) -> Result<Option<Ground>, Error> {
        self.begun += 1;
        Ok(Some(Ground { head: self.head.clone(), copies: 1, options: crate::fs::Options::default(), mark: None }))
    }

    fn finish(&mut self, _: &Begin, _: u64) -> Result<(), Error> {
        self.finished += 1;
        self.head.engine().commit()?;
        Ok(())
    }

    fn abandon(&mut self) {
        self.abandoned += 1;
    }
}

/// All items of a tree.
pub(super) fn contents(head: &Head) -> Model {
    let seen = head.engine().pin().seen();
    let entries =
        head.read(|view| -> Result<Vec<_>, Plain> { Ok(view.range(Key::MIN..Key::MAX).collect::<Result<_, _>>()?) });
    let content = |block: Block| head.bytes(&block, seen).unwrap().to_vec();
    entries.unwrap().iter().map(|entry| (entry.key(), (entry.body().to_vec(), entry.block().map(content)))).collect()
}

/// The addresses of the blocks referenced by a tree.
pub(super) fn blocks(head: &Head) -> BTreeSet<Address> {
    let found = head.read(|view| -> Result<BTreeSet<Address>, Plain> {
        let mut found = BTreeSet::new();
        for entry in view.range(Key::MIN..Key::MAX) {
            found.extend(entry?.block().and_then(|block| block.pointer()).map(|pointer| pointer.addresses[0]));
        }
        Ok(found)
    });
    found.unwrap()
}
