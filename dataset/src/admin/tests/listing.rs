//! Lists walked in steps while the listed objects are destroyed.

use super::world::World;
use crate::{
    admin::{ListRequest, Listed},
    property::Kinds,
};

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

#[test]
fn a_part_of_a_list_is_that_part_of_the_whole() {
    let world = World::new(92);
    for dataset in ["tank/a", "tank/a/b", "tank/a/b/c", "tank/d", "tank/e"] {
        world.create(dataset).unwrap();
        world.snapshot(&format!("{dataset}@1")).unwrap();
    }
    world.snapshot("tank/a@2").unwrap();
    for kinds in [Kinds::FILESYSTEM, Kinds::SNAPSHOT, Kinds::ALL_DATASETS] {
        for depth in [Some(0), Some(1), Some(2), None] {
            let request = ListRequest { roots: Vec::new(), depth, kinds };
            let named = |listed: &[Listed]| listed.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
            let whole = named(&world.datasets.list(&request).unwrap());
            for (skip, most) in [(0, 0), (0, 2), (1, 2), (3, 1), (4, 100), (100, 2), (u64::MAX, u64::MAX)] {
                let mut listing = world.datasets.begin_list(&request, &[]);
                listing.restrict(skip, most);
                let mut part = Vec::new();
                while let Some(step) = world.datasets.list_step(&mut listing).unwrap() {
                    part.extend(named(&step));
                }
                let expected: Vec<_> = whole.iter().skip(skip as usize).take(most as usize).cloned().collect();
                let case = format!("{kinds:?} {depth:?} {skip} {most}");
                assert_eq!((part, listing.total()), (expected, whole.len() as u64), "{case}");
            }
        }
    }
}
