//! A small pool on an expanded RAID-Z with rows of both widths. It was written once, and every later version opens it
//! with any one device missing.

use std::{
    fs,
    sync::{Arc, LazyLock},
};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    format::{
        key::Key,
        label::{Compatibility, RAIDZ_EXPANSION},
        pointer::BlockPointer,
        vdev_config::VdevTree,
    },
    space::{Packs, Regions, Targets},
    tree::{Event, Miss, Root, Walker},
    txg::{Engine, Vacating},
    units::Txg,
    vdev::labels,
};

use crate::{
    golden,
    image::{OneTree, ROUNDS, SIZE, contents, expected, findings, put_all, root, round_of, settings},
    pages,
};

const DEVICES: usize = 4;
/// The bound on the size of all images together, in bytes.
const MOST: usize = 200_000;
/// So many of its first regions become wide.
const WIDENED: u32 = 24;

fn name(device: usize) -> String {
    format!("disk{device}")
}

fn each_block(engine: &Engine, (pointer, level): (BlockPointer, u8), mut visit: impl FnMut(BlockPointer)) {
    let root = Miss::root(&Root::stored(pointer, level)).unwrap();
    let seen = engine.pin().seen();
    let mut walker = Walker::new(root, Key::MIN, Txg::ZERO);
    while let Some(event) = walker.next(|place| engine.load_node(place, seen)).unwrap() {
        let Event::Enter(place, node) = event else { continue };
        visit(place.pointer);
        let leaf = node.leaf().into_iter();
        leaf.for_each(|leaf| leaf.items().iter().filter_map(|item| leaf.pointer(item)).for_each(&mut visit));
    }
}

/// Widens the first regions, after their blocks were copied elsewhere.
fn widen(pool: &Pool) {
    let (engine, widening) = (pool.engine(), pool.widening().unwrap());
    let first = widening.narrow.first_region;
    let regions = Regions::Range(widening.vdev, first..first + WIDENED);
    engine.close(&regions);
    loop {
        match engine.vacate(&regions, &Targets::Anywhere, Packs::Never).unwrap() {
            Vacating::Copying => {
                engine.commit_anyway().unwrap();
                let evacuation = engine.evacuation();
                let still = engine.hold_still();
                for tree in [engine.catalogue().clean_root().unwrap(), root(engine)] {
                    each_block(engine, tree, |pointer| assert!(still.evacuate(&[pointer])[0].is_ok()));
                }
                assert!(still.change_places(&evacuation).unwrap());
            }
            Vacating::Vacated => break,
            Vacating::Working | Vacating::Waiting => {}
        }
    }
    engine.outlast_states().unwrap();
    pool.widen(widening.vdev, WIDENED).unwrap();
}

/// Makes the pool for the images: one half is written before the device is added, the other afterwards.
fn make() -> Vec<MemoryDevice> {
    let devices: Vec<_> = (0..DEVICES).map(|at| Arc::new(MemoryDevice::new(name(at), SIZE))).collect();
    let options = CreateOptions { settings: settings(), host: (1, "well".into()), ..CreateOptions::new("tank") };
    let members = devices[..DEVICES - 1].iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let vdev = NewVdev::RaidZ { parity: 1, devices: members };
    let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(OneTree));
    let head = pool.engine().open_head(1, None);
    for round in 0..ROUNDS {
        put_all(&head, &round_of(round)).unwrap();
        pool.engine().commit().unwrap();
        if round == ROUNDS / 2 {
            pool.attach_column("raidz1-0", devices[DEVICES - 1].clone()).unwrap();
            widen(&pool);
        }
    }
    pool.export().unwrap();
    devices.iter().map(|device| device.snapshot()).collect()
}

/// The committed images. Only missing images are made: committed images are never rewritten.
static PACKED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let paths: Vec<_> = (0..DEVICES).map(|at| golden::path(&format!("expanded-1-{at}.pages.zst"))).collect();
    if golden::blessing() && paths.iter().all(|path| !path.exists()) {
        let images = make();
        paths.iter().zip(&images).for_each(|(path, image)| fs::write(path, pages::pack(image)).unwrap());
    }
    let read = |path: &std::path::PathBuf| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
});

/// The devices without those in `gone`.
fn devices(gone: &[usize]) -> Vec<Arc<dyn Device>> {
    let there = (0..DEVICES).filter(|at| !gone.contains(at));
    there.map(|at| Arc::new(pages::unpack(&PACKED[at], &name(at), SIZE)) as Arc<dyn Device>).collect()
}

#[test]
fn its_images_are_small() {
    assert!(PACKED.iter().map(Vec::len).sum::<usize>() < MOST);
}

#[test]
fn its_labels_name_the_feature_and_rows_of_two_widths() {
    for device in devices(&[]) {
        let label = labels::read_label(&*device).unwrap().expect("a label");
        assert_eq!(label.features.get(RAIDZ_EXPANSION), Some(&Compatibility::None));
        let VdevTree::RaidZ(raidz) = &label.vdevs[0].tree else { panic!("it is a raidz") };
        assert_eq!(raidz.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [4, 3]);
    }
}

#[test]
fn it_opens_whichever_device_is_gone_and_holds_what_was_put_in() {
    for gone in [vec![], vec![0], vec![1], vec![2], vec![3]] {
        for read_only in [true, false] {
            let options = OpenOptions { settings: settings(), read_only, ..OpenOptions::default() };
            let pool = admin::open(devices(&gone), &options, Arc::new(SeededEnv::new(2))).unwrap();
            let engine = pool.engine();
            let (pointer, level) = root(engine);
            let head = engine.open_frozen(1, pointer, level);
            assert!(contents(&head) == expected(), "without {gone:?}");
            assert_eq!(findings(engine), [], "without {gone:?}");
        }
    }
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    assert!(admin::open(devices(&[0, 3]), &options, Arc::new(SeededEnv::new(2))).is_err());
}
