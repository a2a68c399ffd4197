//! Scrubs of parts of a pool, and the removal of repaired objects from the list of damage.

use pool::error::Error as PoolError;

use super::{BUDGET, Bench};
use crate::{
    admin::{Progress, tests::world::noise},
    error::Error,
    fs::ROOT,
    jobs::{Examined, Scope},
    scrub::damage::Damage,
};

impl Bench {
    fn examine(&self, scope: &Scope) -> Examined {
        let mut examination = self.world.datasets.begin_examination(scope).unwrap();
        while self.world.datasets.examination_step(&mut examination, BUDGET).unwrap() == Progress::Worked {}
        examination.found()
    }

    fn is_whole(&self, dataset: &str, file: &str) -> bool {
        self.world.engine.storage().examine(&self.data(dataset, file)).is_whole()
    }

    fn file(&self, dataset: &str, file: &str) -> Scope {
        let found = self.world.fs(dataset).lookup(ROOT, file.as_bytes()).unwrap();
        Scope::File(self.id(dataset), found.identity())
    }

    fn tree(&self, name: &str) -> Scope {
        Scope::Tree(name.parse().unwrap())
    }
}

#[test]
fn a_part_is_repaired_and_nothing_else() {
    let bench = Bench::new(2, 21);
    for dataset in ["tank/a", "tank/b"] {
        bench.world.create(dataset).unwrap();
        bench.set(dataset, "copies", "2");
        for n in 0..200 {
            bench.world.write(dataset, &format!("a file with a name that takes some room {n}"), &noise(n + 1, 3000));
        }
        for file in ["one", "two"] {
            bench.world.write(dataset, file, &noise(7, 300_000));
        }
    }
    bench.world.snapshot("tank/a@then").unwrap();
    bench.world.write("tank/a", "new", &noise(8, 300_000));
    let files = [("tank/a", "one"), ("tank/a", "two"), ("tank/a", "new"), ("tank/b", "one")];
    for (dataset, file) in files {
        bench.spoil(&bench.data(dataset, file), 1);
    }
    let whole = || files.map(|(dataset, file)| bench.is_whole(dataset, file));
    assert_eq!(whole(), [false; 4]);
    let file = bench.file("tank/a", "two");
    let found = bench.examine(&file);
    assert!(found.repaired > 0 && found.errors == 0 && (600_000..700_000).contains(&found.examined), "{found:?}");
    assert_eq!(whole(), [false, true, false, false]);
    let found = bench.examine(&bench.tree("tank/a@then"));
    assert!(found.repaired > 0 && found.examined > 2_400_000, "{found:?}");
    assert_eq!(whole(), [true, true, false, false]);
    bench.examine(&bench.tree("tank/a"));
    assert_eq!(whole(), [true, true, true, false]);
    let again = bench.examine(&bench.tree("tank/a"));
    assert_eq!((again.repaired, again.errors), (0, 0));
    bench.examine(&bench.tree("tank/b"));
    assert_eq!(whole(), [true; 4]);
    bench.world.judge_damaged();
}

#[test]
fn a_file_that_was_replaced_is_not_examined_as_another() {
    let bench = Bench::new(2, 25);
    bench.world.create("tank/a").unwrap();
    bench.world.snapshot("tank/a@before").unwrap();
    bench.world.write("tank/a", "found", &noise(1, 300_000));
    let scope = bench.file("tank/a", "found");
    let mut examination = bench.world.datasets.begin_examination(&scope).unwrap();
    let mut step = || bench.world.datasets.examination_step(&mut examination, BUDGET);
    assert_eq!(step().unwrap(), Progress::Worked);
    bench.world.rollback("tank/a@before", false, false).unwrap();
    bench.world.write("tank/a", "other", &noise(2, 300_000));
    bench.world.engine.commit().unwrap();
    let Scope::File(_, (ino, ..)) = scope else { unreachable!("it is a file's") };
    assert_eq!(bench.ino("tank/a", "other"), ino, "the number is used again");
    assert!(matches!(step(), Err(Error::Pool(PoolError::Stale))));
    bench.world.rollback("tank/a@before", false, false).unwrap();
    assert_eq!(bench.examine(&scope), Examined::default(), "what is gone needs nothing");
}

#[test]
fn nodes_of_a_part_are_repaired_too() {
    let bench = Bench::new(2, 22);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"content");
    }
    let (nodes, _) = bench.blocks("tank");
    assert!(nodes.len() > 2);
    nodes.iter().enumerate().for_each(|(n, (_, node))| bench.spoil(node, n % 2));
    let storage = bench.world.engine.storage();
    bench.examine(&bench.tree("tank"));
    assert!(nodes.iter().all(|(_, node)| storage.examine(node).is_whole()));
}

#[test]
fn what_is_damaged_leaves_the_list_when_it_is_good_again() {
    let bench = Bench::new(1, 23);
    bench.world.create("tank/a").unwrap();
    for file in ["first", "second", "unknown"] {
        bench.world.write("tank/a", file, &noise(1, 50_000));
    }
    assert_eq!(bench.examine(&Scope::Damage), Examined::default());
    let blocks = ["first", "second"].map(|file| bench.data("tank/a", file));
    let (nodes, _) = bench.blocks("tank");
    let root = nodes[0].1;
    blocks.iter().chain([&root]).for_each(|block| bench.spoil(block, 0));
    assert_eq!(bench.scrub().errors, 3);
    let known = bench.world.datasets.damage().unwrap();
    assert_eq!(known.len(), 3);
    bench.spoil(&bench.data("tank/a", "unknown"), 0);
    let found = bench.examine(&Scope::Damage);
    assert_eq!((found.errors, found.repaired), (3, 0));
    assert_eq!(bench.world.datasets.damage().unwrap(), known, "what nobody knows of is not looked for");
    // Inverting the bytes once more restores the content.
    bench.spoil(&blocks[0], 0);
    bench.spoil(&root, 0);
    assert_eq!(bench.examine(&Scope::Damage).errors, 1);
    let second = bench.ino("tank/a", "second");
    let left = Damage { tree: bench.id("tank/a"), first: second, last: second };
    assert_eq!(bench.world.datasets.damage().unwrap(), [left]);
    bench.world.destroy("tank/a", false, false).unwrap();
    assert_eq!(bench.examine(&Scope::Damage), Examined::default());
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
}

#[test]
fn a_known_entry_stays_while_the_way_to_it_cannot_be_read() {
    let bench = Bench::new(1, 24);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), &noise(n + 1, 3000));
    }
    let file = "a file with a name that takes some room 390";
    let block = bench.data("tank", file);
    let root = bench.blocks("tank").0[0].1;
    let ino = bench.ino("tank", file);
    bench.spoil(&block, 0);
    bench.scrub();
    let entry = Damage { tree: bench.id("tank"), first: ino, last: ino };
    assert_eq!(bench.world.datasets.damage().unwrap(), [entry]);
    bench.spoil(&root, 0);
    bench.examine(&Scope::Damage);
    let damage = bench.world.datasets.damage().unwrap();
    assert!(damage.iter().any(|damage| damage.first <= ino && ino <= damage.last), "{damage:?}");
    bench.spoil(&root, 0);
    bench.examine(&Scope::Damage);
    bench.examine(&Scope::Damage);
    assert_eq!(bench.world.datasets.damage().unwrap(), [entry], "it is still lost");
}
