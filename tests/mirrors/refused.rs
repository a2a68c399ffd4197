//! Refused operations on mirrors, with their messages.

use insta::assert_snapshot;

use crate::{filters, furnished};

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let (lab, _filters) = (furnished(), filters().bind_to_scope());
    assert_snapshot!(lab.session(&[
        "pool create other mirror 64M:x.img",
        "pool create other 64M:w.img mirror 64M:x.img 64M:y.img",
        "pool create other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img 64M:v.img",
        "pool create -n other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img",
        "pool add tank 64M:x.img",
        "pool add -n tank mirror 64M:x.img 64M:y.img",
        "pool attach tank a.img 64M:small.img",
        "pool attach tank nowhere.img 80M:x.img",
        "pool detach tank nowhere.img",
    ]), @r"
    $ pool create other mirror 64M:x.img
    pool: cannot create 'other': a mirror has 2 to 16 devices
      name devices after the word: mirror DEVICE DEVICE
    [exit 1]
    $ pool create other 64M:w.img mirror 64M:x.img 64M:y.img
    pool: cannot create 'other': mismatched replication level: both disk and 2-way mirror vdevs are named
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool create other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img 64M:v.img
    pool: cannot create 'other': mismatched replication level: both 2-way mirror and 3-way mirror vdevs are named
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool create -n other mirror 64M:x.img 64M:y.img mirror 64M:z.img 64M:w.img
    would create 'other' with the following layout:

    	other
    	  mirror-0
    	  [LAB]/x.img
    	  [LAB]/y.img
    	  mirror-1
    	  [LAB]/z.img
    	  [LAB]/w.img

    space: 124M
    mirror-0, mirror-1: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool add tank 64M:x.img
    pool: cannot add to 'tank': mismatched replication level: pool uses 2-way mirror and new vdev is disk
      use -f to override; the pool is lost if any vdev fails
    [exit 1]
    $ pool add -n tank mirror 64M:x.img 64M:y.img
    would update 'tank' to the following configuration:

    	tank
    	  mirror-0
    	  [LAB]/a.img
    	  [LAB]/b.img
    	  mirror-1
    	  [LAB]/x.img
    	  [LAB]/y.img

    space: 140M
    mirror-0, mirror-1: any one device of each may fail; if a second device of the same vdev fails, the pool is lost
    [exit 0]
    $ pool attach tank a.img 64M:small.img
    pool: cannot attach to '[LAB]/a.img': [LAB]/small.img is too small: 64M, at least 80M needed
    [exit 1]
    $ pool attach tank nowhere.img 80M:x.img
    pool: cannot attach to '[LAB]/nowhere.img': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    $ pool detach tank nowhere.img
    pool: cannot detach '[LAB]/nowhere.img': no such device in pool
      to list the devices: pool status tank
    [exit 1]
    ");
}
