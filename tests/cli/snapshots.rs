//! Snapshots with all that depends on them: differences, holds, bookmarks, rollbacks, clones; and what a destroy would
//! also destroy.

use insta::assert_snapshot;

use crate::{filters, furnished};

#[test]
fn snapshots_are_taken_held_and_destroyed() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "fs snapshot tank/home@monday",
        "fs snapshot tank/home@tuesday",
        "fs diff tank/home@monday",
        "fs diff -F -H tank/home@monday tank/home@tuesday",
        "fs hold keep tank/home@monday",
        "fs hold keep tank/home@monday",
        "fs holds tank/home@monday",
        "fs destroy tank/home@monday",
        "fs release keep tank/home@monday",
        "fs release keep tank/home@monday",
        "fs bookmark tank/home@monday tank/home#monday",
        "fs list -t bookmark",
        "fs rollback tank/home@monday",
        "fs rollback -r tank/home@monday",
        "fs list -H -t all -o name -r tank",
        "fs clone tank/home@monday tank/copy",
        "fs destroy tank/home@monday",
        "fs destroy -n -v -R tank/home@monday",
        "fs promote tank/copy",
        "fs get -H -o value origin tank/home",
        "fs promote tank/copy",
        "fs destroy tank/copy",
        "fs destroy -n -v -r tank/copy",
        "fs destroy -v tank/home",
        "fs destroy -v tank/copy@nothing%monday",
        "fs destroy -v tank/copy@%monday",
        "fs destroy -v -r tank/copy",
        "fs list -H -t all -o name",
    ]), @r"
    $ fs snapshot tank/home@monday
    fs: cannot create snapshot 'tank/home@monday': dataset already exists
    [exit 1]
    $ fs snapshot tank/home@tuesday
    [exit 0]
    $ fs diff tank/home@monday
    M	tank/home:/
    +	tank/home:/second
    [exit 0]
    $ fs diff -F -H tank/home@monday tank/home@tuesday
    M	/	tank/home:/
    +	F	tank/home:/second
    [exit 0]
    $ fs hold keep tank/home@monday
    [exit 0]
    $ fs hold keep tank/home@monday
    fs: cannot hold snapshot 'tank/home@monday': hold 'keep on tank/home@monday' already exists
    [exit 1]
    $ fs holds tank/home@monday
    NAME              TAG   TIMESTAMP
    tank/home@monday  keep  [DATE]
    [exit 0]
    $ fs destroy tank/home@monday
    fs: cannot destroy 'tank/home@monday': 'tank/home@monday' is held: keep
      release the holds, or use -d to destroy the snapshot after the last release
    [exit 1]
    $ fs release keep tank/home@monday
    [exit 0]
    $ fs release keep tank/home@monday
    fs: cannot release hold from snapshot 'tank/home@monday': cannot find hold 'keep'
    [exit 1]
    $ fs bookmark tank/home@monday tank/home#monday
    [exit 0]
    $ fs list -t bookmark
    NAME              USED  AVAIL  REFER  MOUNTPOINT
    tank/home#monday     -      -     8K  -
    [exit 0]
    $ fs rollback tank/home@monday
    fs: cannot rollback to 'tank/home@monday': 'tank/home@monday' is not the most recent: later ones exist: tank/home@tuesday
      use -r to destroy the later snapshots
    [exit 1]
    $ fs rollback -r tank/home@monday
    [exit 0]
    $ fs list -H -t all -o name -r tank
    tank
    tank/home
    tank/home@monday
    tank/home#monday
    [exit 0]
    $ fs clone tank/home@monday tank/copy
    [exit 0]
    $ fs destroy tank/home@monday
    fs: cannot destroy 'tank/home@monday': 'tank/home@monday' has dependent clones: tank/copy
      use -R to destroy the clones too, or promote the clones first
    [exit 1]
    $ fs destroy -n -v -R tank/home@monday
    would destroy tank/copy
    would destroy tank/home@monday
    would reclaim 0B
    [exit 0]
    $ fs promote tank/copy
    [exit 0]
    $ fs get -H -o value origin tank/home
    tank/copy@monday
    [exit 0]
    $ fs promote tank/copy
    fs: cannot promote 'tank/copy': 'tank/copy' is not a clone
    [exit 1]
    $ fs destroy tank/copy
    fs: cannot destroy 'tank/copy': 'tank/copy' has snapshots: tank/copy@monday
      use -r to destroy all of them
    [exit 1]
    $ fs destroy -n -v -r tank/copy
    fs: cannot destroy 'tank/copy': 'tank/copy@monday' has dependent clones: tank/home
      use -R to destroy the clones too, or promote the clones first
    [exit 1]
    $ fs destroy -v tank/home
    will destroy tank/home
    will reclaim 0B
    [exit 0]
    $ fs destroy -v tank/copy@nothing%monday
    fs: cannot open 'tank/copy@nothing%monday': dataset does not exist
    [exit 1]
    $ fs destroy -v tank/copy@%monday
    will destroy tank/copy@monday
    will reclaim 0B
    [exit 0]
    $ fs destroy -v -r tank/copy
    will destroy tank/copy
    will reclaim 8K
    [exit 0]
    $ fs list -H -t all -o name
    tank
    [exit 0]
    ");
}
