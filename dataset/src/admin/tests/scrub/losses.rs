//! The predicted loss of a device equals the real loss.

use pool::{device::Device, format::label::DATA_START, units::VdevId};

use super::{Bench, SIZE};
use crate::admin::{Loss, Survivors, tests::world::noise};

impl Bench {
    /// The predicted loss if only some vdevs remained.
    fn losses_but_for(&self, is_left: &dyn Fn(VdevId) -> bool) -> Vec<Loss> {
        self.world.datasets.losses(&Survivors { is_left, goes_on: &|| true }).unwrap()
    }

    /// The predicted loss without the second device.
    fn losses_without_the_second(&self) -> Vec<Loss> {
        self.losses_but_for(&|vdev| vdev != VdevId(1))
    }
}

#[test]
fn with_everything_no_more_is_lost_than_there_is() {
    let bench = Bench::new(2, 32);
    bench.world.create("tank/a").unwrap();
    (0..10).for_each(|n: u64| bench.world.write("tank/a", &n.to_string(), &noise(n + 1, 20_000)));
    bench.world.engine.commit().unwrap();
    let said = bench.losses_but_for(&|_| false);
    assert!(said.iter().all(|loss| loss.blocks > 0 && loss.lost_blocks == loss.blocks), "{said:?}");
    assert!(said.iter().all(|loss| loss.lost_files == loss.files), "{said:?}");
    // The root directory counts as a file.
    assert_eq!(said.iter().find(|loss| loss.name == "tank/a").unwrap().files, 11);
}

#[test]
fn what_is_said_to_be_lost_is_lost() {
    let bench = Bench::new(2, 31);
    bench.world.create("tank/a").unwrap();
    bench.world.create("tank/twice").unwrap();
    bench.set("tank/twice", "copies", "2");
    let name = |n: u64| format!("a file with a name that takes some room {n}");
    for n in 0..60 {
        bench.world.write("tank/a", &name(n), &noise(n + 1, 60_000));
        bench.world.write("tank/twice", &name(n), &noise(n + 1, 60_000));
    }
    bench.world.snapshot("tank/a@then").unwrap();
    bench.world.remove("tank/a", &name(0));
    bench.world.write("tank/a", "new", &noise(99, 400_000));
    bench.world.clone("tank/a@then", "tank/clone").unwrap();
    bench.world.engine.commit().unwrap();
    assert_eq!(bench.world.datasets.names_of_all().unwrap(), ["tank", "tank/a", "tank/twice", "tank/clone"]);
    let said = bench.losses_without_the_second();
    let of = |name: &str| said.iter().find(|loss| loss.name == name).unwrap();
    for whole in ["<metadata>", "tank", "tank/twice"] {
        assert!(of(whole).lost_blocks == 0 && of(whole).blocks > 0, "{said:?}");
    }
    let (a, clone) = (of("tank/a"), of("tank/clone"));
    assert!(a.lost_files > 5 && a.lost_files < a.files && a.lost_blocks < a.blocks, "{a:?}");
    assert!(clone.lost_files > 5, "what it shares counts too: {clone:?}");

    // Destroys the data of the device; labels stay, because without labels the pool could not be opened.
    let noise = noise(5, 1 << 20);
    for at in (DATA_START..SIZE - (1 << 20)).step_by(1 << 20) {
        bench.disks[1].write_at(at, &noise).unwrap();
    }
    bench.world.engine.forget_read();
    let unreadable = |dataset: &str| {
        let names: Vec<String> = (0..60).map(name).collect();
        names.iter().filter(|name| bench.read(dataset, name).is_err()).count() as u64
    };
    assert_eq!(unreadable("tank/twice"), 0);
    assert_eq!(unreadable("tank/clone"), clone.lost_files);
    // A scrub counts each lost block once: the clone's blocks are its origin's.
    assert_eq!(bench.scrub().errors, a.lost_blocks);
}
