//! Lists walked in steps while the listed objects are destroyed.

use super::world::World;
use crate::{admin::ListRequest, property::Kinds};

const CHILDREN: usize = 120;

#[test]
fn what_is_destroyed_between_two_steps_is_left_out() {
    // The position of the first step's end depends on the number of preceding datasets.
    for before in 0..4 {
        let world = World::new(91);
        (0..before).for_each(|number| drop(world.create(&format!("tank/{number}")).unwrap()));
        world.create("tank/a").unwrap();
        (0..CHILDREN).for_each(|number| drop(world.create(&format!("tank/a/{number}")).unwrap()));
        let request = ListRequest { roots: Vec::new(), depth: None, kinds: Kinds::FILESYSTEM };
        let mut listing = world.datasets.begin_list(&request, &[]);
        let first = world.datasets.list_step(&mut listing).unwrap().unwrap();
        assert!(first.len() < CHILDREN, "the list has more than one step");
        world.destroy("tank/a", true, false).unwrap();
        while let Some(step) = world.datasets.list_step(&mut listing).unwrap() {
            assert!(step.is_empty(), "{before}: {}", step[0].name);
        }
    }
}
