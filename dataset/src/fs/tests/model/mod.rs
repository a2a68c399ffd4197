//! Random operations on the file system and on a plain model, side by side.
//!
//! Every result and error must be equal, and so must all visible state at the end; the checker must find nothing.
//!
//! ```text
//! plain     the model: maps and bytes
//! both      an operation on both
//! compare   the visible state of both
//! ```

mod both;
mod compare;
mod plain;

use proptest::prelude::*;

use self::{both::Both, plain::Model};
use super::world::World;
use crate::fs::ROOT;

/// An operation; files, directories and names are given by their indices in the model.
#[derive(Clone, Debug)]
enum Op {
    Create { dir: usize, name: u8 },
    Mkdir { dir: usize, name: u8 },
    Symlink { dir: usize, name: u8, target: Vec<u8> },
    Link { file: usize, dir: usize, name: u8 },
    Unlink { dir: usize, name: u8 },
    Rmdir { dir: usize, name: u8 },
    Rename { from: (usize, u8), to: (usize, u8), noreplace: bool, exchange: bool },
    Write { file: usize, offset: u64, len: usize, seed: u8 },
    Truncate { file: usize, size: u64 },
    Punch { file: usize, offset: u64, len: u64 },
    Zero { file: usize, offset: u64, len: u64, keep_size: bool },
    Read { file: usize, offset: u64, len: usize },
    Copy { from: usize, source: u64, to: usize, target: u64, len: u64 },
    SetXattr { file: usize, name: u8, len: usize, how: u8 },
    RemoveXattr { file: usize, name: u8 },
    Open { file: usize },
    Close { file: usize },
    Commit,
    Evict,
    Reap,
    RecordSize { shift: u8 },
    Attribute { file: usize, attribute: u8, value: u8 },
    Account,
}

fn any_op() -> impl Strategy<Value = Op> {
    let at = (0usize..8, 0u8..5);
    let range = prop_oneof![
        (0u64..3000, 1u64..1500),
        (0u64..60_000, 1u64..20_000),
        (0u64..12, 1u64..6).prop_map(|(o, l)| (o * 4096, l * 4096))
    ];
    prop_oneof![
        3 => at.clone().prop_map(|(dir, name)| Op::Create { dir, name }),
        2 => at.clone().prop_map(|(dir, name)| Op::Mkdir { dir, name }),
        1 => (at.clone(), prop::collection::vec(1u8.., 0..50))
            .prop_map(|((dir, name), target)| Op::Symlink { dir, name, target }),
        2 => (0usize..16, at.clone()).prop_map(|(file, (dir, name))| Op::Link { file, dir, name }),
        2 => at.clone().prop_map(|(dir, name)| Op::Unlink { dir, name }),
        1 => at.clone().prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        4 => (at.clone(), at, any::<bool>(), 0u8..3)
            .prop_map(|(from, to, noreplace, exchange)| Op::Rename { from, to, noreplace, exchange: exchange == 0 }),
        12 => (0usize..16, range.clone(), any::<u8>())
            .prop_map(|(file, (offset, len), seed)| Op::Write { file, offset, len: len as usize, seed }),
        2 => (0usize..16, prop_oneof![0u64..70_000, 0u64..1500, Just(0)]).prop_map(|(file, size)| Op::Truncate { file, size }),
        4 => (0usize..16, range.clone()).prop_map(|(file, (offset, len))| Op::Punch { file, offset, len }),
        1 => (0usize..16, range.clone(), any::<bool>())
            .prop_map(|(file, (offset, len), keep_size)| Op::Zero { file, offset, len, keep_size }),
        2 => (0usize..16, range.clone()).prop_map(|(file, (offset, len))| Op::Read { file, offset, len: len as usize }),
        1 => (0usize..16, range, 0usize..16, 0u64..60_000)
            .prop_map(|(from, (source, len), to, target)| Op::Copy { from, source, to, target, len }),
        2 => (0usize..16, 0u8..3, prop_oneof![0usize..50, 2000usize..9000], 0u8..3)
            .prop_map(|(file, name, len, how)| Op::SetXattr { file, name, len, how }),
        1 => (0usize..16, 0u8..3).prop_map(|(file, name)| Op::RemoveXattr { file, name }),
        1 => (0usize..16).prop_map(|file| Op::Open { file }),
        1 => (0usize..16).prop_map(|file| Op::Close { file }),
        3 => Just(Op::Commit),
        1 => Just(Op::Evict),
        1 => Just(Op::Reap),
        1 => (12u8..15).prop_map(|shift| Op::RecordSize { shift }),
        2 => (0usize..16, 0u8..4, 0u8..3)
            .prop_map(|(file, attribute, value)| Op::Attribute { file, attribute, value }),
        1 => Just(Op::Account),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_the_model(seed: u64, ops in prop::collection::vec(any_op(), 1..150)) {
        let mut both = Both { world: World::new(seed), model: Model::new() };
        for op in &ops {
            both.apply(op);
        }
        both.compare();
        both.world = both.world.reopen();
        // Open files are closed by now, and files without a name are gone.
        both.model.nodes.retain(|ino, node| *ino == ROOT || !node.names.is_empty());
        while both.world.fs.reap_orphans(100) {}
        both.compare();
    }
}
