//! Node numbers: the 64 bits by which the kernel identifies a file, and which programs see as the inode number.
//!
//! One mount shows a live file system and any number of its snapshots, whose files carry the same object numbers. So
//! the upper 16 bits of a node number identify the file system, and the lower 48 bits the object:
//!
//! | slot | what |
//! | --- | --- |
//! | 0 | the live file system; its root is node 1, as FUSE demands |
//! | 1 ..= 65534 | a snapshot that was opened through `.zfs/snapshot`; a number of this session, not of the pool |
//! | 65535 | `.zfs` itself and the other virtual files |
//!
//! Object numbers stay below 2^48: a dataset hands them out in order.
//!
//! A number and a *generation* form a file handle, by which NFS servers and Samba find a file again much later, and
//! across mounts. An object's generation is the txg of its creation, so after a rollback a file with a reused number is
//! not mistaken for the old file. A snapshot's number is valid for one session, so the generations of its files carry
//! the snapshot's mark: after a remount a handle into a snapshot may be stale, but never leads into another snapshot.

use dataset::fs::Ino;
use fuser::INodeNo;

const SLOT_SHIFT: u32 = 48;
const OBJECT_MASK: u64 = (1 << SLOT_SHIFT) - 1;
const CONTROL_SLOT: u16 = u16::MAX;

/// The session's number for an open snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(u16);

impl Slot {
    pub(crate) const FIRST: Slot = Slot(1);
    const LAST: Slot = Slot(CONTROL_SLOT - 1);

    /// The next slot; the first after the last.
    pub(crate) fn next(self) -> Slot {
        if self == Slot::LAST { Slot::FIRST } else { Slot(self.0 + 1) }
    }
}

/// A file or directory in no file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The directory `.zfs`.
    Root,
    /// The directory `.zfs/snapshot`.
    Snapshots,
    /// `.zfs/.open`, an empty file that is never listed: the mount opens it once, which tells the kernel that opens
    /// need no request.
    Opener,
}

/// A decoded node number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// An object of the live file system.
    Live(Ino),
    /// An object of an open snapshot.
    Snapshot(Slot, Ino),
    /// A virtual file or directory.
    Control(Control),
}

impl Node {
    /// The node of a number; `None` if this session never gave out such a number.
    pub(crate) fn decode(number: INodeNo) -> Option<Node> {
        let object = number.0 & OBJECT_MASK;
        match (number.0 >> SLOT_SHIFT) as u16 {
            0 => Some(Node::Live(object)),
            CONTROL_SLOT => control(object).map(Node::Control),
            slot => Some(Node::Snapshot(Slot(slot), object)),
        }
    }

    /// The number by which the kernel knows this node.
    pub(crate) fn encode(self) -> INodeNo {
        let (slot, object) = match self {
            Node::Live(ino) => (0, ino),
            Node::Snapshot(slot, ino) => (slot.0, ino),
            Node::Control(control) => (CONTROL_SLOT, control as u64 + 1),
        };
        assert!(object <= OBJECT_MASK, "object number {object} needs more than 48 bits");
        INodeNo(u64::from(slot) << SLOT_SHIFT | object)
    }

    /// The object `ino` of the same file system.
    pub(crate) fn sibling(self, ino: Ino) -> Node {
        match self {
            Node::Live(_) => Node::Live(ino),
            Node::Snapshot(slot, _) => Node::Snapshot(slot, ino),
            Node::Control(control) => Node::Control(control),
        }
    }
}

fn control(object: u64) -> Option<Control> {
    [Control::Root, Control::Snapshots, Control::Opener].into_iter().find(|&candidate| candidate as u64 + 1 == object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_root_is_the_root_fuse_expects() {
        assert_eq!(Node::Live(dataset::fs::ROOT).encode(), INodeNo::ROOT);
    }

    #[test]
    fn numbers_survive_a_round_trip_and_never_meet() {
        let nodes = [
            Node::Live(1),
            Node::Live(OBJECT_MASK),
            Node::Snapshot(Slot::FIRST, 1),
            Node::Snapshot(Slot::LAST, OBJECT_MASK),
            Node::Control(Control::Root),
            Node::Control(Control::Snapshots),
            Node::Control(Control::Opener),
        ];
        let mut numbers: Vec<u64> = nodes.iter().map(|node| node.encode().0).collect();
        for node in nodes {
            assert_eq!(Node::decode(node.encode()), Some(node));
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), nodes.len());
    }

    #[test]
    fn numbers_that_were_never_given_out_are_nothing() {
        assert_eq!(Node::decode(INodeNo(u64::MAX)), None);
        assert_eq!(Node::decode(INodeNo(u64::from(CONTROL_SLOT) << SLOT_SHIFT)), None);
    }

    #[test]
    fn slots_go_round() {
        assert_eq!(Slot::LAST.next(), Slot::FIRST);
        assert_eq!(Slot::FIRST.next(), Slot(2));
    }
}
