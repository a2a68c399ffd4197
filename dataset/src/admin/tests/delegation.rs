//! Grants: bounds, and requests of users other than the pool's owner.

use std::collections::BTreeSet;

use super::world::{World, name, refusal};
use crate::{
    admin::{Grantee, Reach},
    error::Error,
};

const BOTH: Reach = Reach { local: true, descendent: true };

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_set_with_an_impossible_name_is_refused() {
    let world = World::new(1);
    let root = name("tank");
    for set in [format!("@{}", "a".repeat(20_000)), "user 5".into(), "everyone".into(), "@".into(), "@a b".into()] {
        let to = [Grantee::Set(set)];
        assert!(matches!(refusal(world.datasets.allow(&root, &to, &names(&["send"]), BOTH)), Error::BadSet));
        assert!(matches!(refusal(world.datasets.unallow(&root, &to, &names(&[]), BOTH, false)), Error::BadSet));
    }
    assert!(world.datasets.allowances(&root).unwrap().is_empty());
    world.judge();
}

#[test]
fn the_grants_of_a_dataset_are_bounded() {
    let world = World::new(2);
    let root = name("tank");
    let users = |from: u32, to: u32| (from..to).map(Grantee::User).collect::<Vec<_>>();
    world.datasets.allow(&root, &users(0, 1000), &names(&["send"]), BOTH).unwrap();
    let refused = refusal(world.datasets.allow(&root, &users(1000, 1001), &names(&["send"]), BOTH));
    assert!(matches!(refused, Error::TooManyGrants { most: 1000 }));
    // A present grantee gets further permissions, and a grant taken back leaves room.
    world.datasets.allow(&root, &users(7, 8), &names(&["hold"]), BOTH).unwrap();
    world.datasets.unallow(&root, &users(0, 1), &names(&[]), BOTH, false).unwrap();
    world.datasets.allow(&root, &users(1000, 1001), &names(&["send"]), BOTH).unwrap();
    world.judge();
}
