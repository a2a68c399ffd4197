//! Rewinding to an older state: only on request, to the newest readable state or a named one, with the loss reported
//! before any write.

use insta::assert_snapshot;
use pool::{device::Device, format::label::DATA_START};

use crate::{filters, hash, image, opened, states, three_days, wreck};

#[test]
fn an_unreadable_newest_state_is_rewound_only_on_request() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let before = states(&lab);
    wreck(&lab, &before[0].catalogue);
    let damaged = hash(&lab.path("tank.img"));
    assert_snapshot!(lab.session(&["pool import -d . tank", "pool import -d . -F -n tank"]), @r"
    $ pool import -d . tank
    pool: cannot open 'tank': transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      to see what a rewind would lose: pool import -F -n tank
    [exit 1]
    $ pool import -d . -F -n tank
    pool 'tank' would be rewound by [TIME]
      newest: transaction group [TXG], of [DATE]
      damaged: transaction group [TXG], of [DATE]: transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      would take: transaction group [TXG], of [DATE]
    All changes of the [TIME] after that would be lost. Nothing was written.
    to rewind: pool import -F tank
    [exit 0]
    ");
    assert_eq!(hash(&lab.path("tank.img")), damaged);
    assert_snapshot!(lab.session(&["pool import -d . -F tank", "fs ls tank:/", "pool export tank"]), @r"
    $ pool import -d . -F tank
    pool 'tank' was rewound by [TIME]
      newest: transaction group [TXG], of [DATE]
      damaged: transaction group [TXG], of [DATE]: transaction group [TXG] of pool tank cannot be read: damaged block at chunk [C] sector [S], born in [TXG]: its checksum does not match on [LAB]/tank.img
      took: transaction group [TXG], of [DATE]
    All changes of the [TIME] after that are lost.
    [exit 0]
    $ fs ls tank:/
    monday
    tuesday
    wednesday
    [exit 0]
    $ pool export tank
    [exit 0]
    ");
    assert_snapshot!(lab.session(&["pool check -d . tank", "pool import -d . -F -n tank"]), @r"
    $ pool check -d . tank
    checked pool 'tank' at transaction group [TXG]: 1 dataset, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    $ pool import -d . -F -n tank
    the newest state of pool 'tank' is readable: transaction group [TXG], of [DATE]
    Nothing would be lost. Nothing was written.
    [exit 0]
    ");
    assert!(states(&lab).iter().all(|state| state.txg != before[0].txg || state.epoch == before[0].epoch));
}

#[test]
fn an_older_state_is_looked_at_without_writing_anything() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let before = hash(&lab.path("tank.img"));
    let monday = states(&lab).into_iter().map(|state| state.txg.0).find(|txg| {
        let at = txg.to_string();
        lab.pool(&["import", "-d", ".", "-F", "-T", &at, "-o", "readonly=on", "tank"]);
        let shown = lab.fs(&["ls", "tank:/"]);
        lab.pool(&["export", "tank"]);
        shown == "monday\n"
    });
    assert_eq!(hash(&lab.path("tank.img")), before);
    let monday = monday.expect("the state of monday is kept").to_string();
    assert_snapshot!(lab.session(&[
        &format!("pool import -d . -F -n -T {monday} tank"),
        &format!("pool import -d . -F -T {monday} tank"),
        "fs ls tank:/",
        "pool export tank",
        "pool check -d . tank",
        "pool import -d . -F -n -T 99999 tank",
        "pool import -d . -T 5 tank",
        "pool import -d . -F",
    ]), @r"
    $ pool import -d . -F -n -T [TXG] tank
    pool 'tank' would be rewound by [TIME]
      newest: transaction group [TXG], of [DATE]
      would take: transaction group [TXG], of [DATE]
    All changes of the [TIME] after that would be lost. Nothing was written.
    to rewind: pool import -F -T [TXG] tank
    [exit 0]
    $ pool import -d . -F -T [TXG] tank
    pool 'tank' was rewound by [TIME]
      newest: transaction group [TXG], of [DATE]
      took: transaction group [TXG], of [DATE]
    All changes of the [TIME] after that are lost.
    [exit 0]
    $ fs ls tank:/
    monday
    [exit 0]
    $ pool export tank
    [exit 0]
    $ pool check -d . tank
    checked pool 'tank' at transaction group [TXG]: 1 dataset, [N] blocks, [SIZE]
    no errors found
    [exit 0]
    $ pool import -d . -F -n -T [TXG] tank
    pool: cannot rewind 'tank': it has no state of transaction group [TXG]: the devices keep transaction groups [TXG] to [TXG]
    [exit 1]
    $ pool import -d . -T [TXG] tank
    error: the following required arguments were not provided:
      -F

    Usage: pool import [OPTIONS] [POOL|GUID] [NEWNAME]

    For more information, try '--help'.
    [exit 2]
    $ pool import -d . -F
    error: the following required arguments were not provided:
      <POOL|GUID>

    Usage: pool import [OPTIONS] [POOL|GUID] [NEWNAME]

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn a_state_with_unreadable_datasets_is_skipped() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let pool = opened(&lab);
    let datasets = dataset::admin::Datasets::open(pool.engine().clone(), "tank".parse().unwrap()).unwrap();
    let head = datasets.open_dataset(&"tank".parse().unwrap()).unwrap().head().clone();
    let (root, _) = head.clean_root().unwrap();
    drop((head, datasets, pool));
    wreck(&lab, &root);
    lab.pool(&["import", "-d", ".", "-F", "tank"]);
    assert_eq!(lab.fs(&["ls", "tank:/"]), "monday\ntuesday\n");
    lab.pool(&["export", "tank"]);
    lab.pool(&["check", "-d", ".", "tank"]);
}

#[test]
fn a_pool_without_readable_states_explains_each() {
    let (lab, _filters) = (three_days(), filters().bind_to_scope());
    let device = image(&lab);
    device.write_at(DATA_START, &vec![0xee; 32 << 20]).unwrap();
    drop(device);
    let refused = lab.run("pool", &["import", "-d", ".", "-F", "-n", "tank"]).fails(1);
    assert!(refused.starts_with("pool: cannot rewind 'tank': no state can be read\n"), "{refused}");
    assert_eq!(refused.lines().count(), 1 + states(&lab).len(), "{refused}");
}
