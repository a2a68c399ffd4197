//! Blocks without a good copy are reported with the current names of files, until the blocks are gone.

use rustix::io::Errno;

use super::Bench;
use crate::{
    admin::tests::world::noise,
    catalogue::ScrubState,
    fs::ROOT,
    scrub::{damage::Damage, repair::SHARERS},
};

#[test]
fn a_file_without_a_good_copy_is_named_until_it_is_gone() {
    let bench = Bench::new(1, 4);
    bench.world.create("tank/a").unwrap();
    bench.world.write("tank/a", "good", &noise(1, 50_000));
    bench.world.write("tank/a", "lost", &noise(2, 50_000));
    bench.world.snapshot("tank/a@before").unwrap();
    bench.world.clone("tank/a@before", "tank/b").unwrap();
    bench.world.write("tank/a", "young", &noise(3, 50_000));
    let ino = bench.ino("tank/a", "lost");
    bench.spoil(&bench.data("tank/a", "lost"), 0);
    assert_eq!(bench.read("tank/a", "lost"), Err(Errno::IO));
    assert_eq!(bench.read("tank/a", "good").unwrap(), noise(1, 50_000));
    bench.repair();
    let mut ids = ["tank/a", "tank/a@before", "tank/b"].map(|name| bench.id(name));
    ids.sort_unstable();
    let lost = ids.map(|tree| Damage { tree, first: ino, last: ino });
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    let status = bench.scrub();
    assert_eq!((status.state, status.errors, status.repaired), (ScrubState::Finished, 1, 0));
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    assert!(!bench.world.datasets.has_lost_nodes().unwrap(), "one file is no node");
    let mut bench = bench;
    bench.world.reopen();
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    bench.world.remove("tank/a", "lost");
    bench.world.destroy("tank/a@before", false, true).unwrap();
    assert_eq!(bench.scrub().errors, 0);
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
}

#[test]
fn a_widely_shared_lost_block_names_files_at_once_and_on_read() {
    let bench = Bench::new(1, 12);
    bench.world.create("tank/a").unwrap();
    bench.world.write("tank/a", "lost", &noise(2, 50_000));
    bench.world.snapshot("tank/a@before").unwrap();
    for number in 0..2 * SHARERS {
        bench.world.clone("tank/a@before", &format!("tank/b{number}")).unwrap();
    }
    let count = || bench.world.datasets.damage().unwrap().len();
    bench.spoil(&bench.data("tank/a", "lost"), 0);
    assert_eq!(bench.read("tank/a", "lost"), Err(Errno::IO));
    bench.repair();
    assert_eq!(count(), SHARERS, "of {} who have it", 2 * SHARERS + 2);
    let named = bench.world.datasets.damaged_names().unwrap();
    let is_named = |number: &usize| named.contains(&format!("tank/b{number}:/lost"));
    let other = (0..2 * SHARERS).find(|number| !is_named(number)).unwrap();
    bench.clear();
    assert_eq!(bench.read(&format!("tank/b{other}"), "lost"), Err(Errno::IO));
    bench.repair();
    assert!(bench.world.datasets.damaged_names().unwrap().contains(&format!("tank/b{other}:/lost")));
}

#[test]
fn a_lost_node_names_the_objects_that_were_in_it() {
    let bench = Bench::new(1, 5);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"content");
    }
    let (found, _) = bench.blocks("tank");
    let leaf = found.iter().rfind(|(level, _)| *level == 0).unwrap().1;
    bench.spoil(&leaf, 0);
    let status = bench.scrub();
    assert_eq!(status.errors, 1);
    let damage = bench.world.datasets.damage().unwrap();
    let [Damage { tree, first, last }] = damage[..] else { panic!("{damage:?}") };
    assert_eq!(tree, bench.id("tank"));
    assert!(bench.world.datasets.has_lost_nodes().unwrap());
    for n in 0..400 {
        let name = format!("a file with a name that takes some room {n}");
        let ino = bench.world.fs("tank").lookup(ROOT, name.as_bytes());
        match ino {
            Ok(entry) => assert!(!(first + 1..last).contains(&entry.ino), "{name} is named and can be read"),
            Err(errno) => assert_eq!(errno, Errno::IO),
        }
    }
}

#[test]
fn damage_has_the_names_of_today() {
    let bench = Bench::new(1, 12);
    bench.world.create("tank/a").unwrap();
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"content");
    }
    bench.world.write("tank/a", "first name", &noise(1, 50_000));
    bench.world.write("tank/a", "gone", &noise(2, 50_000));
    let ino = bench.ino("tank/a", "gone");
    for file in ["first name", "gone"] {
        bench.spoil(&bench.data("tank/a", file), 0);
    }
    let (found, _) = bench.blocks("tank");
    bench.spoil(&found.iter().rfind(|(level, _)| *level == 0).unwrap().1, 0);
    bench.scrub();
    bench.world.fs("tank/a").rename(ROOT, b"first name", ROOT, b"second name", Default::default()).unwrap();
    bench.world.remove("tank/a", "gone");
    bench.world.engine.commit().unwrap();
    let names = bench.world.datasets.damaged_names().unwrap();
    let (in_a, others): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name.starts_with("tank/a:"));
    assert_eq!(in_a, ["tank/a:/second name".to_owned(), format!("tank/a:<{ino:#x}>")]);
    assert!(others.len() > 10 && others.iter().all(|name| name.starts_with("tank:/a file with")), "{others:?}");
    let id = bench.id("tank/a");
    bench.world.destroy("tank/a", false, false).unwrap();
    let names = bench.world.datasets.damaged_names().unwrap();
    assert!(names.contains(&format!("<{id:#x}>:<{ino:#x}>")), "{names:?}");
}
