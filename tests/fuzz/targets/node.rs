//! A node of a tree. The input is the node as stored in its block.

use pool::{
    format::node::NODE_MAX,
    tree::{Content, Interior, Leaf, Node},
};

/// A bound on the length of a node's header.
const HEADER: usize = 64;

pub(super) fn run(coded: &[u8]) -> bool {
    // No longer block is ever decoded as a node.
    let Some((node, txg)) = (coded.len() <= NODE_MAX).then(|| Node::decode(coded).ok()).flatten() else { return false };
    assert!(node.low < node.high);
    match &node.content {
        Content::Leaf(leaf) => check_leaf(&node, leaf),
        Content::Interior(interior) => check_interior(&node, interior),
    }
    let again = node.encode(txg);
    assert!(again.len() <= node.bound() + HEADER, "{} bytes, bounded by {}", again.len(), node.bound());
    let (same, same_txg) = Node::decode(&again).expect("what was read can be written and read again");
    assert_eq!((same.level(), same.low, same.high, same_txg), (node.level(), node.low, node.high, txg));
    assert_eq!(same.encode(txg), again);
    true
}

fn check_leaf(node: &Node, leaf: &Leaf) {
    assert!(leaf.items().is_sorted_by(|one, two| one.key() < two.key()));
    for (index, item) in leaf.items().iter().enumerate() {
        assert!((node.low..node.high).contains(&item.key()));
        assert_eq!(leaf.search(item.key()), Ok(index));
        leaf.body(item);
        leaf.pointer(item);
    }
}

fn check_interior(node: &Node, interior: &Interior) {
    assert!(!interior.children.is_empty() && interior.level > 0);
    assert_eq!(interior.children[0].low, node.low);
    for (index, child) in interior.children.iter().enumerate() {
        assert!(child.low < interior.high(index, node.high) && child.low < node.high);
        assert_eq!(interior.find(child.low), index);
    }
}
