//! Devices to be removed from any pool.

use std::{fs, os::unix::fs::FileExt};

use insta::assert_snapshot;

use crate::{filters, lab::Lab};

#[test]
fn a_device_belongs_to_no_pool_any_more() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "64M:a.img", "64M:b.img"]);
    let before = fs::read(lab.path("a.img")).unwrap();
    assert_snapshot!(lab.session(&["pool labelclear -f a.img"]), @r"
    $ pool labelclear -f a.img
    pool: cannot clear the labels of '[LAB]/a.img': it belongs to pool 'tank', which is imported
      detach the device from its mirror: pool detach tank [LAB]/a.img
      or destroy the pool: pool destroy tank
    [exit 1]
    ");
    lab.pool(&["export", "tank"]);
    let exported = fs::read(lab.path("a.img")).unwrap();
    assert!(exported != before, "to be compared");
    assert_snapshot!(lab.session(&["pool labelclear a.img"]), @r"
    $ pool labelclear a.img
    pool: cannot clear the labels of '[LAB]/a.img': it belongs to pool 'tank', which is exported
      use -f to erase the labels; the pool's data on the device is lost
    [exit 1]
    ");
    assert!(fs::read(lab.path("a.img")).unwrap() == exported, "it was refused");
    lab.pool(&["import", "-d", ".", "tank"]);
    lab.pool(&["destroy", "tank"]);
    assert_snapshot!(lab.session(&[
        "pool labelclear a.img",
        "pool labelclear a.img",
        "pool labelclear none.img",
        "pool labelclear .",
    ]), @r"
    $ pool labelclear a.img
    [exit 0]
    $ pool labelclear a.img
    pool: cannot clear the labels of '[LAB]/a.img': it has none
    [exit 1]
    $ pool labelclear none.img
    pool: cannot clear the labels of '[LAB]/none.img': [LAB]/none.img: cannot open: No such file or directory
      check the path, the permissions and the device; for a pool: pool status
    [exit 1]
    $ pool labelclear .
    pool: cannot clear the labels of '[LAB]': [LAB] is neither a file nor a block device
    [exit 1]
    ");
    lab.run("pool", &["import", "-D", "-d", "a.img"]).fails(1);
    lab.pool(&["import", "-D", "-d", "b.img"]);
    lab.pool(&["create", "-m", "none", "other", "a.img"]);
}

#[test]
fn unreadable_and_foreign_devices_are_reported() {
    let (lab, _filters) = (Lab::mountless(), filters().bind_to_scope());
    lab.pool(&["create", "-m", "none", "tank", "64M:a.img"]);
    lab.pool(&["export", "tank"]);
    let image = fs::File::options().write(true).open(lab.path("a.img")).unwrap();
    for label in [0, 256 << 10, (64 << 20) - (512 << 10), (64 << 20) - (256 << 10)] {
        image.write_all_at(&[0xee; 9], label + (4 << 10) + 20).unwrap();
    }
    let other = fs::File::create(lab.path("other.img")).unwrap();
    other.set_len(64 << 20).unwrap();
    // The magic number of an ext4 file system.
    other.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    assert_snapshot!(lab.session(&[
        "pool labelclear a.img",
        "pool labelclear -f a.img",
        "pool labelclear -f a.img",
        "pool labelclear -f other.img",
    ]), @r"
    $ pool labelclear a.img
    pool: cannot clear the labels of '[LAB]/a.img': damaged label at byte [N]: malformed checksum of a label
      use -f to erase the labels anyway
    [exit 1]
    $ pool labelclear -f a.img
    [exit 0]
    $ pool labelclear -f a.img
    pool: cannot clear the labels of '[LAB]/a.img': it has none
    [exit 1]
    $ pool labelclear -f other.img
    pool: cannot clear the labels of '[LAB]/other.img': it has none: it holds an ext2, ext3 or ext4 file system
    [exit 1]
    ");
}
